/* Linear phases of the one-launch decode kernel on the matrix units (mma.sync): up to 8 sequences,
 * weights of any dtype; vectors as halves in local memory, and a group's share of a matrix.
 *
 * A tile is 16 rows of weights: with them as rows of A and the sequences as columns of B, one
 * mma.m16n8k16 makes 16 x 8 sums of 16 products. Which number of k meets which is free, as long as
 * both sides agree: so a lane (quad g = lane / 4, t = lane % 4) loads 16 bytes of rows g and g + 8
 * as they lie and takes the numbers of sequence g that belong to them from local memory.
 *   quantised: a unit is 256 columns of a tile: the lane has blocks t and t + 4 of 8
 *   floats     a unit is 64 columns of a tile: the lane has 8 columns from 8t and from 32 + 8t
 * Work of a linear phase: tiles are cut evenly over groups; a group's units evenly over its warps.
 * Sums of a tile meet in local memory: warp w of tile i has slot i + w there, which is unlike all
 * others, because warps are in the order of the units. A warp loads its first two units before it
 * waits: weights do not depend on the other groups.
 * In gate_up, rows 0..7 of a tile are gates and 8..15 their ups.
 *
 * Defined by the host: MAX_ROWS, the most sequences of a launch; MAX_SLOTS, of sums in any phase.
 */
#ifndef OINFER_KERNELS_DECODE_TILES_H
#define OINFER_KERNELS_DECODE_TILES_H

#include "nvidia/decode_attend.h"
#include "nvidia/r4_pairs.h"

#define TILE_ROWS  16
#define K_PAD(k)   (((k) + 255) / 256 * 256)
#define STEPS(k)   (K_PAD(k) / 256) /* of a vector: 8 blocks, a warp's work */
#define VECTOR_BYTES(k) (MAX_ROWS * K_PAD(k) * 2)
#define SLOT_FLOATS     (MAX_ROWS * TILE_ROWS)

/* Local memory: the vectors (or what attention keeps), then the sums. */
#define LOCAL_ATT  (ATT_FLOATS * 4)
#define LOCAL_BODY (((VECTOR_BYTES(MAX_K) > LOCAL_ATT ? VECTOR_BYTES(MAX_K) : LOCAL_ATT) + 15) / 16 * 16)
#define LOCAL_ALL  (LOCAL_BODY + MAX_SLOTS * SLOT_FLOATS * 4)
#define SUMS(c)    ((__local float *)((c)->body + LOCAL_BODY)) /* [slot][row][TILE_ROWS] */

/* Floats beside them: sums of squares of the vectors' steps, then 1 / rms of each row. */
#define DECODE_FLOATS (MAX_ROWS * STEPS(N_EMBD) + MAX_ROWS)
#define INVERSE_RMS(c) ((c)->floats + MAX_ROWS * STEPS(N_EMBD))

/* ---- vectors to halves in local memory ---- */

/* Byte of piece q (8 halves) of block j of a row's vector. Pieces are moved about within 128 bytes,
 * so that the lanes of a warp meet different banks: those of a quad read one piece of 4 blocks, or
 * 4 pieces of one block, of neighbouring rows. */
PTX_INLINE uint piece_byte(const uint k, uint row, uint j, uint q)
{
    const uint at = ((j & 1) * 4 + q) ^ (j >> 1 & 1) ^ (row & 1) * 6;
    return row * (K_PAD(k) * 2) + (j >> 1) * 128 + at * 16;
}

/* What a lane has of a step: 8 numbers from i on, in block j of a row. */
struct seat {
    uint row, j, i;
    bool valid; /* not past the vector's end, where zeros go */
};

PTX_INLINE struct seat seat_of(const struct ctx *c, const uint k, uint step)
{
    const uint row = min(step / STEPS(k), c->n_rows - 1);
    const uint j = step % STEPS(k) * 8 + (c->lane >> 2);
    const struct seat seat = {row, j, min(j, k / 32 - 1) * 32 + (c->lane & 3) * 8, j < k / 32};
    return seat;
}

