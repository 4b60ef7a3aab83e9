/* linear for few tokens on NVIDIA: y = w x, weights LAYOUT_R4, activations ACT_Q8, dp4a sums.
 *
 *   warp = row group of 4 rows; lane = block of 32 columns of the current chunk:
 *     acc[t][r] += d[r] dx[t] (sum of q[r] * qx[t] - zero * sum of qx[t]) (+ m[r] dx[t] sum of qx[t])
 *   The next chunk's bytes are loaded while this one is computed with; the 32 lanes' sums meet in a
 *   shuffle tree at the end. Weights are read once for TOKENS tokens, 16 bytes a lane, in order.
 *   Exact but for float rounding: integer sums of a block stay below 2^20.
 */
#include "nvidia/ptx.h"
#include "nvidia/r4.h"

#define WARPS (LWS / 32)

/* What one lane holds of a chunk: a block of each of the 4 rows. */
struct r4_raw {
    uint q[4][4 * R4_PLANES];
#if R4_HIGH
    uint h[4][R4_HIGH / 4];
#endif
    uint s[R4_SCALES / 4];
#if R4_SUPER
    uint super[R4_SUPER / 4];
#endif
};

PTX_INLINE int dot4_unsigned(uint q, uint x, int sum)
{
    int r;
    __asm__("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(q), "r"(x), "r"(sum));
    return r;
}

PTX_INLINE int dot4_signed(uint q, uint x, int sum)
{
    int r;
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(q), "r"(x), "r"(sum));
    return r;
}

/* Reads of weights: once, so they need no place in the first cache. */
PTX_INLINE void read16(const __global uchar *p, uint *w)
{
    __asm__ volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "l"(p));
}

PTX_INLINE void read8(const __global uchar *p, uint *w)
{
    __asm__ volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(w[0]), "=r"(w[1])
                 : "l"(p));
}

PTX_INLINE void read4(const __global uchar *p, uint *w)
{
    __asm__ volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
}

PTX_INLINE void load_chunk(const __global uchar *chunk, uint nb, uint lane, struct r4_raw *raw)
{
    const uint j = min(lane, nb - 1); /* lanes past the end read a block that exists */
#pragma unroll
    for (uint r = 0; r < 4; r++) {
#pragma unroll
        for (uint plane = 0; plane < R4_PLANES; plane++)
            read16(chunk + r4_quants(nb, r, plane, j), raw->q[r] + 4 * plane);
#if R4_IS_Q5
        read4(chunk + r4_high(nb, r, j), raw->h[r]);
#elif R4_IS_Q6
        read8(chunk + r4_high(nb, r, j), raw->h[r]);
#endif
    }
#if R4_SCALES == 16
    read16(chunk + r4_scales(nb, j), raw->s);
#else
    read8(chunk + r4_scales(nb, j), raw->s);
#endif
#if R4_IS_KM
    read16(chunk + r4_super(nb, j), raw->super);
#elif R4_IS_Q6
    read8(chunk + r4_super(nb, j), raw->super);
#endif
}

/* Numbers 4i .. 4i + 3 (half_ 0) or 16 + 4i .. (half_ 1) of row r, a byte each. */
PTX_INLINE uint numbers(const struct r4_raw *raw, uint r, uint half_, uint i)
{
#if R4_IS_Q8
    return raw->q[r][4 * half_ + i];
#else
    uint q = raw->q[r][i] >> 4 * half_ & 0x0F0F0F0F;
#if R4_IS_Q5
    q |= (raw->h[r][0] >> (4 * half_ + i) & 0x01010101) << 4;
#elif R4_IS_Q6
    q |= (raw->h[r][half_] >> 2 * i & 0x03030303) << 4;
#endif
    return q;
#endif
}

PTX_INLINE float half_of_pair(uint pair, uint which)
{
    return ptx_float_of((ushort)(which ? pair >> 16 : pair & 0xFFFF));
}

/* One token's block times the lane's block of each row. */
PTX_INLINE void add_block(const struct r4_raw *raw, const __global uchar *x, uint k, uint block,
                          float *acc)
{
    const __global uint4 *xq = (const __global uint4 *)(x + (ulong)block * 32);
    const uint4 low = xq[0], high = xq[1];
    const uint xs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float dx = ((const __global float *)(x + k))[block];
    const int sum = ((const __global int *)(x + k + k / 32 * 4))[block];
#if R4_IS_Q6
    int first = 0, second = 0; /* sums of x over the two halves */
#pragma unroll
    for (uint i = 0; i < 4; i++) {
        first = dot4_signed(0x01010101, xs[i], first);
        second = dot4_signed(0x01010101, xs[4 + i], second);
    }
#endif
#pragma unroll
    for (uint r = 0; r < 4; r++) {
#if R4_IS_Q6
        int a = -R4_ZERO * first, b = -R4_ZERO * second;
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            a = dot4_unsigned(numbers(raw, r, 0, i), xs[i], a);
            b = dot4_unsigned(numbers(raw, r, 1, i), xs[4 + i], b);
        }
        const uint scales = raw->s[r / 2] >> 16 * (r & 1);
        a = a * (char)(scales & 0xFF) + b * (char)(scales >> 8 & 0xFF);
        acc[r] = fma(half_of_pair(raw->super[r / 2], r & 1) * dx, (float)a, acc[r]);
#else
        int a = -R4_ZERO * sum;
#pragma unroll
        for (uint i = 0; i < 4; i++) {
#if R4_IS_Q8
            a = dot4_signed(numbers(raw, r, 0, i), xs[i], a);
            a = dot4_signed(numbers(raw, r, 1, i), xs[4 + i], a);
#else
            a = dot4_unsigned(numbers(raw, r, 0, i), xs[i], a);
            a = dot4_unsigned(numbers(raw, r, 1, i), xs[4 + i], a);
#endif
        }
#if R4_IS_KM
        const int scale = (int)(raw->s[0] >> 8 * r & 0xFF), min_ = (int)(raw->s[1] >> 8 * r & 0xFF);
        acc[r] = fma(half_of_pair(raw->super[r], 0) * dx, (float)(a * scale), acc[r]);
        acc[r] = fma(-half_of_pair(raw->super[r], 1) * dx, (float)(sum * min_), acc[r]);
#else
        acc[r] = fma(half_of_pair(raw->s[r / 2], r & 1) * dx, (float)a, acc[r]);
#if R4_HAS_MIN
        acc[r] = fma(half_of_pair(raw->s[2 + r / 2], r & 1) * dx, (float)sum, acc[r]);
#endif
#endif
#endif
    }
}

