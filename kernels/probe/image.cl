/* Images: what one kernel writes into an array of two of EDGE x EDGE texels of four floats, another
 * reads; beyond the edges there are zeros. `in` gives the numbers.
 */
#include "probe/common.h"

#define EDGE 8

/* The texel of a place inside. */
static float4 expected(__global const uchar *in, int col, int row, int layer)
{
    return convert_float4(vload4((layer * EDGE + row) * EDGE + col, in)) * 0.5f;
}

/* An item a texel. */
__kernel void fill(__global const uchar *in, __write_only image2d_array_t image)
{
    const int id = (int)get_global_id(0);
    const int4 at = {id % EDGE, id / EDGE % EDGE, id / EDGE / EDGE, 0};
    write_imagef(image, at, expected(in, at.x, at.y, at.z));
}

/* An item looks at its texel and at those that lie EDGE further in each direction. */
__kernel void probe(__global const uchar *in, __global uint *out, __read_only image2d_array_t image)
{
    const sampler_t border = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
    const int id = (int)get_global_id(0);
    const int col = id % EDGE, row = id / EDGE % EDGE, layer = id / EDGE / EDGE;
    bool right = true;
    for (int dy = -EDGE; dy <= EDGE; dy += EDGE)
        for (int dx = -EDGE; dx <= EDGE; dx += EDGE) {
            const float4 seen = read_imagef(image, border, (int4)(col + dx, row + dy, layer, 0));
            const float4 want = dx == 0 && dy == 0 ? expected(in, col, row, layer) : (float4)(0.0f);
            right = right && all(seen == want);
        }
    out[id] = right ? PROBE_OK : PROBE_BAD;
}
