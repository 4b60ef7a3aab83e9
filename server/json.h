/* Writing JSON: a comma-keeping writer over a strbuf. Used by the reply files only.
 *
 * Everything written is valid JSON in valid UTF-8 whatever is put in: bytes that are not UTF-8
 * become U+FFFD, numbers that are not finite become null. Out of memory shows in the strbuf's
 * `failed`.
 */
#ifndef OINFER_SERVER_JSON_H
#define OINFER_SERVER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/strbuf.h"

struct json {
    struct strbuf *out; /* borrowed */
    bool comma;         /* the next key or element needs one */
};

struct json json_begin(struct strbuf *out);
void json_open(struct json *j, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);
void json_key(struct json *j, const char *key);
void json_colon(struct json *j); /* the text just written is a key */
void json_text(struct json *j, const char *text);
void json_text_n(struct json *j, const char *text, size_t n);
void json_int(struct json *j, int64_t value);
void json_uint(struct json *j, uint64_t value);
void json_real(struct json *j, double value, int digits); /* significant digits */
void json_bool(struct json *j, bool value);
void json_null(struct json *j);

/* A key and its value. */
#define JSON_DIGITS 6 /* of figures for people */
void json_text_field(struct json *j, const char *key, const char *text);
void json_uint_field(struct json *j, const char *key, uint64_t value);
void json_real_field(struct json *j, const char *key, double value); /* JSON_DIGITS */
void json_bool_field(struct json *j, const char *key, bool value);
/* null for 0 and below: a figure that could not be had. */
void json_figure_field(struct json *j, const char *key, double value);

/* Whether n bytes are valid UTF-8. */
bool utf8_valid(const char *bytes, size_t n);
/* Length of the valid UTF-8 sequence at the start of n bytes, 0 if there is none: no overlong
 * forms, no surrogates. n >= 1. */
size_t utf8_length(const char *bytes, size_t n);

#endif