PTX_INLINE float warp_sum(float v)
{
#pragma unroll
    for (uint mask = 16; mask > 0; mask >>= 1)
        v += ptx_shuffle_xor(v, mask);
    return v;
}

/* acc[t][r] += the lane's share of rows 4g + r times tokens t0 + t. */
PTX_INLINE void dot_rows(const __global uchar *w, const __global uchar *x, ulong x_stride, uint k,
                     uint g, uint n_tokens, uint lane, float acc[TOKENS][4])
{
    const uint n_blocks = k / 32;
    const __global uchar *group = w + g * r4_group_bytes(k);
#pragma unroll
    for (uint t = 0; t < TOKENS; t++)
#pragma unroll
        for (uint r = 0; r < 4; r++)
            acc[t][r] = 0.0f;
    struct r4_raw next;
    load_chunk(group, min((uint)R4_CHUNK, n_blocks), lane, &next);
    for (uint first = 0; first < n_blocks; first += R4_CHUNK) {
        const struct r4_raw raw = next;
        const uint then = first + R4_CHUNK;
        if (then < n_blocks)
            load_chunk(group + R4_BYTES(then), min((uint)R4_CHUNK, n_blocks - then), lane, &next);
        if (first + lane < n_blocks) {
#pragma unroll
            for (uint t = 0; t < TOKENS; t++)
                add_block(&raw, x + min(t, n_tokens - 1) * x_stride, k, first + lane, acc[t]);
        }
    }
}

/* Row groups group * WARPS + warp and on; with LINEAR_SWIGLU, pairs of a gate and an up group. */
static void linear_r4_step(const __global uchar *w, const __global uchar *x,
                           const __global float *bias, __global float *y, struct linear_params p,
                           uint group, uint n_groups)
{
    const uint lane = get_local_id(0) & 31, warp = get_local_id(0) >> 5;
    const bool pairs = p.epilogue == LINEAR_SWIGLU;
    const uint rows = pairs ? p.m / 2 : p.m, row_groups = (rows + 3) / 4;
    const ulong x_stride = ((ulong)p.k + p.k / 32 * 8 + 63) / 64 * 64;
    for (uint g = group * WARPS + warp; g < row_groups; g += n_groups * WARPS) {
        for (uint t0 = 0; t0 < p.n_tokens; t0 += TOKENS) {
            const uint n = min((uint)TOKENS, p.n_tokens - t0);
            float sums[TOKENS][4] = {{0.0f}}, ups[TOKENS][4];
#pragma unroll 1
            for (uint part = 0; part <= pairs; part++) { /* the up group first */
#pragma unroll
                for (uint i = 0; i < 4 * TOKENS; i++)
                    ups[i / 4][i % 4] = sums[i / 4][i % 4];
                dot_rows(w, x + t0 * x_stride, x_stride, p.k, pairs ? 2 * g + 1 - part : g, n, lane,
                         sums);
            }
#pragma unroll
            for (uint t = 0; t < TOKENS; t++) {
#pragma unroll
                for (uint r = 0; r < 4; r++) {
                    const uint row = 4 * g + r, in = pairs ? 8 * g + r : row;
                    float sum = warp_sum(sums[t][r]), up = pairs ? warp_sum(ups[t][r]) : 0.0f;
                    if (lane != r || row >= rows || t >= n)
                        continue;
                    __global float *at = y + (ulong)(t0 + t) * p.y_stride + row;
                    sum += p.has_bias ? bias[in] : 0.0f;
                    if (pairs)
                        *at = sum / (1.0f + exp(-sum)) * (up + (p.has_bias ? bias[in + 4] : 0.0f));
                    else
                        *at = p.epilogue == LINEAR_ADD ? *at + sum : sum;
                }
            }
        }
    }
}

KERNEL(LWS) void linear_r4(const __global uchar *w, ulong w_offset, const __global uchar *x,
                           ulong x_offset, const __global uchar *bias, ulong bias_offset,
                           __global uchar *y, ulong y_offset, struct linear_params p)
{
    linear_r4_step(w + w_offset, x + x_offset, (const __global float *)(bias + bias_offset),
                   (__global float *)(y + y_offset), p, get_group_id(0), get_num_groups(0));
}
