/* attention, tile: a group per head and TOKENS tokens, for prefill. Cells come CELLS at a time into
 * local memory, as floats, and serve all tokens of the block (online softmax).
 *
 *             CELLS cells of k                    CELLS cells of v
 *           +---------------+                   +---------------+
 *   TOKENS  | weights [t][c] | = e^(q k - max)  | same memory   |  y[t] = y[t] e^(old max - max)
 *   of q    +---------------+                   +---------------+         + weights[t] v
 *
 *   item lid: token lid / PER, lane lid % PER of PER = LWS / TOKENS;  its cells: lane, lane + PER, ..
 *   its dims, in fours: lane, lane + PER, ..
 *   block = token block * n_head + head. Tokens of one slot that follow each other make a run; runs
 *   are worked on one after another, tokens outside of the run seeing no cell.
 */
#include "cache.h"

#ifndef TOKENS
#define TOKENS 16
#endif
#define MAX_HEAD   128 /* k_max in kernels.def; head_dim is a multiple of 16 */
#define CELLS      32
#define PER        (LWS / TOKENS)
#define ITEM_CELLS (CELLS / PER)
#define ITEM_FOURS (MAX_HEAD / 4 / PER)
#define STRIDE     (MAX_HEAD + 4)
#if LWS < TOKENS || LWS > TOKENS * CELLS
#error "a token needs between 1 and CELLS items"
#endif

/* Local memory of a block. */
struct attention_tile {
    float q[TOKENS * STRIDE], kv[CELLS * STRIDE], weights[TOKENS * CELLS], reduce[LWS];
};

/* The cells a token sees: [first, end). */
static uint2 tile_seen(const __global int4 *meta, struct attention_params p, uint t)
{
    const uint end = (uint)meta[t].x + 1;
    return (uint2)(p.window > 0 ? end - min(end, p.window) : 0, end);
}

/* CELLS rows of a cache from cell c0 on into local memory; rows from `end` on are zeros. */
static void tile_load(__local float *to, const __global uchar *cells, uint c0, uint end,
                      uint head_dim)
{
    const uint pieces = head_dim / 16;
    for (uint i = get_local_id(0); i < CELLS * pieces; i += LWS) {
        const uint c = i / pieces, at = i % pieces * 16;
        const float16 v = c0 + c < end
                              ? weight_16(cells + (c0 + c) * weight_row_bytes(head_dim), at)
                              : (float16)(0.0f);
        vstore16(v, 0, to + c * STRIDE + at);
    }
}

/* Maximum or sum over the PER items of each token. */
static float tile_reduce(float v, __local float *reduce, bool is_max)
{
    const uint lid = get_local_id(0), first = lid / PER * PER;
    reduce[lid] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = reduce[first];
    for (uint i = 1; i < PER; i++)
        v = is_max ? fmax(v, reduce[first + i]) : v + reduce[first + i];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
}

