/* The matrix units of compute capability 9.0a as the kernels of nvidia/ use them: copies in the
 * background and by the copy engine into a ring of stages in over 200 KiB of static local memory,
 * barriers between the warps that copy and those that multiply, wgmma with both operands in local
 * memory, k first and k last. One work-group of 384 items; small integers, so every sum is exact.
 * Built with -DPROBE.
 */
#include "probe/common.h"

#ifdef PROBE
#define LWS        384
#define TILE_M     128
#define TILE_N     192
#define WGMMA_TYPE "f16.f16"
#include "nvidia/wgmma_bulk.h"
#include "nvidia/wgmma_copy.h"

#define K       (STEP * (STAGES + 1)) /* the ring goes round */
#define A_COUNT (TILE_M * K)
#define COUNT   (A_COUNT + TILE_N * K)

static uint number(const __global uchar *in, uint i)
{
    return in[(i ^ i >> 7) % PROBE_IN_BYTES] >> 3 & 3;
}

static bool sum_is_right(const __global uchar *in, uint r, uint c, float got, const bool last)
{
    float want = 0.0f;
    for (uint k = 0; k < K; k++)
        want += (float)(number(in, last ? k * TILE_M + r : r * K + k) *
                        number(in, A_COUNT + (last ? k * TILE_N + c : c * K + k)));
    return got == want;
}

PTX_INLINE bool fill(struct ring *r, const __global uchar *halves, const bool last)
{
    const struct operand a = operand_of(halves, TILE_M, K, last);
    const struct operand b = operand_of(halves + 2 * A_COUNT, TILE_N, K, last);
    for (uint step = 0; step < K / STEP; step++) {
        ring_wait_empty(r);
        copy_stage(&a, ring_tile(r), 0, TILE_M, step, last);
        copy_stage(&b, ring_tile(r) + A_BYTES, 0, TILE_N, step, last);
        ptx_copy_commit();
        PTX_COPY_WAIT(0);
        copy_publish(r);
        ring_skip(r, 1);
    }
    return true;
}

PTX_INLINE bool fill_bulk(struct ring *r, const __global uchar *halves, __global uchar *maps,
                          const bool last)
{
    const uint a_columns = last ? TILE_M : K, a_lines = last ? K : TILE_M;
    const uint b_columns = last ? TILE_N : K, b_lines = last ? K : TILE_N;
    const struct bulk_matrix both[2] = {
        {halves, MAP_F16, a_columns, a_lines, 2 * a_columns, last ? STEP : TILE_M},
        {halves + 2 * A_COUNT, MAP_F16, b_columns, b_lines, 2 * b_columns, last ? STEP : TILE_N}};
    if (ptx_item() < 32) {
        uint have[2];
        bulk_maps_read(maps, have, 2);
        bulk_maps(maps, have, both, 2);
    }
    for (uint step = 0; step < K / STEP; step++) {
        ring_wait_empty(r);
        if (ptx_item() == 0) {
            bulk_expect(r, STAGE_BYTES);
            bulk_tile(r, ring_tile(r), maps, 0, TILE_M, step * STEP, 0, last);
            bulk_tile(r, ring_tile(r) + A_BYTES, maps + MAP_BYTES, 0, TILE_N, step * STEP, 0, last);
        }
        ring_publish(r);
        ring_skip(r, 1);
    }
    return true;
}

PTX_INLINE bool multiply(struct ring *r, const __global uchar *in, const bool last)
{
    const uint lane = ptx_item() & 31, warp = (ptx_item() - TEAM) / 32, row = warp * 16 + lane / 4;
    float d[N_SUMS];
    bool right = true;
    wgmma_steps(d, r, warp / 4, K / STEP, last, last, false);
#pragma unroll
    for (uint j = 0; j < TILE_N / 8; j += 5)
#pragma unroll
        for (uint i = 0; i < 4; i++)
            right = right && sum_is_right(in, row + i / 2 * 8, 8 * j + 2 * (lane & 3) + i % 2,
                                          d[4 * j + i], last);
    return right;
}

__kernel __attribute__((reqd_work_group_size(LWS, 1, 1))) void probe(__global const uchar *in,
                                                                     __global uint *out)
{
    __local uchar local_memory[LOCAL_BYTES] __attribute__((aligned(1024)));
    __global uchar *halves = (__global uchar *)(out + PROBE_SCRATCH);
    for (uint i = ptx_item(); i < COUNT; i += LWS)
        vstore_half((float)number(in, i), i, (__global half *)halves);
    barrier(CLK_GLOBAL_MEM_FENCE);
    struct ring ring = ring_open(local_memory, TEAM / 32);
    bool right;
    if (ptx_item() < TEAM)
        right = fill(&ring, halves, false) && fill(&ring, halves, true) &&
                fill_bulk(&ring, halves, halves + 2 * COUNT, false) &&
                fill_bulk(&ring, halves, halves + 2 * COUNT + 2 * MAP_BYTES, true);
    else
        right = multiply(&ring, in, false) & multiply(&ring, in, true) & multiply(&ring, in, false) &
                multiply(&ring, in, true);
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
