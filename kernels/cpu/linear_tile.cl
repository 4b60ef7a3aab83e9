/* linear for many tokens: y = w x, weights in LAYOUT_R16.
 *
 *                     TILE tokens
 *                      +-------+          A register tile of ROW_GROUPS x 16 rows and TILE tokens.
 *                    k |  x    |          x in ACT_Q8T: per block of 32 columns the products are
 *            k         +-------+          summed exactly (cpu_dot), then scaled and added in float.
 *   R groups +-------+ +-------+          x in ACT_F32: weights are unpacked to float, 4 columns
 *   of 16 r  |   w   | |  y    |          at a time.
 *            +-------+ +-------+
 *
 * A group of work takes a share of the row blocks; for each chunk of tiles (in L2) it walks the row
 * blocks, and for each row block (in L1 and L2) the tiles of the chunk.
 */
#define R16_TILES
#include "cpu/linear.h"
#include "cpu/q8t.h"
#include "cpu/r16.inc"

#ifndef ROW_GROUPS
#define ROW_GROUPS 2 /* even: gate and up lie in a tile */
#endif
#if OP_ACT == ACT_Q8T
#define TILE ACT_TILE
#elif CPU_WIDE
#define TILE 8
#else
#define TILE 6
#endif
#ifndef CHUNK_TILES
#define CHUNK_TILES (OP_ACT == ACT_Q8T ? 16 : 8)
#endif

#if OP_ACT == ACT_Q8T

#if OP_DTYPE == DT_Q6_K
#define SCALES 2 /* per block of 32 */
#else
#define SCALES 1
#endif

#if CPU_ISA == 1
#include "cpu/tile_avx2.h"
#else

/* acc[r][t] += block (j, b) of the units w[r] times token t of the record at x. */
CPU_INLINE void tile_block(const __global uint16 *const *w, uint j, uint b, const __global int *x,
                           float16 acc[ROW_GROUPS][TILE])
{
    CPU_UNROLL
    for (uint s = 0; s < SCALES; s++) {
        int16 sum[ROW_GROUPS][TILE];
        CPU_UNROLL
        for (uint t = 0; t < TILE; t++) {
#if OP_DTYPE == DT_Q6_K
            const int first = x[Q8T_SUM_16 + t];
            const int16 start = (int16)(s == 0 ? first : x[Q8T_SUM + t] - first) * -R16_ZERO;
#elif R16_ZERO
            const int16 start = (int16)(x[Q8T_SUM + t]) * -R16_ZERO;
#else
            const int16 start = (int16)(0);
#endif
            CPU_UNROLL
            for (uint r = 0; r < ROW_GROUPS; r++)
                sum[r][t] = start;
        }
        CPU_UNROLL
        for (uint i = 8 / SCALES * s; i < 8 / SCALES * (s + 1); i++) {
            CPU_UNROLL
            for (uint r = 0; r < ROW_GROUPS; r++) {
                uint16 q = r16_quad(w[r], j, b, i);
                CPU_UNROLL
                for (uint t = 0; t < TILE; t++)
                    sum[r][t] = cpu_dot(sum[r][t], q, x + i * ACT_TILE + t);
            }
        }
        CPU_UNROLL
        for (uint r = 0; r < ROW_GROUPS; r++) {
            float16 scale = r16_scale(w[r], j, b, s);
            CPU_UNROLL
            for (uint t = 0; t < TILE; t++) {
                const float d = as_float(x[Q8T_D + t]);
                acc[r][t] = fma(convert_float16(sum[r][t]), scale * d, acc[r][t]);
            }
        }
    }
#if R16_HAS_MIN
    CPU_UNROLL
    for (uint r = 0; r < ROW_GROUPS; r++) {
        float16 low = r16_min(w[r], j, b);
        CPU_UNROLL
        for (uint t = 0; t < TILE; t++)
            acc[r][t] = fma(low, (float16)(as_float(x[Q8T_D_SUM + t])), acc[r][t]);
    }
#endif
}

#endif

/* acc[r][t] = 16 rows of row group r times token t of the tile; w[r]: streams of the row groups. */
CPU_INLINE void tile_dot(const __global uchar *const *w, const __global uchar *x_all,
                         const struct linear_params *p, uint tile, float16 acc[ROW_GROUPS][TILE])
{
    const uint n_blocks = p->k / 32;
    const __global int *x = (const __global int *)x_all + tile * Q8T_TILE((ulong)p->k);
    CPU_UNROLL
    for (uint r = 0; r < ROW_GROUPS; r++)
        CPU_UNROLL
        for (uint t = 0; t < TILE; t++)
            acc[r][t] = (float16)(0.0f);
    for (uint block = 0; block < n_blocks; block++) {
        const __global uint16 *units[ROW_GROUPS];
        CPU_UNROLL
        for (uint r = 0; r < ROW_GROUPS; r++)
            units[r] = (const __global uint16 *)(w[r] + (ulong)(block / 2 / R16_PAIRS) * R16_UNIT_BYTES);
        tile_block(units, block / 2 % R16_PAIRS, block % 2, x, acc);
        x += Q8T_RECORD;
    }
}

