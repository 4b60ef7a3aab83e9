/* conv2d, an item per output, neighbour items in neighbour places of y: naive, with the weights in global
 * memory or (CONSTANT) in constant memory; depthwise, where a channel is a group of its own.
 */
#include "conv2d/conv2d.h"

#ifdef CONSTANT
#define WEIGHTS __constant
#else
#define WEIGHTS const __global
#endif

static float weight_at(WEIGHTS uchar *w, ulong i)
{
#if OP_DTYPE == DT_F16
    return vload_half(0, (WEIGHTS half *)(w + 2 * i));
#else
    return ((WEIGHTS float *)w)[i];
#endif
}

static void conv2d_naive_step(const __global uchar *x, WEIGHTS uchar *w, const __global uchar *bias,
                              __global uchar *y, struct conv2d_params p, uint group, uint n_groups)
{
    const uint channels = p.c / p.groups, per_group = p.o / p.groups;
    const ulong n = (ulong)p.n * p.o * p.ho * p.wo;
    for (ulong item = (ulong)group * LWS + get_local_id(0); item < n; item += (ulong)n_groups * LWS) {
#if OP_LAYOUT == CONV_NHWC
        const uint o = (uint)(item % p.o), col = (uint)(item / p.o % p.wo);
        const uint row = (uint)(item / p.o / p.wo % p.ho), image = (uint)(item / p.o / p.wo / p.ho);
#else
        const uint col = (uint)(item % p.wo), row = (uint)(item / p.wo % p.ho);
        const uint o = (uint)(item / p.wo / p.ho % p.o), image = (uint)(item / p.wo / p.ho / p.o);
#endif
        const uint c0 = o / per_group * channels;
        ulong k = (ulong)o * conv_depth(p);
        float sum = 0.0f;
        for (uint c = 0; c < channels; c++)
            for (uint r = 0; r < p.kh; r++)
                for (uint s = 0; s < p.kw; s++)
                    sum = fma(weight_at(w, k++),
                              conv_load(x, p, image, c0 + c, conv_top(p, row) + (int)(r * p.dil_h),
                                        conv_left(p, col) + (int)(s * p.dil_w)),
                              sum);
        conv_finish(y, bias, p, image, o, row, col, sum);
    }
}

KERNEL(LWS)
void conv2d_naive(const __global uchar *x, ulong x_offset, WEIGHTS uchar *w, ulong w_offset,
                  const __global uchar *bias, ulong bias_offset, __global uchar *y, ulong y_offset,
                  struct conv2d_params p)
{
    conv2d_naive_step(x + x_offset, w + w_offset, bias + bias_offset, y + y_offset, p,
                      get_group_id(0), get_num_groups(0));
}
