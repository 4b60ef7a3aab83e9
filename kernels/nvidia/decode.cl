/* Greedy decoding of several tokens in one launch: resident groups walk through the layers together.
 *
 * Per layer five phases, each ending with an arrival of all groups at a counter and beginning with
 * a wait for it:
 *   qkv      norm of x (or of the embedding); q | k | v rows; rotation; cells of k and v
 *   att      a group per head and split of the cells: online softmax; splits are merged by readers
 *   o        += into x, whose rows always belong to the same group
 *   gate_up  norm of x; silu(gate) * up
 *   down     += into x
 * then head: norm of x; logits; each group's best; the next token is the best of all.
 *
 * A vector that a phase reads is read by every group, which quantises it to int8 blocks in local
 * memory (as ACT_Q8). To halve those reads vectors travel as bfloat16, whose rounding is below that
 * of int8 blocks; x itself stays float, in the hands of the group that owns its rows. 1 / rms is
 * applied to the sums, so the norm needs no wait of its own.
 * Work of a linear phase: row groups are cut evenly over groups; a group's units (row group x chunk
 * of 32 blocks) evenly over its warps; sums of a row group meet in local memory. A warp loads its
 * first two units before it waits: weights do not depend on the other groups.
 *
 * Defined by the host: THREADS N_LAYER N_EMBD N_FF N_HEAD N_HEAD_KV HEAD_DIM N_ROT N_CTX N_VOCAB
 * MAX_UNITS MAX_K TYPE_A TYPE_B TYPE_C (255: none) OP_DTYPE (of the embedding) and the offsets in
 * the work buffer AT_X AT_XB AT_Q AT_ATT AT_PARTS AT_H. Spins are capped: when groups do not meet, all
 * leave, the control buffer says so and the results are void.
 * Checked with: -DTHREADS=512 -DN_LAYER=2 -DN_EMBD=256 -DN_FF=512 -DN_HEAD=4 -DN_HEAD_KV=2
 * -DHEAD_DIM=64 -DN_ROT=64 -DN_CTX=256 -DN_VOCAB=1000 -DMAX_UNITS=64 -DMAX_K=512 -DTYPE_A=2
 * -DTYPE_B=14 -DTYPE_C=255 -DOP_DTYPE=14 -DAT_X=0 -DAT_XB=1024 -DAT_Q=2048 -DAT_ATT=4096
 * -DAT_PARTS=8192 -DAT_H=16384.
 * Sources: Milakov and Gimelshein 2018 (online softmax); Su et al. 2021 (rotation).
 */
#include "nvidia/decode.h"
#include "nvidia/r4_dot.h"
#include "weight.h"

#define WARPS     (THREADS / 32)
#define SPIN_CAP  (1u << 20)
#define Q_ROWS    (N_HEAD * HEAD_DIM)
#define KV_ROWS   (N_HEAD_KV * HEAD_DIM)
#define LANE_DIMS (HEAD_DIM / 32)
#define ATT_FLOATS (WARPS * (HEAD_DIM + 2))

/* Sizes in bytes of the parts of local memory. */
#define LOCAL_X    (MAX_K + MAX_K / 32 * 8)
#define LOCAL_ATT  (ATT_FLOATS * 4)
#define LOCAL_BODY ((LOCAL_X > LOCAL_ATT ? LOCAL_X : LOCAL_ATT) + 15) / 16 * 16

struct ctx {
    const __global uchar *weights[DECODE_ARENAS];
    __global uchar *cells[DECODE_ARENAS];
    const __global struct decode_layer *layers;
    const __global struct decode_head *head;
    const __global float2 *rope;
    __global uchar *work;
    __global uint *control;
    struct decode_params p;
    uint group, n_groups, thread, lane, warp;
    uint target; /* arrivals to wait for */
    uint turn;   /* of the two words that tell the group what its first item saw */
    __local uchar *body;
    __local float *sums; /* [MAX_UNITS][4] */
    __local float *warp_floats; /* [WARPS] */
    __local uint *words;        /* [3]: two for waits in turn, one for the next token */
};
#include "nvidia/decode_parts.h"

/* ---- the phases ---- */

PTX_INLINE float inverse_rms(const struct ctx *c)
{
    return rsqrt(shared_sum(c) / N_EMBD + c->p.eps);
}

