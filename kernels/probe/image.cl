/* Images: a buffer read as a one-dimensional image of 4 x 8 bit gives the bytes of `in`. */
#include "probe/common.h"

__kernel void probe(__read_only image1d_buffer_t image, __global const uchar *in,
                    __global uint *out)
{
    int id = (int)get_global_id(0);
    uint4 pixel = read_imageui(image, id);
    bool right = pixel.x == in[4 * id] && pixel.y == in[4 * id + 1] && pixel.z == in[4 * id + 2] &&
                 pixel.w == in[4 * id + 3];
    out[id] = right ? PROBE_OK : PROBE_BAD;
}
