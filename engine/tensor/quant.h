/* Host conversions between f32 and every weight dtype: the reference quantisers and dequantisers.
 *
 * Used by the op references, by mkmodel, by /v1/ops data and by tests; never on the hot path.
 * Block layouts are kernels/quant.h, shared with the device. Thread-safe, no allocation.
 */
#ifndef OINFER_TENSOR_QUANT_H
#define OINFER_TENSOR_QUANT_H

#include "engine/base/err.h"
#include "engine/tensor/dtype.h"

/* n elements (multiple of the block) of `dtype` at src -> f32 at dst. ST_UNSUPPORTED for a dtype
 * whose row in dtype.def is not `compute`. src needs no alignment. */
enum status quant_to_f32(enum dtype dtype, const void *src, float *dst, uint64_t n, struct err *e);
/* f32 -> dtype; same conditions. Deterministic: the plain (not importance-weighted) quantiser. */
enum status quant_from_f32(enum dtype dtype, const float *src, void *dst, uint64_t n,
                           struct err *e);

#endif
