/* Linear phases of the one-launch decode kernel by dp4a, for one sequence and weights in LAYOUT_R4:
 * vectors quantised into local memory, and a group's share of a matrix.
 *
 * Work of a linear phase: row groups are cut evenly over groups; a group's units (row group x chunk
 * of 32 blocks) evenly over its warps; sums of a row group meet in local memory. A warp loads its
 * first units before it waits: weights do not depend on the other groups.
 * Defined by the host: MAX_UNITS, the most units of a group in one phase.
 */
#ifndef OINFER_KERNELS_DECODE_DOT_H
#define OINFER_KERNELS_DECODE_DOT_H

#include "nvidia/decode_attend.h"

/* ---- vectors: float in global memory to int8 blocks in local memory ---- */

/* Parts of local memory: the vector's bytes, scales and sums of blocks (or what attention keeps), the
 * sums of row groups. */
#define LOCAL_X    (MAX_K + MAX_K / 32 * 8)
#define LOCAL_ATT  (ATT_FLOATS * 4)
#define LOCAL_BODY (((LOCAL_X > LOCAL_ATT ? LOCAL_X : LOCAL_ATT) + 15) / 16 * 16)
#define LOCAL_ALL  (LOCAL_BODY + MAX_UNITS * 16)
#define SUMS(c)    ((__local float *)((c)->body + LOCAL_BODY)) /* [MAX_UNITS][4] */
#define LOCAL_D(k) ((__local float *)(c->body + (k)))
#define LOCAL_S(k) ((__local int *)(c->body + (k) + (k) / 32 * 4))

/* Eight neighbouring floats of the lane become bytes; 4 lanes share a block of 32. */
PTX_INLINE void store_block(const struct ctx *c, const uint k, uint block, bool valid,
                            const float v[8])
{
    float largest = 0.0f, sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < 8; i++)
        largest = fmax(largest, fabs(v[i]));
    largest = fmax(largest, ptx_shuffle_xor(largest, 1));
    largest = fmax(largest, ptx_shuffle_xor(largest, 2));
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    uint words[2] = {0, 0};
#pragma unroll
    for (uint i = 0; i < 8; i++) {
        const int q = convert_int_rte(v[i] * inverse);
        sum += (float)q;
        words[i / 4] |= (uint)(q & 255) << 8 * (i % 4);
    }
    sum += ptx_shuffle_xor(sum, 1);
    sum += ptx_shuffle_xor(sum, 2);
    if (!valid)
        return;
    /* bytes 0..15 of all blocks, then bytes 16..31: lanes then read 16 bytes side by side */
    const uint quarter = c->lane & 3;
    *(__local uint2 *)(c->body + quarter / 2 * (k / 2) + block * 16 + quarter % 2 * 8) =
        (uint2)(words[0], words[1]);
    if (quarter == 0) {
        LOCAL_D(k)[block] = largest / 127.0f;
        LOCAL_S(k)[block] = (int)sum;
    }
}

/* A sum over all threads of the group: shared before a barrier, read after it. */
PTX_INLINE void share_sum(const struct ctx *c, float v)
{
    v = warp_sum(v);
    if (c->lane == 0)
        c->floats[c->warp] = v;
}

PTX_INLINE float shared_sum(const struct ctx *c)
{
    float sum = 0.0f;
#pragma unroll
    for (uint w = 0; w < WARPS; w++)
        sum += c->floats[w];
    return sum;
}

/* A vector of k is cut in rounds: in each a lane has 8 numbers, a warp 8 blocks. All loads of all
 * rounds are issued before the first is waited for. */
#define ROUNDS(k) (((k) / 32 + WARPS * 8 - 1) / (WARPS * 8))

struct seat {
    uint block, i; /* i: the lane's first number */
    bool valid;
};

PTX_INLINE struct seat seat_of(const struct ctx *c, const uint k, uint round_)
{
    const uint block = (round_ * WARPS + c->warp) * 8 + (c->lane >> 2);
    const struct seat seat = {block, min(block, k / 32 - 1) * 32 + (c->lane & 3) * 8,
                              block < k / 32};
    return seat;
}

