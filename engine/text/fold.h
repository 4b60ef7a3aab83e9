/* Folding text for uncased WordPiece vocabularies: lower case, no accents, no control characters.
 * Pure; any thread.
 */
#ifndef OINFER_TEXT_FOLD_H
#define OINFER_TEXT_FOLD_H

#include <stddef.h>

/* Bytes that fold_text may need for n bytes of text. */
#define FOLD_MAX_BYTES(n) (3 * (n))

/* Writes n bytes of text folded to out and returns the length; the result is well-formed UTF-8
 * (bytes of no character vanish). */
size_t fold_text(const char *text, size_t n, char *out);

#endif
