/* Greedy decoding of several tokens of up to MAX_ROWS sequences in one launch: decode.cl for all
 * sequences at once, weights being read once for all of them, and for weights of any dtype.
 *
 * The phases are those of decode.cl. Vectors travel as halves, x times the weight of the norm that
 * follows it, so that groups only copy them into local memory; products are made by the matrix units
 * (decode_tiles.h). In the work buffer the rows of an array, one for each sequence, follow one another.
 * Checked with: -DTHREADS=384 -DN_LAYER=2 -DN_EMBD=256 -DN_FF=512 -DN_HEAD=4 -DN_HEAD_KV=2
 * -DHEAD_DIM=64 -DN_ROT=64 -DN_CTX=256 -DN_VOCAB=1000 -DN_GROUPS=8 -DMAX_SLOTS=20 -DMAX_K=512 -DMAX_SPLITS=8
 * -DMAX_ROWS=16 -DMAX_SLICE=256 -DTYPE_A=2 -DTYPE_B=1 -DTYPE_C=255 -DOP_DTYPE=14
 * -DAT_X=0 -DAT_XB=32768 -DAT_Q=65536 -DAT_ATT=131072 -DAT_PARTS=262144 -DAT_H=2621440 -DAT_LOGITS=4194304
 * -DAT_SQUARES=2686976 -DTEAM=4.
 */
#define NUMBERS_ARE_HALVES 1
#define FEEDERS 0
#include "nvidia/decode_tiles.h"

#define QKV_TILES  ((Q_ROWS + 2 * KV_ROWS) / TILE_ROWS)
#define EMBD_TILES (N_EMBD / TILE_ROWS)
#define HEAD_TILES ((N_VOCAB + TILE_ROWS - 1) / TILE_ROWS)
#define FF_TILES   (N_FF / 8)

PTX_INLINE void qkv_phase(struct ctx *c, const __global struct decode_layer *layer, bool embed,
                          struct share *s)
{
    if (embed)
        embed_own(c, (uint)((ulong)EMBD_TILES * c->group / c->n_groups) * TILE_ROWS,
                  (uint)((ulong)EMBD_TILES * (c->group + 1) / c->n_groups) * TILE_ROWS);
    run_linear(c, layer->qkv, DECODE_QKV_PARTS, N_EMBD, false,
               embed ? INPUT_EMBEDDED : INPUT_NORMED, layer->attn_norm, s);
    const uint n = (s->i1 - s->i0) * (TILE_ROWS / 2); /* pairs of a row */
    for (uint i = c->thread; i < n * c->n_rows; i += THREADS) {
        const uint row = i / n, tile = i % n / 8, r = i % n % 8 * 2;
        const float scale = INVERSE_RMS(c)[row];
        finish_qkv(c, layer, row, (s->i0 + tile) * TILE_ROWS + r,
                   scale * tile_sum(c, N_EMBD, s, tile, row, r),
                   scale * tile_sum(c, N_EMBD, s, tile, row, r + 1));
    }
    arrive(c);
}

/* += of a linear into the numbers of x that the group owns. They travel times the weight of the norm
 * that follows, and with the sum of their squares. */
PTX_INLINE void add_to_x(struct ctx *c, const uint k, ulong norm, const struct share *s)
{
    const __global float *w = (const __global float *)weight_at_place(c, norm);
    const uint i0 = s->i0 * TILE_ROWS, n = (s->i1 - s->i0) * TILE_ROWS;
    for (uint row = c->warp; row < c->n_rows; row += WARPS) {
        __global float *x = (__global float *)(c->work + AT_X) + row * N_EMBD + i0;
        __global ushort *numbers = (__global ushort *)(c->work + AT_XB) + row * N_EMBD + i0;
        float squares = 0.0f;
        for (uint r = c->lane; r < n; r += 32) {
            const float sum = x[r] + tile_sum(c, k, s, r / TILE_ROWS, row, r % TILE_ROWS);
            x[r] = sum;
            numbers[r] = to_number(sum * w[i0 + r]);
            squares += sum * sum;
        }
        squares = warp_sum(squares);
        if (c->lane == 0)
            ((__global float *)(c->work + AT_SQUARES))[row * DECODE_GROUPS + c->group] = squares;
    }
    arrive(c);
}

