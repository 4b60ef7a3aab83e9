/* matmul of 16-bit numbers on the matrix units of compute capability 9.0a (nvidia/wgmma.h): f16 or
 * bf16, products summed in f32; transposed or not, any size.
 *
 *           k                    TOKENS
 *      +---------+           +------------+    A group makes blocks of ROWS x TOKENS of y, batch after
 * ROWS | a       |         k | b          |    batch. One item lets the copy engine fill stages of
 *      +---------+           +------------+    64 k of both operands; a warpgroup per 64 rows
 *                                              multiplies, then stores through local memory.
 * The form of a stage follows the operand: trans_a and plain b have K last. What the engine cannot
 * take (lines that do not lie at multiples of 16 bytes) four warps copy, AHEAD stages early.
 * With SPLITS 2 two groups make a block, each of one half of k: for blocks that are fewer than the
 * compute units. The sums that are there first lie in memory until the others come.
 *   scratch, of all blocks: SPLITS x two tensor maps; with SPLITS 2: a state per multiplying warp, 0
 *   between launches; the sums of a block
 */
#ifndef SPLITS
#define SPLITS 1
#endif
#include "matmul/matmul.h"

#define TILE_M ROWS
#define TILE_N TOKENS
#if OP_DTYPE == DT_BF16
#define WGMMA_TYPE "bf16.bf16"
#define MAP_TYPE   MAP_BF16
#else
#define WGMMA_TYPE "f16.f16"
#define MAP_TYPE   MAP_F16
#endif
#include "nvidia/wgmma_bulk.h"
#include "nvidia/wgmma_copy.h"

#define AHEAD (STAGES - 2)
#if PRODUCERS != 1
#error "one team fills the stages"
#endif

struct operands {
    struct operand a, b;
};

PTX_INLINE struct operands operands_of(const __global uchar *a, const __global uchar *b,
                                       struct matmul_params p, uint batch)
{
    const ulong a_bytes = 2ul * p.m * p.k, b_bytes = 2ul * p.n * p.k;
    struct operands o = {operand_of(a + batch * a_bytes, p.m, p.k, p.trans_a),
                         operand_of(b + batch * b_bytes, p.n, p.k, !p.trans_b)};
    return o;
}

/* The k of one half of a block: steps first .. end - 1 of 64. */
struct work {
    uint block, batch, first, end;
    struct tile_place place;
};

/* Item `item` of all the work: halves of a block are neighbours. */
PTX_INLINE struct work work_of(ulong item, uint m_tiles, uint n_tiles, uint n_steps, uint batch)
{
    struct work w = {(uint)(item / SPLITS), 0, 0, n_steps, {0, 0}};
    uint tile = w.block;
    if (batch > 1) {
        w.batch = w.block / (m_tiles * n_tiles);
        tile = w.block % (m_tiles * n_tiles);
    }
#if SPLITS == 2
    const uint middle = (n_steps + 1) / 2;
    w.first = item % 2 ? middle : 0;
    w.end = item % 2 ? n_steps : middle;
#endif
    w.place = tile_order(tile, m_tiles, n_tiles);
    return w;
}

PTX_INLINE void copy_ahead(struct ring *ahead, const struct operands *o, struct tile_place t, uint step,
                           uint end, struct matmul_params p)
{
    if (step < end) {
        ring_wait_empty(ahead);
        const uint tile = ring_tile(ahead);
        if (p.trans_a)
            copy_stage(&o->a, tile, t.m * TILE_M, TILE_M, step, true);
        else
            copy_stage(&o->a, tile, t.m * TILE_M, TILE_M, step, false);
        if (p.trans_b)
            copy_stage(&o->b, tile + A_BYTES, t.n * TILE_N, TILE_N, step, false);
        else
            copy_stage(&o->b, tile + A_BYTES, t.n * TILE_N, TILE_N, step, true);
        ring_skip(ahead, 1);
    }
    ptx_copy_commit();
}

