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

#define R4_IS_Q8    (OP_DTYPE == DT_Q8_0)
#define R4_IS_Q5    (OP_DTYPE == DT_Q5_0 || OP_DTYPE == DT_Q5_1 || OP_DTYPE == DT_Q5_K)
#define R4_IS_Q6    (OP_DTYPE == DT_Q6_K)
#define R4_IS_KM    (OP_DTYPE == DT_Q4_K || OP_DTYPE == DT_Q5_K) /* scales and mins of 6 bits */
#define R4_HAS_MIN  (OP_DTYPE == DT_Q4_1 || OP_DTYPE == DT_Q5_1)
#define R4_PLANES   (R4_IS_Q8 ? 2 : 1)
#define R4_HIGH     (R4_IS_Q5 ? 4 : R4_IS_Q6 ? 8 : 0)   /* bytes of high bits a block */
#define R4_SCALES   (R4_HAS_MIN ? 16 : 8)               /* bytes of scales a block, 4 rows */
#define R4_SUPER    (R4_IS_KM ? 16 : R4_IS_Q6 ? 8 : 0)  /* bytes a super-block, 4 rows */
#define R4_ZERO     (OP_DTYPE == DT_Q4_0 ? 8 : OP_DTYPE == DT_Q5_0 ? 16 : R4_IS_Q6 ? 32 : 0)
#define R4_CHUNK    32 /* blocks */
/* Bytes of nb blocks of a row group. */
#define R4_BYTES(nb) ((nb) * (4 * (16 * R4_PLANES + R4_HIGH) + R4_SCALES) + (nb) / 8 * R4_SUPER)

static ulong r4_group_bytes(uint k)
{
    return ((ulong)R4_BYTES(k / 32) + 15) / 16 * 16;
}

/* Offsets in a chunk of nb blocks. */
static uint r4_quants(uint nb, uint r, uint plane, uint j)
{
    return ((r * R4_PLANES + plane) * nb + j) * 16;
}

static uint r4_high(uint nb, uint r, uint j)
{
    return nb * 64 * R4_PLANES + (r * nb + j) * R4_HIGH;
}

static uint r4_scales(uint nb, uint j)
{
    return nb * 4 * (16 * R4_PLANES + R4_HIGH) + j * R4_SCALES;
}

static uint r4_super(uint nb, uint j)
{
    return nb * (4 * (16 * R4_PLANES + R4_HIGH) + R4_SCALES) + j / 8 * R4_SUPER;
}

#endif
