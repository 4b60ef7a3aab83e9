/* attention, split: a group per head, token and split of the cells; then, if there are several
 * splits, a group per head and token that merges them.
 *
 *   cells of the split, LWS at a time:  item c scores one cell (q in local memory), the group takes
 *   the maximum, item i sums weight[c] * v[c][i] for its dims i, i + LWS, ...
 *   (online softmax: sums so far are scaled down whenever the maximum grows)
 *
 *   block = (t * n_head + h) * n_splits + split
 *   scratch: maxima [blocks], divisors [blocks], sums [blocks][head_dim]
 */
#include "cache.h"

#define MAX_HEAD  256 /* k_max in kernels.def */
#define ITEM_DIMS ((MAX_HEAD + LWS - 1) / LWS)

/* Score of a cell: scale * q . k, capped. */
static float attention_score(const __local float *q, const __global uchar *cell,
                             struct attention_params p)
{
    float16 acc = (float16)(0.0f);
    uint i = 0;
    for (; i + 16 <= p.head_dim; i += 16)
        acc = fma(weight_16(cell, i), vload16(0, q + i), acc);
    float score = sum_16(acc);
#if WEIGHT_BLOCK == 1
    for (; i < p.head_dim; i++)
        score = fma(weight_at(cell, i), q[i], score);
#endif
    score *= p.scale;
    return p.softcap > 0.0f ? p.softcap * tanh(score / p.softcap) : score;
}

static void attention_split_step(const __global float *q, const __global uchar *k_cache,
                                 const __global uchar *v_cache, const __global int4 *meta,
                                 __global float *scratch, __global float *y,
                                 struct attention_params p, __local float *q_head,
                                 __local float *weights, __local float *reduce, uint group,
                                 uint n_groups)
{
    const uint lid = get_local_id(0);
    const ulong n_heads = (ulong)p.n_head * p.n_tokens, n = n_heads * p.n_splits;
    const ulong cell_bytes = weight_row_bytes(p.head_dim);
    for (ulong block = group; block < n; block += n_groups) {
        const uint split = (uint)(block % p.n_splits);
        const ulong head = block / p.n_splits; /* t * n_head + h */
        const uint t = (uint)(head / p.n_head), h = (uint)(head % p.n_head);
        const uint position = (uint)meta[t].x;
        const uint first = p.window > 0 ? position + 1 - min(position + 1, p.window) : 0;
        const uint per_split = div_up(position + 1 - first, p.n_splits);
        const uint begin = min(first + split * per_split, position + 1);
        const uint end = min(begin + per_split, position + 1);
        const ulong base = cache_cell((uint)meta[t].y, h / (p.n_head / p.n_head_kv), 0, p.n_head_kv,
                                      p.n_ctx, p.head_dim);
        float largest = -INFINITY, divisor = 0.0f, acc[ITEM_DIMS];
        for (uint j = 0; j < ITEM_DIMS; j++)
            acc[j] = 0.0f;
        for (uint i = lid; i < p.head_dim; i += LWS)
            q_head[i] = q[(ulong)t * p.q_stride + h * p.head_dim + i];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint c0 = begin; c0 < end; c0 += LWS) {
            const uint cells = min((uint)LWS, end - c0);
            const float score =
                lid < cells ? attention_score(q_head, k_cache + base + (c0 + lid) * cell_bytes, p)
                            : -INFINITY;
            const float new_largest = fmax(largest, group_max(score, reduce, LWS));
            const float shrink = exp(largest - new_largest);
            const float weight = exp(score - new_largest);
            weights[lid] = weight;
            divisor = divisor * shrink + group_sum(weight, reduce, LWS);
            largest = new_largest;
            for (uint j = 0, i = lid; j < ITEM_DIMS && i < p.head_dim; j++, i += LWS) {
                const __global uchar *v = v_cache + base + c0 * cell_bytes;
                float sum = acc[j] * shrink;
                for (uint c = 0; c < cells; c++)
                    sum = fma(weights[c], weight_at(v + c * cell_bytes, i), sum);
                acc[j] = sum;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        for (uint j = 0, i = lid; j < ITEM_DIMS && i < p.head_dim; j++, i += LWS) {
            if (p.n_splits == 1)
                y[head * p.head_dim + i] = acc[j] / divisor;
            else
                scratch[2 * n + block * p.head_dim + i] = acc[j];
        }
        if (p.n_splits > 1 && lid == 0) {
            scratch[block] = largest;
            scratch[n + block] = divisor;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* y[t][h] = sum over splits of e^(max_s - max) sum_s / sum over splits of e^(max_s - max) div_s */
static void attention_merge_step(const __global float *scratch, __global float *y,
                                 struct attention_params p, uint group, uint n_groups)
{
    const ulong n_heads = (ulong)p.n_head * p.n_tokens, n = n_heads * p.n_splits;
    for (ulong head = group; head < n_heads; head += n_groups) {
        const ulong block = head * p.n_splits;
        float largest = -INFINITY, divisor = 0.0f;
        for (uint s = 0; s < p.n_splits; s++)
            largest = fmax(largest, scratch[block + s]);
        for (uint s = 0; s < p.n_splits; s++)
            divisor += exp(scratch[block + s] - largest) * scratch[n + block + s];
        for (uint i = get_local_id(0); i < p.head_dim; i += LWS2) {
            float sum = 0.0f;
            for (uint s = 0; s < p.n_splits; s++)
                sum += exp(scratch[block + s] - largest) *
                       scratch[2 * n + (block + s) * p.head_dim + i];
            y[head * p.head_dim + i] = sum / divisor;
        }
    }
}

KERNEL(LWS) void attention_split(const __global uchar *q, ulong q_offset,
                                 const __global uchar *k_cache, ulong k_offset,
                                 const __global uchar *v_cache, ulong v_offset,
                                 const __global uchar *meta, ulong meta_offset,
                                 __global uchar *scratch, ulong scratch_offset, __global uchar *y,
                                 ulong y_offset, struct attention_params p)
{
    __local float q_head[MAX_HEAD], weights[LWS], reduce[LWS];
    attention_split_step((const __global float *)(q + q_offset), k_cache + k_offset,
                         v_cache + v_offset, (const __global int4 *)(meta + meta_offset),
                         (__global float *)(scratch + scratch_offset),
                         (__global float *)(y + y_offset), p, q_head, weights, reduce,
                         get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void attention_merge(const __global uchar *q, ulong q_offset,
                                  const __global uchar *k_cache, ulong k_offset,
                                  const __global uchar *v_cache, ulong v_offset,
                                  const __global uchar *meta, ulong meta_offset,
                                  const __global uchar *scratch, ulong scratch_offset,
                                  __global uchar *y, ulong y_offset, struct attention_params p)
{
    attention_merge_step((const __global float *)(scratch + scratch_offset),
                         (__global float *)(y + y_offset), p, get_group_id(0), get_num_groups(0));
}