/* x (or the embedding of the token) times the norm's weight. */
PTX_INLINE void stage_normed(const struct ctx *c, ulong norm, bool embed)
{
    const __global ushort *x = (const __global ushort *)(c->work + AT_XB);
    const __global float *w = (const __global float *)weight_at_place(c, norm);
    const __global uchar *row = embedding_of(c, 0);
    uint4 numbers[ROUNDS(N_EMBD)];
    float8 weights[ROUNDS(N_EMBD)];
    float squares = 0.0f;
#pragma unroll
    for (uint n = 0; n < ROUNDS(N_EMBD); n++) {
        const struct seat seat = seat_of(c, N_EMBD, n);
        weights[n] = vload8(0, w + seat.i);
        if (!embed)
            numbers[n] = fresh_numbers(x, seat.i);
    }
#pragma unroll
    for (uint n = 0; n < ROUNDS(N_EMBD); n++) {
        const struct seat seat = seat_of(c, N_EMBD, n);
        const float wi[8] = {weights[n].s0, weights[n].s1, weights[n].s2, weights[n].s3,
                             weights[n].s4, weights[n].s5, weights[n].s6, weights[n].s7};
        float v[8];
        if (embed) {
#pragma unroll
            for (uint i = 0; i < 8; i++)
                v[i] = weight_at(row, seat.i + i) * c->p.embed_scale;
        } else {
            floats_of(numbers[n], v);
        }
#pragma unroll
        for (uint i = 0; i < 8; i++) {
            squares += seat.valid ? v[i] * v[i] : 0.0f;
            v[i] *= wi[i];
        }
        store_block(c, N_EMBD, seat.block, seat.valid, v);
    }
    share_sum(c, squares);
}

PTX_INLINE void stage_plain(const struct ctx *c, const uint k, const __global ushort *x)
{
    uint4 numbers[(MAX_K / 32 + WARPS * 8 - 1) / (WARPS * 8)];
#pragma unroll
    for (uint n = 0; n < ROUNDS(k); n++)
        numbers[n] = fresh_numbers(x, seat_of(c, k, n).i);
#pragma unroll
    for (uint n = 0; n < ROUNDS(k); n++) {
        const struct seat seat = seat_of(c, k, n);
        float v[8];
        floats_of(numbers[n], v);
        store_block(c, k, seat.block, seat.valid, v);
    }
}

/* What the heads found. */
PTX_INLINE void stage_attention(const struct ctx *c)
{
    const uint n_splits = splits_of(c, cells_seen(c, 0));
    if (n_splits == 1) {
        stage_plain(c, Q_ROWS, (const __global ushort *)(c->work + AT_ATT));
        return;
    }
    for (uint n = 0; n < ROUNDS(Q_ROWS); n++) {
        const struct seat seat = seat_of(c, Q_ROWS, n);
        float v[8];
        attention_of(c, 0, n_splits, seat.i, v);
        store_block(c, Q_ROWS, seat.block, seat.valid, v);
    }
}

/* ---- linear phases ---- */

#define UNITS_AHEAD 2 /* units of a warp that are being loaded */

/* A group's share of a linear phase: row groups g0 .. g1 - 1, this warp's units u0 .. u1 - 1. The
 * part that the last loaded unit lies in is kept: its rows, dtype and first byte. */
struct share {
    uint g0, g1, u0, u1, per_warp;
    uint part_g0, part_g1, type;
    const __global uchar *at;
    struct r4_raw raw[UNITS_AHEAD];
    uint raw_type[UNITS_AHEAD];
};

#define ROW_GROUPS(part) (((part)->rows + 3) / 4)
#define CHUNKS(k)        (((k) / 32 + 31) / 32)

/* Makes the part that row group g lies in the share's part. */
PTX_INLINE void enter_part(const struct ctx *c, const __global struct decode_part *part,
                           const uint n_parts, uint g, struct share *s)
{
    s->part_g0 = 0;
    for (uint i = 0; i + 1 < n_parts && g >= s->part_g0 + ROW_GROUPS(part); i++, part++)
        s->part_g0 += ROW_GROUPS(part);
    s->part_g1 = s->part_g0 + ROW_GROUPS(part);
    s->type = part->type;
    s->at = weight_at_place(c, part->at);
}

PTX_INLINE void load_typed(const struct ctx *c, const uint type, const uint k,
                           const __global uchar *at, uint g, uint chunk, struct r4_raw *raw)
{
    const uint nb = min(R4_CHUNK, k / 32 - chunk * R4_CHUNK);
    r4_load(type, at + g * r4_group_bytes(type, k) + R4_BYTES(type, chunk * R4_CHUNK), nb, c->lane,
            raw);
}