PTX_INLINE void store_piece(const struct ctx *c, const uint k, struct seat seat, const float v[8])
{
    uint4 words = (uint4)(ptx_half2_of(v[0], v[1]), ptx_half2_of(v[2], v[3]),
                          ptx_half2_of(v[4], v[5]), ptx_half2_of(v[6], v[7]));
    if (!seat.valid)
        words = (uint4)(0);
    *(__local uint4 *)(c->body + piece_byte(k, seat.row, seat.j, c->lane & 3)) = words;
}

#define LOADS_AHEAD 4 /* steps of a warp whose loads are issued before the first is waited for */

/* x (or the embeddings of the tokens) of all rows, times the norm's weight. */
PTX_INLINE void stage_normed(const struct ctx *c, ulong norm, bool embed)
{
    const __global ushort *x = (const __global ushort *)(c->work + AT_XB);
    const __global float *w = (const __global float *)weight_at_place(c, norm);
    const uint n_steps = c->n_rows * STEPS(N_EMBD);
    for (uint first = c->warp; first < n_steps; first += WARPS * LOADS_AHEAD) {
        uint4 numbers[LOADS_AHEAD];
#pragma unroll
        for (uint n = 0; n < LOADS_AHEAD; n++) {
            const struct seat seat = seat_of(c, N_EMBD, first + n * WARPS);
            if (!embed && first + n * WARPS < n_steps)
                numbers[n] = fresh_numbers(x + seat.row * N_EMBD, seat.i);
        }
#pragma unroll
        for (uint n = 0; n < LOADS_AHEAD; n++) {
            const uint step = first + n * WARPS;
            if (step >= n_steps)
                break;
            const struct seat seat = seat_of(c, N_EMBD, step);
            const float8 wv = vload8(0, w + seat.i);
            const float wi[8] = {wv.s0, wv.s1, wv.s2, wv.s3, wv.s4, wv.s5, wv.s6, wv.s7};
            float v[8], squares = 0.0f;
            if (embed) {
                const __global uchar *from = embedding_of(c, seat.row);
#pragma unroll
                for (uint i = 0; i < 8; i++)
                    v[i] = weight_at(from, seat.i + i) * c->p.embed_scale;
            } else {
                floats_of(numbers[n], v);
            }
#pragma unroll
            for (uint i = 0; i < 8; i++) {
                squares += seat.valid ? v[i] * v[i] : 0.0f;
                v[i] *= wi[i];
            }
            store_piece(c, N_EMBD, seat, v);
            squares = warp_sum(squares);
            if (c->lane == 0)
                c->floats[step] = squares;
        }
    }
}

/* 1 / rms of the rows, from what stage_normed left before a barrier; seen after the next one. */
PTX_INLINE void find_inverse_rms(const struct ctx *c)
{
    if (c->warp >= c->n_rows)
        return;
    float sum = 0.0f;
    for (uint i = c->lane; i < STEPS(N_EMBD); i += 32)
        sum += c->floats[c->warp * STEPS(N_EMBD) + i];
    sum = warp_sum(sum);
    if (c->lane == 0)
        INVERSE_RMS(c)[c->warp] = rsqrt(sum / N_EMBD + c->p.eps);
}

PTX_INLINE void stage_plain(const struct ctx *c, const uint k, const __global ushort *x)
{
    const uint n_steps = c->n_rows * STEPS(k);
    for (uint first = c->warp; first < n_steps; first += WARPS * LOADS_AHEAD) {
        uint4 numbers[LOADS_AHEAD];
#pragma unroll
        for (uint n = 0; n < LOADS_AHEAD; n++) {
            const struct seat seat = seat_of(c, k, first + n * WARPS);
            if (first + n * WARPS < n_steps)
                numbers[n] = fresh_numbers(x + seat.row * k, seat.i);
        }
#pragma unroll
        for (uint n = 0; n < LOADS_AHEAD; n++) {
            if (first + n * WARPS >= n_steps)
                break;
            float v[8];
            floats_of(numbers[n], v);
            store_piece(c, k, seat_of(c, k, first + n * WARPS), v);
        }
    }
}

