/* The matrix units of compute capability 9.0a: wgmma, fed through a ring of stages in local memory.
 *
 * A group has PRODUCERS teams of 128 items that fill stages in turns, and TILE_M / 64 warpgroups of 128
 * items that multiply: d [TILE_M][TILE_N] float += a [TILE_M][64] b [TILE_N][64]^T a stage, of 16-bit
 * numbers. A stage holds a, then b, each in one of two forms, both with 16-byte chunks c of a 128-byte
 * line l at c ^ (l & 7):
 *   K first   line = row of the operand, 64 numbers along k
 *   K last    boxes of 64 rows: line = k, 64 numbers along the rows
 * Two barriers (mbarrier) a stage: `full`, for those who fill it and the bytes that the copy engine
 * brings, and `empty`, for the multiplying warps. wgmma is written in PTX comments that
 * engine/cl/sm90a.c uncovers. Source: the PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
 *
 * The including file defines TILE_M (64 or 128), TILE_N (64, 128, 192 or 256) and WGMMA_TYPE.
 */
#ifndef OINFER_KERNELS_WGMMA_H
#define OINFER_KERNELS_WGMMA_H

#include "nvidia/mbarrier.h"
#include "nvidia/raster.h"

#define TEAM        128 /* items that fill a stage */
#define PRODUCERS   (LWS / TEAM - TILE_M / 64)
#define STEP        64 /* k of a stage */
#define LINE_BYTES  128
#define A_BYTES     (TILE_M * LINE_BYTES)
#define B_BYTES     (TILE_N * LINE_BYTES)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define RING_BYTES  (200 * 1024)
#define STAGES      (RING_BYTES / STAGE_BYTES < 8 ? RING_BYTES / STAGE_BYTES : 8)
/* a piece of a warp's sums on its way out: 16 rows of 32 floats, 40 apart for the banks' sake */
#define PIECE        32
#define PIECE_STRIDE 40
#define PIECE_BYTES  (16 * PIECE_STRIDE * 4)
/* stages; full, then empty barriers; a piece of every multiplying warp */
#define LOCAL_BYTES  (STAGES * (STAGE_BYTES + 16) + TILE_M / 16 * PIECE_BYTES)
#define N_SUMS      (TILE_N / 2)                  /* of an item */
#if LWS % TEAM != 0 || LWS / TEAM <= TILE_M / 64
#error "a group has 128 items for every 64 rows of a, and teams of 128 items that fill stages"
#endif

/* The number of this item in its group. */
PTX_INLINE uint ptx_item(void)
{
    return (uint)get_local_id(0);
}

/* The number of this item in its team. */
PTX_INLINE uint team_item(void)
{
    return ptx_item() % TEAM;
}

/* ---- the ring ---- */

/* A place in the ring. */
struct ring {
    uint base, stage, parity;
};

PTX_INLINE uint ring_full(const struct ring *r)
{
    return r->base + STAGES * STAGE_BYTES + 8 * r->stage;
}

PTX_INLINE uint ring_empty(const struct ring *r)
{
    return ring_full(r) + 8 * STAGES;
}

PTX_INLINE uint ring_tile(const struct ring *r)
{
    return r->base + r->stage * STAGE_BYTES;
}

PTX_INLINE void ring_skip(struct ring *r, uint n)
{
    r->stage += n;
    if (r->stage >= STAGES) { /* n < STAGES */
        r->stage -= STAGES;
        r->parity ^= 1;
    }
}

/* Makes the barriers; called by all items of the group before anything else. arrivals: that fill a
 * stage. */
