/* LAYOUT_R16: weights for CPU devices, 16 rows interleaved.
 *
 * Rows 16g .. 16g+15 are one contiguous stream of units, scales included, in whole 64-byte lines;
 * the streams of the row groups follow one another. A line holds 16 dwords, one per row ("lane");
 * "quad" below means 4 consecutive k of a row in the 4 bytes of a dword. Missing rows (m not a
 * multiple of 16) are zeros. A unit covers R16_UNIT_K columns:
 *
 *  dtype  k    lines of a unit
 *  q4_0   64    8 nibbles, 1 scales
 *  q4_1   64    8 nibbles, 1 scales, 1 mins
 *  q5_0   64    8 nibbles, 2 high bits, 1 scales
 *  q5_1   64    8 nibbles, 2 high bits, 1 scales, 1 mins
 *  q8_0   64   16 bytes (stored +128, unsigned), 1 scales
 *  q4_K  256   32 nibbles, 2 scales, 2 mins, 1 {d, dmin}
 *  q5_K  256   32 nibbles, 8 high bits, 2 scales, 2 mins, 1 {d, dmin}
 *  q6_K  256   32 nibbles, 16 pairs of high bits, 4 scales, 1 {d, unused}
 *  f32     2    2 of 16 float: one k each
 *  f16     2    1: 16 half of k, then 16 half of k + 1
 *  bf16    2    1: 16 pairs {k, k + 1}, one per row
 *
 * nibbles of 32-blocks: block b, line i (0..3): low half quad i, high half quad i + 4.
 * nibbles of q4_K, q5_K: group of 64 j, line i (0..7): low half quad i of sub-block 2j, high half
 *   of sub-block 2j + 1. q6_K: half h, line i (0..15): low half quad i, high half quad i + 16.
 * high bits of q5_0, q5_1: one line per block: bit j of byte c is the fifth bit of k = 4j + c.
 * high bits of q5_K: line i: bit s of byte c is the fifth bit of k = 4i + c of sub-block s.
 * pairs of q6_K: half h, line i (0..7): bits 2c, 2c+1 of each byte belong to quad 8c + i.
 * scales, mins of 32-blocks: 16 half of block 0, then 16 half of block 1.
 * scales, mins of q4_K, q5_K: 16 uchar per sub-block of 32; of q6_K: 16 char per sub-block of 16.
 *
 * The kernels walk "pairs": 64 columns = 2 blocks of 32, that is one unit of a 32-block dtype or a
 * quarter of a unit of a K-quant.
 */
#ifndef CPU_R16_H
#define CPU_R16_H

#include "cpu/vec.h"

/* Facts of OP_DTYPE, looked up where they are used: it may change within a program (r16.inc). */
#define R16_IS_FLOAT (OP_DTYPE == DT_F32 || OP_DTYPE == DT_F16 || OP_DTYPE == DT_BF16)
#define R16_IS_K     (OP_DTYPE == DT_Q4_K || OP_DTYPE == DT_Q5_K || OP_DTYPE == DT_Q6_K)
#define R16_HAS_MIN \
    (OP_DTYPE == DT_Q4_1 || OP_DTYPE == DT_Q5_1 || OP_DTYPE == DT_Q4_K || OP_DTYPE == DT_Q5_K)
/* Lines of a unit. */
#define R16_LINES              \
    (OP_DTYPE == DT_F32    ? 2 \
     : R16_IS_FLOAT        ? 1 \
     : OP_DTYPE == DT_Q4_0 ? 9 \
     : OP_DTYPE == DT_Q4_1 ? 10 \
     : OP_DTYPE == DT_Q5_0 ? 11 \
     : OP_DTYPE == DT_Q5_1 ? 12 \
     : OP_DTYPE == DT_Q8_0 ? 17 \
     : OP_DTYPE == DT_Q4_K ? 37 \
     : OP_DTYPE == DT_Q5_K ? 45 \
                           : 53)
/* What the stored unsigned number of a zero weight is. */
#define R16_ZERO                \
    (OP_DTYPE == DT_Q4_0   ? 8  \
     : OP_DTYPE == DT_Q5_0 ? 16 \
     : OP_DTYPE == DT_Q8_0 ? 128 \
     : OP_DTYPE == DT_Q6_K ? 32 \
                           : 0)
/* What r16_add_products counts a zero weight as. */
#define R16_ADDED (CPU_ISA == 1 && OP_DTYPE == DT_Q8_0 ? 0 : R16_ZERO)
/* AVX2: how many sums of products of two fit in 16 bits (r16.inc). */
#define R16_SAFE_QUADS                                                               \
    (OP_DTYPE == DT_Q6_K                                                         ? 2 \
     : OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1 || OP_DTYPE == DT_Q5_K ? 4 \
                                                                                 : 8)
#define R16_TOKENS 8 /* at most, of r16_add_products */
/* Where the activations lie that it reads: few of them are packed first (linear_decode_avx2.inc). */
#if CPU_ISA == 1 && !defined(R16_TILES)
#define R16_X_SPACE __private
#else
#define R16_X_SPACE __global
#endif
#define R16_UNIT_K     (R16_IS_FLOAT ? 2 : R16_IS_K ? 256 : 64)
#define R16_UNIT_BYTES (R16_LINES * 64)
#define R16_PAIRS      (R16_UNIT_K / 64) /* pairs in a unit */
#define R16_COLUMNS    (R16_IS_FLOAT ? 2 : 4) /* of one call of r16_columns */

/* The functions of r16.inc and linear_few.inc carry the number of their dtype in their names. */
#define R16_PASTE_(name, number) name##_##number
#define R16_PASTE(name, number)  R16_PASTE_(name, number)
#define R16_NAME(name)           R16_PASTE(name, OP_DTYPE)
#define cpu_dot8                 R16_NAME(cpu_dot8)
#define cpu_dot                  R16_NAME(cpu_dot)
#define r16_group_bytes          R16_NAME(r16_group_bytes)
#define r16_quad                 R16_NAME(r16_quad)
#define r16_scale                R16_NAME(r16_scale)
#define r16_min                  R16_NAME(r16_min)
#define r16_start_pairs          R16_NAME(r16_start_pairs)
#define r16_add_pairs            R16_NAME(r16_add_pairs)
#define r16_widened              R16_NAME(r16_widened)
#define r16_absolute             R16_NAME(r16_absolute)
#define r16_add_signed           R16_NAME(r16_add_signed)
#define r16_add_products         R16_NAME(r16_add_products)
#define r16_columns              R16_NAME(r16_columns)
#define linear_few_step          R16_NAME(linear_few_step)

/* Those of linear_decode.inc that of TOKENS too. */
#define LINEAR_PASTE_(name, number, tokens) name##_##number##_##tokens
#define LINEAR_PASTE(name, number, tokens)  LINEAR_PASTE_(name, number, tokens)
#define LINEAR_NAME(name)                   LINEAR_PASTE(name, OP_DTYPE, TOKENS)
#define prepare_rows                        LINEAR_NAME(prepare_rows)
#define block_dot                           LINEAR_NAME(block_dot)
#define row_group_dot                       LINEAR_NAME(row_group_dot)
#define sum_t                               LINEAR_NAME(sum_t)
#define linear_decode_step                  LINEAR_NAME(linear_decode_step)

#endif
