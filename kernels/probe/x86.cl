/* Instructions of x86-64 by inline assembly, one per build: -DPROBE_X86, _VNNI512, _VNNI256, _BF16,
 * _AVX2 or _F16C512. Every form is compared by value with plain arithmetic: an assembler may take a
 * wrongly written form without a word. Local size one, the only one that every PoCL compiles inline
 * assembly for. Braces are escaped (%{ %}), else they mean alternatives.
 */
#include "probe/common.h"

#if defined(PROBE_VNNI256) && defined(CAP_ASM_VEX)
#define VEX     "%{vex%} "
#define VEX_REG "x"
#else
#define VEX     ""
#define VEX_REG "v"
#endif

/* Sum of four products of unsigned and signed bytes of one 32-bit word. */
static inline int dot4(uint a, uint b)
{
    int sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int)(a >> (8 * i) & 0xFFu) * (int)(char)(b >> (8 * i) & 0xFFu);
    return sum;
}

#ifdef PROBE_X86
__kernel void probe(__global const uchar *in, __global uint *out)
{
    uint value = in[0];
    __asm__ volatile("pause" : : : "memory");
    __asm__ volatile("prefetcht0 %0" : : "m"(in[1024]));
    __asm__("lea 7(%1,%1,2), %0" : "=r"(value) : "r"((ulong)value));
    out[get_global_id(0)] = value == 3u * in[0] + 7u ? PROBE_OK : PROBE_BAD;
}
#endif

#ifdef PROBE_VNNI512
__kernel void probe(__global const uchar *in, __global uint *out)
{
    __global const uint *words = (__global const uint *)in;
    uint16 a = vload16(0, words), b = vload16(1, words);
    int16 acc = as_int16(vload16(2, words)) >> 8, one = acc;
    uint start[16], got[16], got_one[16];
    vstore16(as_uint16(acc), 0, start);
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(one) : "v"(a), "m"(words[16]));
    vstore16(as_uint16(acc), 0, got);
    vstore16(as_uint16(one), 0, got_one);
    bool right = true;
    for (int i = 0; i < 16; i++) {
        right = right && got[i] == start[i] + (uint)dot4(words[i], words[16 + i]);
        right = right && got_one[i] == start[i] + (uint)dot4(words[i], words[16]);
    }
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif

#ifdef PROBE_VNNI256
__kernel void probe(__global const uchar *in, __global uint *out)
{
    __global const uint *words = (__global const uint *)in;
    uint8 a = vload8(0, words), b = vload8(2, words);
    int8 acc = as_int8(vload8(4, words)) >> 8;
    uint start[8], got[8];
    vstore8(as_uint8(acc), 0, start);
    __asm__(VEX "vpdpbusd %2, %1, %0" : "+" VEX_REG(acc) : VEX_REG(a), VEX_REG(b));
    vstore8(as_uint8(acc), 0, got);
    bool right = true;
    for (int i = 0; i < 8; i++)
        right = right && got[i] == start[i] + (uint)dot4(words[i], words[16 + i]);
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif

#ifdef PROBE_AVX2
/* Unsigned x signed bytes summed in pairs to 16 bits (small enough not to saturate), then pairs of
 * those times ones. */
__kernel void probe(__global const uchar *in, __global uint *out)
{
    __global const uint *words = (__global const uint *)in;
    uint8 a = vload8(0, words) & 0x7F7F7F7Fu, b = vload8(2, words);
    short16 ones = (short16)(1), pairs;
    int8 sums;
    uint got[8];
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(pairs) : "x"(a), "x"(b));
    __asm__("vpmaddwd %2, %1, %0" : "=x"(sums) : "x"(pairs), "x"(ones));
    vstore8(as_uint8(sums), 0, got);
    bool right = true;
    for (int i = 0; i < 8; i++)
        right = right && got[i] == (uint)dot4(words[i] & 0x7F7F7F7Fu, words[16 + i]);
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif

#ifdef PROBE_BF16
/* Small integers are exact in bfloat16 (the upper half of a float), and so are their sums. */
__kernel void probe(__global const uchar *in, __global uint *out)
{
    uint a[16], b[16];
    float got[16];
    for (int i = 0; i < 16; i++) {
        a[i] = (as_uint((float)(in[2 * i] & 63)) >> 16) |
               (as_uint((float)(in[2 * i + 1] & 63)) & 0xFFFF0000u);
        b[i] = (as_uint((float)(in[64 + 2 * i] & 31)) >> 16) |
               (as_uint(-(float)(in[65 + 2 * i] & 31)) & 0xFFFF0000u);
    }
    uint16 x = vload16(0, a), y = vload16(0, b);
    float16 acc = (float16)(1.0f);
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y));
    vstore16(acc, 0, got);
    bool right = true;
    for (int i = 0; i < 16; i++) {
        float want = 1.0f + (float)(in[2 * i] & 63) * (float)(in[64 + 2 * i] & 31) -
                     (float)(in[2 * i + 1] & 63) * (float)(in[65 + 2 * i] & 31);
        right = right && got[i] == want;
    }
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif

#ifdef PROBE_F16C512
__kernel void probe(__global const uchar *in, __global uint *out)
{
    ushort bits[16];
    float got[16];
    for (int i = 0; i < 16; i++)
        bits[i] = (ushort)(0x3C00 + 4 * in[i]); /* 1 + in / 256 */
    ushort16 halves = vload16(0, bits);
    float16 floats;
    __asm__("vcvtph2ps %1, %0" : "=v"(floats) : "v"(halves));
    vstore16(floats, 0, got);
    bool right = true;
    for (int i = 0; i < 16; i++)
        right = right && got[i] == 1.0f + (float)in[i] / 256.0f;
    out[get_global_id(0)] = right ? PROBE_OK : PROBE_BAD;
}
#endif
