/* tile_block of linear_tile.cl for AVX2, which has 16 registers of 256 bits and no dot instruction of
 * int8 with 32-bit sums.
 *
 * A row group is two registers of 8 rows. vpmaddubsw sums products of neighbouring bytes in 16
 * bits; SAFE_QUADS such sums fit before vpmaddwd has to widen them (weights up to 15, 31, 63 times
 * 127, twice a pair). q8_0 is taken as signed: |w| times x with the sign of w, at most 128 * 127
 * * 2. SUB_TOKENS tokens of a tile at a time, so that the sums stay in registers; the float ones do
 * not.
 */
#ifndef CPU_TILE_AVX2_H
#define CPU_TILE_AVX2_H

#if OP_DTYPE == DT_Q8_0
#define SAFE_QUADS 1
#elif OP_DTYPE == DT_Q6_K
#define SAFE_QUADS 2
#elif OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1 || OP_DTYPE == DT_Q5_K
#define SAFE_QUADS 4
#else
#define SAFE_QUADS 8
#endif
#define SUB_TOKENS (SAFE_QUADS == 2 || SAFE_QUADS == 4 ? 2 : 3)

CPU_INLINE short16 pairs_of(uint8 w, int8 x)
{
    short16 pairs;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(pairs) : "x"(w), "x"(x));
    return pairs;
}

CPU_INLINE int8 widened(short16 pairs)
{
    const short16 ones = (short16)(1);
    int8 sums;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(sums) : "x"(pairs), "x"(ones));
    return sums;
}

#if OP_DTYPE == DT_Q8_0
CPU_INLINE uint8 absolute_bytes(uint8 w)
{
    uint8 result;
    __asm__("vpabsb %1, %0" : "=x"(result) : "x"(w));
    return result;
}

/* 4 products per row, signed bytes of w: its absolute values are given too. */
CPU_INLINE int8 signed_dot(uint8 w, uint8 absolute, int8 x)
{
    int8 with_sign;
    __asm__("vpsignb %2, %1, %0" : "=x"(with_sign) : "x"(x), "x"(w));
    return widened(pairs_of(absolute, with_sign));
}
#endif

/* sum[t] of tokens t0 .. of the record at x: quads begin .. end - 1 of a block (u, j, b). */
CPU_INLINE void block_sums(const __global uint16 *u, uint j, uint b, uint begin, uint end,
                           const __global int *x, int16 sum[SUB_TOKENS])
{
    CPU_UNROLL
    for (uint t = 0; t < SUB_TOKENS; t++)
        sum[t] = (int16)(0);
    CPU_UNROLL
    for (uint first = begin; first < end; first += SAFE_QUADS) {
#if OP_DTYPE == DT_Q8_0
        const uint16 w = r16_quad(u, j, b, first) ^ 0x80808080u;
        const uint16 absolute = (uint16)(absolute_bytes(w.lo), absolute_bytes(w.hi));
        CPU_UNROLL
        for (uint t = 0; t < SUB_TOKENS; t++) {
            const int8 xs = (int8)(x[first * ACT_TILE + t]);
            sum[t].lo += signed_dot(w.lo, absolute.lo, xs);
            sum[t].hi += signed_dot(w.hi, absolute.hi, xs);
        }
#else
        short16 low[SUB_TOKENS], high[SUB_TOKENS];
        CPU_UNROLL
        for (uint i = first; i < first + SAFE_QUADS && i < end; i++) {
            const uint16 q = r16_quad(u, j, b, i);
            CPU_UNROLL
            for (uint t = 0; t < SUB_TOKENS; t++) {
                const int8 xs = (int8)(x[i * ACT_TILE + t]);
                const short16 a = pairs_of(q.lo, xs), c = pairs_of(q.hi, xs);
                low[t] = i == first ? a : low[t] + a;
                high[t] = i == first ? c : high[t] + c;
            }
        }
        CPU_UNROLL
        for (uint t = 0; t < SUB_TOKENS; t++) {
            sum[t].lo += widened(low[t]);
            sum[t].hi += widened(high[t]);
        }
#endif
    }
}

/* acc[t] += a block (u, j, b) of 16 rows times tokens t0 .. of the record at x. */
CPU_INLINE void block_dot(const __global uint16 *u, uint j, uint b, const __global int *x, uint t0,
                          float16 *acc)
{
    CPU_UNROLL
    for (uint s = 0; s < SCALES; s++) {
        int16 sum[SUB_TOKENS];
        block_sums(u, j, b, 8 / SCALES * s, 8 / SCALES * (s + 1), x + t0, sum);
        const float16 scale = r16_scale(u, j, b, s);
        CPU_UNROLL
        for (uint t = 0; t < SUB_TOKENS; t++) {
            const uint column = t0 + t;
#if OP_DTYPE == DT_Q6_K
            const int first = x[Q8T_SUM_16 + column];
            sum[t] -= R16_ZERO * (s == 0 ? first : x[Q8T_SUM + column] - first);
#elif R16_ZERO && OP_DTYPE != DT_Q8_0
            sum[t] -= R16_ZERO * x[Q8T_SUM + column];
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
