/* quantize to halves for devices of many narrow items: an item per 4 columns of a row, so that
 * neighbouring items read and write neighbouring bytes.
 *
 *   x [n_rows][x_stride] -> y [n_rows][len] half, len a multiple of 4; item = r * len / 4 + i / 4
 */
#include "act.h"
#include "quads.h"

static void quantize_quads_step(const __global float *x, __global uchar *y, struct quantize_params p,
                                uint group, uint n_groups)
{
    const uint quads = p.len / 4;
    const ulong n = (ulong)quads * p.n_rows;
    const bool aligned = quads_aligned(x, p.x_stride);
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n;
         item += (ulong)n_groups * LWS) {
        const uint r = (uint)(item / quads), i = (uint)(item % quads) * 4;
        act_store_quad(y + r * act_row_bytes(p.len), i,
                       quad_load(x + (ulong)r * p.x_stride + i, aligned));
    }
}

KERNEL(LWS) void quantize_quads(const __global uchar *x, ulong x_offset, __global uchar *y,
                                ulong y_offset, struct quantize_params p)
{
    quantize_quads_step((const __global float *)(x + x_offset), y + y_offset, p, get_group_id(0),
                        get_num_groups(0));
}
