/* What every CPU kernel uses: vector helpers, the int8 dot product, prefetch, split of the work.
 *
 * The kernels of this folder are made for a CPU device: as many work-groups as there are compute
 * units, of one work-item each, which walks a long contiguous share of the data with explicit
 * 16-wide vectors. Each kernel is a thin wrapper around a device function
 * `NAME_step(arguments..., group, n_groups)`, so that one launch can run many steps as well.
 *
 * CPU_ISA chooses the int8 dot product: 0 portable OpenCL C, 1 AVX2, 2 vpdpbusd on 256 bits,
 * 3 vpdpbusd on 512 bits. The asm forms are only built where a probe proved them.
 */
#ifndef CPU_VEC_H
#define CPU_VEC_H

#ifndef CPU_ISA
#define CPU_ISA 0
#endif

#define CPU_INLINE static inline __attribute__((always_inline))
#define CPU_UNROLL    _Pragma("unroll")
#define CPU_UNROLL_4  _Pragma("unroll 4")
#define CPU_NO_UNROLL _Pragma("unroll 1")

/* 32 registers of 16 floats. Elsewhere a float16 takes several: tiles of sums have to be smaller, or
 * they are written to memory and read again at every multiply-add. */
#ifdef __AVX512F__
#define CPU_WIDE 1
#else
#define CPU_WIDE 0
#endif
/* Of `rows` sums of a column, those that stay in registers at a time: a divisor of rows. */
#define CPU_PART(rows) \
    (CPU_WIDE || (rows) < 8 ? (rows) : (rows) % 6 == 0 ? 6 : (rows) % 4 == 0 ? 4 : (rows) / 2)

/* Fetches the line `bytes` ahead of p into the cache. The hardware's own prefetcher falls behind
 * as soon as there is arithmetic between the loads. (The macros: compiled for the CPU itself, not
 * for an intermediate language.) */
#if defined(__x86_64__) || defined(__aarch64__)
#define CPU_PREFETCH(p, bytes) __builtin_prefetch((const void *)((size_t)(p) + (bytes)))
#else
#define CPU_PREFETCH(p, bytes)
#endif

/* The share of items [*begin, *end) of a group: contiguous, sizes differ by at most one. */
CPU_INLINE void cpu_share(uint n, uint group, uint n_groups, uint *begin, uint *end)
{
    *begin = (uint)((ulong)n * group / n_groups);
    *end = (uint)((ulong)n * (group + 1) / n_groups);
}

/* b where the mask (0 or -1 in a lane) is set, else a: two or three instructions, where compilers make
 * a long detour over single bits of select(). */
CPU_INLINE float16 cpu_blend(float16 a, float16 b, int16 mask)
{
    return as_float16((as_int16(a) & ~mask) | (as_int16(b) & mask));
}

/* e^x to 2 units in the last place: 2^n times a polynomial of the rest, without the library's
 * call. Above 88 it gives e^88, below -87 it gives 0. Source: Cephes expf's split of ln 2 and
 * coefficients. */
CPU_INLINE float16 cpu_exp(float16 x)
{
    const float16 most = (float16)(88.0f);
    x = most < x ? most : x; /* one instruction, which fmin is not */
    /* adding 1.5 * 2^23 rounds to the nearest integer */
    float16 n = fma(x, (float16)(1.44269504f), (float16)(12582912.0f)) - 12582912.0f;
    float16 r = fma(n, (float16)(-0.693359375f), x);
    r = fma(n, (float16)(2.12194440e-4f), r);
    float16 p = (float16)(1.9875691500e-4f);
    p = fma(p, r, (float16)(1.3981999507e-3f));
    p = fma(p, r, (float16)(8.3334519073e-3f));
    p = fma(p, r, (float16)(4.1665795894e-2f));
    p = fma(p, r, (float16)(1.6666665459e-1f));
    p = fma(p, r, (float16)(5.0000001201e-1f));
    p = fma(p, r * r, r + 1.0f);
    int16 bits = convert_int16(n) + 127;
    float16 y = p * as_float16(bits << 23);
    return cpu_blend(y, (float16)(0.0f), x < -87.0f);
}

/* e^x for x <= 0, to 2^-21 of e^0 (near -87 to 2^-16 of e^x itself): for what is divided by a sum in
 * which e^0 is a term. Below -87 it gives 0. Fewer instructions than cpu_exp: n is taken from the low
 * bits of the sum that rounds. Coefficients: 2^r on [-0.5, 0.5] by least squares of the relative error
 * on Chebyshev points. */
CPU_INLINE float16 cpu_exp_below(float16 x)
{
    const float16 t = x * 1.44269504f, rounded = t + 12582912.0f, r = t - (rounded - 12582912.0f);
    float16 p = (float16)(1.3218672e-3f);
    p = fma(p, r, (float16)(9.6716979e-3f));
    p = fma(p, r, (float16)(5.5508930e-2f));
    p = fma(p, r, (float16)(2.4022238e-1f));
    p = fma(p, r, (float16)(6.9314686e-1f));
    p = fma(p, r, (float16)(1.0f));
    const float16 y = p * as_float16((as_int16(rounded) << 23) + 0x3f800000);
    return cpu_blend(y, (float16)(0.0f), x < -87.0f);
}

CPU_INLINE float16 cpu_silu(float16 x)
{
    return x / (1.0f + cpu_exp(-x));
}

#endif
