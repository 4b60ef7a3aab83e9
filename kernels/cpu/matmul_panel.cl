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
 * panels of a pass by. A long k is cut in blocks of BLOCK_K: for each, BLOCK_ROWS rows of a stay in the
 * core's second cache while the panels of b pass by, and the sums so far lie in y.
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

/* Blocks of panels where k is longer than LONG_K: not where the sums would be rounded in between. */
#define LONG_K     (REAL_BYTES == 4 ? 1024 : UINT_MAX)
#define BLOCK_K    512
#define BLOCK_ROWS 128

/* dst[i * width + j] = row j, number i, of 4 rows of 4 numbers. */
CPU_INLINE void store_transposed_4(float4 r0, float4 r1, float4 r2, float4 r3, uint width,
                                   __global float *dst)
{
    const float4 low01 = (float4)(r0.x, r1.x, r0.y, r1.y), low23 = (float4)(r2.x, r3.x, r2.y, r3.y);
    const float4 high01 = (float4)(r0.z, r1.z, r0.w, r1.w), high23 = (float4)(r2.z, r3.z, r2.w, r3.w);
    vstore4((float4)(low01.xy, low23.xy), 0, dst);
    vstore4((float4)(low01.zw, low23.zw), 0, dst + width);
    vstore4((float4)(high01.xy, high23.xy), 0, dst + 2 * width);
    vstore4((float4)(high01.zw, high23.zw), 0, dst + 3 * width);
}

/* The same for 4 rows of 16 numbers. */
CPU_INLINE void store_transposed_16(const float16 *r, uint width, __global float *dst)
{
    store_transposed_4(r[0].s0123, r[1].s0123, r[2].s0123, r[3].s0123, width, dst);
    store_transposed_4(r[0].s4567, r[1].s4567, r[2].s4567, r[3].s4567, width, dst + 4 * width);
    store_transposed_4(r[0].s89ab, r[1].s89ab, r[2].s89ab, r[3].s89ab, width, dst + 8 * width);
    store_transposed_4(r[0].scdef, r[1].scdef, r[2].scdef, r[3].scdef, width, dst + 12 * width);
}

/* 16 numbers of k from i0 on of a panel of `width` rows (columns), of which `rows` exist:
 * dst[i * width + j] is number i0 + i of row j. Rows are `row_step` and numbers `k_step` apart from
 * src0 on; what lies past k or the rows is 0. */
CPU_INLINE void pack_part(const __global uchar *src, ulong src0, ulong row_step, ulong k_step,
                          uint rows, uint k, uint i0, const uint width, __global float *dst)
{
    if (k_step == 1) {
        uint j = 0;
        for (; i0 + 16 <= k && j + 4 <= rows; j += 4) {
            float16 r[4];
            CPU_UNROLL
            for (uint c = 0; c < 4; c++)
                r[c] = real_load16(src, src0 + (j + c) * row_step + i0);
            store_transposed_16(r, width, dst + j);
        }
        for (; j < width; j++)
            for (uint i = 0; i < 16; i++)
                dst[i * width + j] =
                    j < rows && i0 + i < k ? real_load(src, src0 + j * row_step + i0 + i) : 0.0f;
        return;
    }
    for (uint i = 0; i < 16; i++, dst += width) {
        const ulong from = src0 + (i0 + i) * k_step;
        if (i0 + i < k && rows == width && width % 16 == 0)
            for (uint j = 0; j < width; j += 16)
                vstore16(real_load16(src, from + j), 0, dst + j);
        else
            for (uint j = 0; j < width; j++)
                dst[j] = i0 + i < k && j < rows ? real_load(src, from + j) : 0.0f;
    }
}

/* A group's share of the panels of an operand of `batch` times n rows (columns) of k numbers. Where
 * the numbers of a row lie together, one panel after the other; else 16 of k of all panels, so that
 * memory is read in order. */
CPU_INLINE void pack_panels(const __global uchar *src, bool k_together, uint batch, uint n, uint k,
                            uint kp, const uint width, __global float *dst, uint group,
                            uint n_groups)
{
    const uint panels = div_up(n, width), step = k_together ? kp : 16;
    const ulong row_step = k_together ? k : 1, k_step = k_together ? 1 : n;
    uint begin, end;
    cpu_share(batch * panels, group, n_groups, &begin, &end);
    for (uint i0 = 0; i0 < kp; i0 += step)
        for (uint panel = begin; panel < end; panel++) {
            const uint row = panel % panels * width;
            const ulong src0 = (ulong)(panel / panels) * n * k + row * row_step;
            for (uint i = i0; i < i0 + step; i += 16)
                pack_part(src, src0, row_step, k_step, min(width, n - row), k, i, width,
                          dst + ((ulong)panel * kp + i) * width);
        }
}

