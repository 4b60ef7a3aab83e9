/* Requests of /v1/ops: a body as a typed struct, and as what the engine measures. fields.def is the
 * list of operators and fields.
 *
 * Shared by the daemon and by `oinfer bench ops`, which sends the same requests to its own engine.
 * What depends on the device (limits, variants, tunables) is checked by the engine; everything else
 * here. A request is immutable after parsing. Any thread.
 */
#ifndef OINFER_SERVER_OPS_REQUEST_H
#define OINFER_SERVER_OPS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/fault.h"

#define OPS_MAX_INTEGER   ((double)(1LL << 53))
#define OPS_MAX_DIM       (1u << 26)
#define OPS_MAX_REAL      3.0e38
#define OPS_MAX_POSITIONS 65536
#define OPS_MAX_INPUTS    4
#define OPS_MAX_DIMS      4

enum api_op {
#define OP(id, name) id,
#define FIELD(...)
#include "server/ops/fields.def"
#undef FIELD
#undef OP
    API_COUNT
};
const char *api_op_name(enum api_op op);
/* API_COUNT: there is none of that name. */
enum api_op api_op_find(const char *name);

/* Is it one of the engine's ops that this operator is run by? */
bool api_op_runs(enum api_op op, enum op_id id);

/* A row of fields.def, as it is shown. */
struct api_field {
    const char *name,
        *type;          /* type: a JSON type, or what there is of them: "integer or [integer]" */
    const char *detail; /* help; the choices a|b|c where is_choice */
    bool is_choice, has_range, has_default;
    double fallback, min, max; /* fallback: NaN where the field is required */
};
/* The i-th field of an operator, the common ones first; false past the end. */
bool api_field_at(enum api_op op, uint32_t i, struct api_field *out);

struct op_pair {
    int64_t h, w;
};
struct op_list {
    int32_t *items;
    uint32_t count;
    bool present;
};
struct op_settings {
    struct setting items[CONFIG_MAX_TUNABLES];
    uint32_t count;
};
struct op_inputs {
    const void *tree; /* of the JSON parser; NULL: absent. Only while parsing. */
};

#define OP_DECLARE_SWITCH(name)   bool name;
#define OP_DECLARE_INTEGER(name)  int64_t name;
#define OP_DECLARE_REAL(name)     double name;
#define OP_DECLARE_CHOICE(name)   int name;
#define OP_DECLARE_TEXT(name)     const char *name;
#define OP_DECLARE_PAIR(name)     struct op_pair name;
#define OP_DECLARE_LIST(name)     struct op_list name;
#define OP_DECLARE_SETTINGS(name) struct op_settings name;
#define OP_DECLARE_INPUTS(name)   struct op_inputs name;

/* The fields of all operators, as common_device, matmul_m ...; those of other operators than the
 * request's are zero. */
struct op_fields {
#define OP(id, name)
#define FIELD(op, name, kind, fallback, min, max, detail) OP_DECLARE_##kind(op##_##name)
#include "server/ops/fields.def"
#undef FIELD
#undef OP
};

/* An input as clients name it, or the output. */
struct op_array {
    const char *name;
    uint32_t tensor; /* of the engine's op */
    bool is_int;
    uint32_t n_dims;
    uint64_t dims[OPS_MAX_DIMS];
};

/* Where the output lies in what the engine gives: rows of `width` elements of dtype, `stride`
 * apart, at its beginning or (last) at its end. */
struct op_output {
    struct op_array array;
    enum dtype dtype; /* DT_F32, DT_F16 or DT_I32 */
    uint64_t width, stride;
    bool last;
};

struct op_request {
    enum api_op op;
    struct op_fields fields;
    struct op_array inputs[OPS_MAX_INPUTS]; /* that this call reads */
    uint32_t n_inputs;
    struct op_output output;
    struct opbench_request bench; /* deadline_ns, proceed and user are the caller's */
    char ignored[256]; /* names of unknown fields, comma-separated, printable ASCII; "" */
    struct arena *arena;
};

/* A part of a multipart body: an .npy file for the input of that name. Borrowed. */
struct op_part {
    const char *name; /* NUL-terminated */
    const char *bytes;
    size_t n;
};

/* Parses a JSON body (n 0: no fields) and the parts beside it. On failure *out is NULL and *f says
 * why, naming the field. */
enum status op_request_parse(enum api_op op, const char *body, size_t n,
                             const struct op_part *parts, uint32_t n_parts,
                             uint64_t max_deadline_ms, struct op_request **out, struct fault *f);
void op_request_close(struct op_request *r); /* accepts NULL */

/* What an error of the engine is to the client of this request: never a 5xx for what the request
 * asked for. */
enum status op_request_fault(const struct op_request *r, const struct err *e, struct fault *f);

/* ---- between the files of this folder ---- */

/* Fills bench.op, .params, .dtype, inputs and output from the fields. */
enum status op__shape(struct op_request *r, struct fault *f);
/* Reads a nested array into bench.data.inputs; the shape of x may have a dimension 0, which is then
 * what the data have. `value`: a node of the JSON parser's. */
enum status op__read_nested(struct op_request *r, struct op_array *x, const void *value,
                            struct fault *f);
enum status op__read_npy(struct op_request *r, struct op_array *x, const struct op_part *part,
                         struct fault *f);
uint64_t op_array_count(const struct op_array *x);
/* "[2, 3]" */
const char *op__shape_text(const struct op_array *x, char *text, size_t n);
const char *op__dims_text(uint32_t n_dims, const uint64_t *dims, char *text, size_t n);

#endif