/* The rows of x that this group owns: those of the o and down phases. */
PTX_INLINE void embed_own_rows(const struct ctx *c, uint token)
{
    const uint g0 = (uint)((ulong)(N_EMBD / 4) * c->group / c->n_groups);
    const uint g1 = (uint)((ulong)(N_EMBD / 4) * (c->group + 1) / c->n_groups);
    const __global uchar *row =
        weight_at_place(c, c->head->embed) + (ulong)token * weight_row_bytes(N_EMBD);
    for (uint i = 4 * g0 + c->thread; i < 4 * g1; i += THREADS)
        ((__global float *)(c->work + AT_X))[i] = weight_at(row, i) * c->p.embed_scale;
}

/* Rows r and r + 1 of q | k | v: rotated, into the query or the cells. */
PTX_INLINE void finish_qkv(const struct ctx *c, const __global struct decode_layer *layer,
                           uint position, uint r, float a, float b)
{
    const bool is_v = r >= Q_ROWS + KV_ROWS;
    const uint dim = r % HEAD_DIM;
    if (!is_v && dim < N_ROT) {
        const float2 turn = c->rope[(ulong)position * (N_ROT / 2) + dim / 2];
        const float x = a, y = b;
        a = x * turn.x - y * turn.y;
        b = x * turn.y + y * turn.x;
    }
    if (r < Q_ROWS) {
        __global float *q = (__global float *)(c->work + AT_Q) + r;
        q[0] = a;
        q[1] = b;
        return;
    }
    const uint row = is_v ? r - Q_ROWS - KV_ROWS : r - Q_ROWS;
    __global half *cells = cells_at_place(c, is_v ? layer->v : layer->k);
    const ulong at =
        (((ulong)c->p.slot * N_HEAD_KV + row / HEAD_DIM) * N_CTX + position) * HEAD_DIM + dim;
    *(__global uint *)(cells + at) = ptx_half2_of(a, b);
}

#define QKV_GROUPS ((Q_ROWS + 2 * KV_ROWS) / 4)

PTX_INLINE void qkv_phase(struct ctx *c, const __global struct decode_layer *layer, bool embed,
                          uint token, uint position, struct share *s)
{
    stage_normed(c, layer->attn_norm, embed, token);
    if (embed)
        embed_own_rows(c, token);
    barrier(CLK_LOCAL_MEM_FENCE);
    run_linear(c, layer->qkv, DECODE_QKV_PARTS, N_EMBD, s);
    const float scale = inverse_rms(c);
    for (uint i = c->thread; i < (s->g1 - s->g0) * 2; i += THREADS) {
        const uint g = i / 2, r = i % 2 * 2;
        finish_qkv(c, layer, position, (s->g0 + g) * 4 + r, scale * row_sum(c, N_EMBD, s, g, r),
                   scale * row_sum(c, N_EMBD, s, g, r + 1));
    }
    arrive(c);
}

/* 8 halves of a cell, from their 16 bytes, times 8 floats. */
PTX_INLINE float dot8(uint4 h, const float *q)
{
    const uint w[4] = {h.x, h.y, h.z, h.w};
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < 4; i++)
        sum = fma(half_of_pair(w[i], 0), q[2 * i], fma(half_of_pair(w[i], 1), q[2 * i + 1], sum));
    return sum;
}

/* Cells c0 .. c1 - 1 of a head by the whole group. For scores 4 lanes share a cell (8 cells a
 * warp), for values a lane has LANE_DIMS dimensions of all cells. */
