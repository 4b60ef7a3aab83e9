/* elementwise: z = fn(x) or fn(x, y), see kernels/params.h.
 *
 *   elementwise_plain: an item per element; elementwise_vec4: an item per four; elementwise_runs: a
 *   group of one item takes a contiguous run, 16 at a time (CPUs)
 */
#include "real.h"

#define FUNCTION(type, name)                                                                 \
    static type name(struct elementwise_params p, type x, type y)                            \
    {                                                                                        \
        switch (p.fn) {                                                                      \
        case ELEMENTWISE_ADD: return x + y;                                                  \
        case ELEMENTWISE_MUL: return x * y;                                                  \
        case ELEMENTWISE_SILU: return x / (1.0f + exp(-x));                                  \
        case ELEMENTWISE_GELU:                                                               \
            return 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));    \
        case ELEMENTWISE_RELU: return fmax(x, (type)(0.0f));                                 \
        case ELEMENTWISE_SWIGLU: return x / (1.0f + exp(-x)) * y;                            \
        default: return p.factor * x;                                                        \
        }                                                                                    \
    }
FUNCTION(float, function_1)
FUNCTION(float4, function_4)
FUNCTION(float16, function_16)

static bool reads_two(struct elementwise_params p)
{
    return p.fn == ELEMENTWISE_ADD || p.fn == ELEMENTWISE_MUL || p.fn == ELEMENTWISE_SWIGLU;
}

static void apply_1(const __global uchar *x, const __global uchar *y, __global uchar *z,
                    struct elementwise_params p, ulong i)
{
    real_store(z, i, function_1(p, real_load(x, i), reads_two(p) ? real_load(y, i) : 0.0f));
}

static void elementwise_plain_step(const __global uchar *x, const __global uchar *y,
                                   __global uchar *z, struct elementwise_params p, uint group,
                                   uint n_groups)
{
    for (ulong i = (ulong)group * LWS + get_local_id(0); i < p.n; i += (ulong)n_groups * LWS)
        apply_1(x, y, z, p, i);
}

static void elementwise_vec4_step(const __global uchar *x, const __global uchar *y,
                                  __global uchar *z, struct elementwise_params p, uint group,
                                  uint n_groups)
{
    for (ulong i = 4 * ((ulong)group * LWS + get_local_id(0)); i < p.n; i += 4 * (ulong)n_groups * LWS)
        if (i + 4 <= p.n)
            real_store4(z, i,
                        function_4(p, real_load4(x, i),
                                   reads_two(p) ? real_load4(y, i) : (float4)(0.0f)));
        else
            for (ulong j = i; j < p.n; j++)
                apply_1(x, y, z, p, j);
}

static void elementwise_runs_step(const __global uchar *x, const __global uchar *y,
                                  __global uchar *z, struct elementwise_params p, uint group,
                                  uint n_groups)
{
    ulong i = (ulong)p.n * group / n_groups;
    const ulong end = (ulong)p.n * (group + 1) / n_groups;
    for (; i + 16 <= end; i += 16)
        real_store16(z, i,
                     function_16(p, real_load16(x, i),
                                 reads_two(p) ? real_load16(y, i) : (float16)(0.0f)));
    for (; i < end; i++)
        apply_1(x, y, z, p, i);
}

#define ELEMENTWISE(form)                                                                        \
    KERNEL(LWS)                                                                                  \
    void elementwise_##form(const __global uchar *x, ulong x_offset, const __global uchar *y,    \
                            ulong y_offset, __global uchar *z, ulong z_offset,                   \
                            struct elementwise_params p)                                         \
    {                                                                                            \
        elementwise_##form##_step(x + x_offset, y + y_offset, z + z_offset, p, get_group_id(0),  \
                                  get_num_groups(0));                                            \
    }
ELEMENTWISE(plain)
ELEMENTWISE(vec4)
ELEMENTWISE(runs)
