/* attention on the caches of cpu/kv.h, any number of tokens.
 *
 *   rows: the queries of one KV head and a run of tokens of one slot, (token, head) pairs, at most
 *   QUERY_MAX_ROWS; all of them pass over the cells in chunks of CHUNK_CELLS:
 *
 *      cells ->  c0 .. c0+15 | ..     scores[row][cell] = scale q . k: QUERY_ROWS rows x 16 cells
 *   rows   q x K tiles                in registers; then e^(score - maximum so far), then
 *    |     weights x V                sums[row] += weights[row] V: QUERY_ROWS rows x 64 dims
 *
 *   (online softmax: sums so far are scaled down whenever the maximum grows)
 *
 * K and V of a chunk stay in the nearest cache for all rows. Units (KV head, run of tokens) go to
 * the groups in turn, so that the longer ones of the end are shared.
 */
#include "cpu/kv.h"

#define QUERY_ROWS        4 /* rows of a register tile */
#define QUERY_MAX_ROWS    32
#define CHUNK_CELLS 128
#define ATTENTION_MAX_HEAD    256 /* k_max in kernels.def; a multiple of 16 */
#define DIMS   (CPU_WIDE ? 4 : 1) /* vectors of 16 dims in a register tile */
#define CHAINS (CPU_WIDE ? 2 : 1) /* independent sums of a score, as many as registers allow */

struct query_rows {
    const __global float *q[QUERY_MAX_ROWS]; /* [head_dim] each */
    __global float *y[QUERY_MAX_ROWS];
    uint position[QUERY_MAX_ROWS], head[QUERY_MAX_ROWS];
    uint n; /* a multiple of QUERY_ROWS: the last row is repeated */
};

/* What softmax has seen so far, per row. */
struct softmax_state {
    float largest[QUERY_MAX_ROWS], divisor[QUERY_MAX_ROWS];
    float sums[QUERY_MAX_ROWS][ATTENTION_MAX_HEAD];
};

/* scores[r][0 .. 15] of rows r0 .. r0 + QUERY_ROWS - 1 for the 16 cells of a K tile. */
CPU_INLINE void score_tile(const struct query_rows *rows, uint r0, const KV_SPACE kv_t *k,
                           uint head_dim, float16 scores[QUERY_ROWS])
{
    const __global float *q[QUERY_ROWS];
    float16 sum[QUERY_ROWS][CHAINS];
    CPU_UNROLL
    for (uint r = 0; r < QUERY_ROWS; r++) {
        q[r] = rows->q[r0 + r];
        CPU_UNROLL
        for (uint c = 0; c < CHAINS; c++)
            sum[r][c] = (float16)(0.0f);
    }
    for (uint i = 0; i < head_dim; i += 2) {
        CPU_UNROLL
        for (uint c = 0; c < 2; c++) {
            const float16 k_i = KV_LOAD_16(k + 16 * (i + c));
            CPU_UNROLL
            for (uint r = 0; r < QUERY_ROWS; r++)
                sum[r][c % CHAINS] = fma(k_i, (float16)(q[r][i + c]), sum[r][c % CHAINS]);
        }
    }
    CPU_UNROLL
    for (uint r = 0; r < QUERY_ROWS; r++)
        scores[r] = CHAINS == 2 ? sum[r][0] + sum[r][CHAINS - 1] : sum[r][0];
}

/* sums[r][i0 ..] += weights[r][c] * v[c][i0 ..] for DIMS * 16 dims and n cells. */
CPU_INLINE void weigh_tile(struct softmax_state *s, uint r0, uint i0,
                           float weights[QUERY_ROWS][CHUNK_CELLS], const KV_SPACE kv_t *v, uint n,
                           uint head_dim)
{
    float16 acc[QUERY_ROWS][DIMS];
    CPU_UNROLL
    for (uint r = 0; r < QUERY_ROWS; r++)
        CPU_UNROLL
        for (uint d = 0; d < DIMS; d++)
            acc[r][d] = vload16(d, &s->sums[r0 + r][i0]);
    for (uint c = 0; c < n; c++) {
        CPU_UNROLL
        for (uint d = 0; d < DIMS; d++) {
            const float16 v_d = KV_LOAD_16(v + (ulong)c * head_dim + i0 + 16 * d);
            CPU_UNROLL
            for (uint r = 0; r < QUERY_ROWS; r++)
                acc[r][d] = fma(v_d, (float16)(weights[r][c]), acc[r][d]);
        }
    }
    CPU_UNROLL
    for (uint r = 0; r < QUERY_ROWS; r++)
        CPU_UNROLL
        for (uint d = 0; d < DIMS; d++)
            vstore16(acc[r][d], d, &s->sums[r0 + r][i0]);
}

