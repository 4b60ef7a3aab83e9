/* Linear phases of the one-launch decode kernel on the matrix units (mma.sync): up to MAX_ROWS
 * sequences, weights of any dtype; vectors as halves in local memory, and a group's share of a matrix.
 *
 * A tile is 16 rows of weights: with them as rows of A and 8 sequences as columns of B, one
 * mma.m16n8k16 makes 16 x 8 sums of 16 products; more sequences are more columns for the same A.
 * Which number of k meets which is free, as long as both sides agree: so a lane (quad g = lane / 4,
 * t = lane % 4) loads 16 bytes of rows g and g + 8 as they lie and takes the numbers of sequence g
 * that belong to them from local memory.
 *   quantised: a unit is 256 columns of a tile: the lane has blocks t and t + 4 of 8
 *   floats     a unit is 64 columns of a tile: the lane has 8 columns from 8t and from 32 + 8t
 * Work of a linear phase: tiles are cut evenly over groups; a group's units evenly over its warps.
 * Where the vectors of all sequences do not fit into local memory, k is cut in slices, done in turn.
 * Sums of a tile meet in local memory: warp w of tile i has slot i + w there, which is unlike all
 * others, because warps are in the order of the units. A warp loads its first units before it waits:
 * weights do not depend on the other groups.
 * In gate_up, rows 0..7 of a tile are gates and 8..15 their ups.
 *
 * Defined by the host: MAX_ROWS, the most sequences of a launch; MAX_SLOTS, of sums in any phase;
 * MAX_SLICE, the most columns of a slice, a multiple of 256.
 */
#ifndef OINFER_KERNELS_DECODE_TILES_H
#define OINFER_KERNELS_DECODE_TILES_H

#include "nvidia/copy.h"
#include "nvidia/decode_attend.h"
#include "nvidia/mma.h"
#include "nvidia/r4_pairs.h"

#define TILE_ROWS   16
#define COLUMNS     ((MAX_ROWS + 7) / 8) /* of sequences, 8 each */
#define K_PAD(k)    (((k) + 255) / 256 * 256)
#define STEPS(k)    (K_PAD(k) / 256) /* of a vector: 8 blocks, a warp's work */
#define SLICES(k)   ((K_PAD(k) + MAX_SLICE - 1) / MAX_SLICE)
#define SLICE_STEPS(k) ((STEPS(k) + SLICES(k) - 1) / SLICES(k))
#define SLOT_FLOATS (MAX_ROWS * TILE_ROWS)

/* Local memory: a slice of the vectors (or what attention keeps), then the sums. */
#define LOCAL_X    (MAX_ROWS * 2 * (K_PAD(MAX_K) < MAX_SLICE ? K_PAD(MAX_K) : MAX_SLICE))
#define LOCAL_ATT  (ATT_FLOATS * 4)
#define LOCAL_BODY (((LOCAL_X > LOCAL_ATT ? LOCAL_X : LOCAL_ATT) + 15) / 16 * 16)
#define LOCAL_ALL  (LOCAL_BODY + MAX_SLOTS * SLOT_FLOATS * 4)
#define SUMS(c)    ((__local float *)((c)->body + LOCAL_BODY)) /* [slot][row][TILE_ROWS] */

/* Floats beside them: sums of squares of the embeddings' steps, then 1 / rms of each row. */
#define DECODE_FLOATS (MAX_ROWS * STEPS(N_EMBD) + MAX_ROWS)
#define INVERSE_RMS(c) ((c)->floats + MAX_ROWS * STEPS(N_EMBD))

/* ---- vectors to halves in local memory ---- */

/* Byte of piece q (8 halves) of block j of a row's slice. Pieces are moved about within 128 bytes,
 * so that the lanes of a warp meet different banks: those of a quad read one piece of 4 blocks, or
 * 4 pieces of one block, of neighbouring rows. */
PTX_INLINE uint piece_byte(const uint k, uint row, uint j, uint q)
{
    const uint at = ((j & 1) * 4 + q) ^ (j >> 1 & 1) ^ (row & 1) * 6;
    return row * (SLICE_STEPS(k) * 512) + (j >> 1) * 128 + at * 16;
}

