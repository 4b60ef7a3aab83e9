/* LAYOUT_R4: four rows side by side in chunks of up to 32 blocks, so that the 32 lanes of a warp
 * read neighbouring 16-byte pieces: lane = block of 32 columns.
 *
 * A row group (4 rows) is a run of chunks; chunk c holds blocks 32c .. 32c + nb - 1, nb = min(32,
 * what is left). Inside a chunk, with r < 4 the row and j < nb the block:
 *   quants   [r][plane][j] 16 bytes   byte i of plane 0: number i below, number i + 16 above;
 *                                     Q8_0 has two planes of plain bytes, signed
 *   high     [r][j] 4 or 8 bytes      Q5: bit i of byte b is the fifth bit of number 4i + b, i < 8;
 *                                     Q6_K: bits 2i, 2i + 1 of byte b of word v belong to number
 *                                     16v + 4i + b
 *   scales   [j][8 or 16 bytes]       d of rows 0..3 (halves), then m of rows 0..3 where there is
 *                                     one; K-quants: bytes: Q4_K, Q5_K the scales then the mins of
 *                                     rows 0..3, Q6_K two signed scales a row
 *   super    [j / 8][r]               K-quants: d, dmin (halves) of the 256 columns; Q6_K: d
 * Sizes are in kernels/layouts.def; groups are padded to 16 bytes.
 */
#ifndef OINFER_KERNELS_R4_H
#define OINFER_KERNELS_R4_H

/* All sizes are functions of the dtype, a constant wherever they are used, so that one program can
 * hold kernels for several of them. */
#define R4_IS_Q8(type)   ((type) == DT_Q8_0)
#define R4_IS_Q5(type)   ((type) == DT_Q5_0 || (type) == DT_Q5_1 || (type) == DT_Q5_K)
#define R4_IS_Q6(type)   ((type) == DT_Q6_K)
#define R4_IS_KM(type)   ((type) == DT_Q4_K || (type) == DT_Q5_K) /* scales and mins of 6 bits */
#define R4_HAS_MIN(type) ((type) == DT_Q4_1 || (type) == DT_Q5_1)
#define R4_PLANES(type)  (R4_IS_Q8(type) ? 2u : 1u)
#define R4_HIGH(type)    (R4_IS_Q5(type) ? 4u : R4_IS_Q6(type) ? 8u : 0u) /* bytes of high bits */
#define R4_SCALES(type)  (R4_HAS_MIN(type) ? 16u : 8u)                    /* of a block, 4 rows */
#define R4_SUPER(type)   (R4_IS_KM(type) ? 16u : R4_IS_Q6(type) ? 8u : 0u)
#define R4_ZERO(type) \
    ((type) == DT_Q4_0 ? 8 : (type) == DT_Q5_0 ? 16 : R4_IS_Q6(type) ? 32 : 0)
#define R4_CHUNK 32u /* blocks */
#define R4_QUANTS(type) (4 * (16 * R4_PLANES(type) + R4_HIGH(type))) /* and high bits, 4 rows */
/* Bytes of nb blocks of a row group. */
#define R4_BYTES(type, nb) \
    ((nb) * (R4_QUANTS(type) + R4_SCALES(type)) + (nb) / 8 * R4_SUPER(type))

#define R4_INLINE static inline __attribute__((always_inline))

R4_INLINE ulong r4_group_bytes(const uint type, uint k)
{
    return ((ulong)R4_BYTES(type, k / 32) + 15) / 16 * 16;
}

/* Offsets in a chunk of nb blocks. */
R4_INLINE uint r4_quants(const uint type, uint nb, uint r, uint plane, uint j)
{
    return ((r * R4_PLANES(type) + plane) * nb + j) * 16;
}

R4_INLINE uint r4_high(const uint type, uint nb, uint r, uint j)
{
    return nb * 64 * R4_PLANES(type) + (r * nb + j) * R4_HIGH(type);
}

R4_INLINE uint r4_scales(const uint type, uint nb, uint j)
{
    return nb * R4_QUANTS(type) + j * R4_SCALES(type);
}

R4_INLINE uint r4_super(const uint type, uint nb, uint j)
{
    return nb * (R4_QUANTS(type) + R4_SCALES(type)) + j / 8 * R4_SUPER(type);
}

#endif
