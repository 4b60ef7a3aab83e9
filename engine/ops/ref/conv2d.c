/* References of conv2d, sparse_gemv and elementwise. */
#include <math.h>

#include "engine/ops/ref/ref.h"

/* Sum over the channels of a group and the filter for one output, without bias. */
static double convolve(const struct op_call *call, void *const *data, uint64_t image, uint64_t o,
                       uint64_t row, uint64_t col)
{
    const struct conv2d_params *p = &call->params.conv2d;
    const uint64_t channels = p->c / p->groups, first = o / (p->o / p->groups) * channels;
    double sum = 0;
    for (uint64_t c = 0; c < channels; c++)
        for (uint64_t r = 0; r < p->kh; r++)
            for (uint64_t s = 0; s < p->kw; s++) {
                const int64_t y = (int64_t)(row * p->stride_h + r * p->dil_h) - (int64_t)p->pad_h;
                const int64_t x = (int64_t)(col * p->stride_w + s * p->dil_w) - (int64_t)p->pad_w;
                if (y < 0 || x < 0 || y >= (int64_t)p->h || x >= (int64_t)p->w)
                    continue;
                const uint64_t at =
                    p->layout == CONV_NCHW
                        ? ((image * p->c + first + c) * p->h + (uint64_t)y) * p->w + (uint64_t)x
                        : ((image * p->h + (uint64_t)y) * p->w + (uint64_t)x) * p->c + first + c;
                const uint64_t w = ((o * channels + c) * p->kh + r) * p->kw + s;
                sum += (double)ref_load(call->tensors[0].dtype, data[0], at) *
                       (double)ref_load(call->tensors[1].dtype, data[1], w);
            }
    return sum;
}

enum status ref_conv2d_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct conv2d_params *p = &call->params.conv2d;
    for (uint64_t image = 0; image < p->n; image++)
        for (uint64_t o = 0; o < p->o; o++)
            for (uint64_t row = 0; row < p->ho; row++)
                for (uint64_t col = 0; col < p->wo; col++) {
                    double y = convolve(call, data, image, o, row, col);
                    if (p->has_bias)
                        y += (double)ref_load(call->tensors[2].dtype, data[2], o);
                    if (p->act == CONV_RELU)
                        y = y > 0 ? y : 0;
                    else if (p->act == CONV_SILU)
                        y = y / (1.0 + exp(-y));
                    const uint64_t at = p->layout == CONV_NCHW
                                            ? ((image * p->o + o) * p->ho + row) * p->wo + col
                                            : ((image * p->ho + row) * p->wo + col) * p->o + o;
                    ref_store(call->tensors[3].dtype, data[3], at, (float)y);
                }
    return ST_OK;
}

enum status ref_sparse_gemv_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct sparse_gemv_params *p = &call->params.sparse_gemv;
    const float *values = data[0], *x = data[3];
    const int32_t *columns = data[1], *row_ptr = data[2];
    float *y = data[4];
    for (uint64_t r = 0; r < p->m; r++) {
        double sum = 0;
        for (int64_t i = p->format == SPARSE_CSR ? row_ptr[r] : 0;
             p->format == SPARSE_CSR && i < row_ptr[r + 1]; i++)
            sum += (double)values[i] * (double)x[columns[i]];
        for (uint64_t j = 0; p->format == SPARSE_2_4 && j < p->k / 2; j++) {
            const uint64_t group = j / 2;
            const uint32_t word = (uint32_t)columns[r * ((p->k + 31u) / 32u) + group / 8];
            const uint32_t position = word >> (4 * (group % 8) + 2 * (j % 2)) & 3u;
            sum += (double)values[r * (p->k / 2) + j] * (double)x[4 * group + position];
        }
        y[r] = (float)sum;
    }
    return ST_OK;
}

static double elementwise(const struct elementwise_params *p, double x, double y)
{
    const double silu = x / (1.0 + exp(-x));
    switch (p->fn) {
    case ELEMENTWISE_ADD: return x + y;
    case ELEMENTWISE_MUL: return x * y;
    case ELEMENTWISE_SILU: return silu;
    case ELEMENTWISE_GELU:
        return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case ELEMENTWISE_RELU: return x > 0 ? x : 0;
    case ELEMENTWISE_SWIGLU: return silu * y;
    default: return (double)p->factor * x;
    }
}

enum status ref_elementwise_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct elementwise_params *p = &call->params.elementwise;
    const bool two =
        p->fn == ELEMENTWISE_ADD || p->fn == ELEMENTWISE_MUL || p->fn == ELEMENTWISE_SWIGLU;
    for (uint64_t i = 0; i < p->n; i++) {
        const double x = (double)ref_load(call->tensors[0].dtype, data[0], i);
        const double y = two ? (double)ref_load(call->tensors[1].dtype, data[1], i) : 0;
        ref_store(call->tensors[2].dtype, data[2], i, (float)elementwise(p, x, y));
    }
    return ST_OK;
}
