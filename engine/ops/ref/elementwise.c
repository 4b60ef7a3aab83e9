/* References of the row-wise ops: norm, quantize, swiglu, add, argmax. */
#include <math.h>

#include "engine/base/mem.h"
#include "engine/ops/ref/ref.h"

/* A row of floats to compute in before it is stored in the output's format. */
static enum status open_row(const char *op, uint32_t n, float **out, struct err *e)
{
    *out = mem_array(n, sizeof **out);
    return *out ? ST_OK : err_set(e, ST_NO_MEMORY, "%s ref: no memory for a row of %u", op, n);
}

/* rms: x / sqrt(mean(x^2) + eps) * w; layer: (x - mean) / sqrt(var + eps) * w + b. */
enum status ref_norm_params(const struct op_call *call, void *const *data, struct err *e)
{
    const struct norm_params *p = &call->params.norm;
    const float *weight = data[1];
    const float *bias = p->has_bias ? data[2] : NULL;
    float *row;
    enum status st = open_row("norm", p->len, &row, e);
    for (uint64_t r = 0; st == ST_OK && r < p->n_rows; r++) {
        const float *x = (const float *)data[0] + r * p->x_stride;
        double mean = 0, square = 0;
        for (uint32_t i = 0; p->kind == 1 && i < p->len; i++)
            mean += (double)x[i] / p->len;
        for (uint32_t i = 0; i < p->len; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean) / p->len;
        const double scale = 1.0 / sqrt(square + (double)p->eps);
        for (uint32_t i = 0; i < p->len; i++)
            row[i] = (float)(((double)x[i] - mean) * scale * (double)weight[i] +
                             (bias ? (double)bias[i] : 0.0));
        ref_act_store(call->tensors[3].layout, data[3], r, p->len, row);
    }
    mem_free(row);
    return st;
}

enum status ref_quantize_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct quantize_params *p = &call->params.quantize;
    for (uint64_t r = 0; r < p->n_rows; r++)
        ref_act_store(call->tensors[1].layout, data[1], r, p->len,
                      (const float *)data[0] + r * p->x_stride);
    return ST_OK;
}

/* silu(x) = x / (1 + exp(-x)); gelu_tanh(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
static double activate(uint32_t act, double x)
{
    if (act == 0)
        return x / (1.0 + exp(-x));
    return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

enum status ref_swiglu_params(const struct op_call *call, void *const *data, struct err *e)
{
    const struct swiglu_params *p = &call->params.swiglu;
    float *row;
    enum status st = open_row("swiglu", p->n, &row, e);
    for (uint64_t t = 0; st == ST_OK && t < p->n_tokens; t++) {
        const float *gate = (const float *)data[0] + t * p->x_stride;
        const float *up = gate + p->n;
        for (uint32_t i = 0; i < p->n; i++)
            row[i] = (float)(activate(p->act, (double)gate[i]) * (double)up[i]);
        ref_act_store(call->tensors[1].layout, data[1], t, p->n, row);
    }
    mem_free(row);
    return st;
}

enum status ref_add_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const float *a = data[0], *b = data[1];
    float *y = data[2];
    for (uint32_t i = 0; i < call->params.add.n; i++)
        y[i] = a[i] + b[i];
    return ST_OK;
}

/* The largest value at its lowest index. NaN loses to everything; all NaN: index 0. */
enum status ref_argmax_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct argmax_params *p = &call->params.argmax;
    int32_t *index = data[1];
    float *found = data[2];
    for (uint64_t r = 0; r < p->n_rows; r++) {
        const float *x = (const float *)data[0] + r * p->x_stride;
        uint32_t best = 0;
        for (uint32_t i = 1; i < p->len; i++)
            if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])))
                best = i;
        index[r] = (int32_t)best;
        found[r] = x[best];
    }
    return ST_OK;
}
