/* What went wrong with a request, in the terms of the API: faults.def is the whole list.
 *
 * A plain value, filled once at the place of failure. No function here allocates; thread-safe.
 */
#ifndef OINFER_SERVER_FAULT_H
#define OINFER_SERVER_FAULT_H

#include <stdint.h>

#include "engine/base/err.h"

enum fault_kind {
#define FAULT(id, status, http, type, code) id,
#include "server/faults.def"
#undef FAULT
    FAULT_COUNT
};

#define FAULT_PARAM_BYTES 64

struct fault {
    enum fault_kind kind;
    char message[ERR_TEXT_BYTES];
    char param[FAULT_PARAM_BYTES];   /* the request's field; "" is null */
    uint64_t n_prompt_tokens, n_ctx; /* FAULT_CONTEXT */
};

unsigned fault_http_status(enum fault_kind kind);
const char *fault_type(enum fault_kind kind);
const char *fault_code(enum fault_kind kind); /* "" for none */

/* Fills *f and returns the row's engine status (never ST_OK). `param` may be NULL. */
enum status fault_set(struct fault *f, enum fault_kind kind, const char *param, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));
/* The fault that an error of the engine is to a client; returns its status. */
enum status fault_from_err(struct fault *f, const char *param, const struct err *e);

#endif
