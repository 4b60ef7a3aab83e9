/* Many loop iterations in one work-item: some drivers (llvmpipe: after 65,535 of all its loops
 * together) leave the loop and go on as if nothing were amiss.
 *
 * ROUNDS is a multiple of 256, over which the input bytes are every value once.
 */
#include "probe/common.h"

#ifndef ROUNDS
#define ROUNDS 262144
#endif

__kernel void probe(__global const uchar *in, __global uint *out)
{
    uint sum = 0;
    for (uint i = 0; i < ROUNDS; i++)
        sum += in[i % PROBE_IN_BYTES];
    out[get_global_id(0)] = sum == ROUNDS / 256 * (255 * 256 / 2) ? PROBE_OK : PROBE_BAD;
}