PTX_INLINE void load_unit(const struct ctx *c, const __global struct decode_part *parts,
                          const uint n_parts, const uint k, struct share *s, uint unit,
                          const uint n)
{
    uint g = s->g0 + unit / CHUNKS(k);
    const uint chunk = unit % CHUNKS(k);
    if (n_parts > 1 && g >= s->part_g1)
        enter_part(c, parts, n_parts, g, s);
    g -= s->part_g0;
    s->raw_type[n] = s->type;
    BY_TYPE(s->type, load_typed(c, TYPE_A, k, s->at, g, chunk, &s->raw[n]),
            load_typed(c, TYPE_B, k, s->at, g, chunk, &s->raw[n]),
            load_typed(c, TYPE_C, k, s->at, g, chunk, &s->raw[n]));
}

/* The share of this warp, and its first loads. `step`: row groups that must stay together. */
PTX_INLINE void begin_linear(const struct ctx *c, const __global struct decode_part *parts,
                             const uint n_parts, const uint k, uint row_groups, const uint step,
                             struct share *s)
{
    const uint sets = row_groups / step;
    s->g0 = (uint)((ulong)sets * c->group / c->n_groups) * step;
    s->g1 = (uint)((ulong)sets * (c->group + 1) / c->n_groups) * step;
    const uint units = (s->g1 - s->g0) * CHUNKS(k);
    s->per_warp = (units + WARPS - 1) / WARPS;
    s->u0 = min(c->warp * s->per_warp, units);
    s->u1 = min(s->u0 + s->per_warp, units);
    if (s->u0 >= s->u1)
        return;
    enter_part(c, parts, n_parts, s->g0 + s->u0 / CHUNKS(k), s);
#pragma unroll
    for (uint n = 0; n < UNITS_AHEAD; n++)
        if (s->u0 + n < s->u1)
            load_unit(c, parts, n_parts, k, s, s->u0 + n, n);
}

PTX_INLINE void add_unit(const struct ctx *c, const uint k, const struct share *s, uint unit,
                         uint type, const struct r4_raw *raw, float acc[4])
{
    const uint chunk = unit % CHUNKS(k), block = chunk * R4_CHUNK + c->lane;
    if (block < k / 32) {
        const uint4 low = *(const __local uint4 *)(c->body + block * 16);
        const uint4 high = *(const __local uint4 *)(c->body + k / 2 + block * 16);
        const uint xs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const float dx = LOCAL_D(k)[block];
        const int sum = LOCAL_S(k)[block];
        BY_TYPE(type, r4_add(TYPE_A, raw, xs, dx, sum, acc),
                r4_add(TYPE_B, raw, xs, dx, sum, acc), r4_add(TYPE_C, raw, xs, dx, sum, acc));
    }
    if (chunk + 1 < CHUNKS(k) && unit + 1 < s->u1)
        return;
    /* the last unit of this row group in this warp: the lanes' sums meet */
    const uint local_g = unit / CHUNKS(k), first_warp = local_g * CHUNKS(k) / s->per_warp;
    __local float *out = SUMS(c) + (local_g * CHUNKS(k) + c->warp - first_warp) * 4;
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        const float sum = warp_sum(acc[r]);
        if (c->lane == r)
            out[r] = sum;
        acc[r] = 0.0f;
    }
}

/* All units of the warp, UNITS_AHEAD of them being loaded; a barrier at the end makes the sums readable. */
PTX_INLINE void run_linear(const struct ctx *c, const __global struct decode_part *parts,
                           const uint n_parts, const uint k, struct share *s)
{
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint u = s->u0; u < s->u1; u += UNITS_AHEAD) {
#pragma unroll
        for (uint n = 0; n < UNITS_AHEAD; n++) {
            if (u + n < s->u1)
                add_unit(c, k, s, u + n, s->raw_type[n], &s->raw[n], acc);
            if (u + n + UNITS_AHEAD < s->u1)
                load_unit(c, parts, n_parts, k, s, u + n + UNITS_AHEAD, n);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Sum of row r of the group's row group local_g, over the warps that had a part of it. */
PTX_INLINE float row_sum(const struct ctx *c, const uint k, const struct share *s, uint local_g,
                         uint r)
{
    const uint first = local_g * CHUNKS(k) / s->per_warp;
    const uint last = (local_g * CHUNKS(k) + CHUNKS(k) - 1) / s->per_warp;
    float sum = 0.0f;
    for (uint w = 0; w <= last - first; w++)
        sum += SUMS(c)[(local_g * CHUNKS(k) + w) * 4 + r];
    return sum;
}

#endif
