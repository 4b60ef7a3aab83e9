/* conv2d, x through the texture units: the first stage writes x into an array of two-dimensional
 * images, four channels of a group to a texel; the second reads them with a border of zeros by the
 * hardware, so that no read asks whether it lies in the padding.
 *
 *   layer = (image * groups + group) * quads + quad, quads = ceil(c / groups / 4); texel (col, row)
 * of a layer = channels 4 quad .. 4 quad + 3 of the group, zeros where it has no more
 *
 * An item of the second stage makes ITEM_O channels of one output place.
 */
#include "conv2d/conv2d.h"

#ifndef ITEM_O
#define ITEM_O 4
#endif

#define IMAGE_ARGS(access) \
    CONV_TENSORS, access image2d_array_t texels, ulong unused, struct conv2d_params p

static uint image_quads(struct conv2d_params p)
{
    return div_up(p.c / p.groups, 4);
}

KERNEL(LWS) void conv2d_texels(IMAGE_ARGS(__write_only))
{
    const uint channels = p.c / p.groups, quads = image_quads(p);
    const ulong n = (ulong)p.n * p.groups * quads * p.h * p.w;
    for (ulong at = get_global_id(0); at < n; at += get_global_size(0)) {
        const uint col = (uint)(at % p.w), row = (uint)(at / p.w % p.h);
        const uint layer = (uint)(at / p.w / p.h), c = layer % quads * 4;
        const uint group = layer / quads % p.groups, image = layer / quads / p.groups;
        float v[4];
        for (uint i = 0; i < 4; i++)
            v[i] =
                c + i < channels
                    ? real_load(x + x_offset, conv_x(p, image, group * channels + c + i, row, col))
                    : 0.0f;
        write_imagef(texels, (int4)((int)col, (int)row, (int)layer, 0),
                     (float4)(v[0], v[1], v[2], v[3]));
    }
}

/* Weights of channels c .. c + 3 at one place of the filter; `w`: of the first, `area` apart. */
static float4 image_weights(const __global uchar *w, ulong first, uint area, uint n)
{
    float v[4];
    for (uint i = 0; i < 4; i++)
        v[i] = i < n ? real_load(w, first + (ulong)i * area) : 0.0f;
    return (float4)(v[0], v[1], v[2], v[3]);
}

KERNEL(LWS2) void conv2d_image(IMAGE_ARGS(__read_only))
{
    const sampler_t border = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
    const uint channels = p.c / p.groups, per_group = p.o / p.groups, area = p.kh * p.kw;
    const uint quads = image_quads(p), parts = div_up(per_group, ITEM_O);
    const ulong n = (ulong)p.n * p.groups * parts * p.ho * p.wo;
    for (ulong item = get_global_id(0); item < n; item += get_global_size(0)) {
        const uint col = (uint)(item % p.wo), row = (uint)(item / p.wo % p.ho);
        const uint rest = (uint)(item / p.wo / p.ho), o0 = rest % parts * ITEM_O;
        const uint group = rest / parts % p.groups, image = rest / parts / p.groups;
        const int top = conv_top(p, row), left = conv_left(p, col);
        float4 sums[ITEM_O];
        for (uint j = 0; j < ITEM_O; j++)
            sums[j] = (float4)(0.0f);
        for (uint q = 0; q < quads; q++)
            for (uint r = 0; r < p.kh; r++)
                for (uint s = 0; s < p.kw; s++) {
                    const int4 at = {left + (int)(s * p.dil_w), top + (int)(r * p.dil_h),
                                     (int)((image * p.groups + group) * quads + q), 0};
                    const float4 v = read_imagef(texels, border, at);
                    for (uint j = 0; j < ITEM_O; j++) {
                        const uint o = group * per_group + min(o0 + j, per_group - 1);
                        const ulong first = ((ulong)o * channels + q * 4) * area + r * p.kw + s;
                        sums[j] = fma(v, image_weights(w + w_offset, first, area, channels - q * 4),
                                      sums[j]);
                    }
                }
        for (uint j = 0; j < ITEM_O; j++)
            if (o0 + j < per_group)
                conv_finish(y + y_offset, bias + bias_offset, p, image, group * per_group + o0 + j,
                            row, col, sums[j].x + sums[j].y + sums[j].z + sums[j].w);
    }
}