CPU_INLINE void matmul_pack_step(const __global uchar *a, const __global uchar *b,
                                 __global float *scratch, struct matmul_params p, uint group,
                                 uint n_groups)
{
    const uint kp = (uint)matmul_padded_k(p);
    __global float *b_panels = scratch + (ulong)p.batch * div_up(p.m, ROWS) * kp * ROWS;
    pack_panels(a, !p.trans_a, p.batch, p.m, p.k, kp, ROWS, scratch, group, n_groups);
    pack_panels(b, p.trans_b, p.batch, p.n, p.k, kp, TOKENS, b_panels, group, n_groups);
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
    CPU_UNROLL_4
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

/* A tile of y from n_k numbers of k: a and b are their panels. */
CPU_INLINE void matmul_panel_tile(const __global float *a, const __global float16 *b, uint n_k,
                                  const __global uchar *c, __global uchar *y,
                                  struct matmul_params p, uint batch, uint row0, uint col0)
{
    float16 sums[ROWS][VECTORS];
    CPU_UNROLL
    for (uint r = 0; r < ROWS; r++)
        CPU_UNROLL
        for (uint v = 0; v < VECTORS; v++)
            sums[r][v] = (float16)(0.0f);
    for (uint k0 = 0, n; k0 < n_k; k0 += n) {
        n = min(n_k - k0, PART_K);
        CPU_NO_UNROLL
        for (uint v0 = 0; v0 < VECTORS; v0 += PART_VECTORS) {
            CPU_NO_UNROLL
            for (uint r0 = 0; r0 < ROWS; r0 += PART_ROWS)
                add_part(a + (ulong)k0 * ROWS, b + (ulong)k0 * VECTORS, n, r0, v0, sums);
        }
    }
    CPU_UNROLL
    for (uint r = 0; r < ROWS; r++) {
        if (row0 + r >= p.m)
            break;
        CPU_UNROLL
        for (uint v = 0; v < VECTORS; v++)
            if (col0 + 16 * v < p.n)
                store_vector(y, c, p, ((ulong)batch * p.m + row0 + r) * p.n + col0 + 16 * v,
                             p.n - col0 - 16 * v, sums[r][v]);
    }
}

/* A group's tiles in the order of their blocks. */
CPU_INLINE void matmul_panel_step(const __global float *scratch, const __global uchar *c,
                                  __global uchar *y, struct matmul_params p, uint group,
                                  uint n_groups)
{
    const uint kp = (uint)matmul_padded_k(p);
    const uint row_panels = div_up(p.m, ROWS), col_panels = div_up(p.n, TOKENS);
    const bool blocked = kp > LONG_K;
    const uint block_k = blocked ? BLOCK_K : kp;
    const uint block_rows = blocked ? div_up(BLOCK_ROWS, ROWS) : row_panels;
    const __global float *b_panels = scratch + (ulong)p.batch * row_panels * kp * ROWS;
    const ulong n_tiles = (ulong)p.batch * row_panels * col_panels;
    const ulong begin = n_tiles * group / n_groups, end = n_tiles * (group + 1) / n_groups;
    if (begin == end)
        return;
    for (uint k0 = 0; k0 < kp; k0 += block_k) {
        for (uint rows0 = 0; rows0 < row_panels; rows0 += block_rows)
            for (ulong column = begin / row_panels; column <= (end - 1) / row_panels; column++) {
                const uint batch = (uint)(column / col_panels);
                const uint col0 = (uint)(column % col_panels) * TOKENS;
                const __global float *b = b_panels + (column * kp + k0) * TOKENS;
                for (uint row = rows0; row < min(rows0 + block_rows, row_panels); row++) {
                    const ulong tile = column * row_panels + row;
                    if (tile < begin || tile >= end)
                        continue;
                    matmul_panel_tile(
                        scratch + (((ulong)batch * row_panels + row) * kp + k0) * ROWS,
                        (const __global float16 *)b, min(kp - k0, block_k), c, y, p, batch,
                        row * ROWS, col0);
                }
            }
        /* what follows is added to y */
        c = y;
        p.beta = 1.0f;
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
