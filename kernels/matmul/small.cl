/* matmul for m or n under 128: a group per ROWS rows x COLS columns, k cut in slices over the items, so
 * that a device is filled although there are few elements.
 *
 *   item lid: column lid % COLS, slice lid / COLS: i = slice, slice + SLICES, ...
 *   partial [SLICES][ROWS][COLS] in local memory, summed over the slices
 *   block = (batch * row blocks + row block) * column blocks + column block
 */
#include "matmul/matmul.h"

#ifndef ROWS
#define ROWS 8
#endif
#define COLS   (LWS < 32 ? LWS : 32)
#define SLICES (LWS / COLS)

static void matmul_small_step(const __global uchar *a, const __global uchar *b,
                              const __global uchar *c, __global uchar *y, struct matmul_params p,
                              __local float *partial, uint group, uint n_groups)
{
    const uint row_blocks = div_up(p.m, ROWS), col_blocks = div_up(p.n, COLS);
    const uint lid = get_local_id(0), slice = lid / COLS;
    const ulong n = (ulong)p.batch * row_blocks * col_blocks;
    for (ulong block = group; block < n; block += n_groups) {
        const uint col0 = (uint)(block % col_blocks) * COLS, col = min(col0 + lid % COLS, p.n - 1);
        const uint row0 = (uint)(block / col_blocks % row_blocks) * ROWS;
        const uint batch = (uint)(block / col_blocks / row_blocks);
        float sums[ROWS];
        for (uint r = 0; r < ROWS; r++)
            sums[r] = 0.0f;
        for (uint i = slice; i < p.k; i += SLICES) {
            const float w = real_load(b, matmul_b(p, batch, i, col));
            for (uint r = 0; r < ROWS; r++) /* past the last row: that one again, not stored */
                sums[r] =
                    fma(real_load(a, matmul_a(p, batch, min(row0 + r, p.m - 1), i)), w, sums[r]);
        }
        for (uint r = 0; r < ROWS; r++)
            partial[(slice * ROWS + r) * COLS + lid % COLS] = sums[r];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint at = lid; at < ROWS * COLS; at += LWS) {
            const uint row = row0 + at / COLS, out = col0 + at % COLS;
            float sum = 0.0f;
            for (uint s = 0; s < SLICES; s++)
                sum += partial[s * ROWS * COLS + at];
            if (row < p.m && out < p.n)
                matmul_finish(y, c, p, ((ulong)batch * p.m + row) * p.n + out, sum);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

KERNEL(LWS) void matmul_small(MATMUL_ARGS)
{
    __local float partial[SLICES * ROWS * COLS];
    matmul_small_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, p, partial,
                      get_group_id(0), get_num_groups(0));
}
