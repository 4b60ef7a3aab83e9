/* Pairs of halves from quantised numbers: the arithmetic of unpacking, whatever the layout.
 *
 * Numbers are placed in the mantissa of 1024 (0x6400 | q), where they are exact up to 1023;
 * subtracting 1024 + zero is exact too, so each weight is rounded once, by the product with its
 * scale (and once more where a min is added to it: one fused operation).
 */
#ifndef OINFER_KERNELS_PAIRS_H
#define OINFER_KERNELS_PAIRS_H

#include "nvidia/ptx.h"

/* Four numbers q[0..3] below 256, a byte each -> two pairs of halves q + 1024 + add. */
PTX_INLINE void pairs_of_bytes(uint q, uint add, uint *out)
{
    out[0] = ptx_half2_add(ptx_permute(q, 0x64646464, 0x4140), add);
    out[1] = ptx_half2_add(ptx_permute(q, 0x64646464, 0x4342), add);
}

PTX_INLINE void scale_pairs(uint *out, uint first, uint count, uint d)
{
#pragma unroll
    for (uint i = 0; i < count; i++)
        out[first + i] = ptx_half2_mul(out[first + i], d);
}

PTX_INLINE void scale_min_pairs(uint *out, uint d, uint m)
{
#pragma unroll
    for (uint i = 0; i < 16; i++)
        out[i] = ptx_half2_fma(out[i], d, m);
}

#define MINUS_1024 0xE400E400 /* pairs of -(1024 + zero) */
#define MINUS_1032 0xE408E408
#define MINUS_1040 0xE410E410
#define MINUS_1056 0xE420E420
#define MINUS_1152 0xE480E480
#define BOTH(h)    ((uint)(h) | (uint)(h) << 16)

#endif
