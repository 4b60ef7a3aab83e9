/* References of the ops over rows: softmax and top_k. */
#include <math.h>

#include "engine/ops/ref/ref.h"

/* scale * x + mask of element i of the whole matrix. */
static double masked(const struct op_call *call, void *const *data, uint64_t i)
{
    const struct softmax_params *p = &call->params.softmax;
    const double x = (double)ref_load(call->tensors[0].dtype, data[0], i) * (double)p->scale;
    return p->has_mask ? x + (double)ref_load(call->tensors[1].dtype, data[1], i) : x;
}

enum status ref_softmax_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct softmax_params *p = &call->params.softmax;
    for (uint64_t r = 0; r < p->rows; r++) {
        const uint64_t begin = r * p->len, end = begin + p->len;
        double largest = -INFINITY, sum = 0;
        for (uint64_t i = begin; i < end; i++)
            largest = fmax(largest, masked(call, data, i));
        const bool empty = isinf(largest) && largest < 0;
        for (uint64_t i = begin; !empty && i < end; i++)
            sum += exp(masked(call, data, i) - largest);
        for (uint64_t i = begin; i < end; i++) {
            double y = empty ? 0 : exp(masked(call, data, i) - largest) / sum;
            if (p->log)
                y = empty ? -INFINITY : masked(call, data, i) - largest - log(sum);
            ref_store(call->tensors[2].dtype, data[2], i, (float)y);
        }
    }
    return ST_OK;
}

/* Does element a of the row come before element b? */
static bool comes_before(const float *row, uint32_t a, uint32_t b)
{
    if (isnan(row[a]) || isnan(row[b]))
        return isnan(row[a]) && isnan(row[b]) ? a < b : isnan(row[b]);
    return row[a] > row[b] || (row[a] == row[b] && a < b);
}

/* The next of the k is the best of those that come after the last one found. */
enum status ref_top_k_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct top_k_params *p = &call->params.top_k;
    int32_t *index = data[1];
    float *found = data[2];
    for (uint64_t r = 0; r < p->rows; r++) {
        const float *row = (const float *)data[0] + r * p->len;
        for (uint32_t j = 0, last = 0; j < p->k; j++) {
            uint32_t best = UINT32_MAX;
            for (uint32_t i = 0; i < p->len; i++)
                if ((j == 0 || comes_before(row, last, i)) &&
                    (best == UINT32_MAX || comes_before(row, i, best)))
                    best = i;
            index[r * p->k + j] = (int32_t)best;
            found[r * p->k + j] = row[best];
            last = best;
        }
    }
    return ST_OK;
}
