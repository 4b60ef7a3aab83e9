/* matmul for CPUs: explicit 16-wide register tiles on packed panels, one item per tile, no barriers.
 *
 *   pack: panels of a [batch][row panel][kp][ROWS], then of b [batch][column panel][kp][TOKENS]
 *
 *              kp                        TOKENS = 16 VECTORS
 *          +--------+                  +-------------+
 *   ROWS   | a      |  broadcast   kp  | b           |  ->  ROWS x VECTORS float16 sums in registers
 *          +--------+                  +-------------+
 *   tile = (batch * column panels + column panel) * row panels + row panel
 *
 * A group takes a contiguous share of the tiles: a panel of b stays in its core's cache while the
 * panels of a pass by.
 */
#include "cpu/vec.h"
#include "matmul/matmul.h"

#ifndef ROWS
#define ROWS   12
#define TOKENS 32
#endif
#define VECTORS (TOKENS / 16)
/* The part of a tile whose sums are in registers at a time. */
#define PART_ROWS    CPU_PART(ROWS)
#define PART_VECTORS (CPU_WIDE ? VECTORS : 1)
/* Numbers of k between the parts of a tile: both panels stay in the nearest cache. */
#define PART_K       (CPU_WIDE ? UINT_MAX : 256)

/* kp x WIDTH numbers of a panel from row (column) r0 of n: dst[i * width + j] is number (r0 + j, i) of an
 * operand whose rows are `row_step` and whose k is `k_step` numbers apart. */
CPU_INLINE void pack_panel(const __global uchar *src, ulong src0, ulong row_step, ulong k_step,
                           uint r0, uint n, uint k, uint kp, const uint width, __global float *dst)
{
    const uint rows = min(width, n - r0);
    src0 += r0 * row_step;
    if (k_step == 1) { /* 16 of k at a time: one row after another, transposed on the way */
        for (uint i0 = 0; i0 < kp; i0 += 16)
            for (uint j = 0; j < width; j++) {
                float v[16];
                if (j < rows && i0 + 16 <= k)
                    vstore16(real_load16(src, src0 + j * row_step + i0), 0, v);
                else
                    for (uint i = 0; i < 16; i++)
                        v[i] = j < rows && i0 + i < k ? real_load(src, src0 + j * row_step + i0 + i)
                                                      : 0.0f;
                CPU_UNROLL
                for (uint i = 0; i < 16; i++)
                    dst[(i0 + i) * width + j] = v[i];
            }
        return;
    }
    for (uint i = 0; i < kp; i++) {
        const ulong from = src0 + i * k_step;
        if (i < k && rows == width && width % 16 == 0)
            for (uint j = 0; j < width; j += 16)
                vstore16(real_load16(src, from + j), 0, dst + i * width + j);
        else
            for (uint j = 0; j < width; j++)
                dst[i * width + j] = i < k && j < rows ? real_load(src, from + j) : 0.0f;
    }
}

CPU_INLINE void matmul_pack_step(const __global uchar *a, const __global uchar *b,
                                 __global float *scratch, struct matmul_params p, uint group,
                                 uint n_groups)
{
    const uint kp = (uint)matmul_padded_k(p);
    const uint row_panels = div_up(p.m, ROWS), col_panels = div_up(p.n, TOKENS);
    const uint n_a = p.batch * row_panels, n_b = p.batch * col_panels;
    __global float *b_panels = scratch + (ulong)n_a * kp * ROWS;
    uint begin, end;
    cpu_share(n_a, group, n_groups, &begin, &end);
    for (uint panel = begin; panel < end; panel++)
        pack_panel(a, (ulong)(panel / row_panels) * p.m * p.k, p.trans_a ? 1 : p.k,
                   p.trans_a ? p.m : 1, panel % row_panels * ROWS, p.m, p.k, kp, ROWS,
                   scratch + (ulong)panel * kp * ROWS);
    cpu_share(n_b, group, n_groups, &begin, &end);
    for (uint panel = begin; panel < end; panel++)
        pack_panel(b, (ulong)(panel / col_panels) * p.n * p.k, p.trans_b ? p.k : 1,
                   p.trans_b ? 1 : p.n, panel % col_panels * TOKENS, p.n, p.k, kp, TOKENS,
                   b_panels + (ulong)panel * kp * TOKENS);
}

