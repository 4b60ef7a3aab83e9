/* The dot product instruction of ARMv8.2 by inline assembly, by value. */
#include "probe/common.h"

#ifdef PROBE
__kernel void probe(__global const uchar *in, __global uint *out)
{
    char16 a = as_char16(vload16(0, in)), b = as_char16(vload16(1, in));
    int4 acc = (int4)(in[0]);
    int got[4];
    __asm__(".arch_extension dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(acc) : "w"(a), "w"(b));
    vstore4(acc, 0, got);
    bool right = true;
    for (int i = 0; i < 4; i++) {
        int want = in[0];
        for (int j = 0; j < 4; j++)
            want += (int)(char)in[4 * i + j] * (int)(char)in[16 + 4 * i + j];
        right = right && got[i] == want;
    }
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
