/* Rules of conv2d. */
#include <float.h>
#include <math.h>

#include "engine/base/mem.h"
#include "engine/ops/check_dims.h"
#include "engine/ops/ref/ref.h"
#include "engine/ops/rules.h"

#define CONSTANT_BYTES 32768u /* of weights in constant memory: half of what every device has */
#define PANEL          32u    /* CONV_PANEL of the kernels */
#define BEHIND         64u
#define FILTER_BITS    32u /* of a filter's rows and columns, and one more */
#define WIDE_CHANNELS  32u /* with fewer the transforms of tiles take longer than they save */
#define PLACES_LIMIT   (1u << 31)
#define IMAGE_EDGE     8192u /* every device with images has these */
#define IMAGE_LAYERS   2048u
#define VECTOR         16u /* channels and columns of private memory come in whole vectors */

static void conv2d_extent(const union op_params *params, uint64_t *rows, uint64_t *tokens)
{
    const struct conv2d_params *p = &params->conv2d;
    *rows = (uint64_t)p->ho * p->wo;
    *tokens = (uint64_t)p->n * p->o;
}

static uint64_t conv2d_bytes(const struct op_call *call, uint32_t i)
{
    const struct conv2d_params *p = &call->params.conv2d;
    const uint64_t size = call->tensors[i].dtype == DT_F16 ? 2 : 4;
    const uint64_t bytes[] = {size * p->n * p->c * p->h * p->w,
                              size * p->o * (p->c / p->groups) * p->kh * p->kw,
                              p->has_bias ? size * p->o : 0, size * p->n * p->o * p->ho * p->wo};
    return bytes[i];
}

static uint64_t conv2d_flops(const union op_params *params)
{
    const struct conv2d_params *p = &params->conv2d;
    return 2ull * p->n * p->o * p->ho * p->wo * (p->c / p->groups) * p->kh * p->kw;
}

/* Length of the output along one axis; 0: the filter is longer than the padded input. */
static uint64_t out_length(uint64_t in, uint64_t pad, uint64_t dilation, uint64_t kernel,
                           uint64_t stride)
{
    const uint64_t padded = in + 2 * pad, reach = dilation * (kernel - 1) + 1;
    return padded < reach ? 0 : (padded - reach) / stride + 1;
}

static enum status conv2d_check(const struct variant *v, const struct op_call *call, struct err *e)
{
    (void)v;
    const char *op = "conv2d";
    const struct conv2d_params *p = &call->params.conv2d;
    CHECK_DIMS({"n", p->n}, {"c", p->c}, {"h", p->h}, {"w", p->w}, {"o", p->o}, {"kh", p->kh},
               {"kw", p->kw}, {"stride_h", p->stride_h}, {"stride_w", p->stride_w},
               {"dil_h", p->dil_h}, {"dil_w", p->dil_w}, {"groups", p->groups});
    CHECK(check_at_most(op, "h x w", (uint64_t)p->h * p->w, DIM_MAX, e));
    CHECK(check_at_most(op, "n x c x h x w", (uint64_t)p->n * p->c,
                        ELEMENTS_MAX / ((uint64_t)p->h * p->w), e));
    CHECK(check_at_most(op, "kh x kw", (uint64_t)p->kh * p->kw, 1u << 16, e));
    CHECK(check_at_most(op, "o x c x kh x kw", (uint64_t)p->o * p->c,
                        ELEMENTS_MAX / ((uint64_t)p->kh * p->kw), e));
    CHECK(check_at_most(op, "pad_h", p->pad_h, DIM_MAX, e));
    CHECK(check_at_most(op, "pad_w", p->pad_w, DIM_MAX, e));
    CHECK(check_at_most(op, "act", p->act, CONV_SILU, e));
    CHECK(check_at_most(op, "layout", p->layout, CONV_NHWC, e));
    CHECK(check_multiple(op, "c", p->c, p->groups, e));
    CHECK(check_multiple(op, "o", p->o, p->groups, e));
    const uint64_t ho = out_length(p->h, p->pad_h, p->dil_h, p->kh, p->stride_h);
    const uint64_t wo = out_length(p->w, p->pad_w, p->dil_w, p->kw, p->stride_w);
    if (p->ho != ho || p->wo != wo || ho == 0 || wo == 0)
        return err_set(e, ST_INVALID,
                       "conv2d: output is %u x %u, expected %" PRIu64 " x %" PRIu64
                       " (at least 1 x 1)",
                       p->ho, p->wo, ho, wo);
    CHECK(check_at_most(op, "ho x wo", ho * wo, DIM_MAX, e));
    return check_at_most(op, "n x o x ho x wo", (uint64_t)p->n * p->o, ELEMENTS_MAX / (ho * wo), e);
}