/* What a lane has of a step of a slice: 8 numbers of a row, from i on. */
struct seat {
    uint row, step; /* of the whole vector */
    uint i, j;      /* j: block of the slice */
    bool valid;     /* not past the vector's end, where zeros go */
};

PTX_INLINE struct seat seat_of(const struct ctx *c, const uint k, uint slice, uint n)
{
    const uint row = min(n / SLICE_STEPS(k), c->n_rows - 1), of_row = n % SLICE_STEPS(k);
    const uint step = slice * SLICE_STEPS(k) + of_row, block = step * 8 + (c->lane >> 2);
    const struct seat seat = {row, step, min(block, k / 32 - 1) * 32 + (c->lane & 3) * 8,
                              of_row * 8 + (c->lane >> 2), block < k / 32};
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

/* What a linear phase reads. x comes times the weight of the norm that follows. */
enum input { INPUT_NORMED, INPUT_EMBEDDED, INPUT_ATTENTION, INPUT_H };

/* A slice of what the heads found, where the cells of some row were split. */
PTX_INLINE void stage_splits(const struct ctx *c, uint slice)
{
    const uint n_steps = c->n_rows * SLICE_STEPS(Q_ROWS);
    for (uint n = c->warp; n < n_steps; n += WARPS) {
        const struct seat seat = seat_of(c, Q_ROWS, slice, n);
        float v[8];
        attention_of(c, seat.row, splits_of(c, cells_seen(c, seat.row)), seat.i, v);
        store_piece(c, Q_ROWS, seat, v);
    }
}

PTX_INLINE bool any_split(const struct ctx *c)
{
    bool split = false;
    for (uint row = 0; row < c->n_rows; row++)
        split = split || splits_of(c, cells_seen(c, row)) > 1;
    return split;
}

/* A slice of the embeddings of the tokens, times the norm's weight; the sums of squares are kept. */
PTX_INLINE void stage_embedded(const struct ctx *c, ulong norm, uint slice)
{
    const __global float *w = (const __global float *)weight_at_place(c, norm);
    for (uint n = c->warp; n < c->n_rows * SLICE_STEPS(N_EMBD); n += WARPS) {
        const struct seat seat = seat_of(c, N_EMBD, slice, n);
        const __global uchar *from = embedding_of(c, seat.row);
        float v[8], squares = 0.0f;
#pragma unroll
        for (uint i = 0; i < 8; i++) {
            v[i] = weight_at(from, seat.i + i) * c->p.embed_scale;
            squares += seat.valid ? v[i] * v[i] : 0.0f;
            v[i] *= w[seat.i + i];
        }
        squares = warp_sum(squares);
        if (c->lane == 0 && seat.step < STEPS(N_EMBD))
            c->floats[seat.row * STEPS(N_EMBD) + seat.step] = squares;
        store_piece(c, N_EMBD, seat, v);
    }
}

/* A slice of the rows' vectors of k numbers, copied in the background as they are. */
PTX_INLINE void stage_copied(const struct ctx *c, const uint k, const __global ushort *x, uint slice)
{
    const uint of_row = SLICE_STEPS(k) * 32, to = ptx_local(c->body); /* pieces of 16 bytes */
    for (uint i = c->thread; i < c->n_rows * of_row; i += THREADS) {
        const uint row = i / of_row, piece = i % of_row, column = (slice * of_row + piece) * 8;
        ptx_copy16(to + piece_byte(k, row, piece / 4, piece % 4),
                   x + row * k + min(column, k - 8), column < k);
    }
    ptx_copy_commit();
}

/* 1 / rms of the rows, seen after the next barrier: from the squares that stage_embedded left before
 * the last one, or those that the groups gave with their numbers of x. */
PTX_INLINE void find_inverse_rms(const struct ctx *c, bool embedded)
{
    for (uint row = c->warp; row < c->n_rows; row += WARPS) {
        float sum = 0.0f;
        if (embedded) {
            for (uint i = c->lane; i < STEPS(N_EMBD); i += 32)
                sum += c->floats[row * STEPS(N_EMBD) + i];
        } else {
            const __global float *squares = (const __global float *)(c->work + AT_SQUARES);
            for (uint g = c->lane; g < c->n_groups; g += 32)
                sum += fresh(squares + row * DECODE_GROUPS + g);
        }
        sum = warp_sum(sum);
        if (c->lane == 0)
            INVERSE_RMS(c)[row] = rsqrt(sum / N_EMBD + c->p.eps);
    }
}

/* A slice of what a phase reads; a barrier follows. Copies are waited for. */
PTX_INLINE void stage(const struct ctx *c, const uint k, enum input input, ulong norm, uint slice)
{
    if (input == INPUT_EMBEDDED) {
        stage_embedded(c, norm, slice);
    } else if (input == INPUT_ATTENTION && any_split(c)) {
        stage_splits(c, slice);
    } else {
        stage_copied(c, k,
                     (const __global ushort *)(c->work + (input == INPUT_NORMED      ? AT_XB
                                                          : input == INPUT_ATTENTION ? AT_ATT
                                                                                     : AT_H)),
                     slice);
        if (input == INPUT_NORMED && slice == 0)
            find_inverse_rms(c, false);
        ptx_copy_wait0();
    }
}

/* ---- linear phases ---- */

/* What a lane loads of a unit: two pieces of row g of the tile, two of row g + 8. */
struct unit {
    struct r4_piece p[2][2];
};

#define ONLY_FLOAT \
    (IS_FLOAT(TYPE_A) && (TYPE_B == 255 || IS_FLOAT(TYPE_B)) && (TYPE_C == 255 || IS_FLOAT(TYPE_C)))

/* Units of a warp that are being loaded: more would not stay in registers. A lane has 16 words of a
 * unit of halves, 36 of Q8_0. */
#define UNIT_WORDS(type)                                                                           \
    ((type) == 255 ? 0 : IS_FLOAT(type) ? ((type) == DT_F32 ? 32 : 16)                             \
     : (type) == DT_Q4_0                ? 20                                                       \
     : (type) == DT_Q4_1 || (type) == DT_Q5_0 ? 24 : 36)
#define LARGER(a, b)   ((a) > (b) ? (a) : (b))
#define MOST_WORDS     LARGER(UNIT_WORDS(TYPE_A), LARGER(UNIT_WORDS(TYPE_B), UNIT_WORDS(TYPE_C)))
#define UNITS_AHEAD    (MOST_WORDS > 24 ? 1 : MAX_ROWS == 1 && MOST_WORDS == 16 ? 3 : 2)

/* A group's share of a linear phase: tiles i0 .. i1 - 1, this warp's units u0 .. u1 - 1 of each slice.
 * The part that the last loaded unit lies in is kept: its tiles, dtype, rows and first byte. */
struct share {
    uint i0, i1, u0, u1, per_warp;
    uint part_i0, part_i1, type, rows;
    const __global uchar *at;
    bool floats; /* all parts, or none, are of float dtypes */
    struct unit raw[UNITS_AHEAD];
    uint raw_type[UNITS_AHEAD];
};

/* Columns of a unit, and units of a tile in a slice. */
#define UNIT_COLUMNS(s)   (ONLY_FLOAT || (ANY_FLOAT && (s)->floats) ? 64 : 256)
#define SLICE_UNITS(s, k) (SLICE_STEPS(k) * 256 / UNIT_COLUMNS(s))
/* The last unit of a tile that has columns; those after it in the last slice repeat it, times zeros. */
#define LAST_UNIT(s, k)   (((k) + UNIT_COLUMNS(s) - 1) / UNIT_COLUMNS(s) - 1)

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
                          uint slice, uint unit, const uint n)
{
    const uint per_tile = SLICE_UNITS(s, k), i = s->i0 + unit / per_tile;
    const uint of_tile = min(slice * per_tile + unit % per_tile, (uint)LAST_UNIT(s, k));
    if (n_parts > 1 && (i >= s->part_i1 || i < s->part_i0))
        enter_part(c, parts, n_parts, i, s);
    const uint tile = i - s->part_i0;
    s->raw_type[n] = s->type;
    BY_TYPE(s->type, load_typed(c, s, TYPE_A, k, pairs, tile, of_tile, &s->raw[n]),
            load_typed(c, s, TYPE_B, k, pairs, tile, of_tile, &s->raw[n]),
            load_typed(c, s, TYPE_C, k, pairs, tile, of_tile, &s->raw[n]));
}

