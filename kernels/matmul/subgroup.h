/* matmul by sub-groups: each computes ROWS rows x one column per lane; a lane loads one number of a row of a
 * and hands it to all lanes by a broadcast, so a is read once per sub-group without local memory.
 *
 *              lanes of k                      lanes
 *           +------------+                  +--------+
 *   ROWS    | a          |   broadcast  k   | b      |   lane: column col0 + lane, ROWS sums
 *           +------------+                  +--------+
 *   block (of a sub-group) = (batch * row blocks + row block) * column blocks + column block
 *
 * The including file defines SUBGROUP_LANES, SUBGROUP_LANE, SUBGROUP_INDEX, SUBGROUP_COUNT (of a
 * work-group) and SUBGROUP_BROADCAST(v, lane).
 */
#include "matmul/matmul.h"

#ifndef ROWS
#define ROWS 8
#endif

static void matmul_subgroup_step(const __global uchar *a, const __global uchar *b,
                                 const __global uchar *c, __global uchar *y, struct matmul_params p,
                                 uint group, uint n_groups)
{
    const uint lanes = SUBGROUP_LANES, lane = SUBGROUP_LANE;
    const uint row_blocks = div_up(p.m, ROWS), col_blocks = div_up(p.n, lanes);
    const ulong n = (ulong)p.batch * row_blocks * col_blocks;
    for (ulong block = (ulong)group * SUBGROUP_COUNT + SUBGROUP_INDEX; block < n;
         block += (ulong)n_groups * SUBGROUP_COUNT) {
        const uint col = (uint)(block % col_blocks) * lanes + lane, safe_col = min(col, p.n - 1);
        const uint row0 = (uint)(block / col_blocks % row_blocks) * ROWS;
        const uint batch = (uint)(block / col_blocks / row_blocks);
        float sums[ROWS];
        for (uint r = 0; r < ROWS; r++)
            sums[r] = 0.0f;
        for (uint i0 = 0; i0 < p.k; i0 += lanes) {
            const uint n_k = min(lanes, p.k - i0), i = min(i0 + lane, p.k - 1);
            float av[ROWS];
            for (uint r = 0; r < ROWS; r++)
                av[r] = real_load(a, matmul_a(p, batch, min(row0 + r, p.m - 1), i));
            for (uint j = 0; j < n_k; j++) {
                const float bv = real_load(b, matmul_b(p, batch, i0 + j, safe_col));
                for (uint r = 0; r < ROWS; r++)
                    sums[r] = fma(SUBGROUP_BROADCAST(av[r], j), bv, sums[r]);
            }
        }
        for (uint r = 0; r < ROWS; r++)
            if (row0 + r < p.m && col < p.n)
                matmul_finish(y, c, p, ((ulong)batch * p.m + row0 + r) * p.n + col, sums[r]);
    }
}

KERNEL(LWS) void matmul_subgroup(MATMUL_ARGS)
{
    matmul_subgroup_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, p, get_group_id(0),
                         get_num_groups(0));
}
