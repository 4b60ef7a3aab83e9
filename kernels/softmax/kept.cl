/* softmax, a group per row that is read once (softmax/kept.h).
 *
 *   x, mask, y [rows][len]
 */
#include "softmax/kept.h"

static void softmax_kept_step(const __global uchar *x, const __global uchar *mask, __global uchar *y,
                              struct softmax_params p, __local float2 *scratch, uint group,
                              uint n_groups)
{
    for (uint r = group; r < p.rows; r += n_groups) {
        float4 kept[KEEP];
        softmax_keep(kept, x, mask, p, (ulong)r * p.len);
        softmax_kept_row(kept, x, mask, y, p, (ulong)r * p.len, scratch);
    }
}

KERNEL(LWS) void softmax_kept(SOFTMAX_ARGS)
{
    __local float2 scratch[LWS];
    softmax_kept_step(x + x_offset, mask + mask_offset, y + y_offset, p, scratch, get_group_id(0),
                      get_num_groups(0));
}
