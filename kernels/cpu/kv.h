/* KV caches of CPU devices, dtype KV_DTYPE. f16 and f32 lie in KV_TILED: K [slot][n_head_kv]
 * [n_ctx / 16][head_dim][16], so that 16 cells are scored at once; V [slot][n_head_kv][n_ctx]
 * [head_dim]; n_ctx is a multiple of 16. q8_0 lies in KV_PLAIN, both as V, in blocks {half d;
 * char q[32]}: attention unpacks a chunk of cells at a time into floats of the shapes above. */
#ifndef CPU_KV_H
#define CPU_KV_H

#include "cpu/vec.h"

#ifndef KV_DTYPE
#define KV_DTYPE OP_DTYPE
#endif

#define KV_IS_Q8    (KV_DTYPE == DT_Q8_0)
#define KV_Q8_BYTES 34 /* of a block of 32 */

/* What attention reads: the cache itself, or the unpacked chunk. */
#if KV_DTYPE == DT_F16
typedef half kv_t;
#define KV_SPACE      __global
#define KV_LOAD_16(p) vload_half16(0, p)
#elif KV_IS_Q8
typedef float kv_t;
#define KV_SPACE      __private
#define KV_LOAD_16(p) vload16(0, p)
#else
typedef float kv_t;
#define KV_SPACE      __global
#define KV_LOAD_16(p) vload16(0, p)
#endif

CPU_INLINE uint kv_cell_bytes(uint head_dim)
{
    return KV_IS_Q8 ? head_dim / 32 * KV_Q8_BYTES : head_dim * (uint)sizeof(kv_t);
}

/* Bytes before the first cell of a slot's head; the same in K and V. */
CPU_INLINE ulong kv_head(uint slot, uint head, uint n_head_kv, uint n_ctx, uint head_dim)
{
    return ((ulong)slot * n_head_kv + head) * n_ctx * kv_cell_bytes(head_dim);
}

/* Stores the values head [head_dim] in cell `position` of a head of V, or of a K in KV_PLAIN. */
CPU_INLINE void kv_store_row(const float *head, uint head_dim, __global uchar *cells, uint position)
{
    __global uchar *cell = cells + (ulong)position * kv_cell_bytes(head_dim);
#if KV_IS_Q8
    for (uint i = 0; i < head_dim; i += 32, cell += KV_Q8_BYTES) {
        const float16 lo = vload16(0, head + i), hi = vload16(1, head + i);
        const float d = max_16(fmax(fabs(lo), fabs(hi))) / 127.0f;
        const float16 inverse = (float16)(d > 0.0f ? 1.0f / d : 0.0f), rounder = (float16)(0.5f);
        vstore_half(d, 0, (__global half *)cell);
        vstore16(convert_char16(fma(lo, inverse, copysign(rounder, lo))), 0,
                 (__global char *)cell + 2);
        vstore16(convert_char16(fma(hi, inverse, copysign(rounder, hi))), 1,
                 (__global char *)cell + 2);
    }
#else
    for (uint i = 0; i < head_dim; i += 16) {
#if KV_DTYPE == DT_F16
        vstore_half16(vload16(0, head + i), 0, (__global half *)cell + i);
#else
        vstore16(vload16(0, head + i), 0, (__global float *)cell + i);
#endif
    }
#endif
}

/* The same for a head of K. */
CPU_INLINE void kv_store_k(const float *head, uint head_dim, __global uchar *cells, uint position)
{
#if KV_IS_Q8
    kv_store_row(head, head_dim, cells, position);
#else
    const ulong at = (ulong)(position / 16) * 16 * head_dim + position % 16;
    for (uint i = 0; i < head_dim; i += 16) {
#if KV_DTYPE == DT_F16
        ushort lanes[16];
        __global ushort *out = (__global ushort *)cells + at;
        vstore_half16(vload16(0, head + i), 0, (half *)lanes);
#else
        const float *lanes = head + i;
        __global float *out = (__global float *)cells + at;
#endif
        for (uint j = 0; j < 16; j++)
            out[16 * (i + j)] = lanes[j];
    }
#endif
}

#if KV_IS_Q8
/* n cells of a head from `cell` on: as tiles [n / 16][head_dim][16], or as rows [n][head_dim]. */
CPU_INLINE void kv_unpack(const __global uchar *cell, uint n, uint head_dim, bool tiles, float *out)
{
    for (uint c = 0; c < n; c++) {
        for (uint i = 0; i < head_dim; i += 32, cell += KV_Q8_BYTES) {
            const float d = load_half(cell);
            const float16 lo = d * convert_float16(vload16(0, (const __global char *)cell + 2));
            const float16 hi = d * convert_float16(vload16(1, (const __global char *)cell + 2));
            if (!tiles) {
                vstore16(lo, 0, out + c * head_dim + i);
                vstore16(hi, 1, out + c * head_dim + i);
                continue;
            }
            float values[32];
            vstore16(lo, 0, values);
            vstore16(hi, 1, values);
            for (uint j = 0; j < 32; j++)
                out[(c / 16 * head_dim + i + j) * 16 + c % 16] = values[j];
        }
    }
}
#endif

#endif
