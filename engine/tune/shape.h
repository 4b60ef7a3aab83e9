/* Shapes: the dimensions of a call that decide which configuration is fast, as numbers and text.
 *
 * Dimensions fall in classes, the nearest powers of two; what a search found for one call serves
 * all calls of its class. shape.def lists the dimensions. Pure functions; any thread.
 */
#ifndef OINFER_TUNE_SHAPE_H
#define OINFER_TUNE_SHAPE_H

#include "engine/ops/op.h"

#define SHAPE_MAX_DIMS   16
#define SHAPE_TEXT_BYTES 192

struct shape {
    enum op_id op;
    uint32_t n_dims;               /* 0: ops of this kind are not tuned */
    uint32_t dims[SHAPE_MAX_DIMS]; /* as shape.def lists them; 0 in a query: any */
};

/* Op by the name in the API, where "gemv" is linear; false for one that is not tuned. */
bool shape_op(const char *name, enum op_id *out);
struct shape shape_of(enum op_id op, const union op_params *params);
/* "m=1024,n=1024,k=1024,batch=1,trans_a=0,trans_b=0"; returns `out`. */
const char *shape_text(const struct shape *s, char out[SHAPE_TEXT_BYTES]);
/* Reads what shape_text writes; dimensions may be left out where they have a standard, and come in
 * any order. ST_INVALID names the op, the dimension, the value and the limit. */
enum status shape_parse(enum op_id op, const char *text, struct shape *out, struct err *e);
/* Name of dimension i; NULL past the last. */
const char *shape_dim_name(enum op_id op, uint32_t i);
/* Sets a dimension by name. ST_INVALID as above. */
enum status shape_set(struct shape *s, const char *name, uint64_t value, struct err *e);
/* A shape with the standards, and 0 where a dimension has to be given. */
struct shape shape_standard(enum op_id op);
/* ST_INVALID names the first dimension that was not given. */
enum status shape_check(const struct shape *s, struct err *e);
/* The params of a plain call of the shape: contiguous, no bias, nothing added. */
void shape_params(const struct shape *s, union op_params *out);
/* Classes between two shapes of one op, summed over the dimensions: 0 for the same class; INFINITY
 * where an exact dimension differs. */
double shape_distance(const struct shape *a, const struct shape *b);

/* The generated sparse matrices that are tuned on. */
#define SHAPE_SEED    1
#define SHAPE_DENSITY 0.1

#endif