PTX_INLINE void attend(const struct ctx *c, const __global struct decode_layer *layer, uint head,
                       uint c0, uint c1, __global uchar *out, bool split)
{
    const uint kv_head = head / (N_HEAD / N_HEAD_KV), quarter = c->lane & 3;
    const ulong base = ((ulong)c->p.slot * N_HEAD_KV + kv_head) * N_CTX * HEAD_DIM;
    const __global half *k = cells_at_place(c, layer->k) + base;
    const __global half *v = cells_at_place(c, layer->v) + base;
    const __global float *query = (const __global float *)(c->work + AT_Q) + head * HEAD_DIM;
    float q[HEAD_DIM / 4], acc[LANE_DIMS], top = -INFINITY, total = 0.0f;
#pragma unroll
    for (uint j = 0; j < HEAD_DIM / 32; j++) {
#pragma unroll
        for (uint i = 0; i < 8; i += 4) {
            const float4 part = fresh4(query + 32 * j + 8 * quarter + i) * c->p.scale;
            q[8 * j + i] = part.x;
            q[8 * j + i + 1] = part.y;
            q[8 * j + i + 2] = part.z;
            q[8 * j + i + 3] = part.w;
        }
    }
#pragma unroll
    for (uint i = 0; i < LANE_DIMS; i++)
        acc[i] = 0.0f;
    for (uint first = c0 + c->warp * 8; first < c1; first += WARPS * 8) {
        const uint cell = min(first + c->lane / 4, c1 - 1);
        const __global half *row = k + (ulong)cell * HEAD_DIM + 8 * quarter;
        uint4 keys[HEAD_DIM / 32];
        uint values[8][LANE_DIMS / 2];
#pragma unroll
        for (uint j = 0; j < HEAD_DIM / 32; j++)
            keys[j] = *(const __global uint4 *)(row + 32 * j);
#pragma unroll
        for (uint j = 0; j < 8; j++) {
            const __global uint *from =
                (const __global uint *)(v + (ulong)min(first + j, c1 - 1) * HEAD_DIM +
                                        c->lane * LANE_DIMS);
#pragma unroll
            for (uint i = 0; i < LANE_DIMS / 2; i++)
                values[j][i] = from[i];
        }
        float score = 0.0f;
#pragma unroll
        for (uint j = 0; j < HEAD_DIM / 32; j++)
            score += dot8(keys[j], q + 8 * j);
        score += ptx_shuffle_xor(score, 1);
        score += ptx_shuffle_xor(score, 2);
        if (first + c->lane / 4 >= c1)
            score = -INFINITY;
        float best = score;
#pragma unroll
        for (uint mask = 4; mask < 32; mask <<= 1)
            best = fmax(best, ptx_shuffle_xor(best, mask));
        const float new_top = fmax(top, best), shrink = ptx_exp(top - new_top);
        const float weight = ptx_exp(score - new_top);
        float sum = weight;
#pragma unroll
        for (uint mask = 4; mask < 32; mask <<= 1)
            sum += ptx_shuffle_xor(sum, mask);
        total = total * shrink + sum;
        top = new_top;
#pragma unroll
        for (uint i = 0; i < LANE_DIMS; i++)
            acc[i] *= shrink;
#pragma unroll
        for (uint j = 0; j < 8; j++) {
            const float w = ptx_shuffle(weight, 4 * j);
#pragma unroll
            for (uint i = 0; i < LANE_DIMS; i++)
                acc[i] = fma(w, half_of_pair(values[j][i / 2], i & 1), acc[i]);
        }
    }
    __local float *mine = (__local float *)c->body + c->warp * (HEAD_DIM + 2);
#pragma unroll
    for (uint i = 0; i < LANE_DIMS; i++)
        mine[c->lane * LANE_DIMS + i] = acc[i];
    if (c->lane == 0) {
        mine[HEAD_DIM] = top;
        mine[HEAD_DIM + 1] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const __local float *all = (const __local float *)c->body;
    for (uint d = c->thread; d < HEAD_DIM; d += THREADS) {
        float highest = -INFINITY, weights = 0.0f, value = 0.0f;
        for (uint w = 0; w < WARPS; w++)
            highest = fmax(highest, all[w * (HEAD_DIM + 2) + HEAD_DIM]);
        for (uint w = 0; w < WARPS; w++) {
            const __local float *warp = all + w * (HEAD_DIM + 2);
            const float weight = ptx_exp(warp[HEAD_DIM] - highest);
            weights += weight * warp[HEAD_DIM + 1];
            value += weight * warp[d];
        }
        if (!split) {
            ((__global ushort *)out)[d] = to_number(value / weights);
            continue;
        }
        __global float *part = (__global float *)out;
        part[d] = value;
        if (d == 0) {
            part[HEAD_DIM] = highest;
            part[HEAD_DIM + 1] = weights;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Splits of the cells of one head when n cells are looked at. */
PTX_INLINE uint splits_of(const struct ctx *c, uint n)
{
    return max(1u, min(c->n_groups / N_HEAD, n / 256));
}

PTX_INLINE void attention_phase(struct ctx *c, const __global struct decode_layer *layer,
                                uint position)
{
    const uint end = position + 1;
    const uint start = c->p.window > 0 && end > c->p.window ? end - c->p.window : 0;
    const uint n = end - start, n_splits = splits_of(c, n);
    for (uint item = c->group; item < N_HEAD * n_splits; item += c->n_groups) {
        const uint head = item / n_splits, split = item % n_splits;
        __global uchar *out = n_splits == 1 ? c->work + AT_ATT + head * HEAD_DIM * 2
                                            : c->work + AT_PARTS + item * (HEAD_DIM + 4) * 4;
        attend(c, layer, head, start + (uint)((ulong)n * split / n_splits),
               start + (uint)((ulong)n * (split + 1) / n_splits), out, n_splits > 1);
    }
    arrive(c);
}

/* += of a linear into the rows of x that the group owns. */
PTX_INLINE void add_to_x(struct ctx *c, const uint k, const struct share *s)
{
    __global float *x = (__global float *)(c->work + AT_X) + 4 * s->g0;
    __global ushort *numbers = (__global ushort *)(c->work + AT_XB) + 4 * s->g0;
    for (uint i = c->thread; i < (s->g1 - s->g0) * 4; i += THREADS) {
        const float sum = x[i] + row_sum(c, k, s, i / 4, i % 4);
        x[i] = sum;
        numbers[i] = to_number(sum);
    }
    arrive(c);
}

PTX_INLINE void gate_up_phase(struct ctx *c, const __global struct decode_layer *layer,
                              struct share *s)
{
    stage_normed(c, layer->ffn_norm, false, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
    run_linear(c, &layer->gate_up, 1, N_EMBD, s);
    const float scale = inverse_rms(c);
    __global ushort *h = (__global ushort *)(c->work + AT_H) + 2 * s->g0;
    for (uint i = c->thread; i < (s->g1 - s->g0) * 2; i += THREADS) {
        const uint pair = i / 4 * 2;
        const float gate = scale * row_sum(c, N_EMBD, s, pair, i % 4);
        const float up = scale * row_sum(c, N_EMBD, s, pair + 1, i % 4);
        h[i] = to_number(gate / (1.0f + ptx_exp(-gate)) * up);
    }
    arrive(c);
}

PTX_INLINE bool better(float v, uint i, float than, uint than_i)
{
    return v > than || (v == than && i < than_i);
}

/* Best {value, index} of a warp's lanes, in all lanes. */
PTX_INLINE void warp_best(float *v, uint *index)
{
#pragma unroll
    for (uint mask = 16; mask > 0; mask >>= 1) {
        const float other = ptx_shuffle_xor(*v, mask);
        const uint other_index = as_uint(ptx_shuffle_xor(as_float(*index), mask));
        if (better(other, other_index, *v, *index)) {
            *v = other;
            *index = other_index;
        }
    }
}

#define HEAD_GROUPS ((N_VOCAB + 3) / 4)

PTX_INLINE void head_phase(struct ctx *c, struct share *s)
{
    stage_normed(c, c->head->output_norm, false, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
    run_linear(c, &c->head->head, 1, N_EMBD, s);
    const float scale = inverse_rms(c);
    float best = -INFINITY;
    uint index = 0xFFFFFFFF;
    for (uint i = c->thread; i < (s->g1 - s->g0) * 4; i += THREADS) {
        const uint row = s->g0 * 4 + i;
        const float logit = scale * row_sum(c, N_EMBD, s, i / 4, i % 4);
        if (row < N_VOCAB && better(logit, row, best, index)) {
            best = logit;
            index = row;
        }
    }
    warp_best(&best, &index);
    barrier(CLK_LOCAL_MEM_FENCE); /* the sums are read */
    if (c->lane == 0) {
        c->sums[2 * c->warp] = best;
        c->sums[2 * c->warp + 1] = as_float(index);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (c->warp == 0) {
        best = c->lane < WARPS ? c->sums[2 * c->lane] : -INFINITY;
        index = c->lane < WARPS ? as_uint(c->sums[2 * c->lane + 1]) : 0xFFFFFFFF;
        warp_best(&best, &index);
        if (c->lane == 0) {
            __global float *out = (__global float *)(c->control + DECODE_BEST) + 2 * c->group;
            out[0] = best;
            out[1] = as_float(index);
        }
    }
    arrive(c);
}

/* The best of all groups; 0 when no logit is a number. */
PTX_INLINE uint next_token(const struct ctx *c, uint t)
{
    __local uint *word = c->words + 2;
    if (c->warp == 0) {
        const __global float *bests = (const __global float *)(c->control + DECODE_BEST);
        float best = -INFINITY;
        uint index = 0xFFFFFFFF;
        for (uint g = c->lane; g < c->n_groups; g += 32) {
            const float v = fresh(bests + 2 * g);
            const uint i = as_uint(fresh(bests + 2 * g + 1));
            if (better(v, i, best, index)) {
                best = v;
                index = i;
            }
        }
        warp_best(&best, &index);
        if (c->lane == 0) {
            *word = index < N_VOCAB ? index : 0;
            if (c->group == 0) {
                c->control[DECODE_TOKENS + t] = *word;
                ((__global float *)c->control)[DECODE_FOUND + t] = best;
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return *word;
}

/* One layer; the share of its qkv phase is loaded. Leaves the first loads of what follows it:
 * the next layer's qkv, or the head. */
PTX_INLINE bool run_layer(struct ctx *c, uint l, uint token, uint position, struct share *s)
{
    const __global struct decode_layer *layer = c->layers + l;
    qkv_phase(c, layer, l == 0, token, position, s);

    begin_linear(c, &layer->o, 1, Q_ROWS, N_EMBD / 4, 1, s);
    if (!wait_all(c))
        return false;
    attention_phase(c, layer, position);
    if (!wait_all(c))
        return false;
    const uint seen = position + 1;
    stage_attention(c, splits_of(c, c->p.window > 0 ? min(seen, c->p.window) : seen));
    barrier(CLK_LOCAL_MEM_FENCE);
    run_linear(c, &layer->o, 1, Q_ROWS, s);
    add_to_x(c, Q_ROWS, s);

    begin_linear(c, &layer->gate_up, 1, N_EMBD, N_FF / 2, 2, s);
    if (!wait_all(c))
        return false;
    gate_up_phase(c, layer, s);

    begin_linear(c, &layer->down, 1, N_FF, N_EMBD / 4, 1, s);
    if (!wait_all(c))
        return false;
    stage_plain(c, N_FF, (const __global ushort *)(c->work + AT_H));
    barrier(CLK_LOCAL_MEM_FENCE);
    run_linear(c, &layer->down, 1, N_FF, s);
    add_to_x(c, N_FF, s);

    if (l + 1 < N_LAYER)
        begin_linear(c, layer[1].qkv, DECODE_QKV_PARTS, N_EMBD, QKV_GROUPS, 1, s);
    else
        begin_linear(c, &c->head->head, 1, N_EMBD, HEAD_GROUPS, 1, s);
    return wait_all(c);
}

KERNEL(THREADS) void decode(const __global uchar *w0, const __global uchar *w1,
                            const __global uchar *w2, const __global uchar *w3,
                            __global uchar *cells0, __global uchar *cells1,
                            __global uchar *cells2, __global uchar *cells3,
                            const __global uchar *table, const __global uchar *rope,
                            ulong rope_offset, __global uchar *work, __global uint *control,
                            struct decode_params p)
{
    __local uchar body[LOCAL_BODY] __attribute__((aligned(16)));
    __local float sums[MAX_UNITS * 4] __attribute__((aligned(16)));
    __local float warp_floats[WARPS];
    __local uint words[3];
    struct ctx c = {
        {w0, w1, w2, w3},
        {cells0, cells1, cells2, cells3},
        (const __global struct decode_layer *)(table + sizeof(struct decode_head)),
        (const __global struct decode_head *)table,
        (const __global float2 *)(rope + rope_offset),
        work,
        control,
        p,
        (uint)get_group_id(0),
        (uint)get_num_groups(0),
        (uint)get_local_id(0),
        (uint)get_local_id(0) & 31,
        (uint)get_local_id(0) >> 5,
        p.arrivals,
        0,
        body,
        sums,
        warp_floats,
        words};
    uint token = p.first;
    for (uint t = 0; t < p.n_tokens; t++) {
        struct share s;
        begin_linear(&c, c.layers->qkv, DECODE_QKV_PARTS, N_EMBD, QKV_GROUPS, 1, &s);
        for (uint l = 0; l < N_LAYER; l++)
            if (!run_layer(&c, l, token, p.position + t, &s))
                return;
        head_phase(&c, &s);
        if (!wait_all(&c))
            return;
        token = next_token(&c, t);
    }
}
