/* The phases of decode.cl and decode_ring.cl. The including file brings `struct share`, a group's share of
 * a linear phase, and with it begin_linear, run_linear and run_attention.
 */
#ifndef OINFER_KERNELS_DECODE_PHASES_H
#define OINFER_KERNELS_DECODE_PHASES_H

PTX_INLINE float inverse_rms(const struct ctx *c)
{
    return rsqrt(shared_sum(c) / N_EMBD + c->p.eps);
}

PTX_INLINE void qkv_phase(struct ctx *c, const __global struct decode_layer *layer, bool embed,
                          struct share *s)
{
    stage_normed(c, layer->attn_norm, embed);
    if (embed)
        embed_own(c, (uint)((ulong)(N_EMBD / 4) * c->group / c->n_groups) * 4,
                  (uint)((ulong)(N_EMBD / 4) * (c->group + 1) / c->n_groups) * 4);
    group_barrier();
    run_linear(c, layer->qkv, DECODE_QKV_PARTS, N_EMBD, s);
    const float scale = inverse_rms(c);
    for (uint i = c->thread; i < (s->cut.g1 - s->cut.g0) * 2; i += THREADS) {
        const uint g = i / 2, r = i % 2 * 2;
        finish_qkv(c, layer, 0, (s->cut.g0 + g) * 4 + r, scale * row_sum(c, N_EMBD, &s->cut, g, r),
                   scale * row_sum(c, N_EMBD, &s->cut, g, r + 1));
    }
    arrive(c);
}

/* += of a linear into the rows of x that the group owns. */
PTX_INLINE void add_to_x(struct ctx *c, const uint k, const struct share *s)
{
    __global float *x = (__global float *)(c->work + AT_X) + 4 * s->cut.g0;
    __global ushort *numbers = (__global ushort *)(c->work + AT_XB) + 4 * s->cut.g0;
    for (uint i = c->thread; i < (s->cut.g1 - s->cut.g0) * 4; i += THREADS) {
        const float sum = x[i] + row_sum(c, k, &s->cut, i / 4, i % 4);
        x[i] = sum;
        numbers[i] = to_number(sum);
    }
    arrive(c);
}

PTX_INLINE void gate_up_phase(struct ctx *c, const __global struct decode_layer *layer,
                              struct share *s)
{
    stage_normed(c, layer->ffn_norm, false);
    group_barrier();
    run_linear(c, &layer->gate_up, 1, N_EMBD, s);
    const float scale = inverse_rms(c);
    __global ushort *h = (__global ushort *)(c->work + AT_H) + 2 * s->cut.g0;
    for (uint i = c->thread; i < (s->cut.g1 - s->cut.g0) * 2; i += THREADS) {
        const uint pair = i / 4 * 2;
        const float gate = scale * row_sum(c, N_EMBD, &s->cut, pair, i % 4);
        const float up = scale * row_sum(c, N_EMBD, &s->cut, pair + 1, i % 4);
        h[i] = to_number(gate / (1.0f + ptx_exp(-gate)) * up);
    }
    arrive(c);
}

PTX_INLINE void head_phase(struct ctx *c, struct share *s)
{
    stage_normed(c, c->head->output_norm, false);
    group_barrier();
    run_linear(c, &c->head->head, 1, N_EMBD, s);
    const float scale = inverse_rms(c);
    float best = -INFINITY;
    uint index = 0xFFFFFFFF;
    for (uint i = c->thread; i < (s->cut.g1 - s->cut.g0) * 4; i += THREADS) {
        const uint row = s->cut.g0 * 4 + i;
        const float logit = scale * row_sum(c, N_EMBD, &s->cut, i / 4, i % 4);
        if (row < N_VOCAB)
            put_logit(c, 0, row, logit);
        if (row < N_VOCAB && better(logit, row, best, index)) {
            best = logit;
            index = row;
        }
    }
    warp_best(&best, &index);
    group_barrier(); /* the sums are read */
    if (c->lane == 0) {
        SUMS(c)[2 * c->warp] = best;
        SUMS(c)[2 * c->warp + 1] = as_float(index);
    }
    group_barrier();
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

    begin_linear(c, &layer->o, 1, Q_ROWS, EMBD_GROUPS, 1, s);
    if (!wait_all(c, DECODE_QKV))
        return false;
    run_attention(c, layer, s);
    if (!wait_all(c, DECODE_ATTENTION))
        return false;
    stage_attention(c);
    group_barrier();
    run_linear(c, &layer->o, 1, Q_ROWS, s);
    add_to_x(c, Q_ROWS, s);

    begin_linear(c, &layer->gate_up, 1, N_EMBD, FF_GROUPS, 2, s);
    if (!wait_all(c, DECODE_O))
        return false;
    gate_up_phase(c, layer, s);

    begin_linear(c, &layer->down, 1, N_FF, EMBD_GROUPS, 1, s);
    if (!wait_all(c, DECODE_GATE_UP))
        return false;
    stage_plain(c, N_FF, (const __global ushort *)(c->work + AT_H));
    group_barrier();
    run_linear(c, &layer->down, 1, N_FF, s);
    add_to_x(c, N_FF, s);

    if (l + 1 < N_LAYER)
        begin_linear(c, layer[1].qkv, DECODE_QKV_PARTS, N_EMBD, QKV_GROUPS, 1, s);
    else
        begin_linear(c, &c->head->head, 1, N_EMBD, HEAD_GROUPS, 1, s);
    return wait_all(c, DECODE_DOWN);
}

#endif