/* What the heads found. */
PTX_INLINE void stage_attention(const struct ctx *c)
{
    bool split = false;
    for (uint row = 0; row < c->n_rows; row++)
        split = split || splits_of(c, cells_seen(c, row)) > 1;
    if (!split) {
        stage_plain(c, Q_ROWS, (const __global ushort *)(c->work + AT_ATT));
        return;
    }
    for (uint step = c->warp; step < c->n_rows * STEPS(Q_ROWS); step += WARPS) {
        const struct seat seat = seat_of(c, Q_ROWS, step);
        float v[8];
        attention_of(c, seat.row, splits_of(c, cells_seen(c, seat.row)), seat.i, v);
        store_piece(c, Q_ROWS, seat, v);
    }
}

/* ---- linear phases ---- */

/* What a lane loads of a unit: two pieces of row g of the tile, two of row g + 8. */
struct unit {
    struct r4_piece p[2][2];
};

/* A group's share of a linear phase: tiles i0 .. i1 - 1, this warp's units u0 .. u1 - 1. The part
 * that the last loaded unit lies in is kept: its tiles, dtype, rows and first byte. */
struct share {
    uint i0, i1, u0, u1, per_warp;
    uint part_i0, part_i1, type, rows;
    const __global uchar *at;
    bool floats; /* all parts, or none, are of float dtypes */
    struct unit a, b; /* units u0 and u0 + 1, or u and u + 1 */
    uint type_a, type_b;
};

#define ONLY_FLOAT                                                                                 \
    (IS_FLOAT(TYPE_A) && (TYPE_B == 255 || IS_FLOAT(TYPE_B)) && (TYPE_C == 255 || IS_FLOAT(TYPE_C)))
#define UNITS(s, k)                                                                                \
    (ONLY_FLOAT || (ANY_FLOAT && (s)->floats) ? ((k) + 63) / 64 : ((k) / 32 + 7) / 8)

/* Makes the part that tile i lies in the share's part. */
PTX_INLINE void enter_part(const struct ctx *c, const __global struct decode_part *part,
                           const uint n_parts, uint i, struct share *s)
{
    s->part_i0 = 0;
    for (uint n = 0; n + 1 < n_parts && i >= s->part_i0 + part->rows / TILE_ROWS; n++, part++)
        s->part_i0 += part->rows / TILE_ROWS;
    s->part_i1 = s->part_i0 + part->rows / TILE_ROWS;
    s->type = part->type;
    s->rows = part->rows;
    s->at = weight_at_place(c, part->at);
}

/* Row of the matrix that row g (and 8 after it where `second`) of a tile is. */
PTX_INLINE uint row_of(const struct share *s, const uint type, const bool pairs, uint tile, uint g,
                       bool second)
{
    if (!pairs)
        return min(tile * TILE_ROWS + g + (second ? 8 : 0), s->rows - 1);
    const uint gate = tile * 8 + g;
    return IS_FLOAT(type) ? gate + (second ? N_FF : 0)
                          : gate / 4 * 8 + gate % 4 + (second ? 4 : 0);
}

PTX_INLINE void load_typed(const struct ctx *c, const struct share *s, const uint type, const uint k,
                           const bool pairs, uint tile, uint unit, struct unit *raw)
{
    const uint g = c->lane >> 2, t = c->lane & 3;
#pragma unroll
    for (uint half_ = 0; half_ < 2; half_++) {
        const uint row = row_of(s, type, pairs, tile, g, half_);
        if (IS_FLOAT(type)) {
            const uint bytes = type == DT_F32 ? 4 : 2;
            const __global uchar *at = s->at + (ulong)row * (k * bytes);
#pragma unroll
            for (uint n = 0; n < 2; n++) {
                const uint column = min(unit * 64 + n * 32 + t * 8, k - 8);
                read16(at + column * bytes, raw->p[half_][n].q);
                if (type == DT_F32)
                    read16(at + column * bytes + 16, raw->p[half_][n].q + 4);
            }
        } else {
            const uint first = unit / 4 * R4_CHUNK, nb = min(R4_CHUNK, k / 32 - first);
            const __global uchar *chunk =
                s->at + row / 4 * r4_group_bytes(type, k) + R4_BYTES(type, first);
#pragma unroll
            for (uint n = 0; n < 2; n++)
                r4_piece_load(type, chunk, nb, row % 4, min(unit % 4 * 8 + n * 4 + t, nb - 1),
                              &raw->p[half_][n]);
        }
    }
}