#else

/* Row groups whose float sums stay in registers. */
#define FLOAT_GROUPS (CPU_WIDE ? 2 : 1)

/* acc[r][t] for FLOAT_GROUPS row groups. */
CPU_INLINE void float_dot(const __global uchar *const *w, const __global float *const *x, uint n_k,
                          float16 acc[FLOAT_GROUPS][TILE])
{
    float16 sum[FLOAT_GROUPS][TILE];
    CPU_UNROLL
    for (uint r = 0; r < FLOAT_GROUPS; r++)
        CPU_UNROLL
        for (uint t = 0; t < TILE; t++)
            sum[r][t] = (float16)(0.0f);
    for (uint k = 0; k < n_k; k += R16_COLUMNS) {
        CPU_UNROLL
        for (uint r = 0; r < FLOAT_GROUPS; r++) {
            float16 columns[R16_COLUMNS];
            r16_columns(w[r], k, columns);
            CPU_UNROLL
            for (uint c = 0; c < R16_COLUMNS; c++)
                CPU_UNROLL
                for (uint t = 0; t < TILE; t++)
                    sum[r][t] = fma(columns[c], (float16)(x[t][k + c]), sum[r][t]);
        }
    }
    CPU_UNROLL
    for (uint r = 0; r < FLOAT_GROUPS; r++)
        CPU_UNROLL
        for (uint t = 0; t < TILE; t++)
            acc[r][t] = sum[r][t];
}

CPU_INLINE void tile_dot(const __global uchar *const *w, const __global uchar *x_all,
                         const struct linear_params *p, uint tile, float16 acc[ROW_GROUPS][TILE])
{
    const __global float *x[TILE];
    CPU_UNROLL
    for (uint t = 0; t < TILE; t++)
        x[t] = (const __global float *)x_all + (ulong)min(tile * TILE + t, p->n_tokens - 1) * p->k;
    CPU_NO_UNROLL
    for (uint r = 0; r < ROW_GROUPS; r += FLOAT_GROUPS)
        float_dot(w + r, x, p->k, acc + r);
}

#endif

/* w: row groups of m rows; x [n_tokens][k] in OP_ACT; bias [m]; y [n_tokens][y_stride]. */
static void linear_tile_step(const __global uchar *w, const __global uchar *x,
                             const __global float *bias, __global float *y,
                             struct linear_params p, uint group, uint n_groups)
{
    const ulong group_bytes = r16_group_bytes(p.k);
    const uint n_row_groups = (p.m + 15) / 16, n_tiles = (p.n_tokens + TILE - 1) / TILE;
    uint begin, end;
    cpu_share((n_row_groups + ROW_GROUPS - 1) / ROW_GROUPS, group, n_groups, &begin, &end);
    for (uint chunk = 0; chunk < n_tiles; chunk += CHUNK_TILES) {
        for (uint block = begin; block < end; block++) {
            const __global uchar *rows[ROW_GROUPS];
            for (uint r = 0; r < ROW_GROUPS; r++)
                rows[r] = w + min(block * ROW_GROUPS + r, n_row_groups - 1) * group_bytes;
            for (uint tile = chunk; tile < min(chunk + CHUNK_TILES, n_tiles); tile++) {
                float16 acc[ROW_GROUPS][TILE];
                tile_dot(rows, x, &p, tile, acc);
                const uint t0 = tile * TILE, nt = min((uint)TILE, p.n_tokens - t0);
                CPU_UNROLL
                for (uint r = 0; r < ROW_GROUPS; r += 2) {
                    const uint g = block * ROW_GROUPS + r;
                    CPU_UNROLL
                    for (uint t = 0; t < TILE; t++) {
                        if (t < nt)
                            cpu_finish_pair(y + (ulong)(t0 + t) * p.y_stride, bias, &p, g,
                                            acc[r][t], acc[r + 1][t]);
                    }
                }
            }
        }
    }
}

KERNEL(1) void linear_tile(__global uchar *w, ulong w_off, __global uchar *x, ulong x_off,
                           __global uchar *bias, ulong bias_off, __global uchar *y, ulong y_off,
                           struct linear_params p)
{
    linear_tile_step(w + w_off, x + x_off, (const __global float *)(bias + bias_off),
                     (__global float *)(y + y_off), p, get_group_id(0), get_num_groups(0));
}