/* The same for 16 dims. */
CPU_INLINE void weigh_16(struct softmax_state *s, uint r0, uint i0,
                         float weights[QUERY_ROWS][CHUNK_CELLS], const KV_SPACE kv_t *v, uint n,
                         uint head_dim)
{
    float16 acc[QUERY_ROWS];
    CPU_UNROLL
    for (uint r = 0; r < QUERY_ROWS; r++)
        acc[r] = vload16(0, &s->sums[r0 + r][i0]);
    for (uint c = 0; c < n; c++) {
        const float16 v_c = KV_LOAD_16(v + (ulong)c * head_dim + i0);
        CPU_UNROLL
        for (uint r = 0; r < QUERY_ROWS; r++)
            acc[r] = fma(v_c, (float16)(weights[r][c]), acc[r]);
    }
    CPU_UNROLL
    for (uint r = 0; r < QUERY_ROWS; r++)
        vstore16(acc[r], 0, &s->sums[r0 + r][i0]);
}

/* Of 16 cells of V, in time for weigh_tile: it reads them a few dims at a time, a pattern that the
 * hardware's prefetcher does not follow. Those that are unpacked are in the cache. */
CPU_INLINE void prefetch_tile(const KV_SPACE kv_t *v, uint head_dim)
{
#if !KV_IS_Q8
    for (uint i = 0; i < 16 * head_dim; i += 64 / sizeof(kv_t))
        CPU_PREFETCH(v + i, 0);
#endif
}

CPU_INLINE float16 cap_scores(float16 x, const struct attention_params *p)
{
    x *= p->scale;
    if (p->softcap <= 0.0f)
        return x;
    /* tanh(u) = 1 - 2 / (1 + e^2u) */
    return p->softcap * (1.0f - 2.0f / (1.0f + cpu_exp(x * (2.0f / p->softcap))));
}

/* Cells c0 .. c0 + n - 1 for rows r0 .. r0 + QUERY_ROWS - 1; c0 and n are multiples of 16,
 * the cells from n_used on may hold anything. */
CPU_INLINE void attend_chunk(const struct query_rows *rows, struct softmax_state *s, uint r0,
                             uint c0, uint n, uint n_used, const KV_SPACE kv_t *k,
                             const KV_SPACE kv_t *v, const struct attention_params *p)
{
    const int16 lanes = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float weights[QUERY_ROWS][CHUNK_CELLS];
    float16 largest[QUERY_ROWS];
    for (uint r = 0; r < QUERY_ROWS; r++)
        largest[r] = (float16)(-INFINITY);
    for (uint c = 0; c < n; c += 16) {
        float16 scores[QUERY_ROWS];
        if (r0 == 0)
            prefetch_tile(v + (ulong)c * p->head_dim, p->head_dim);
        score_tile(rows, r0, k + (ulong)c * p->head_dim, p->head_dim, scores);
        for (uint r = 0; r < QUERY_ROWS; r++) {
            /* cells after the position, and before the window, do not count */
            const int16 back = (int)(rows->position[r0 + r] - c0 - c) - lanes;
            const int16 hidden = (back < 0) | (p->window > 0 ? back >= (int)p->window : (int16)(0));
            const float16 x =
                cpu_blend(cap_scores(scores[r], p), (float16)(-INFINITY), hidden);
            largest[r] = fmax(largest[r], x);
            vstore16(x, 0, &weights[r][c]);
        }
    }
    for (uint r = 0; r < QUERY_ROWS; r++) {
        const float before = s->largest[r0 + r], now = fmax(before, max_16(largest[r]));
        if (now == -INFINITY) { /* nothing counted yet */
            for (uint c = 0; c < n; c += 16)
                vstore16((float16)(0.0f), 0, &weights[r][c]);
            continue;
        }
        float16 sum = (float16)(0.0f);
        for (uint c = 0; c < n; c += 16) {
            const float16 w = cpu_exp_below(vload16(0, &weights[r][c]) - now);
            vstore16(w, 0, &weights[r][c]);
            sum += w;
        }
        const float shrink = exp(before - now);
        s->divisor[r0 + r] = s->divisor[r0 + r] * shrink + sum_16(sum);
        s->largest[r0 + r] = now;
        if (shrink != 1.0f)
            for (uint i = 0; i < p->head_dim; i++)
                s->sums[r0 + r][i] *= shrink;
    }
    uint i = 0;
    for (; i + 16 * DIMS <= p->head_dim; i += 16 * DIMS)
        weigh_tile(s, r0, i, weights, v, n_used, p->head_dim);
    for (; i < p->head_dim; i += 16)
        weigh_16(s, r0, i, weights, v, n_used, p->head_dim);
}