PTX_INLINE void load_unit(const struct ctx *c, const __global struct decode_part *parts,
                          const uint n_parts, const uint k, const bool pairs, struct share *s,
                          uint unit, struct unit *raw, uint *type)
{
    const uint i = s->i0 + unit / UNITS(s, k), of_tile = unit % UNITS(s, k);
    if (n_parts > 1 && i >= s->part_i1)
        enter_part(c, parts, n_parts, i, s);
    const uint tile = i - s->part_i0;
    *type = s->type;
    BY_TYPE(s->type, load_typed(c, s, TYPE_A, k, pairs, tile, of_tile, raw),
            load_typed(c, s, TYPE_B, k, pairs, tile, of_tile, raw),
            load_typed(c, s, TYPE_C, k, pairs, tile, of_tile, raw));
}

/* The share of this warp of a matrix of n_tiles, and its first loads. */
PTX_INLINE void begin_linear(const struct ctx *c, const __global struct decode_part *parts,
                             const uint n_parts, const uint k, uint n_tiles, const bool pairs,
                             struct share *s)
{
    s->i0 = (uint)((ulong)n_tiles * c->group / c->n_groups);
    s->i1 = (uint)((ulong)n_tiles * (c->group + 1) / c->n_groups);
    s->floats = IS_FLOAT(parts->type);
    const uint units = (s->i1 - s->i0) * UNITS(s, k);
    s->per_warp = max(1u, (units + WARPS - 1) / WARPS);
    s->u0 = min(c->warp * s->per_warp, units);
    s->u1 = min(s->u0 + s->per_warp, units);
    if (s->u0 >= s->u1)
        return;
    enter_part(c, parts, n_parts, s->i0 + s->u0 / UNITS(s, k), s);
    load_unit(c, parts, n_parts, k, pairs, s, s->u0, &s->a, &s->type_a);
    if (s->u0 + 1 < s->u1)
        load_unit(c, parts, n_parts, k, pairs, s, s->u0 + 1, &s->b, &s->type_b);
}

/* Pairs of halves as two pairs of bfloat16 whose sum they are. */
PTX_INLINE void bfloats_of_halves(uint pair, uint *high, uint *low)
{
    const float a = half_of_pair(pair, 0), b = half_of_pair(pair, 1);
    *high = ptx_bfloat2_of(a, b);
    *low = ptx_bfloat2_of(a - as_float(*high << 16), b - as_float(*high & 0xFFFF0000));
}

/* acc += 8 columns of rows g and g + 8, their bytes as in the file, times the sequences' numbers. */
PTX_INLINE void add_floats(const uint type, const uint *first, const uint *second, const uint x[4],
                           float acc[4])
{
#pragma unroll
    for (uint m = 0; m < 2; m++) {
        uint high[2], low[2];
        if (type == DT_F16) {
            const uint a[4] = {first[2 * m], second[2 * m], first[2 * m + 1], second[2 * m + 1]};
            ptx_mma_16816(acc, a, x + 2 * m);
            continue;
        }
        bfloats_of_halves(x[2 * m], &high[0], &low[0]);
        bfloats_of_halves(x[2 * m + 1], &high[1], &low[1]);
        if (type == DT_BF16) {
            const uint a[4] = {first[2 * m], second[2 * m], first[2 * m + 1], second[2 * m + 1]};
            ptx_mma_16816_bf16(acc, a, high);
            ptx_mma_16816_bf16(acc, a, low);
            continue;
        }
        uint a[4], rest[4]; /* floats, as the sum of two bfloat16 */
#pragma unroll
        for (uint n = 0; n < 4; n++) {
            const uint *from = (n & 1 ? second : first) + 4 * m + n / 2 * 2;
            const float u = as_float(from[0]), v = as_float(from[1]);
            a[n] = ptx_bfloat2_of(u, v);
            rest[n] = ptx_bfloat2_of(u - as_float(a[n] << 16), v - as_float(a[n] & 0xFFFF0000));
        }
        ptx_mma_16816_bf16(acc, a, high);
        ptx_mma_16816_bf16(acc, a, low);
        ptx_mma_16816_bf16(acc, rest, high);
    }
}