PTX_INLINE void fill_tile(struct ring *r, const struct operands *o, const struct work *w,
                          struct matmul_params p)
{
    struct ring ahead = *r;
    for (uint step = w->first; step < w->first + AHEAD; step++)
        copy_ahead(&ahead, o, w->place, step, w->end, p);
    for (uint step = w->first; step < w->end; step++) {
        copy_ahead(&ahead, o, w->place, step + AHEAD, w->end, p);
        PTX_COPY_WAIT(AHEAD);
        copy_publish(r);
        ring_skip(r, 1);
    }
}

/* ---- by the copy engine ---- */

/* Whether it can bring both operands. Matrices of a batch that have K last follow each other without
 * a gap, so that a tail of k would reach into the next. */
PTX_INLINE bool is_bulk(const __global uchar *a, const __global uchar *b, struct matmul_params p)
{
    return bulk_takes(a, 2 * (p.trans_a ? p.m : p.k)) && bulk_takes(b, 2 * (p.trans_b ? p.k : p.n)) &&
           (p.batch == 1 || p.k % STEP == 0 || (!p.trans_a && p.trans_b));
}

PTX_INLINE void write_maps(const __global uchar *a, const __global uchar *b, __global uchar *maps,
                           const uint *have, struct matmul_params p)
{
    struct bulk_matrix m[2] = {{a, MAP_TYPE, p.k, p.m * p.batch, 2 * p.k, TILE_M},
                               {b, MAP_TYPE, p.n, p.k * p.batch, 2 * p.n, STEP}};
    if (p.trans_a)
        m[0] = (struct bulk_matrix){a, MAP_TYPE, p.m, p.k * p.batch, 2 * p.m, STEP};
    if (p.trans_b)
        m[1] = (struct bulk_matrix){b, MAP_TYPE, p.k, p.n * p.batch, 2 * p.k, TILE_N};
    bulk_maps(maps, have, m, 2);
}

PTX_INLINE void fill_tile_bulk(struct ring *r, const __global uchar *maps, const struct work *w,
                               struct matmul_params p)
{
    const struct tile_place t = w->place;
    const uint a_line = w->batch * (p.trans_a ? p.k : p.m);
    const uint b_line = w->batch * (p.trans_b ? p.n : p.k);
    for (uint step = w->first; step < w->end; step++) {
        const uint tile = ring_tile(r), k0 = step * STEP;
        ring_wait_empty(r);
        if (ptx_elect()) {
            bulk_arrive(r, STAGE_BYTES);
            if (p.trans_a)
                bulk_tile(r, tile, maps, t.m * TILE_M, TILE_M, k0, a_line, true);
            else
                bulk_tile(r, tile, maps, t.m * TILE_M, TILE_M, k0, a_line, false);
            if (p.trans_b)
                bulk_tile(r, tile + A_BYTES, maps + MAP_BYTES, t.n * TILE_N, TILE_N, k0, b_line, false);
            else
                bulk_tile(r, tile + A_BYTES, maps + MAP_BYTES, t.n * TILE_N, TILE_N, k0, b_line, true);
        }
        ring_skip(r, 1);
    }
}

/* ---- two halves of k ---- */

/* A warp's meeting with the one that has the other half of k: true with all sums in d for the second
 * one to come, which finishes them. It waits for no more than the first one's stores, which wait for
 * nothing. state: 1 and 2 have come, + 2 when the sums are there. */
PTX_INLINE bool halves_meet(float *d, __global uint *state, __global float4 *sums)
{
    const uint lane = ptx_item() & 31;
    uint come = 0;
    sums += lane;
    if (lane == 0)
        __asm__ volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;"
                         : "=r"(come)
                         : "l"((ulong)state)
                         : "memory");
    if (ptx_uniform(come) == 0) {
#pragma unroll
        for (uint j = 0; j < N_SUMS / 4; j++)
            sums[32 * j] = (float4)(d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
        ptx_warp_sync();
        if (lane == 0)
            __asm__ volatile("red.release.gpu.global.add.u32 [%0], 2;" : : "l"((ulong)state) : "memory");
        return false;
    }
    if (lane == 0) {
        do
            __asm__ volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(come)
                             : "l"((ulong)state)
                             : "memory");
        while (come != 4);
        *state = 0;
    }
    ptx_warp_sync();
    const volatile __global float4 *there = sums;