/* The first loads of a slice. */
PTX_INLINE void begin_slice(const struct ctx *c, const __global struct decode_part *parts,
                            const uint n_parts, const uint k, const bool pairs, struct share *s,
                            uint slice)
{
#pragma unroll
    for (uint n = 0; n < UNITS_AHEAD; n++)
        if (s->u0 + n < s->u1)
            load_unit(c, parts, n_parts, k, pairs, s, slice, s->u0 + n, n);
}

/* The share of this warp of a matrix of n_tiles, and its first loads. */
PTX_INLINE void begin_linear(const struct ctx *c, const __global struct decode_part *parts,
                             const uint n_parts, const uint k, uint n_tiles, const bool pairs,
                             struct share *s)
{
    s->i0 = (uint)((ulong)n_tiles * c->group / c->n_groups);
    s->i1 = (uint)((ulong)n_tiles * (c->group + 1) / c->n_groups);
    s->floats = IS_FLOAT(parts->type);
    const uint units = (s->i1 - s->i0) * SLICE_UNITS(s, k);
    s->per_warp = max(1u, (units + WARPS - 1) / WARPS);
    s->u0 = min(c->warp * s->per_warp, units);
    s->u1 = min(s->u0 + s->per_warp, units);
    if (s->u0 >= s->u1)
        return;
    enter_part(c, parts, n_parts, s->i0 + s->u0 / SLICE_UNITS(s, k), s);
    begin_slice(c, parts, n_parts, k, pairs, s, 0);
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

/* Sums of a tile over a warp's units: with one column of sequences in two chains, so that products
 * wait less for one another. */
#define CHAINS (COLUMNS == 1 ? 2 : 1)
struct tile_sums {
    float v[COLUMNS * CHAINS][4];
};

/* The sequence of a column whose numbers this lane takes. */
PTX_INLINE uint row_of_column(const struct ctx *c, uint column)
{
    return min(column * 8 + (c->lane >> 2), c->n_rows - 1);
}

PTX_INLINE uint4 read_piece(const struct ctx *c, const uint k, uint column, uint j, uint q)
{
    return *(const __local uint4 *)(c->body + piece_byte(k, row_of_column(c, column), j, q));
}

/* Half of block j of rows g and g + 8 of the tile. */
PTX_INLINE void add_half_block(const struct ctx *c, const uint k, uint j, const uint half_,
                               const uint first[8], const uint second[8], const uint chain,
                               struct tile_sums *sums)
{
#pragma unroll
    for (uint column = 0; column < COLUMNS; column++) {
        if (column > 0 && column * 8 >= c->n_rows)
            break;
#pragma unroll
        for (uint q = 0; q < 2; q++) {
            const uint4 v = read_piece(c, k, column, j, half_ * 2 + q);
            const uint x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (uint m = 0; m < 2; m++) {
                const uint at = 4 * q + 2 * m;
                const uint a[4] = {first[at], second[at], first[at + 1], second[at + 1]};
                ptx_mma_16816(sums->v[column * CHAINS + chain], a, x + 2 * m);
            }
        }
    }
}

PTX_INLINE void add_typed(const struct ctx *c, const uint type, const uint k, uint unit,
                          const struct unit *raw, struct tile_sums *sums)
{
    const uint g = c->lane >> 2, t = c->lane & 3;
#pragma unroll
    for (uint n = 0; n < 2; n++) {
        if (IS_FLOAT(type)) {
#pragma unroll
            for (uint column = 0; column < COLUMNS; column++) {
                if (column > 0 && column * 8 >= c->n_rows)
                    break;
                const uint4 v = read_piece(c, k, column, unit * 2 + n, t);
                const uint x[4] = {v.x, v.y, v.z, v.w};
                add_floats(type, raw->p[0][n].q, raw->p[1][n].q, x,
                           sums->v[column * CHAINS + n % CHAINS]);
            }
            continue;
        }
#pragma unroll
        for (uint half_ = 0; half_ < 2; half_++) {
            uint first[8], second[8];
            r4_piece_pairs(type, &raw->p[0][n], g & 3, half_, first);
            r4_piece_pairs(type, &raw->p[1][n], g & 3, half_, second);
            add_half_block(c, k, unit * 8 + n * 4 + t, half_, first, second, n % CHAINS, sums);
        }
    }
}

/* What this warp found of a tile goes to its slot: stored by the first slice, added by others. */
PTX_INLINE void put_sums(const struct ctx *c, uint i, bool add, struct tile_sums *sums)
{
    __local float *out = SUMS(c) + (i + c->warp) * SLOT_FLOATS + (c->lane >> 2);
#pragma unroll
    for (uint column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (uint n = 0; n < 4; n++) {
            const uint row = column * 8 + 2 * (c->lane & 3) + (n & 1);
            float sum = sums->v[column * CHAINS][n];
            sums->v[column * CHAINS][n] = 0.0f;
            if (CHAINS == 2) {
                sum += sums->v[CHAINS - 1][n];
                sums->v[CHAINS - 1][n] = 0.0f;
            }
            __local float *at = out + row * TILE_ROWS + n / 2 * 8;
            if (row < c->n_rows)
                *at = add ? *at + sum : sum;
        }
    }
}

PTX_INLINE void add_unit(const struct ctx *c, const uint k, const struct share *s, uint slice,
                         uint unit, const uint n, struct tile_sums *sums)
{
    const uint per_tile = SLICE_UNITS(s, k), of_tile = unit % per_tile;
    BY_TYPE(s->raw_type[n], add_typed(c, TYPE_A, k, of_tile, &s->raw[n], sums),
            add_typed(c, TYPE_B, k, of_tile, &s->raw[n], sums),
            add_typed(c, TYPE_C, k, of_tile, &s->raw[n], sums));
    if (of_tile + 1 == per_tile || unit + 1 == s->u1) /* this warp's last of the tile */
        put_sums(c, unit / per_tile, SLICES(k) > 1 && slice > 0, sums);
}

/* The phase's vectors and all units of the warp, loads being UNITS_AHEAD units ahead; a barrier at the
 * end makes the sums, and 1 / rms, readable. */
PTX_INLINE void run_linear(const struct ctx *c, const __global struct decode_part *parts,
                           const uint n_parts, const uint k, const bool pairs,
                           enum input input, ulong norm, struct share *s)
{
    struct tile_sums sums;
#pragma unroll
    for (uint i = 0; i < COLUMNS * CHAINS * 4; i++)
        sums.v[i / 4][i % 4] = 0.0f;
#pragma unroll 1
    for (uint slice = 0; slice < SLICES(k); slice++) {
        if (slice > 0) {
            begin_slice(c, parts, n_parts, k, pairs, s, slice);
            group_barrier(); /* the slice before is read */
        }
        stage(c, k, input, norm, slice);
        group_barrier();
        if (input == INPUT_EMBEDDED && slice + 1 == SLICES(k))
            find_inverse_rms(c, true);
#pragma unroll 1
        for (uint u = s->u0; u < s->u1; u += UNITS_AHEAD) {
#pragma unroll
            for (uint n = 0; n < UNITS_AHEAD; n++) {
                if (u + n < s->u1)
                    add_unit(c, k, s, slice, u + n, n, &sums);
                if (u + n + UNITS_AHEAD < s->u1)
                    load_unit(c, parts, n_parts, k, pairs, s, slice, u + n + UNITS_AHEAD, n);
            }
        }
    }
    group_barrier();
}

/* Sum of row r of the group's tile i for a sequence, over the warps that had a part of it. */
PTX_INLINE float tile_sum(const struct ctx *c, const uint k, const struct share *s, uint i, uint row,
                          uint r)
{
    const uint first = i * SLICE_UNITS(s, k) / s->per_warp;
    const uint last = (i * SLICE_UNITS(s, k) + SLICE_UNITS(s, k) - 1) / s->per_warp;
    float sum = 0.0f;
    for (uint w = first; w <= last; w++)
        sum += SUMS(c)[(i + w) * SLOT_FLOATS + row * TILE_ROWS + r];
    return sum;
}

#endif
