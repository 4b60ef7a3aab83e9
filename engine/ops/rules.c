/* The table of ops with rules, and the choice of a variant for a whole call. */
#include "engine/ops/rules.h"

#include <string.h>

const struct op_rules *op_rules(enum op_id op)
{
    static const struct op_rules *const rules[OP_COUNT] = {
        [OP_MATMUL] = &matmul_rules,
        [OP_SOFTMAX] = &softmax_rules,
        [OP_TOP_K] = &top_k_rules,
        [OP_ELEMENTWISE] = &elementwise_rules,
        [OP_SPARSE_GEMV] = &sparse_gemv_rules,
        [OP_CONV2D] = &conv2d_rules,
    };
    return rules[op];
}

const char *variant_refuses(const struct variant *v, const struct op_call *call)
{
    const struct op_rules *rules = op_rules(call->op);
    return rules && rules->refuses && !v->ref ? rules->refuses(v, call) : NULL;
}

const struct variant *variant_for_call(struct device *d, const struct op_call *call,
                                       enum dtype dtype, const char *name)
{
    const struct variant *best = NULL, *v;
    const uint32_t columns = op_columns(call);
    uint64_t rows, tokens;
    op_extent(call, &rows, &tokens);
    for (uint32_t i = 0; (v = variant_at(d, call->op, i)) != NULL; i++) {
        if ((v->dtype != DT_ANY && v->dtype != (int)dtype) ||
            (name && strcmp(name, v->name) != 0) ||
            (v->k_multiple > 0 && columns % v->k_multiple != 0) ||
            (v->k_max > 0 && columns > v->k_max) || variant_refuses(v, call) ||
            op_depth(call) > variant_depth_max(d, v))
            continue;
        /* what is only advice does not bind a choice by name */
        if (!name && (variant_mark_get(d, v) == VARIANT_FAILED ||
                      op_flops(call) < 1000000ull * v->mflops_min || tokens < v->tokens_min ||
                      (v->tokens_max > 0 && tokens > v->tokens_max)))
            continue;
        if (!best || v->priority > best->priority)
            best = v;
    }
    return best;
}