/* Four channels of a group to a layer; UINT32_MAX layers where there are more. */
static struct image_size conv2d_image(const struct op_call *call)
{
    const struct conv2d_params *p = &call->params.conv2d;
    const uint64_t layers = (uint64_t)p->n * p->groups * ((p->c / p->groups + 3) / 4);
    return (struct image_size){p->w, p->h, layers < UINT32_MAX ? (uint32_t)layers : UINT32_MAX};
}

static const char *conv2d_refuses(const struct variant *v, const struct op_call *call)
{
    const struct conv2d_params *p = &call->params.conv2d;
    const bool unit = p->stride_h == 1 && p->stride_w == 1;
    const uint64_t places = (uint64_t)p->n * p->ho * p->wo;
    if (p->layout != v->layout)
        return v->layout == CONV_NCHW ? "reads nchw only" : "reads nhwc only";
    if (v->only == SHAPES_WIDE &&
        (p->c < WIDE_CHANNELS || p->o < WIDE_CHANNELS || places >= PLACES_LIMIT))
        return "needs at least 32 channels in and out, and under 2^31 outputs of a channel";
    switch (v->only) {
    case SHAPES_GATHERED:
        if ((uint64_t)p->kh + p->kw >= FILTER_BITS || places >= PLACES_LIMIT ||
            (uint64_t)p->c / p->groups * p->h * p->w >= PLACES_LIMIT)
            return "needs a filter of kh + kw under 32, and under 2^31 outputs of a channel and "
                   "inputs of an image's group";
        break;
    case SHAPES_POINTWISE:
        if (places >= PLACES_LIMIT || p->kh != 1 || p->kw != 1 || !unit || p->pad_h || p->pad_w ||
            p->groups != 1)
            return "needs a 1 x 1 filter, stride 1, no padding, one group and under 2^31 outputs "
                   "of a channel";
        break;
    case SHAPES_WIDE:
    case SHAPES_WINOGRAD:
        if (p->kh != 3 || p->kw != 3 || !unit || p->dil_h != 1 || p->dil_w != 1 || p->groups != 1)
            return "needs a 3 x 3 filter, stride 1, dilation 1 and one group";
        break;
    case SHAPES_DEPTHWISE:
        if (p->groups != p->c || p->groups != p->o)
            return "needs a group per channel";
        break;
    case SHAPES_CONSTANT:
        if (4ull * p->o * (p->c / p->groups) * p->kh * p->kw > CONSTANT_BYTES)
            return "needs weights of at most 8192 elements";
        break;
    case SHAPES_IMAGES: {
        const struct image_size size = conv2d_image(call);
        if (size.width > IMAGE_EDGE || size.height > IMAGE_EDGE || size.layers > IMAGE_LAYERS)
            return "needs h and w of at most 8192, and at most 2048 layers of four channels";
        break;
    }
    case SHAPES_ALL:
    case SHAPES_SMALL:
    case SHAPES_LINES:
    case SHAPES_DEEP:
    case SHAPES_LONG:
    case SHAPES_KEPT: break;
    }
    return NULL;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* SCRATCH_COLUMNS: [n][groups][c/g kh kw][ho wo]. SCRATCH_TILES: for each of the (TOKENS + 2)^2
 * places of a tile, the weights [c][o], the input [c][tiles] and the products [o][tiles], every
 * length rounded up to whole vectors. SCRATCH_PANELS: the weights in panels of PANEL channels, then
 * the padded input and what the last tile may read behind it. */
static uint64_t conv2d_scratch(const struct variant *v, const struct op_call *call)
{
    const struct conv2d_params *p = &call->params.conv2d;
    const uint64_t depth = (uint64_t)p->c / p->groups * p->kh * p->kw;
    const uint64_t o = round_up(p->o, VECTOR), c = round_up(p->c, VECTOR);
    if (v->scratch == SCRATCH_IMAGE) {
        const struct image_size size = conv2d_image(call);
        return 4 * sizeof(float) * size.width * size.height * size.layers;
    }
    if (v->scratch == SCRATCH_COLUMNS)
        return sizeof(float) * p->n * p->groups * depth * p->ho * p->wo;
    if (v->scratch == SCRATCH_PANELS)
        return sizeof(float) *
               (p->groups * round_up(p->o / p->groups, PANEL) * depth +
                (uint64_t)p->n * p->c * (p->h + 2ull * p->pad_h) * (p->w + 2ull * p->pad_w) +
                (uint64_t)BEHIND * p->stride_w);
    const uint64_t edge = variant_tokens_of(v), places = (edge + 2) * (edge + 2);
    const uint64_t tiles =
        round_up(p->n * ((p->ho + edge - 1) / edge) * ((p->wo + edge - 1) / edge), VECTOR);
    return sizeof(float) * places * (c * o + (c + o) * tiles);
}

/* Sum of the squares of the inputs of image n that output (place, channels of `group`) is made of.
 */
static double patch_square(const struct op_call *call, const void *x, uint64_t n, uint64_t group,
                           uint64_t place)
{
    const struct conv2d_params *p = &call->params.conv2d;
    const uint64_t width = p->c / p->groups;
    double square = 0;
    for (uint64_t r = 0; r < p->kh; r++)
        for (uint64_t s = 0; s < p->kw; s++) {
            /* below the padding it wraps, and is outside too */
            const uint64_t row = place / p->wo * p->stride_h + r * p->dil_h - p->pad_h;
            const uint64_t col = place % p->wo * p->stride_w + s * p->dil_w - p->pad_w;
            if (row >= p->h || col >= p->w)
                continue;
            for (uint64_t c = group * width; c < (group + 1) * width; c++) {
                const uint64_t at = p->layout == CONV_NCHW
                                        ? ((n * p->c + c) * p->h + row) * p->w + col
                                        : ((n * p->h + row) * p->w + col) * p->c + c;
                const double value = (double)ref_load(call->tensors[0].dtype, x, at);
                square += value * value;
            }
        }
    return square;
}

/* |err| <= 4 sqrt(depth) eps (|w||x| + |bias|), x being the inputs of that output. Winograd's forms
 * make several outputs of the same sums: for them |x| is the largest of the image. */
static enum status conv2d_error(const struct variant *v, const struct op_call *call,
                                void *const *inputs, const float *got, const float *want,
                                double *out, struct err *e)
{
    const bool shared = v->only == SHAPES_WINOGRAD || v->only == SHAPES_WIDE;
    const struct conv2d_params *p = &call->params.conv2d;
    const enum dtype dtype = call->tensors[0].dtype;
    const uint64_t depth = (uint64_t)p->c / p->groups * p->kh * p->kw;
    const uint64_t area = (uint64_t)p->ho * p->wo;
    double *patches = mem_array(area, sizeof *patches);
    if (!patches)
        return err_set(e, ST_NO_MEMORY, "conv2d: no memory for %" PRIu64 " norms", area);
    double largest = 0;
    *out = 0;
    for (uint64_t j = 0; j < (uint64_t)p->n * p->o; j++) {
        const uint64_t n = j / p->o, o = j % p->o, group_size = p->o / p->groups;
        if (o % group_size == 0)
            largest = 0;
        for (uint64_t i = 0; o % group_size == 0 && i < area; i++) {
            patches[i] = sqrt(patch_square(call, inputs[0], n, o / group_size, i));
            largest = fmax(largest, patches[i]);
        }
        double square = 0;
        for (uint64_t i = 0; i < depth; i++) {
            const double w = (double)ref_load(dtype, inputs[1], o * depth + i);
            square += w * w;
        }
        const double bias = p->has_bias ? fabs((double)ref_load(dtype, inputs[2], o)) : 0;
        for (uint64_t i = 0; i < area; i++) {
            const uint64_t at = p->layout == CONV_NCHW ? j * area + i : (n * area + i) * p->o + o;
            const double bound = 4 * sqrt((double)depth) * (double)FLT_EPSILON *
                                 (sqrt(square) * (shared ? largest : patches[i]) + bias);
            const double error = fabs((double)got[at] - (double)want[at]);
            *out = error <= bound ? fmax(*out, bound > 0 ? error / bound : 0) : fmax(2, *out);
        }
    }
    mem_free(patches);
    return ST_OK;
}

const struct op_rules conv2d_rules = {.extent = conv2d_extent,
                                      .tensor_bytes = conv2d_bytes,
                                      .flops = conv2d_flops,
                                      .check = conv2d_check,
                                      .refuses = conv2d_refuses,
                                      .scratch = conv2d_scratch,
                                      .image = conv2d_image,
                                      .error = conv2d_error};
