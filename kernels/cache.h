/* KV_PLAIN caches of dtype OP_DTYPE (f16, f32, q8_0): where a cell lies, and how it is written. */
#ifndef CACHE_H
#define CACHE_H
#include "weight.h"

/* Offset in bytes of cell `position` of a KV head: [slot][n_head_kv][n_ctx][head_dim]. */
static ulong cache_cell(uint slot, uint head, uint position, uint n_head_kv, uint n_ctx,
                        uint head_dim)
{
    return (((ulong)slot * n_head_kv + head) * n_ctx + position) * weight_row_bytes(head_dim);
}

/* Writes the head [head_dim] in local memory to a cell; all LWS items of the group take part. */
static void cache_store(__global uchar *cell, const __local float *head, uint head_dim)
{
    const uint lid = get_local_id(0);
#if OP_DTYPE == DT_Q8_0
    for (uint b = lid; b < head_dim / 32; b += LWS) {
        __global uchar *block = cell + b * 34;
        const float16 lo = vload16(2 * b, head), hi = vload16(2 * b + 1, head);
        const float d = max_16(fmax(fabs(lo), fabs(hi))) / 127.0f;
        const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
        vstore_half_rte(d, 0, (__global half *)block);
        vstore16(convert_char16(convert_int16(round(lo * inverse))), 0, (__global char *)block + 2);
        vstore16(convert_char16(convert_int16(round(hi * inverse))), 1, (__global char *)block + 2);
    }
#else
    for (uint i = lid; i < head_dim; i += LWS) {
#if OP_DTYPE == DT_F16
        vstore_half_rte(head[i], i, (__global half *)cell);
#else
        ((__global float *)cell)[i] = head[i];
#endif
    }
#endif
}

#endif
