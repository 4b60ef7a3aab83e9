/* matmul, local tile: a group per tile of LWS / TILE rows x TILE columns, TILE of k at a time through
 * local memory; rows padded by one number against bank conflicts.
 *
 *              TILE                    TILE
 *            +------+                +------+
 *   LWS/TILE | a    |         TILE   | b    |      item lid: row lid / TILE, column lid % TILE
 *            +------+                +------+
 *   block = (batch * row blocks + row block) * column blocks + column block
 */
#include "matmul/matmul.h"

#ifndef TILE
#define TILE 16
#endif
#define TILE_COLS   (TILE < LWS ? TILE : LWS)
#define TILE_ROWS   (LWS / TILE_COLS)
#define TILE_STRIDE (TILE + 1)

static void matmul_tile_step(const __global uchar *a, const __global uchar *b,
                             const __global uchar *c, __global uchar *y, struct matmul_params p,
                             __local float *as, __local float *bs, uint group, uint n_groups)
{
    const uint row_blocks = div_up(p.m, TILE_ROWS), col_blocks = div_up(p.n, TILE_COLS);
    const uint lid = get_local_id(0), x = lid % TILE_COLS, r = lid / TILE_COLS;
    const ulong n = (ulong)p.batch * row_blocks * col_blocks;
    for (ulong block = group; block < n; block += n_groups) {
        const uint col0 = (uint)(block % col_blocks) * TILE_COLS;
        const uint row0 = (uint)(block / col_blocks % row_blocks) * TILE_ROWS;
        const uint batch = (uint)(block / col_blocks / row_blocks);
        float sum = 0.0f;
        for (uint i0 = 0; i0 < p.k; i0 += TILE) {
            for (uint at = lid; at < TILE_ROWS * TILE; at += LWS) {
                const uint row = row0 + at / TILE, i = i0 + at % TILE;
                as[at / TILE * TILE_STRIDE + at % TILE] =
                    row < p.m && i < p.k ? real_load(a, matmul_a(p, batch, row, i)) : 0.0f;
            }
            for (uint at = lid; at < TILE * TILE_COLS; at += LWS) {
                const uint i = i0 + at / TILE_COLS, col = col0 + at % TILE_COLS;
                bs[at / TILE_COLS * TILE_STRIDE + at % TILE_COLS] =
                    i < p.k && col < p.n ? real_load(b, matmul_b(p, batch, i, col)) : 0.0f;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint i = 0; i < TILE; i++)
                sum = fma(as[r * TILE_STRIDE + i], bs[i * TILE_STRIDE + x], sum);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (row0 + r < p.m && col0 + x < p.n)
            matmul_finish(y, c, p, ((ulong)batch * p.m + row0 + r) * p.n + col0 + x, sum);
    }
}

KERNEL(LWS) void matmul_tile(MATMUL_ARGS)
{
    __local float as[TILE_ROWS * TILE_STRIDE], bs[TILE * TILE_STRIDE];
    matmul_tile_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, p, as, bs,
                     get_group_id(0), get_num_groups(0));
}
