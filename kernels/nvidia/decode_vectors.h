/* For one sequence: vectors into local memory, and what a group's share of a matrix is.
 *
 * Work of a linear phase: row groups are cut evenly over groups; a group's units (row group x chunk
 * of CHUNK_COLUMNS) evenly over its warps; sums of a row group meet in local memory.
 * Defined by the host: MAX_SLOTS, the most row groups of a group in one phase, and its warps; by the
 * kernel's file: HALF_VECTORS, whether vectors are halves there, or int8 blocks; CHUNK_COLUMNS.
 */
#ifndef OINFER_KERNELS_DECODE_VECTORS_H
#define OINFER_KERNELS_DECODE_VECTORS_H

#include "nvidia/decode_attend.h"

/* Parts of local memory: the vector's bytes, scales and sums of blocks, or its halves (or what attention
 * keeps), the sums of row groups. */
#define LOCAL_X    (HALF_VECTORS ? MAX_K * 2 : MAX_K + MAX_K / 32 * 8)
#define LOCAL_ATT  (ATT_FLOATS * 4)
#define LOCAL_BODY (((LOCAL_X > LOCAL_ATT ? LOCAL_X : LOCAL_ATT) + 15) / 16 * 16)
#define LOCAL_ALL  (LOCAL_BODY + MAX_SLOTS * 16)
#define SUMS(c)    ((__local float *)((c)->body + LOCAL_BODY)) /* [MAX_SLOTS][4] */
#define LOCAL_D(k) ((__local float *)(c->body + (k)))
#define LOCAL_S(k) ((__local int *)(c->body + (k) + (k) / 32 * 4))

/* Eight neighbouring floats of the lane become bytes, or halves; 4 lanes share a block of 32. */
PTX_INLINE void store_block(const struct ctx *c, const uint k, uint block, bool valid,
                            const float v[8])
{
    if (HALF_VECTORS) {
        if (valid)
            *(__local uint4 *)(c->body + block * 64 + (c->lane & 3) * 16) =
                (uint4)(ptx_half2_of(v[0], v[1]), ptx_half2_of(v[2], v[3]),
                        ptx_half2_of(v[4], v[5]), ptx_half2_of(v[6], v[7]));
        return;
    }
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

/* ---- a group's share of a matrix ---- */

#define ROW_GROUPS(part) (((part)->rows + 3) / 4)
#define QKV_GROUPS       ((Q_ROWS + 2 * KV_ROWS) / 4)
#define EMBD_GROUPS      (N_EMBD / 4)
#define FF_GROUPS        (N_FF / 2) /* gates and ups, by turns */
#define HEAD_GROUPS      ((N_VOCAB + 3) / 4)
#define CHUNKS(k)        (((k) + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS)

/* Row groups g0 .. g1 - 1, and units (row group x chunk) u0 .. u1 - 1 of one warp. */
struct cut {
    uint g0, g1, u0, u1, per_warp;
};

/* `step`: row groups that must stay together. */
PTX_INLINE struct cut cut_of(const struct ctx *c, uint warp, uint chunks, uint row_groups, uint step)
{
    struct cut cut;
    const uint sets = row_groups / step;
    cut.g0 = sets * c->group / c->n_groups * step;
    cut.g1 = sets * (c->group + 1) / c->n_groups * step;
    const uint units = (cut.g1 - cut.g0) * chunks;
    cut.per_warp = max(1u, (units + WARPS - 1) / WARPS);
    cut.u0 = min(warp * cut.per_warp, units);
    cut.u1 = min(cut.u0 + cut.per_warp, units);
    return cut;
}

/* The lanes' sums of a row group meet: 8 lanes end up with each of the 4 rows. Warp w of row group g has
 * slot g + w, which is unlike all others, because warps are in the order of the units. */
PTX_INLINE void put_sums(const struct ctx *c, uint local_g, float acc[4])
{
    const bool second = c->lane & 16, odd = c->lane & 8;
    const float a = (second ? acc[2] : acc[0]) + ptx_shuffle_xor(second ? acc[0] : acc[2], 16);
    const float b = (second ? acc[3] : acc[1]) + ptx_shuffle_xor(second ? acc[1] : acc[3], 16);
    float sum = (odd ? b : a) + ptx_shuffle_xor(odd ? a : b, 8);
#pragma unroll
    for (uint mask = 4; mask > 0; mask >>= 1)
        sum += ptx_shuffle_xor(sum, mask);
    if (c->lane % 8 == 0)
        SUMS(c)[(local_g + c->warp) * 4 + c->lane / 8] = sum;
#pragma unroll
    for (uint r = 0; r < 4; r++)
        acc[r] = 0.0f;
}

/* Sum of row r of the group's row group local_g, over the warps that had a part of it. */
PTX_INLINE float row_sum(const struct ctx *c, const uint k, const struct cut *cut, uint local_g,
                         uint r)
{
    const uint first = local_g * CHUNKS(k) / cut->per_warp;
    const uint last = (local_g * CHUNKS(k) + CHUNKS(k) - 1) / cut->per_warp;
    float sum = 0.0f;
    for (uint w = first; w <= last; w++)
        sum += SUMS(c)[(local_g + w) * 4 + r];
    return sum;
}

/* acc += the lane's block of a chunk of 32 blocks, in a dtype of LAYOUT_R4. */
PTX_INLINE void add_block(const struct ctx *c, const uint k, uint chunk, uint type,
                          const struct r4_raw *raw, float acc[4])
{
    const uint block = chunk * R4_CHUNK + c->lane;
    if (block >= k / 32)
        return;
    const uint4 low = *(const __local uint4 *)(c->body + block * 16);
    const uint4 high = *(const __local uint4 *)(c->body + k / 2 + block * 16);
    const uint xs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float dx = LOCAL_D(k)[block];
    const int sum = LOCAL_S(k)[block];
    BY_TYPE(type, r4_add(TYPE_A, raw, xs, dx, sum, acc), r4_add(TYPE_B, raw, xs, dx, sum, acc),
            r4_add(TYPE_C, raw, xs, dx, sum, acc));
}

#endif
