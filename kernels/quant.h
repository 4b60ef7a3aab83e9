/* Block layouts of the quantised weights, shared by the host (C11) and the device (OpenCL C 1.2).
 *
 * Data only: the structs mirror the file byte for byte and hold nothing but bytes and 16-bit words
 * (half scales are stored as bits, not as half, which not every device has). Their alignment is 1
 * or 2; the host copies a block out of a file before it looks inside, because a file may place
 * it anywhere. Source: the GGUF specification's list of types.
 *
 * Notation: d, m, dmin are halves; q is the stored unsigned number of an element; i its index.
 */
#ifndef OINFER_KERNELS_QUANT_H
#define OINFER_KERNELS_QUANT_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
#define QUANT_U8  uchar
#define QUANT_I8  char
#define QUANT_U16 ushort
#define QUANT_SIZE(x, bytes)
#else
#include <stdint.h>
#define QUANT_U8             uint8_t
#define QUANT_I8             int8_t
#define QUANT_U16            uint16_t
#define QUANT_SIZE(x, bytes) _Static_assert(sizeof(struct x) == (bytes), "layout of " #x)
#endif

#define QUANT_BLOCK 32  /* elements of a simple block */
#define QUANT_SUPER 256 /* elements of a K super-block */

/* Nibbles of a simple block: qs[j] holds element j below and element j + 16 above, j < 16.
 * Fifth bits: bit i of the little-endian 32-bit qh belongs to element i. */

/* x = d * (q - 8) */
struct block_q4_0 {
    QUANT_U16 d;
    QUANT_U8 qs[16];
};
QUANT_SIZE(block_q4_0, 18);

/* x = d * q + m */
struct block_q4_1 {
    QUANT_U16 d, m;
    QUANT_U8 qs[16];
};
QUANT_SIZE(block_q4_1, 20);

/* x = d * (q - 16) */
struct block_q5_0 {
    QUANT_U16 d;
    QUANT_U8 qh[4];
    QUANT_U8 qs[16];
};
QUANT_SIZE(block_q5_0, 22);

/* x = d * q + m */
struct block_q5_1 {
    QUANT_U16 d, m;
    QUANT_U8 qh[4];
    QUANT_U8 qs[16];
};
QUANT_SIZE(block_q5_1, 24);

/* x = d * q, q signed */
struct block_q8_0 {
    QUANT_U16 d;
    QUANT_I8 qs[32];
};
QUANT_SIZE(block_q8_0, 34);

/* 8 groups of 32 elements, group g = i / 32:  x = (d * scale[g]) * q - (dmin * min[g]).
 * qs[32 * c + l] holds element 64c + l below (group 2c) and 64c + 32 + l above (group 2c + 1). */
struct block_q4_k {
    QUANT_U16 d, dmin;
    QUANT_U8 scales[12]; /* QUANT_K4_SCALE and QUANT_K4_MIN */
    QUANT_U8 qs[128];
};
QUANT_SIZE(block_q4_k, 144);

/* As q4_k, and bit g of qh[l] is the fifth bit of element 32g + l. */
struct block_q5_k {
    QUANT_U16 d, dmin;
    QUANT_U8 scales[12];
    QUANT_U8 qh[32];
    QUANT_U8 qs[128];
};
QUANT_SIZE(block_q5_k, 176);

/* 16 groups of 16 elements, group g = i / 16:  x = (d * scales[g]) * (q - 32).
 * Element 128h + 32c + l (h < 2, c < 4, l < 32): low nibble c < 2, high nibble c >= 2 of
 * ql[64h + 32 (c & 1) + l]; its two upper bits are bits 2c, 2c + 1 of qh[32h + l]. */
struct block_q6_k {
    QUANT_U8 ql[128];
    QUANT_U8 qh[64];
    QUANT_I8 scales[16];
    QUANT_U16 d;
};
QUANT_SIZE(block_q6_k, 210);

/* The 6-bit scale and min of group g < 8, from the 12 packed bytes s (any address space). */
#define QUANT_K4_SCALE(s, g) \
    ((g) < 4 ? ((s)[(g)&3] & 63) : (((s)[((g)&3) + 8] & 15) | ((s)[(g)&3] >> 6) << 4))
#define QUANT_K4_MIN(s, g) \
    ((g) < 4 ? ((s)[((g)&3) + 4] & 63) : (((s)[((g)&3) + 8] >> 4) | ((s)[((g)&3) + 4] >> 6) << 4))

#endif