static void attention_tile_step(const __global float *q, const __global uchar *k_cache,
                                const __global uchar *v_cache, const __global int4 *meta,
                                __global float *y, struct attention_params p,
                                __local struct attention_tile *tile, uint group, uint n_groups)
{
    const uint lid = get_local_id(0), token = lid / PER, lane = lid % PER, fours = p.head_dim / 4;
    const ulong n = (ulong)div_up(p.n_tokens, TOKENS) * p.n_head;
    for (ulong block = group; block < n; block += n_groups) {
        const uint h = (uint)(block % p.n_head), t0 = (uint)(block / p.n_head) * TOKENS;
        const uint t_end = min(t0 + TOKENS, p.n_tokens), t = t0 + token;
        float largest = -INFINITY, divisor = 0.0f;
        float4 acc[ITEM_FOURS];
        for (uint j = 0; j < ITEM_FOURS; j++)
            acc[j] = (float4)(0.0f);
        for (uint i = lid; i < TOKENS * fours; i += LWS) {
            const uint row = min(t0 + i / fours, p.n_tokens - 1);
            vstore4(vload4(i % fours, q + (ulong)row * p.q_stride + h * p.head_dim), i % fours,
                    tile->q + i / fours * STRIDE);
        }
        for (uint run = t0; run < t_end;) {
            const uint first = run;
            const int slot = meta[first].y;
            uint begin = UINT_MAX, end = 0;
            for (; run < t_end && meta[run].y == slot; run++) {
                const uint2 seen = tile_seen(meta, p, run);
                begin = min(begin, seen.x);
                end = max(end, seen.y);
            }
            const uint2 seen = t >= first && t < run ? tile_seen(meta, p, t) : (uint2)(0, 0);
            const ulong base = cache_cell((uint)slot, h / (p.n_head / p.n_head_kv), 0, p.n_head_kv,
                                          p.n_ctx, p.head_dim);
            for (uint c0 = begin; c0 < end; c0 += CELLS) {
                float score[ITEM_CELLS], tile_largest = -INFINITY, sum = 0.0f;
                barrier(CLK_LOCAL_MEM_FENCE); /* v of the tile before is read */
                tile_load(tile->kv, k_cache + base, c0, end, p.head_dim);
                barrier(CLK_LOCAL_MEM_FENCE);
                for (uint j = 0; j < ITEM_CELLS; j++) {
                    const uint c = lane + j * PER;
                    float4 dots = (float4)(0.0f);
                    for (uint i = 0; i < fours; i++)
                        dots = fma(vload4(i, tile->q + token * STRIDE),
                                   vload4(i, tile->kv + c * STRIDE), dots);
                    float s = ((dots.x + dots.y) + (dots.z + dots.w)) * p.scale;
                    s = p.softcap > 0.0f ? p.softcap * tanh(s / p.softcap) : s;
                    score[j] = c0 + c >= seen.x && c0 + c < seen.y ? s : -INFINITY;
                    tile_largest = fmax(tile_largest, score[j]);
                }
                tile_largest = fmax(largest, tile_reduce(tile_largest, tile->reduce, true));
                const float shrink = largest == tile_largest ? 1.0f : exp(largest - tile_largest);
                largest = tile_largest;
                for (uint j = 0; j < ITEM_CELLS; j++) {
                    const float weight = score[j] == -INFINITY ? 0.0f : exp(score[j] - largest);
                    tile->weights[token * CELLS + lane + j * PER] = weight;
                    sum += weight;
                }
                divisor = divisor * shrink + tile_reduce(sum, tile->reduce, false);
                tile_load(tile->kv, v_cache + base, c0, end, p.head_dim);
                barrier(CLK_LOCAL_MEM_FENCE);
                for (uint j = 0; j < ITEM_FOURS; j++)
                    acc[j] *= shrink;
                for (uint c = 0; c < CELLS; c++) {
                    const float weight = tile->weights[token * CELLS + c];
                    for (uint j = 0, i = lane; j < ITEM_FOURS && i < fours; j++, i += PER)
                        acc[j] = fma((float4)(weight), vload4(i, tile->kv + c * STRIDE), acc[j]);
                }
            }
        }
        __global float *out = y + ((ulong)t * p.n_head + h) * p.head_dim;
        for (uint j = 0, i = lane; t < t_end && j < ITEM_FOURS && i < fours; j++, i += PER)
            vstore4(acc[j] / divisor, i, out);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

KERNEL(LWS) void attention_tile(const __global uchar *q, ulong q_offset,
                                const __global uchar *k_cache, ulong k_offset,
                                const __global uchar *v_cache, ulong v_offset,
                                const __global uchar *meta, ulong meta_offset,
                                const __global uchar *scratch, ulong scratch_offset,
                                __global uchar *y, ulong y_offset, struct attention_params p)
{
    __local struct attention_tile tile;
    attention_tile_step((const __global float *)(q + q_offset), k_cache + k_offset,
                        v_cache + v_offset, (const __global int4 *)(meta + meta_offset),
                        (__global float *)(y + y_offset), p, &tile, get_group_id(0),
                        get_num_groups(0));
}
