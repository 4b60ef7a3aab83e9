/* Rules of an op: what the rest of engine/ops asks about an op whose file holds it all in one place
 * (matmul.c, softmax.c, ...). The ops of models are described in check.c and cost.c instead.
 *
 * Pure functions of constant rows; any thread.
 */
#ifndef OINFER_OPS_RULES_H
#define OINFER_OPS_RULES_H

#include "engine/cl/buffer.h"
#include "engine/ops/variant.h"

/* NULL where an op needs none of: refuses (its variants run every shape), scratch, image, fill,
 * error. */
struct op_rules {
    /* as op_extent, op_tensor_bytes and op_flops */
    void (*extent)(const union op_params *params, uint64_t *rows, uint64_t *tokens);
    uint64_t (*tensor_bytes)(const struct op_call *call, uint32_t i);
    uint64_t (*flops)(const union op_params *params);
    /* The params alone: ST_INVALID names field, value and limit. */
    enum status (*check)(const struct variant *v, const struct op_call *call, struct err *e);
    /* Why the variant cannot run this call (its shape_kind or layout); NULL: it can. */
    const char *(*refuses)(const struct variant *v, const struct op_call *call);
    /* Bytes of private memory of a variant whose scratch_kind is not SCRATCH_BLOCKS. */
    uint64_t (*scratch)(const struct variant *v, const struct op_call *call);
    /* The images of SCRATCH_IMAGE. */
    struct image_size (*image)(const struct op_call *call);
    /* Makes uniform random inputs special where the op needs it (indices, masked rows, NaN). */
    void (*fill)(const struct op_call *call, void *const *host);
    /* Largest |got - want| as a share of its rounding bound; without it the NMSE counts. inputs:
     * host memory of the tensors of `call`. ST_NO_MEMORY. */
    enum status (*error)(const struct variant *v, const struct op_call *call, void *const *inputs,
                         const float *got, const float *want, double *out, struct err *e);
};

/* The rules of an op that CASE_RULED lists. */
const struct op_rules *op_rules(enum op_id op);

extern const struct op_rules matmul_rules, softmax_rules, top_k_rules, elementwise_rules,
    sparse_gemv_rules, conv2d_rules;

#endif