PTX_INLINE struct ring ring_open(__local uchar *local_memory, uint arrivals)
{
    struct ring r = {ptx_local(local_memory), 0, 0};
    if (ptx_item() == 0) {
        for (r.stage = 0; r.stage < STAGES; r.stage++) {
            mbarrier_init(ring_full(&r), arrivals);
            mbarrier_init(ring_empty(&r), TILE_M / 16);
        }
        r.stage = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
}

/* The same for a ring that one warp fills: that warp calls ring_make and goes on, the multiplying ones
 * call ring_join; nobody else takes part. */
#define RING_ITEMS (32 + 2 * TILE_M)

PTX_INLINE struct ring ring_make(__local uchar *local_memory)
{
    struct ring r = {ptx_local(local_memory), 0, 0};
    if (ptx_elect()) {
        for (; r.stage < STAGES; r.stage++) {
            mbarrier_init(ring_full(&r), 1);
            mbarrier_init(ring_empty(&r), TILE_M / 16);
        }
        __asm__ volatile("fence.proxy.async.shared::cta;" : : : "memory");
    }
    r.stage = 0;
    ptx_warp_sync();
    __asm__ volatile("bar.arrive 1, %0;" : : "n"(RING_ITEMS) : "memory");
    return r;
}

PTX_INLINE struct ring ring_join(__local uchar *local_memory)
{
    const struct ring r = {ptx_local(local_memory), 0, 0};
    __asm__ volatile("bar.sync 1, %0;" : : "n"(RING_ITEMS) : "memory");
    return r;
}

/* A stage that its multipliers have left. */
PTX_INLINE void ring_wait_empty(const struct ring *r)
{
    mbarrier_wait(ring_empty(r), r->parity ^ 1);
}

/* Makes what was written by ordinary stores, and is known to this item, visible to wgmma. It also
 * waits for the item's loads, so those who load ahead leave it to those who multiply. */
PTX_INLINE void ptx_fence_async(void)
{
    __asm__ volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/* What this warp of the team wrote to the stage is complete. */
PTX_INLINE void ring_publish(struct ring *r)
{
    ptx_warp_sync();
    if ((ptx_item() & 31) == 0)
        mbarrier_arrive(ring_full(r));
}

/* ---- wgmma ---- */

/* Descriptors of 64 (of b: TILE_N) lines at a multiple of 1024: a swizzle of 128 bytes, groups of 8
 * lines 1024 bytes apart, K last: boxes of 64 rows STEP lines apart. */
PTX_INLINE ulong wgmma_descriptor(uint at, const bool k_last)
{
    const ulong box = k_last ? STEP * LINE_BYTES / 16 : 1;
    return (ulong)(at >> 4 & 0x3FFF) | box << 16 | 64ul << 32 | 1ul << 62;
}

/* What to add to a descriptor for the next 16 of k. */
#define WGMMA_NEXT_K(k_last) ((k_last) ? 16 * LINE_BYTES / 16 : 32 / 16)

#define TEN(x) \
    "%" #x "0, %" #x "1, %" #x "2, %" #x "3, %" #x "4, %" #x "5, %" #x "6, %" #x "7, %" #x "8, %" #x "9"
#define WGMMA_NAMES_30 TEN() ", " TEN(1) ", " TEN(2)
#define WGMMA_NAMES_60 WGMMA_NAMES_30 ", " TEN(3) ", " TEN(4) ", " TEN(5)
#define WGMMA_NAMES_90 WGMMA_NAMES_60 ", " TEN(6) ", " TEN(7) ", " TEN(8)
#define WGMMA_NAMES_120 WGMMA_NAMES_90 ", " TEN(9) ", " TEN(10) ", " TEN(11)
#define WGMMA_SUMS_4(i)  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define WGMMA_SUMS_16(i) WGMMA_SUMS_4(i), WGMMA_SUMS_4((i) + 4), WGMMA_SUMS_4((i) + 8), WGMMA_SUMS_4((i) + 12)
#define WGMMA_SUMS_32(i) WGMMA_SUMS_16(i), WGMMA_SUMS_16((i) + 16)
#if TILE_N == 64
#define WGMMA_SHAPE "m64n64k16"
#define WGMMA_NAMES WGMMA_NAMES_30 ", %30, %31"
#define WGMMA_SUMS  WGMMA_SUMS_32(0)
#elif TILE_N == 128
#define WGMMA_SHAPE "m64n128k16"
#define WGMMA_NAMES WGMMA_NAMES_60 ", %60, %61, %62, %63"
#define WGMMA_SUMS  WGMMA_SUMS_32(0), WGMMA_SUMS_32(32)
#elif TILE_N == 192
#define WGMMA_SHAPE "m64n192k16"
#define WGMMA_NAMES WGMMA_NAMES_90 ", %90, %91, %92, %93, %94, %95"
#define WGMMA_SUMS  WGMMA_SUMS_32(0), WGMMA_SUMS_32(32), WGMMA_SUMS_32(64)
#else
#define WGMMA_SHAPE "m64n256k16"
#define WGMMA_NAMES WGMMA_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_SUMS  WGMMA_SUMS_32(0), WGMMA_SUMS_32(32), WGMMA_SUMS_32(64), WGMMA_SUMS_32(96)
#endif

/* d [64][TILE_N] = a b^T, + d if `more`; the digits say which operand has K last. */
#define WGMMA_STATEMENT(a_last, b_last)                                                          \
    __asm__ volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %[more], 0;\n\t"                      \
                     "//@wgmma.mma_async.sync.aligned." WGMMA_SHAPE ".f32." WGMMA_TYPE " {"      \
                     WGMMA_NAMES "}, %[a], %[b], p, 1, 1, " a_last ", " b_last ";\n\t}"          \
                     : WGMMA_SUMS                                                                \
                     : [a] "l"(a), [b] "l"(b), [more] "r"(more)                                  \
                     : "memory")

PTX_INLINE void wgmma(float *d, ulong a, ulong b, uint more, const bool a_last, const bool b_last)
{
    if (a_last && b_last)
        WGMMA_STATEMENT("1", "1");
    else if (a_last)
        WGMMA_STATEMENT("1", "0");
    else if (b_last)
        WGMMA_STATEMENT("0", "1");
    else
        WGMMA_STATEMENT("0", "0");
}

/* Multiplies n_steps stages of the ring for the multiplying warpgroup `part` of the group, which has
 * rows 64 part .. of the tile. fence: stages hold what ordinary stores wrote. Then lane l of warp w
 * holds in d[4 j ..] columns 8 j + 2 (l % 4) and the next of rows 16 w + l / 4 and 8 below. */
PTX_INLINE void wgmma_steps(float *d, struct ring *r, uint part, uint n_steps, const bool a_last,
                            const bool b_last, const bool fence)
{
    const bool first_lane = (ptx_item() & 31) == 0;
    uint left = 0; /* the barrier of the stage before */
#pragma unroll
    for (uint i = 0; i < N_SUMS; i++)
        d[i] = 0.0f;
    for (uint step = 0; step < n_steps; step++) {
        mbarrier_wait(ring_full(r), r->parity);
        if (fence)
            ptx_fence_async();
        const uint tile = ring_tile(r);
        const ulong a = wgmma_descriptor(tile + part * 64 * LINE_BYTES, a_last);
        const ulong b = wgmma_descriptor(tile + A_BYTES, b_last);
        __asm__ volatile("//@wgmma.fence.sync.aligned;" : : : "memory");
#pragma unroll
        for (uint i = 0; i < STEP / 16; i++)
            wgmma(d, a + i * WGMMA_NEXT_K(a_last), b + i * WGMMA_NEXT_K(b_last), step + i, a_last,
                  b_last);
        __asm__ volatile("//@wgmma.commit_group.sync.aligned;" : : : "memory");
        __asm__ volatile("//@wgmma.wait_group.sync.aligned 1;" : : : "memory");
        if (step > 0 && first_lane)
            mbarrier_arrive(left);
        left = ring_empty(r);
        ring_skip(r, 1);
    }
    __asm__ volatile("//@wgmma.wait_group.sync.aligned 0;" : : : "memory");
#pragma unroll
    for (uint i = 0; i < N_SUMS; i++) /* nothing is computed from the sums before this */
        __asm__ volatile("" : "+f"(d[i]) : : "memory");
    if (first_lane)
        mbarrier_arrive(left);
}

/* ---- the sums on their way out ---- */

/* The piece of this multiplying warp. */
PTX_INLINE __local float *sums_piece(__local uchar *local_memory, uint warp)
{
    return (__local float *)(local_memory + STAGES * (STAGE_BYTES + 16) + warp * PIECE_BYTES);
}

/* Writes columns 32 number .. of the warp's 16 rows to its piece; called by the whole warp. */
PTX_INLINE void sums_put(const float *d, const uint number, __local float *piece)
{
    const uint lane = ptx_item() & 31;
    __local float *first = piece + lane / 4 * PIECE_STRIDE + 2 * (lane & 3);
    __local float *second = first + 8 * PIECE_STRIDE;
    ptx_warp_sync(); /* the piece before has been read */
#pragma unroll
    for (uint j = 0; j < PIECE / 8; j++) {
        const uint at = 4 * (number * (PIECE / 8) + j);
        *(__local float2 *)(first + 8 * j) = (float2)(d[at], d[at + 1]);
        *(__local float2 *)(second + 8 * j) = (float2)(d[at + 2], d[at + 3]);
    }
    ptx_warp_sync();
}

#endif
