/* softmax for CPUs: a group takes a contiguous share of the rows, 16 numbers at a time.
 *
 *   x, mask, y [rows][len]
 *
 * A row passes three times, but only the first comes from memory: maximum; e^(v - m) into a row of y
 * and its sum; division. (log: the second pass only sums.) f16 writes once, at the end.
 */
#include "cpu/vec.h"
#include "softmax/softmax.h"

CPU_INLINE float16 row_16(const __global uchar *x, const __global uchar *mask,
                          struct softmax_params p, ulong at)
{
    const float16 v = p.scale * real_load16(x, at);
    return p.has_mask ? v + real_load16(mask, at) : v;
}

CPU_INLINE float row_max(const __global uchar *x, const __global uchar *mask,
                         struct softmax_params p, ulong row)
{
    float16 m0 = (float16)(-INFINITY), m1 = m0;
    uint i = 0;
    for (; i + 32 <= p.len; i += 32) {
        CPU_PREFETCH(x + (row + i) * REAL_BYTES, 4096);
        m0 = fmax(m0, row_16(x, mask, p, row + i));
        m1 = fmax(m1, row_16(x, mask, p, row + i + 16));
    }
    float m = max_16(fmax(m0, m1));
    for (; i < p.len; i++)
        m = fmax(m, softmax_load(x, mask, p, row + i));
    return m;
}

/* The sum of e^(v - m); keep: every term goes to y as well. */
CPU_INLINE float row_sum(const __global uchar *x, const __global uchar *mask, __global uchar *y,
                         struct softmax_params p, ulong row, float m, bool keep)
{
    float16 sums = (float16)(0.0f);
    uint i = 0;
    for (; i + 16 <= p.len; i += 16) {
        const float16 e = cpu_exp_below(row_16(x, mask, p, row + i) - m);
        sums += e;
        if (keep)
            real_store16(y, row + i, e);
    }
    float sum = sum_16(sums);
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
    for (; i + 16 <= p.len; i += 16)
        real_store16(y, row + i, factor * real_load16(y, row + i));
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
        const float m = row_max(x, mask, p, row);
        const bool keep = REAL_BYTES == 4 && !p.log;
        if (m == -INFINITY) {
            for (uint i = 0; i < p.len; i++)
                real_store(y, row + i, p.log ? -INFINITY : 0.0f);
            continue;
        }
        const float sum = row_sum(x, mask, y, p, row, m, keep);
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