PTX_INLINE void gate_up_phase(struct ctx *c, const __global struct decode_layer *layer,
                              struct share *s)
{
    run_linear(c, &layer->gate_up, 1, N_EMBD, true, INPUT_NORMED, 0, s);
    const uint n = (s->i1 - s->i0) * 8;
    for (uint i = c->thread; i < n * c->n_rows; i += THREADS) {
        const uint row = i / n, r = i % n;
        const float scale = INVERSE_RMS(c)[row];
        const float gate = scale * tile_sum(c, N_EMBD, s, r / 8, row, r % 8);
        const float up = scale * tile_sum(c, N_EMBD, s, r / 8, row, r % 8 + 8);
        ((__global ushort *)(c->work + AT_H))[row * N_FF + s->i0 * 8 + r] =
            to_number(gate / (1.0f + ptx_exp(-gate)) * up);
    }
    arrive(c);
}

PTX_INLINE void head_phase(struct ctx *c, struct share *s)
{
    run_linear(c, &c->head->head, 1, N_EMBD, false, INPUT_NORMED, 0, s);
    for (uint row = c->warp; row < c->n_rows; row += WARPS) {
        const float scale = INVERSE_RMS(c)[row];
        float best = -INFINITY;
        uint index = 0xFFFFFFFF;
        for (uint i = c->lane; i < (s->i1 - s->i0) * TILE_ROWS; i += 32) {
            const uint at = s->i0 * TILE_ROWS + i;
            const float logit =
                scale * tile_sum(c, N_EMBD, s, i / TILE_ROWS, row, i % TILE_ROWS);
            if (at < N_VOCAB)
                put_logit(c, row, at, logit);
            if (at < N_VOCAB && better(logit, at, best, index)) {
                best = logit;
                index = at;
            }
        }
        warp_best(&best, &index);
        if (c->lane == 0)
            put_best(c, row, best, index);
    }
    arrive(c);
}

/* One layer; the share of its qkv phase is loaded. Leaves the first loads of what follows it:
 * the next layer's qkv, or the head. */
PTX_INLINE bool run_layer(struct ctx *c, uint l, struct share *s)
{
    const __global struct decode_layer *layer = c->layers + l;
    qkv_phase(c, layer, l == 0, s);

    begin_linear(c, &layer->o, 1, Q_ROWS, EMBD_TILES, false, s);
    if (!wait_all(c, DECODE_QKV))
        return false;
    attention_phase(c, layer);
    if (!wait_all(c, DECODE_ATTENTION))
        return false;
    run_linear(c, &layer->o, 1, Q_ROWS, false, INPUT_ATTENTION, 0, s);
    add_to_x(c, Q_ROWS, layer->ffn_norm, s);

    begin_linear(c, &layer->gate_up, 1, N_EMBD, FF_TILES, true, s);
    if (!wait_all(c, DECODE_O))
        return false;
    gate_up_phase(c, layer, s);

    begin_linear(c, &layer->down, 1, N_FF, EMBD_TILES, false, s);
    if (!wait_all(c, DECODE_GATE_UP))
        return false;
    run_linear(c, &layer->down, 1, N_FF, false, INPUT_H, 0, s);
    add_to_x(c, N_FF, l + 1 < N_LAYER ? layer[1].attn_norm : c->head->output_norm, s);

    if (l + 1 < N_LAYER)
        begin_linear(c, layer[1].qkv, DECODE_QKV_PARTS, N_EMBD, QKV_TILES, false, s);
    else
        begin_linear(c, &c->head->head, 1, N_EMBD, HEAD_TILES, false, s);
    return wait_all(c, DECODE_DOWN);
}

KERNEL(THREADS) void decode_rows(DECODE_ARGS)
{
    __local uchar body[LOCAL_ALL] __attribute__((aligned(128)));
    __local float floats[DECODE_FLOATS];
    __local uint words[DECODE_WORDS];
    struct ctx c = DECODE_CONTEXT(MAX_ROWS == 1 ? 1 : min(p.n_rows, (uint)MAX_ROWS));
    keep_rows(&c, p);
    group_barrier();
    begin_times(&c);
    if (p.n_tokens == 0) {
        arrive(&c);
        wait_all(&c, DECODE_OUTPUT);
    }
    for (uint t = 0; t < p.n_tokens; t++) {
        struct share s;
        begin_linear(&c, c.layers->qkv, DECODE_QKV_PARTS, N_EMBD, QKV_TILES, false, &s);
        for (uint l = 0; l < N_LAYER; l++)
            if (!run_layer(&c, l, &s))
                return;
        head_phase(&c, &s);
        if (!wait_all(&c, DECODE_OUTPUT))
            return;
        next_tokens(&c, t);
    }
}