/* One vector of a row of y. */
CPU_INLINE void store_vector(__global uchar *y, const __global uchar *c, struct matmul_params p,
                             ulong at, uint n, float16 sum)
{
    if (n >= 16) {
        float16 v = p.alpha * sum;
        if (p.beta != 0.0f)
            v = fma((float16)(p.beta), real_load16(c, at), v);
        real_store16(y, at, v);
        return;
    }
    float one[16];
    vstore16(sum, 0, one);
    for (uint j = 0; j < n; j++)
        matmul_finish(y, c, p, at + j, one[j]);
}

/* sums[r0 ..][v0 ..] += rows a[r0 ..] times vectors b[v0 ..] of n_k numbers of k. */
CPU_INLINE void add_part(const __global float *a, const __global float16 *b, uint n_k, uint r0,
                         uint v0, float16 sums[ROWS][VECTORS])
{
    float16 part[PART_ROWS][PART_VECTORS];
    CPU_UNROLL
    for (uint r = 0; r < PART_ROWS; r++)
        CPU_UNROLL
        for (uint v = 0; v < PART_VECTORS; v++)
            part[r][v] = sums[r0 + r][v0 + v];
    a += r0;
    b += v0;
    for (uint i = 0; i < n_k; i++) {
        float16 bv[PART_VECTORS];
        CPU_UNROLL
        for (uint v = 0; v < PART_VECTORS; v++)
            bv[v] = b[v];
        CPU_UNROLL
        for (uint r = 0; r < PART_ROWS; r++)
            CPU_UNROLL
            for (uint v = 0; v < PART_VECTORS; v++)
                part[r][v] = fma((float16)(a[r]), bv[v], part[r][v]);
        a += ROWS;
        b += VECTORS;
    }
    CPU_UNROLL
    for (uint r = 0; r < PART_ROWS; r++)
        CPU_UNROLL
        for (uint v = 0; v < PART_VECTORS; v++)
            sums[r0 + r][v0 + v] = part[r][v];
}

CPU_INLINE void matmul_panel_step(const __global float *scratch, const __global uchar *c,
                                  __global uchar *y, struct matmul_params p, uint group,
                                  uint n_groups)
{
    const ulong kp = matmul_padded_k(p);
    const uint row_panels = div_up(p.m, ROWS), col_panels = div_up(p.n, TOKENS);
    const __global float *b_panels = scratch + (ulong)p.batch * row_panels * kp * ROWS;
    uint begin, end;
    cpu_share(p.batch * row_panels * col_panels, group, n_groups, &begin, &end);
    for (uint tile = begin; tile < end; tile++) {
        const uint row_panel = tile % row_panels, col_panel = tile / row_panels % col_panels;
        const uint batch = tile / row_panels / col_panels;
        const __global float *a = scratch + ((ulong)batch * row_panels + row_panel) * kp * ROWS;
        const __global float16 *b =
            (const __global float16 *)(b_panels + ((ulong)batch * col_panels + col_panel) * kp * TOKENS);
        float16 sums[ROWS][VECTORS];
        CPU_UNROLL
        for (uint r = 0; r < ROWS; r++)
            CPU_UNROLL
            for (uint v = 0; v < VECTORS; v++)
                sums[r][v] = (float16)(0.0f);
        for (uint k0 = 0, n_k; k0 < kp; k0 += n_k) {
            n_k = min((uint)kp - k0, PART_K);
            CPU_NO_UNROLL
            for (uint v0 = 0; v0 < VECTORS; v0 += PART_VECTORS) {
                CPU_NO_UNROLL
                for (uint r0 = 0; r0 < ROWS; r0 += PART_ROWS)
                    add_part(a + (ulong)k0 * ROWS, b + (ulong)k0 * VECTORS, n_k, r0, v0, sums);
            }
        }
        const uint col0 = col_panel * TOKENS;
        CPU_UNROLL
        for (uint r = 0; r < ROWS; r++) {
            const uint row = row_panel * ROWS + r;
            if (row >= p.m)
                break;
            CPU_UNROLL
            for (uint v = 0; v < VECTORS; v++)
                if (col0 + 16 * v < p.n)
                    store_vector(y, c, p, ((ulong)batch * p.m + row) * p.n + col0 + 16 * v,
                                 p.n - col0 - 16 * v, sums[r][v]);
        }
    }
}

KERNEL(LWS) void matmul_pack(MATMUL_SCRATCH_ARGS)
{
    matmul_pack_step(a + a_offset, b + b_offset, (__global float *)(scratch + scratch_offset), p,
                     get_group_id(0), get_num_groups(0));
}

KERNEL(LWS2) void matmul_panel(MATMUL_SCRATCH_ARGS)
{
    matmul_panel_step((const __global float *)(scratch + scratch_offset), c + c_offset, y + y_offset,
                      p, get_group_id(0), get_num_groups(0));
}