PTX_INLINE void add_typed(const struct ctx *c, const uint type, const uint k, const bool pairs,
                          uint unit, const struct unit *raw, float acc[2][4])
{
    const uint g = c->lane >> 2, t = c->lane & 3, row = min(g, c->n_rows - 1);
#pragma unroll
    for (uint n = 0; n < 2; n++) {
        if (IS_FLOAT(type)) {
            const uint4 v =
                *(const __local uint4 *)(c->body + piece_byte(k, row, unit * 2 + n, t));
            const uint x[4] = {v.x, v.y, v.z, v.w};
            add_floats(type, raw->p[0][n].q, raw->p[1][n].q, x, acc[n]);
            continue;
        }
#pragma unroll
        for (uint half_ = 0; half_ < 2; half_++) {
            uint first[8], second[8];
            r4_piece_pairs(type, &raw->p[0][n], g & 3, half_, first);
            r4_piece_pairs(type, &raw->p[1][n], g & 3, half_, second);
#pragma unroll
            for (uint q = 0; q < 2; q++) {
                const uint4 v = *(const __local uint4 *)(c->body + piece_byte(k, row,
                                                                              unit * 8 + n * 4 + t,
                                                                              half_ * 2 + q));
                const uint x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (uint m = 0; m < 2; m++) {
                    const uint at = 4 * q + 2 * m;
                    const uint a[4] = {first[at], second[at], first[at + 1], second[at + 1]};
                    ptx_mma_16816(acc[n], a, x + 2 * m);
                }
            }
        }
    }
}

PTX_INLINE void add_unit(const struct ctx *c, const uint k, const bool pairs, const struct share *s,
                         uint unit, uint type, const struct unit *raw, float acc[2][4])
{
    const uint of_tile = unit % UNITS(s, k), i = unit / UNITS(s, k);
    BY_TYPE(type, add_typed(c, TYPE_A, k, pairs, of_tile, raw, acc),
            add_typed(c, TYPE_B, k, pairs, of_tile, raw, acc),
            add_typed(c, TYPE_C, k, pairs, of_tile, raw, acc));
    if (of_tile + 1 < UNITS(s, k) && unit + 1 < s->u1)
        return;
    /* the last unit of this tile in this warp */
    __local float *out = SUMS(c) + (i + c->warp) * SLOT_FLOATS + (c->lane >> 2);
#pragma unroll
    for (uint n = 0; n < 4; n++) {
        const uint row = 2 * (c->lane & 3) + (n & 1);
        if (row < c->n_rows)
            out[row * TILE_ROWS + n / 2 * 8] = acc[0][n] + acc[1][n];
        acc[0][n] = acc[1][n] = 0.0f;
    }
}

/* All units of the warp, two loads ahead; a barrier at the end makes the sums readable. */
PTX_INLINE void run_linear(const struct ctx *c, const __global struct decode_part *parts,
                           const uint n_parts, const uint k, const bool pairs, struct share *s)
{
    float acc[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    for (uint u = s->u0; u < s->u1; u += 2) {
        add_unit(c, k, pairs, s, u, s->type_a, &s->a, acc);
        if (u + 2 < s->u1)
            load_unit(c, parts, n_parts, k, pairs, s, u + 2, &s->a, &s->type_a);
        if (u + 1 < s->u1)
            add_unit(c, k, pairs, s, u + 1, s->type_b, &s->b, acc);
        if (u + 3 < s->u1)
            load_unit(c, parts, n_parts, k, pairs, s, u + 3, &s->b, &s->type_b);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Sum of row r of the group's tile i for a sequence, over the warps that had a part of it. */
PTX_INLINE float tile_sum(const struct ctx *c, const uint k, const struct share *s, uint i, uint row,
                          uint r)
{
    const uint first = i * UNITS(s, k) / s->per_warp;
    const uint last = (i * UNITS(s, k) + UNITS(s, k) - 1) / s->per_warp;
    float sum = 0.0f;
    for (uint w = first; w <= last; w++)
        sum += SUMS(c)[(i + w) * SLOT_FLOATS + row * TILE_ROWS + r];
    return sum;
}

#endif
