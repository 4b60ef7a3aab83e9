/* 32 weights of one row in the file's layout to 16 pairs of halves: F16, BF16 and F32.
 *
 * Two steps, so that the loads of the next block are under way while this one is computed with:
 * unpack_load brings the block's bytes into registers, unpack_pairs makes halves of them. Rows
 * start at a multiple of 4 bytes. unpack_r4.h is the same for the quantised types, in LAYOUT_R4.
 */
#ifndef OINFER_KERNELS_UNPACK_H
#define OINFER_KERNELS_UNPACK_H

#include "nvidia/ptx.h"
#include "weight.h"

/* A row of w [m][k], and where its blocks are. */
struct unpack_row {
    const __global uchar *at;
};

PTX_INLINE struct unpack_row unpack_row_of(const __global uchar *w, uint row, uint k)
{
    struct unpack_row r = {w + row * weight_row_bytes(k)};
    return r;
}

#define RAW_WORDS (8 * WEIGHT_BYTES)
struct raw {
    uint q[RAW_WORDS];
};

PTX_INLINE void unpack_load(const struct unpack_row *row, uint block, struct raw *raw)
{
    const __global uint *words = (const __global uint *)(row->at + (ulong)block * 32 * WEIGHT_BYTES);
#pragma unroll
    for (uint i = 0; i < RAW_WORDS; i++)
        raw->q[i] = words[i];
}

PTX_INLINE void unpack_pairs(const struct raw *raw, uint *out)
{
#pragma unroll
    for (uint i = 0; i < 16; i++) {
#if OP_DTYPE == DT_F16
        out[i] = raw->q[i];
#elif OP_DTYPE == DT_BF16
        out[i] = ptx_half2_of(as_float(raw->q[i] << 16), as_float(raw->q[i] & 0xFFFF0000));
#else
        out[i] = ptx_half2_of(as_float(raw->q[2 * i]), as_float(raw->q[2 * i + 1]));
#endif
    }
}

#endif