/* The rows of heads h0 .. h0 + n_heads - 1 and tokens t .. t + n - 1. */
CPU_INLINE void gather_rows(struct query_rows *rows, const __global float *q, __global float *y,
                            const __global int *meta, const struct attention_params *p, uint h0,
                            uint n_heads, uint t, uint n)
{
    rows->n = 0;
    for (uint i = 0; i < n * n_heads; i++) {
        const uint token = t + i / n_heads, h = h0 + i % n_heads;
        rows->q[rows->n] = q + (ulong)token * p->q_stride + h * p->head_dim;
        rows->y[rows->n] = y + ((ulong)token * p->n_head + h) * p->head_dim;
        rows->head[rows->n] = h;
        rows->position[rows->n++] = (uint)meta[4 * token];
    }
    for (; rows->n % QUERY_ROWS != 0; rows->n++) {
        rows->q[rows->n] = rows->q[rows->n - 1];
        rows->y[rows->n] = rows->y[rows->n - 1];
        rows->head[rows->n] = rows->head[rows->n - 1];
        rows->position[rows->n] = rows->position[rows->n - 1];
    }
}

/* What is known of the rows after some of the cells: results, or a split's share of them. */
struct attention_out {
    __global float *parts; /* [n_splits][n_head][2 + head_dim]: largest, divisor, sums */
    uint n_splits, split;
};

CPU_INLINE void store_rows(const struct query_rows *rows, const struct softmax_state *s,
                           const struct attention_params *p, const struct attention_out *out)
{
    for (uint r = 0; r < rows->n; r++) {
        __global float *y = rows->y[r];
        float scale = 1.0f;
        if (out->n_splits == 1) {
            scale = 1.0f / s->divisor[r];
        } else {
            y = out->parts + ((ulong)out->split * p->n_head + rows->head[r]) * (2 + p->head_dim);
            y[0] = s->largest[r];
            y[1] = s->divisor[r];
            y += 2;
        }
        for (uint i = 0; i < p->head_dim; i++)
            y[i] = s->sums[r][i] * scale;
    }
}

/* The split's share of the cells of a slot that the rows see. */
CPU_INLINE void attend(const struct query_rows *rows, const __global uchar *k_cells,
                       const __global uchar *v_cells, const struct attention_params *p,
                       const struct attention_out *out)
{
#if KV_IS_Q8
    float k[CHUNK_CELLS * ATTENTION_MAX_HEAD], v[CHUNK_CELLS * ATTENTION_MAX_HEAD];
#endif
    struct softmax_state s;
    uint last = 0, first = UINT_MAX;
    for (uint r = 0; r < rows->n; r++) {
        const uint position = rows->position[r];
        last = max(last, position);
        first = min(first, p->window > 0 && position + 1 > p->window ? position + 1 - p->window
                                                                     : 0);
        s.largest[r] = -INFINITY;
        s.divisor[r] = 0.0f;
        for (uint i = 0; i < p->head_dim; i++)
            s.sums[r][i] = 0.0f;
    }
    /* shares are whole tiles of 16 cells */
    const uint tile0 = first / 16;
    uint begin, end;
    cpu_share(last / 16 + 1 - tile0, out->split, out->n_splits, &begin, &end);
    begin = 16 * (tile0 + begin);
    end = 16 * (tile0 + end);
    for (uint c0 = begin; c0 < end; c0 += CHUNK_CELLS) {
        /* a tile is scored whole, its hidden cells weigh nothing */
        const uint n = min((uint)CHUNK_CELLS, end - c0), n_used = min(n, last + 1 - c0);
        const ulong at = (ulong)c0 * kv_cell_bytes(p->head_dim);
#if KV_IS_Q8
        kv_unpack(k_cells + at, n_used, p->head_dim, true, k);
        kv_unpack(v_cells + at, n_used, p->head_dim, false, v);
#else
        const __global kv_t *k = (const __global kv_t *)(k_cells + at);
        const __global kv_t *v = (const __global kv_t *)(v_cells + at);
#endif
        for (uint r0 = 0; r0 < rows->n; r0 += QUERY_ROWS)
            attend_chunk(rows, &s, r0, c0, n, n_used, k, v, p);
    }
    store_rows(rows, &s, p, out);
}

