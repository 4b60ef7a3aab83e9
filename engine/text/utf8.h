/* UTF-8: strict decoding (no overlong forms, surrogates or values over U+10FFFF) and encoding.
 * Pure functions; any thread.
 */
#ifndef OINFER_TEXT_UTF8_H
#define OINFER_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_MAX_BYTES   4
#define UTF8_REPLACEMENT 0xFFFDu

/* Bytes of the well-formed character at text[0..n) (1..4), its code point in *cp (may be NULL).
 * 0: the bytes can never become one. -1: a prefix of a well-formed character, cut at n. */
int utf8_decode(const char *text, size_t n, uint32_t *cp);
/* Writes cp (a valid code point) to out[UTF8_MAX_BYTES]; returns its length. */
size_t utf8_encode(uint32_t cp, char *out);
/* Copies n bytes to out, each byte that belongs to no well-formed character as U+FFFD; returns
 * the length written, at most 3 n. */
size_t utf8_repair(const char *text, size_t n, char *out);
/* Length that the first byte of a character announces; 1 for a byte that cannot begin one. */
size_t utf8_announced_length(char first);

#endif