#pragma unroll
    for (uint j = 0; j < N_SUMS / 4; j++) {
        const float4 other = there[32 * j];
        d[4 * j] += other.x;
        d[4 * j + 1] += other.y;
        d[4 * j + 2] += other.z;
        d[4 * j + 3] += other.w;
    }
    return true;
}

/* ---- storing ---- */

/* Two numbers, the first one in the lower half. */
PTX_INLINE uint pair_of(float low, float high)
{
#if OP_DTYPE == DT_BF16
    uint r;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return ptx_half2_of(low, high);
#endif
}

PTX_INLINE uint shuffle_xor(uint v, uint mask)
{
    return as_uint(ptx_shuffle_xor(as_float(v), mask));
}

/* Word i of lane q of a quad becomes word q of lane i. */
PTX_INLINE uint4 quad_transpose(uint4 v, bool odd, bool high)
{
    const uint a = shuffle_xor(odd ? v.x : v.y, 1), b = shuffle_xor(odd ? v.z : v.w, 1);
    const uint4 w = (uint4)(odd ? a : v.x, odd ? v.y : a, odd ? b : v.z, odd ? v.w : b);
    const uint e = shuffle_xor(high ? w.x : w.z, 2), f = shuffle_xor(high ? w.y : w.w, 2);
    return (uint4)(high ? e : w.x, high ? f : w.y, high ? w.z : e, high ? w.w : f);
}

/* Stores a piece: 16 rows from row0, 32 columns from col0 of a matrix of y. */
PTX_INLINE void store_piece(const __local float *piece, const __global uchar *c, __global uchar *y,
                            ulong matrix, uint row0, uint col0, struct matmul_params p, bool aligned)
{
    const uint lane = ptx_item() & 31;
#pragma unroll 1
    for (uint i = lane; i < 16 * PIECE / 8; i += 32) {
        const uint line = i / (PIECE / 8), column = i % (PIECE / 8) * 8, col = col0 + column;
        const __local float *from = piece + line * PIECE_STRIDE + column;
        const ulong at = matrix + (ulong)(row0 + line) * p.n + col;
        if (row0 + line >= p.m || col >= p.n)
            continue;
        if (aligned && p.beta == 0.0f) { /* n is a multiple of 8 */
            const float4 v = p.alpha * *(const __local float4 *)from;
            const float4 u = p.alpha * *(const __local float4 *)(from + 4);
            *(__global uint4 *)(y + 2 * at) =
                (uint4)(pair_of(v.x, v.y), pair_of(v.z, v.w), pair_of(u.x, u.y), pair_of(u.z, u.w));
            continue;
        }
        for (uint j = 0; j < 8 && col + j < p.n; j++)
            matmul_finish(y, c, p, at + j, from[j]);
    }
}

/* The same of all columns of the warp's 16 rows, straight from registers, where they are inside of y
 * and its rows at multiples of 16 bytes: of four groups of 8 columns, lane q of a quad collects its
 * neighbours' pairs of group q. */
PTX_INLINE void store_rows(const float *d, __global uchar *y, ulong first, struct matmul_params p)
{
    const uint lane = ptx_item() & 31, quad = lane & 3;
    __global uchar *at = y + 2 * (first + (ulong)(lane / 4) * p.n + 8 * quad);
#pragma unroll
    for (uint j = 0; j < TILE_N / PIECE; j++) {
#pragma unroll
        for (uint below = 0; below < 2; below++) {
            const float *s = d + 16 * j + 2 * below;
            const uint4 pairs = (uint4)(
                pair_of(p.alpha * s[0], p.alpha * s[1]), pair_of(p.alpha * s[4], p.alpha * s[5]),
                pair_of(p.alpha * s[8], p.alpha * s[9]), pair_of(p.alpha * s[12], p.alpha * s[13]));
            *(__global uint4 *)(at + below * 16ul * p.n + j * 2 * PIECE) =
                quad_transpose(pairs, quad & 1, quad & 2);
        }
    }
}

/* Where the sums of a block's first half lie, and its warps' states. */
struct meeting {
    __global uint *states;
    __global float4 *sums;
};

