/* The request of POST /v1/tune: a body as a typed struct. tune_fields.def is the list of fields.
 *
 * What needs the device (variants, limits) is checked by the engine; everything else here. A plain
 * value; any thread.
 */
#ifndef OINFER_SERVER_TUNE_REQUEST_H
#define OINFER_SERVER_TUNE_REQUEST_H

#include "engine/engine.h"
#include "server/fault.h"

struct tune_request {
    char op[33], dtype[17], variant[32], model[129], device[129]; /* "": absent */
    bool has_shape;
    uint32_t search; /* enum search_kind */
    uint64_t budget, seed;
    struct tune_call call; /* of op and shape; not with a model */
    char ignored[256];     /* names of unknown fields, comma-separated, printable ASCII; "" */
};

/* Parses n bytes of JSON. On failure *f names the field, the value and the limit. */
enum status tune_request_parse(const char *body, size_t n, struct tune_request *out,
                               struct fault *f);
/* The field that an error of the engine speaks of, for *f; never a 5xx for what was asked. */
enum status tune_request_fault(const struct tune_request *r, const struct err *e, struct fault *f);

#endif
