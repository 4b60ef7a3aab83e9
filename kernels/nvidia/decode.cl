/* Greedy decoding of several tokens of one sequence in one launch: resident groups walk through the
 * layers together.
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
 * applied to the sums, so the norm needs no wait of its own. Spins are capped: when groups do not
 * meet, all leave, the control buffer says so and the results are void.
 * decode_rows.cl does the same for several sequences, and for weights that are floats.
 * Checked with: -DTHREADS=512 -DN_LAYER=2 -DN_EMBD=256 -DN_FF=512 -DN_HEAD=4 -DN_HEAD_KV=2
 * -DHEAD_DIM=64 -DN_ROT=64 -DN_CTX=256 -DN_VOCAB=1000 -DMAX_UNITS=64 -DMAX_K=512 -DMAX_SPLITS=8 -DTEAM=0
 * -DTYPE_A=2 -DTYPE_B=14 -DTYPE_C=255 -DOP_DTYPE=14 -DAT_X=0 -DAT_XB=8192 -DAT_Q=16384
 * -DAT_ATT=32768 -DAT_PARTS=65536 -DAT_H=655360.
 */
#define NUMBERS_ARE_HALVES 0
#include "nvidia/decode_dot.h"

/* ---- the phases ---- */

PTX_INLINE float inverse_rms(const struct ctx *c)
{
    return rsqrt(shared_sum(c) / N_EMBD + c->p.eps);
}

#define QKV_GROUPS ((Q_ROWS + 2 * KV_ROWS) / 4)

PTX_INLINE void qkv_phase(struct ctx *c, const __global struct decode_layer *layer, bool embed,
                          struct share *s)
{
    stage_normed(c, layer->attn_norm, embed);
    if (embed)
        embed_own(c, (uint)((ulong)(N_EMBD / 4) * c->group / c->n_groups) * 4,
                  (uint)((ulong)(N_EMBD / 4) * (c->group + 1) / c->n_groups) * 4);
    barrier(CLK_LOCAL_MEM_FENCE);
    run_linear(c, layer->qkv, DECODE_QKV_PARTS, N_EMBD, s);
    const float scale = inverse_rms(c);
    for (uint i = c->thread; i < (s->g1 - s->g0) * 2; i += THREADS) {
        const uint g = i / 2, r = i % 2 * 2;
        finish_qkv(c, layer, 0, (s->g0 + g) * 4 + r, scale * row_sum(c, N_EMBD, s, g, r),
                   scale * row_sum(c, N_EMBD, s, g, r + 1));
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
    stage_normed(c, layer->ffn_norm, false);
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

#define HEAD_GROUPS ((N_VOCAB + 3) / 4)

PTX_INLINE void head_phase(struct ctx *c, struct share *s)
{
    stage_normed(c, c->head->output_norm, false);
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
        SUMS(c)[2 * c->warp] = best;
        SUMS(c)[2 * c->warp + 1] = as_float(index);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (c->warp == 0) {
        best = c->lane < WARPS ? SUMS(c)[2 * c->lane] : -INFINITY;
        index = c->lane < WARPS ? as_uint(SUMS(c)[2 * c->lane + 1]) : 0xFFFFFFFF;
        warp_best(&best, &index);
        if (c->lane == 0)
            put_best(c, 0, best, index);
    }
    arrive(c);
}

/* One layer; the share of its qkv phase is loaded. Leaves the first loads of what follows it:
 * the next layer's qkv, or the head. */
PTX_INLINE bool run_layer(struct ctx *c, uint l, struct share *s)
{
    const __global struct decode_layer *layer = c->layers + l;
    qkv_phase(c, layer, l == 0, s);

    begin_linear(c, &layer->o, 1, Q_ROWS, N_EMBD / 4, 1, s);
    if (!wait_all(c))
        return false;
    attention_phase(c, layer);
    if (!wait_all(c))
        return false;
    stage_attention(c);
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
    __local uchar body[LOCAL_ALL] __attribute__((aligned(16)));
    __local float floats[WARPS];
    __local uint words[DECODE_WORDS];
    struct ctx c = {
        {w0, w1, w2, w3},
        {cells0, cells1, cells2, cells3},
        (const __global struct decode_layer *)(table + sizeof(struct decode_head)),
        (const __global struct decode_head *)table,
        (const __global float2 *)(rope + rope_offset),
        work,
        control,
        p.settings,
        (uint)get_group_id(0),
        (uint)get_num_groups(0),
        (uint)get_local_id(0),
        (uint)get_local_id(0) & 31,
        (uint)get_local_id(0) >> 5,
        p.arrivals,
        0,
        1,
        body,
        floats,
        words};
    keep_rows(&c, p);
    if (p.n_tokens == 0) {
        arrive(&c);
        wait_all(&c);
    }
    for (uint t = 0; t < p.n_tokens; t++) {
        struct share s;
        begin_linear(&c, c.layers->qkv, DECODE_QKV_PARTS, N_EMBD, QKV_GROUPS, 1, &s);
        for (uint l = 0; l < N_LAYER; l++)
            if (!run_layer(&c, l, &s))
                return;
        head_phase(&c, &s);
        if (!wait_all(&c))
            return;
        next_tokens(&c, t);
    }
}
