/* Status codes and the error text that travels with them.
 *
 * Every fallible function returns enum status (ST_OK is 0) and takes a `struct err *` as its last
 * argument. The place of failure fills it once, with the thing, the value and the limit; callers
 * pass it up unchanged. It is logged once, at the job's or main's boundary.
 * A NULL `struct err *` is allowed everywhere. No function here allocates; all are thread-safe.
 */
#ifndef OINFER_BASE_ERR_H
#define OINFER_BASE_ERR_H

enum status {
#define X(id, name, message) id,
#include "engine/base/status.def"
#undef X
    ST_COUNT
};

#define ERR_TEXT_BYTES 512

struct err {
    enum status status;
    char text[ERR_TEXT_BYTES]; /* one line of UTF-8, no trailing newline; "" when status is ST_OK */
};

/* Stable snake_case name of a status ("bad_format"); "unknown" for a value out of range. */
const char *status_name(enum status status);
/* One sentence that says what the status means. */
const char *status_message(enum status status);

/* Fills *e (if not NULL) with `status` and the formatted text, cut at ERR_TEXT_BYTES - 1 bytes at
 * a UTF-8 boundary; newlines become spaces. Returns `status`, so that a failure is one statement:
 *     return err_set(e, ST_FORMAT, "tensor %s: %llu rows, expected %llu", name, a, b); */
enum status err_set(struct err *e, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts a prefix ("FILE: ") before the text already in *e; the status stays. Returns it. */
enum status err_prefix(struct err *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Makes *e say ST_OK and "". */
void err_clear(struct err *e);

/* A check of our own invariants, kept in release builds: prints file, line and condition, then
 * aborts. Never for input, device results or memory. */
#define ASSERT(condition) ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))
void assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

#endif
