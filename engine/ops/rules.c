/* The table of ops with rules, and the choice of a variant for a whole call. */
#include "engine/ops/rules.h"

#include <string.h>

#include "engine/tune/tuned.h"

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

/* A call and the dtype of its tensors. */
struct asked {
    const struct op_call *call;
    enum dtype dtype;
};

/* Can the variant run the call, whether or not it is meant for it? */
static bool can_run(struct device *d, const struct variant *v, const struct asked *asked)
{
    const uint32_t columns = op_columns(asked->call);
    return (v->dtype == DT_ANY || v->dtype == (int)asked->dtype) &&
           (v->k_multiple == 0 || columns % v->k_multiple == 0) &&
           (v->k_max == 0 || columns <= v->k_max) && !variant_refuses(v, asked->call) &&
           op_depth(asked->call) <= variant_depth_max(d, v);
}

/* Can it be chosen without being named? */
static bool can_serve(struct device *d, const struct variant *v, const void *user)
{
    const struct asked *asked = user;
    uint64_t rows, tokens;
    op_extent(asked->call, &rows, &tokens);
    return can_run(d, v, asked) && variant_mark_get(d, v) != VARIANT_FAILED &&
           op_flops(asked->call) >= 1000000ull * v->mflops_min && tokens >= v->tokens_min &&
           (v->tokens_max == 0 || tokens <= v->tokens_max);
}

const struct variant *variant_for_call(struct device *d, const struct op_call *call,
                                       enum dtype dtype, const char *name)
{
    const struct variant *best = NULL, *v;
    const struct asked asked = {call, dtype};
    const uint32_t units = device_info(d)->compute_units;
    uint64_t rows, tokens;
    op_extent(call, &rows, &tokens);
    for (uint32_t i = 0; (v = variant_at(d, call->op, i)) != NULL; i++) {
        /* what is only advice does not bind a choice by name */
        const bool fits =
            name ? strcmp(name, v->name) == 0 && can_run(d, v, &asked) : can_serve(d, v, &asked);
        if (fits && (!best || variant_compare(v, best, rows, tokens, units) < 0))
            best = v;
    }
    if (name || !best)
        return best;
    const struct shape shape = shape_of(call->op, &call->params);
    return shape.n_dims > 0 ? tuned_choose(d, best, &shape, (int)dtype, can_serve, &asked) : best;
}

const struct variant *variant_candidate(struct device *d, const struct op_call *call,
                                        enum dtype dtype, uint32_t i)
{
    const struct variant *last = NULL;
    const struct asked asked = {call, dtype};
    const uint32_t units = device_info(d)->compute_units;
    uint64_t rows, tokens;
    op_extent(call, &rows, &tokens);
    for (uint32_t rank = 0; rank <= i; rank++) { /* among equals in the registry's order */
        const struct variant *next = NULL, *v;
        bool behind = last == NULL;
        for (uint32_t row = 0; (v = variant_at(d, call->op, row)) != NULL; row++) {
            const int order = last ? variant_compare(last, v, rows, tokens, units) : -1;
            const bool follows = order < 0 || (order == 0 && behind);
            behind = behind || v == last;
            if (follows && can_serve(d, v, &asked) &&
                (!next || variant_compare(v, next, rows, tokens, units) < 0))
                next = v;
        }
        if (!next)
            return NULL;
        last = next;
    }
    return last;
}
