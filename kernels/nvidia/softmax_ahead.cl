/* softmax of f32 rows that items keep whole, a group per row (softmax/kept.cl) that copies its next row
 * into local memory while it works on this one. Every item copies the quads that it will take itself,
 * so no barrier guards them.
 */
#include "softmax/kept.h"

#include "nvidia/copy.h"

/* Where all quads lie at multiples of 16 bytes and there is no mask. */
static bool is_aligned(const __global uchar *x, struct softmax_params p)
{
    return ((ulong)x & 15) == 0 && p.len % 4 == 0 && !p.has_mask;
}

PTX_INLINE void copy_row(const __global uchar *x, struct softmax_params p, uint r, uint buffer)
{
    const uint lid = (uint)get_local_id(0), n_quads = p.len / 4;
#pragma unroll
    for (uint q = 0; q < KEEP; q++)
        if (r < p.rows && lid + q * LWS < n_quads)
            ptx_copy16(buffer + 16 * (lid + q * LWS),
                       x + 4 * ((ulong)r * p.len + 4 * (lid + q * LWS)), true);
    ptx_copy_commit();
}

KERNEL(LWS) void softmax_ahead(SOFTMAX_ARGS)
{
    __local float4 buffer[KEEP * LWS];
    __local float2 scratch[LWS];
    const uint lid = (uint)get_local_id(0), n_groups = (uint)get_num_groups(0);
    const bool ahead = is_aligned(x + x_offset, p);
    if (ahead)
        copy_row(x + x_offset, p, (uint)get_group_id(0), ptx_local(buffer));
    for (uint r = (uint)get_group_id(0); r < p.rows; r += n_groups) {
        float4 kept[KEEP];
        if (ahead) {
            ptx_copy_wait0();
#pragma unroll
            for (uint q = 0; q < KEEP; q++)
                kept[q] = lid + q * LWS < p.len / 4 ? p.scale * buffer[lid + q * LWS]
                                                    : (float4)(-INFINITY);
            copy_row(x + x_offset, p, r + n_groups, ptx_local(buffer));
        } else {
            softmax_keep(kept, x + x_offset, mask + mask_offset, p, (ulong)r * p.len);
        }
        softmax_kept_row(kept, x + x_offset, mask + mask_offset, y + y_offset, p, (ulong)r * p.len,
                         scratch);
    }
}