/* q [n_tokens][q_stride], meta [n_tokens] {position, slot}, y [n_tokens][n_head * head_dim]; a unit of
 * work is a KV head and at most max_run tokens. Of one token the cells may be split: then `parts` is
 * written, and attention_merge_cpu_step makes y of it. p.n_splits is of no use here. */
static void attention_cpu_step(const __global float *q, const __global uchar *k_cache,
                               const __global uchar *v_cache, const __global int *meta,
                               __global float *y, struct attention_params p, uint max_run,
                               __global float *parts, uint n_splits, uint group, uint n_groups)
{
    const uint n_group = p.n_head / p.n_head_kv, n_heads = min(n_group, (uint)QUERY_MAX_ROWS);
    const uint n_parts = (n_group + n_heads - 1) / n_heads; /* of the heads of a KV head */
    const uint run = min(max_run, QUERY_MAX_ROWS / n_heads), n_runs = (p.n_tokens + run - 1) / run;
    struct query_rows rows;
    struct attention_out out;
    out.parts = parts;
    out.n_splits = n_splits;
    for (uint unit = group; unit < n_runs * n_parts * p.n_head_kv * n_splits; unit += n_groups) {
        const uint heads = unit / n_splits / n_runs, kv = heads / n_parts, part = heads % n_parts;
        const uint h0 = kv * n_group + part * n_heads, t0 = unit / n_splits % n_runs * run;
        const uint end = min(t0 + run, p.n_tokens);
        out.split = unit % n_splits;
        for (uint t = t0, n; t < end; t += n) {
            const uint slot = (uint)meta[4 * t + 1];
            for (n = 1; t + n < end && (uint)meta[4 * (t + n) + 1] == slot;)
                n++;
            gather_rows(&rows, q, y, meta, &p, h0, min(n_heads, n_group - part * n_heads), t, n);
            const ulong base = kv_head(slot, kv, p.n_head_kv, p.n_ctx, p.head_dim);
            attend(&rows, k_cache + base, v_cache + base, &p, &out);
        }
    }
}

/* y[h] = sum over splits of e^(largest_s - largest) sums_s / sum of e^(largest_s - largest) div_s */
static void attention_merge_cpu_step(const __global float *parts, __global float *y,
                                     struct attention_params p, uint n_splits, uint group,
                                     uint n_groups)
{
    const ulong stride = (ulong)p.n_head * (2 + p.head_dim); /* from split to split */
    uint begin, end;
    cpu_share(p.n_head, group, n_groups, &begin, &end);
    for (uint h = begin; h < end; h++) {
        const __global float *part = parts + (ulong)h * (2 + p.head_dim);
        float largest = -INFINITY, divisor = 0.0f, sums[ATTENTION_MAX_HEAD];
        for (uint s = 0; s < n_splits; s++)
            largest = fmax(largest, part[s * stride]);
        for (uint i = 0; i < p.head_dim; i++)
            sums[i] = 0.0f;
        for (uint s = 0; s < n_splits; s++) {
            const float weight = exp(part[s * stride] - largest);
            divisor += weight * part[s * stride + 1];
            for (uint i = 0; i < p.head_dim; i++)
                sums[i] = fma(weight, part[s * stride + 2 + i], sums[i]);
        }
        const float scale = 1.0f / divisor;
        for (uint i = 0; i < p.head_dim; i++) /* only results: all groups may store the same ones */
            y[h * p.head_dim + i] = sums[i] * scale;
    }
}

KERNEL(1) void attention_cpu(__global uchar *q, ulong q_off, __global uchar *k_cache, ulong k_off,
                             __global uchar *v_cache, ulong v_off, __global uchar *meta,
                             ulong meta_off, __global uchar *scratch, ulong scratch_off,
                             __global uchar *y, ulong y_off, struct attention_params p)
{
    attention_cpu_step((const __global float *)(q + q_off), k_cache + k_off, v_cache + v_off,
                       (const __global int *)(meta + meta_off), (__global float *)(y + y_off), p,
                       QUERY_MAX_ROWS, 0, 1, get_group_id(0), get_num_groups(0));
}
