/* The PTX instructions that OpenCL C does not reach, for NVIDIA devices of compute capability 8.0 up.
 *
 * Included by the kernels of this folder only, whose variants need CAP_PTX_MMA (proven by a probe).
 */
#ifndef OINFER_KERNELS_PTX_H
#define OINFER_KERNELS_PTX_H

#define PTX_INLINE static inline __attribute__((always_inline))

/* The 32-bit address of a place in local memory, as PTX instructions want it. */
PTX_INLINE uint ptx_local(const __local void *p)
{
    return (uint)(ulong)p;
}

/* The value that lane `lane ^ mask` of the warp has. */
PTX_INLINE float ptx_shuffle_xor(float v, uint mask)
{
    float r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=f"(r)
                     : "f"(v), "r"(mask));
    return r;
}

/* e to the x, to about 2 units in the last place near 0; 0 for -inf. */
PTX_INLINE float ptx_exp(float x)
{
    float r;
    __asm__("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
    return r;
}

/* The value that lane `lane` has. */
PTX_INLINE float ptx_shuffle(float v, uint lane)
{
    float r;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=f"(r)
                     : "f"(v), "r"(lane));
    return r;
}

/* Bytes of {a, b} picked by the four digits of `selector`. */
PTX_INLINE uint ptx_permute(uint a, uint b, uint selector)
{
    uint r;
    __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* Arithmetic on pairs of halves held in a word. */
PTX_INLINE uint ptx_half2_add(uint a, uint b)
{
    uint r;
    __asm__("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

PTX_INLINE uint ptx_half2_mul(uint a, uint b)
{
    uint r;
    __asm__("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

PTX_INLINE uint ptx_half2_fma(uint a, uint b, uint c)
{
    uint r;
    __asm__("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* Two floats rounded to a pair of halves: `low` in the lower half of the word. */
PTX_INLINE uint ptx_half2_of(float low, float high)
{
    uint r;
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* The float of the half whose bits are h. */
PTX_INLINE float ptx_float_of(ushort h)
{
    float r;
    __asm__("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
    return r;
}

#endif
