/* tile_block of linear_tile.cl for AVX2, which has 16 registers of 256 bits: a row group is two
 * registers of 8 rows. SUB_TOKENS tokens of a tile at a time, so that the integer sums stay in
 * registers; the float ones do not.
 */
#ifndef CPU_TILE_AVX2_H
#define CPU_TILE_AVX2_H

#define SUB_TOKENS (R16_SAFE_QUADS < 8 ? 2 : 3)

/* acc[t] += a block (u, j, b) of 16 rows times tokens t0 .. of the record at x. */
CPU_INLINE void block_dot(const __global uint16 *u, uint j, uint b, const __global int *x, uint t0,
                          float16 *acc)
{
    CPU_UNROLL
    for (uint s = 0; s < SCALES; s++) {
        int16 sum[SUB_TOKENS];
        const __global int *quads[SUB_TOKENS];
        CPU_UNROLL
        for (uint t = 0; t < SUB_TOKENS; t++) {
            sum[t] = (int16)(0);
            quads[t] = x + t0 + t;
        }
        r16_add_products(u, j, b, 8 / SCALES * s, 8 / SCALES * (s + 1), quads, ACT_TILE, SUB_TOKENS,
                         sum);
        const float16 scale = r16_scale(u, j, b, s);
        CPU_UNROLL
        for (uint t = 0; t < SUB_TOKENS; t++) {
            const uint column = t0 + t;
#if OP_DTYPE == DT_Q6_K
            const int first = x[Q8T_SUM_16 + column];
            sum[t] -= R16_ZERO * (s == 0 ? first : x[Q8T_SUM + column] - first);
#elif R16_ADDED
            sum[t] -= R16_ADDED * x[Q8T_SUM + column];
#endif
            acc[column] =
                fma(convert_float16(sum[t]), scale * as_float(x[Q8T_D + column]), acc[column]);
        }
    }
#if R16_HAS_MIN
    const float16 low = r16_min(u, j, b);
    CPU_UNROLL
    for (uint t = t0; t < t0 + SUB_TOKENS; t++)
        acc[t] = fma(low, (float16)(as_float(x[Q8T_D_SUM + t])), acc[t]);
#endif
}

/* acc[r][t] += block (j, b) of the units w[r] times token t of the record at x. */
CPU_INLINE void tile_block(const __global uint16 *const *w, uint j, uint b, const __global int *x,
                           float16 acc[ROW_GROUPS][TILE])
{
    /* not unrolled: the compiler would move what loads and unpacks, and run out of registers */
    CPU_NO_UNROLL
    for (uint r = 0; r < ROW_GROUPS; r++) {
        CPU_NO_UNROLL
        for (uint t0 = 0; t0 < TILE; t0 += SUB_TOKENS)
            block_dot(w[r], j, b, x, t0, acc[r]);
    }
}

#endif
