/* The work of a call, for rates and roofs: bytes (each input read once, each output written once)
 * and floating-point operations (a multiply-add is two). Pure functions. */
#include "engine/ops/rules.h"

uint64_t attention_scratch_bytes(struct device *d, const struct attention_params *p)
{
    if ((d && device_is_host(d)) || p->n_splits <= 1)
        return 0;
    /* per token, head and split: the partial sum [head_dim], its maximum and its divisor */
    return 4ull * p->n_tokens * p->n_head * p->n_splits * (p->head_dim + 2ull);
}

uint32_t attention_splits(struct device *d, const struct attention_params *p)
{
    if (!(device_caps(d) & CAP_GPU))
        return 1;
    /* about two groups per compute unit, at least 64 cells each */
    const uint64_t groups = (uint64_t)p->n_head * p->n_tokens;
    const uint64_t wanted = 2ull * device_info(d)->compute_units / groups;
    const uint64_t useful = (p->kv_max + 63u) / 64u;
    const uint64_t n = wanted < useful ? wanted : useful;
    const uint64_t least = device_caps(d) & CAP_LONG_LOOPS
                               ? 1
                               : (p->kv_max + ATTENTION_SPLIT_CELLS - 1u) / ATTENTION_SPLIT_CELLS;
    const uint64_t splits = n < least ? least : n;
    return splits < 1 ? 1 : splits > ATTENTION_MAX_SPLITS ? ATTENTION_MAX_SPLITS : (uint32_t)splits;
}

uint64_t op_depth(const struct op_call *call)
{
    const union op_params *p = &call->params;
    switch (call->op) {
    case OP_NORM: return p->norm.len;
    case OP_LINEAR: return p->linear.k;
    case OP_ATTENTION:
        return (p->attention.kv_max + p->attention.n_splits - 1ull) / p->attention.n_splits;
    case OP_ARGMAX: return p->argmax.len;
    case OP_MATMUL: return p->matmul.k;
    case OP_SOFTMAX: return p->softmax.len;
    case OP_TOP_K: return p->top_k.len;
    case OP_SPARSE_GEMV: return p->sparse_gemv.k;
    case OP_CONV2D: return (uint64_t)p->conv2d.c / p->conv2d.groups * p->conv2d.kh * p->conv2d.kw;
    case OP_EMBED:
    case OP_QUANTIZE:
    case OP_ROPE_KV:
    case OP_SWIGLU:
    case OP_ADD:
    case OP_ELEMENTWISE:
    case OP_REPACK:
    case OP_COUNT: break;
    }
    return 1;
}

uint64_t op_bytes(const struct op_call *call)
{
    const union op_params *p = &call->params;
    uint64_t total = 0;
    for (uint32_t i = 0; i < op_tensor_count(call->op); i++) {
        uint64_t n = op_tensor_bytes(call, i);
        if (call->op == OP_EMBED && i == 0) /* only the rows that are looked up */
            n = n / p->embed.n_vocab * p->embed.n_tokens;
        if (call->op == OP_ATTENTION && (i == 1 || i == 2)) /* only the cells in use */
            n = n / p->attention.n_ctx * p->attention.kv_max;
        if (call->op == OP_ROPE_KV && i != 0) /* one row of each per token */
            n = n / p->rope_kv.n_ctx * p->rope_kv.n_tokens;
        total += n;
    }
    return total;
}

uint64_t op_flops(const struct op_call *call)
{
    const union op_params *p = &call->params;
    uint64_t rows, tokens;
    op_extent(call, &rows, &tokens);
    switch (call->op) {
    case OP_LINEAR: return 2ull * p->linear.m * p->linear.k * p->linear.n_tokens;
    case OP_ATTENTION:
        return 4ull * p->attention.n_tokens * p->attention.n_head * p->attention.kv_max *
               p->attention.head_dim;
    case OP_NORM: return 4ull * rows * tokens;
    case OP_QUANTIZE: return 3ull * rows * tokens;
    case OP_ROPE_KV: return 3ull * rows * tokens * p->rope_kv.head_dim;
    case OP_SWIGLU: return 4ull * rows * tokens;
    case OP_EMBED:
    case OP_ADD:
        return rows * tokens;
    CASE_RULED:
        return op_rules(call->op)->flops(p);
    case OP_ARGMAX:
    case OP_REPACK:
    case OP_COUNT: break;
    }
    return 0;
}
