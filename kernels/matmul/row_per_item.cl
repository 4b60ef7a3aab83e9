/* matmul, row per item: an item keeps a piece of its row of a in private memory; the group shares the
 * pieces of TOKENS columns of b in local memory.
 *
 *            PIECE                         TOKENS
 *         +-------+                      +--------+
 *   LWS   | a     | private     PIECE    | b      | local  ->  LWS x TOKENS sums, TOKENS per item
 *         +-------+                      +--------+
 *   block = (batch * row blocks + row block) * column blocks + column block
 */
#include "matmul/matmul.h"

#ifndef TOKENS
#define TOKENS 16
#endif
#define PIECE 32

static void matmul_row_step(const __global uchar *a, const __global uchar *b, const __global uchar *c,
                            __global uchar *y, struct matmul_params p, __local float *columns,
                            uint group, uint n_groups)
{
    const uint row_blocks = div_up(p.m, LWS), col_blocks = div_up(p.n, TOKENS);
    const uint lid = get_local_id(0);
    const ulong n = (ulong)p.batch * row_blocks * col_blocks;
    for (ulong block = group; block < n; block += n_groups) {
        const uint col0 = (uint)(block % col_blocks) * TOKENS;
        const uint row = (uint)(block / col_blocks % row_blocks) * LWS + lid;
        const uint batch = (uint)(block / col_blocks / row_blocks);
        float sums[TOKENS];
        for (uint j = 0; j < TOKENS; j++)
            sums[j] = 0.0f;
        for (uint i0 = 0; i0 < p.k; i0 += PIECE) {
            for (uint at = lid; at < PIECE * TOKENS; at += LWS) {
                const uint i = i0 + at / TOKENS, col = col0 + at % TOKENS;
                columns[at] = i < p.k && col < p.n ? real_load(b, matmul_b(p, batch, i, col)) : 0.0f;
            }
            float piece[PIECE];
            for (uint i = 0; i < PIECE; i++)
                piece[i] = row < p.m && i0 + i < p.k ? real_load(a, matmul_a(p, batch, row, i0 + i))
                                                     : 0.0f;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint i = 0; i < PIECE; i++)
                for (uint j = 0; j < TOKENS; j++)
                    sums[j] = fma(piece[i], columns[i * TOKENS + j], sums[j]);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        for (uint j = 0; j < TOKENS; j++)
            if (row < p.m && col0 + j < p.n)
                matmul_finish(y, c, p, ((ulong)batch * p.m + row) * p.n + col0 + j, sums[j]);
    }
}

KERNEL(LWS) void matmul_row(MATMUL_ARGS)
{
    __local float columns[PIECE * TOKENS];
    matmul_row_step(a + a_offset, b + b_offset, c + c_offset, y + y_offset, p, columns,
                    get_group_id(0), get_num_groups(0));
}
