/* softmax for CPUs: a group takes a contiguous share of the rows, 16 numbers at a time.
 *
 *   x, mask, y [rows][len]
 *
 * A row passes three times, but only the first comes from memory: maximum; e^(v - m) into a row of y
 * and its sum; division. (log: the second pass only sums.) f16 writes once, at the end.
 */
#include "cpu/vec.h"
#include "softmax/softmax.h"

#define LOG2_E 1.44269504f

CPU_INLINE float16 row_16(const __global uchar *x, const __global uchar *mask,
                          struct softmax_params p, ulong at)
{
    const float16 v = p.scale * real_load16(x, at);
    return p.has_mask ? v + real_load16(mask, at) : v;
}

/* The larger of two, b where one is NaN: one instruction, which fmax is not. */
CPU_INLINE float16 larger_16(float16 a, float16 b)
{
    return a > b ? a : b;
}

/* 2^t for t <= 0, to 2^-18 of it; below 2^-127 it gives 0, of NaN NaN. Coefficients: 2^r on
 * [-0.5, 0.5] by least squares of the relative error on Chebyshev points. */
CPU_INLINE float16 exp2_below(float16 t)
{
    const float16 low = (float16)(-127.0f);
    t = larger_16(low, t);
    const float16 rounded = t + 12582912.0f, r = t - (rounded - 12582912.0f);
    float16 e = (float16)(9.56051021e-03f);
    e = fma(e, r, (float16)(5.59170392e-02f));
    e = fma(e, r, (float16)(2.40249811e-01f));
    e = fma(e, r, (float16)(6.93121968e-01f));
    e = fma(e, r, (float16)(9.99999191e-01f));
    return e * as_float16((as_int16(rounded) << 23) + 0x3f800000);
}

/* plain: no mask, and the scale is above 0. */
CPU_INLINE float row_max(const __global uchar *x, const __global uchar *mask,
                         struct softmax_params p, ulong row, bool plain)
{
    float16 m0 = (float16)(-INFINITY), m1 = m0;
    uint i = 0;
    for (; i + 32 <= p.len; i += 32) {
        CPU_PREFETCH(x + (row + i) * REAL_BYTES, 4096);
        CPU_PREFETCH(x + (row + i) * REAL_BYTES, 4160);
        const float16 v0 = plain ? real_load16(x, row + i) : row_16(x, mask, p, row + i);
        const float16 v1 = plain ? real_load16(x, row + i + 16) : row_16(x, mask, p, row + i + 16);
        m0 = larger_16(v0, m0);
        m1 = larger_16(v1, m1);
    }
    float m = max_16(fmax(m0, m1));
    m = plain ? p.scale * m : m;
    for (; i < p.len; i++)
        m = fmax(m, softmax_load(x, mask, p, row + i));
    return m;
}

/* e^(v - m) of 16 elements. The difference is rounded once: of large numbers close together, too. */
CPU_INLINE float16 term_16(const __global uchar *x, const __global uchar *mask,
                           struct softmax_params p, ulong at, float m, bool plain)
{
    const float16 below = plain ? fma(real_load16(x, at), (float16)(p.scale), (float16)(-m))
                                : row_16(x, mask, p, at) - m;
    return exp2_below(below * LOG2_E);
}

/* The sum of e^(v - m); keep: every term goes to y as well. */
CPU_INLINE float row_sum(const __global uchar *x, const __global uchar *mask, __global uchar *y,
                         struct softmax_params p, ulong row, float m, bool keep, bool plain)
{
    float16 s0 = (float16)(0.0f), s1 = s0;
    uint i = 0;
    for (; i + 32 <= p.len; i += 32) {
        const float16 e0 = term_16(x, mask, p, row + i, m, plain);
        s0 += e0;
        if (keep)
            real_store16(y, row + i, e0);
        const float16 e1 = term_16(x, mask, p, row + i + 16, m, plain);
        s1 += e1;
        if (keep)
            real_store16(y, row + i + 16, e1);
    }
    float sum = sum_16(s0 + s1);
    for (; i < p.len; i++) {
        const float e = exp(softmax_load(x, mask, p, row + i) - m);
        sum += e;
        if (keep)
            real_store(y, row + i, e);
    }
    return sum;
}

CPU_INLINE void row_scale(__global uchar *y, struct softmax_params p, ulong row, float factor)
{
    uint i = 0;
    for (; i + 32 <= p.len; i += 32) {
        real_store16(y, row + i, factor * real_load16(y, row + i));
        real_store16(y, row + i + 16, factor * real_load16(y, row + i + 16));
    }
    for (; i < p.len; i++)
        real_store(y, row + i, factor * real_load(y, row + i));
}

/* e^(v - m) / s, or v - m - log s, from the inputs. */
CPU_INLINE void row_finish(const __global uchar *x, const __global uchar *mask, __global uchar *y,
                           struct softmax_params p, ulong row, float2 state)
{
    const float shift = state.x + log(state.y), factor = 1.0f / state.y;
    uint i = 0;
    for (; i + 16 <= p.len; i += 16) {
        const float16 v = row_16(x, mask, p, row + i);
        real_store16(y, row + i, p.log ? v - shift : factor * cpu_exp_below(v - state.x));
    }
    for (; i < p.len; i++)
        real_store(y, row + i, softmax_finish(softmax_load(x, mask, p, row + i), state, p));
}

CPU_INLINE void softmax_rows_step(const __global uchar *x, const __global uchar *mask,
                                  __global uchar *y, struct softmax_params p, uint group,
                                  uint n_groups)
{
    uint begin, end;
    cpu_share(p.rows, group, n_groups, &begin, &end);
    for (uint r = begin; r < end; r++) {
        const ulong row = (ulong)r * p.len;
        const bool keep = REAL_BYTES == 4 && !p.log, plain = !p.has_mask && p.scale > 0;
        const float m = plain ? row_max(x, mask, p, row, true) : row_max(x, mask, p, row, false);
        if (m == -INFINITY) {
            for (uint i = 0; i < p.len; i++)
                real_store(y, row + i, p.log ? -INFINITY : 0.0f);
            continue;
        }
        const float sum = keep && plain ? row_sum(x, mask, y, p, row, m, true, true)
                          : keep        ? row_sum(x, mask, y, p, row, m, true, false)
                                        : row_sum(x, mask, y, p, row, m, false, false);
        if (keep)
            row_scale(y, p, row, 1.0f / sum);
        else
            row_finish(x, mask, y, p, row, (float2)(m, sum));
    }
}

KERNEL(LWS) void softmax_rows(SOFTMAX_ARGS)
{
    softmax_rows_step(x + x_offset, mask + mask_offset, y + y_offset, p, get_group_id(0),
                      get_num_groups(0));
}