PTX_INLINE void multiply_tile(struct ring *r, const __global uchar *c, __global uchar *y,
                              const struct work *w, struct meeting meeting, struct matmul_params p,
                              uint warp, __local uchar *local_memory)
{
    const bool aligned = ((ulong)y & 15) == 0 && p.n % 8 == 0;
    const uint n_steps = w->end - w->first;
    __local float *piece = sums_piece(local_memory, warp);
    float d[N_SUMS];
    if (p.trans_a && !p.trans_b)
        wgmma_steps(d, r, warp / 4, n_steps, true, true, false);
    else if (p.trans_a)
        wgmma_steps(d, r, warp / 4, n_steps, true, false, false);
    else if (!p.trans_b)
        wgmma_steps(d, r, warp / 4, n_steps, false, true, false);
    else
        wgmma_steps(d, r, warp / 4, n_steps, false, false, false);
#if SPLITS == 2
    const uint at = w->block * (TILE_M / 16) + warp;
    if (!halves_meet(d, meeting.states + at, meeting.sums + (ulong)at * (N_SUMS / 4 * 32)))
        return;
#endif
    const uint row0 = w->place.m * TILE_M + 16 * warp, col0 = w->place.n * TILE_N;
    const ulong matrix = (ulong)w->batch * p.m * p.n;
    if (aligned && p.beta == 0.0f && row0 + 16 <= p.m && col0 + TILE_N <= p.n) {
        store_rows(d, y, matrix + (ulong)row0 * p.n + col0, p);
        return;
    }
#pragma unroll
    for (uint i = 0; i < TILE_N / PIECE; i++) {
        sums_put(d, i, piece);
        store_piece(piece, c, y, matrix, row0, col0 + PIECE * i, p, aligned);
    }
}

PTX_INLINE void matmul_wgmma_step(const __global uchar *a, const __global uchar *b,
                                  const __global uchar *c, __global uchar *y, __global uchar *scratch,
                                  struct matmul_params p, uint group, uint n_groups,
                                  __local uchar *local_memory)
{
    const bool bulk = is_bulk(a, b, p);
    const uint warp = ptx_uniform(ptx_item() / 32);
    const bool fills = warp < TEAM / 32;
    if (fills && bulk && warp != 0)
        return;
    __global uchar *maps = scratch + group * 2ul * MAP_BYTES;
    struct ring ring;
    uint have[2];
    if (!bulk) {
        ring = ring_open(local_memory, TEAM / 32);
    } else if (fills) {
        bulk_maps_read(maps, have, 2);
        ring = ring_make(local_memory);
    }
    const uint m_tiles = div_up(p.m, TILE_M), n_tiles = div_up(p.n, TILE_N);
    const uint n_steps = div_up(p.k, STEP);
    const ulong blocks = (ulong)m_tiles * n_tiles * p.batch;
    const struct meeting meeting = {
        (__global uint *)(scratch + blocks * SPLITS * 2 * MAP_BYTES),
        (__global float4 *)(scratch + blocks * (SPLITS * 2 * MAP_BYTES + TILE_M / 16 * 4))};
    struct work w = work_of(group, m_tiles, n_tiles, n_steps, p.batch);
    /* made while the maps are on their way */
    __asm__ volatile("" : "+r"(w.place.m), "+r"(w.place.n) : : "memory");
    if (bulk && fills)
        write_maps(a, b, maps, have, p);
    else if (bulk)
        ring = ring_join(local_memory);
    for (ulong item = group; item < blocks * SPLITS;) {
        if (fills && bulk) {
            fill_tile_bulk(&ring, maps, &w, p);
        } else if (fills) {
            const struct operands o = operands_of(a, b, p, w.batch);
            fill_tile(&ring, &o, &w, p);
        } else {
            multiply_tile(&ring, c, y, &w, meeting, p, warp - TEAM / 32, local_memory);
        }
        item += n_groups;
        w = work_of(item, m_tiles, n_tiles, n_steps, p.batch);
    }
}

KERNEL(LWS) void matmul_wgmma(MATMUL_SCRATCH_ARGS)
{
    __local uchar local_memory[LOCAL_BYTES] __attribute__((aligned(1024)));
    matmul_wgmma_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, scratch + scratch_offset, p,
                      get_group_id(0), get_num_groups(0), local_memory);
}
