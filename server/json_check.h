/* The gate before the JSON parser: accepts exactly the texts that the parser reads as they are
 * meant.
 *
 * cJSON recurses, takes raw control characters, bad UTF-8, a BOM and numbers such as 01, and cuts
 * strings at \u0000. This check refuses all of them, iteratively, in one pass over the bytes.
 */
#ifndef OINFER_SERVER_JSON_CHECK_H
#define OINFER_SERVER_JSON_CHECK_H

#include <stddef.h>

#include "server/fault.h"

#define JSON_MAX_DEPTH  64
#define JSON_MAX_VALUES (512 * 1024) /* bounds the parser's memory: 64 bytes a value and more */

/* ST_OK if the n bytes are one JSON value (RFC 8259) in valid UTF-8 with white space around, at
 * most JSON_MAX_DEPTH deep and JSON_MAX_VALUES large, without \u0000 and lone surrogates.
 * ST_INVALID says what is wrong at which byte. Any thread. */
enum status json_check(const char *text, size_t n, struct err *e);

/* Checks a request's body and parses it: *out is the caller's, who deletes it; NULL on failure.
 * ST_NO_MEMORY, or as json_check. Any thread. */
struct cJSON;
enum status json_read(const char *body, size_t n, struct cJSON **out, struct fault *f);

#endif
