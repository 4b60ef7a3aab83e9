/* References: one plain C function per op, the golden value of every test and what `host` runs.
 *
 * Each takes a checked call (op_check) and where its tensors lie in host memory, computes in f32
 * with double accumulation, and runs on one thread. Weights of any dtype are read through
 * quant_to_f32 row by row; only ST_NO_MEMORY can fail. Activations are read and written in the
 * format that the tensor's `layout` names.
 */
#ifndef OINFER_OPS_REF_REF_H
#define OINFER_OPS_REF_REF_H

#include "engine/ops/op.h"

#define X(id, name, params, n, ...) \
    enum status ref_##params(const struct op_call *call, void *const *data, struct err *e);
#include "engine/ops/ops.def"
#undef X

/* One row of an activation matrix of k columns in format act: from and to f32. */
void ref_act_load(uint32_t act, const void *rows, uint64_t row, uint32_t k, float *out);
void ref_act_store(uint32_t act, void *rows, uint64_t row, uint32_t k, const float *in);
/* Dot product of n floats, summed in double. */
double ref_dot(const float *a, const float *b, uint32_t n);

/* Element i of an array of f32 or f16, from and to f32. */
float ref_load(enum dtype dtype, const void *x, uint64_t i);
void ref_store(enum dtype dtype, void *x, uint64_t i, float v);
/* sum (got - want)^2 / sum want^2; the sum of squares itself when want is all zeros. Where both are
 * the same infinity, or both NaN, they agree. */
double ref_nmse(const float *got, const float *want, uint64_t n);

#endif
