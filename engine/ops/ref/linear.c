/* References of embed, linear and repack: the ops that read weights in their file layout. */
#include <math.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/ops/act.h"
#include "engine/ops/ref/ref.h"
#include "engine/tensor/quant.h"

enum status ref_embed_params(const struct op_call *call, void *const *data, struct err *e)
{
    const struct embed_params *p = &call->params.embed;
    const enum dtype dtype = call->tensors[0].dtype;
    const char *table = data[0];
    const int32_t *ids = data[1];
    float *y = data[2];
    const uint64_t row_bytes = layout_bytes(dtype, LAYOUT_FILE, 1, p->k);
    for (uint64_t t = 0; t < p->n_tokens; t++) {
        float *out = y + t * p->k;
        memset(out, 0, p->k * sizeof *out);
        if (ids[t] < 0 || (uint32_t)ids[t] >= p->n_vocab)
            continue;
        enum status st = quant_to_f32(dtype, table + (uint64_t)ids[t] * row_bytes, out, p->k, e);
        if (st != ST_OK)
            return st;
        for (uint32_t i = 0; i < p->k; i++)
            out[i] *= p->scale;
    }
    return ST_OK;
}

/* y[t][r] (+)= dot(w[r], x[t]) + bias[r]; LINEAR_SWIGLU needs a layout that references do not
 * read, so op_check refuses it here. */
enum status ref_linear_params(const struct op_call *call, void *const *data, struct err *e)
{
    const struct linear_params *p = &call->params.linear;
    const enum dtype dtype = call->tensors[0].dtype;
    const char *w = data[0];
    const float *bias = p->has_bias ? data[2] : NULL;
    float *y = data[3];
    const uint64_t row_bytes = layout_bytes(dtype, LAYOUT_FILE, 1, p->k);
    float *row = mem_array(p->k, sizeof *row);
    float *x = mem_array((size_t)p->n_tokens * p->k, sizeof *x);
    enum status st = ST_OK;
    if (!row || !x)
        st = err_set(e, ST_NO_MEMORY, "linear ref: no memory for %u x %u activations", p->n_tokens,
                     p->k);
    for (uint64_t t = 0; st == ST_OK && t < p->n_tokens; t++)
        ref_act_load(call->tensors[1].layout, data[1], t, p->k, x + t * p->k);
    for (uint64_t r = 0; st == ST_OK && r < p->m; r++) {
        st = quant_to_f32(dtype, w + r * row_bytes, row, p->k, e);
        for (uint64_t t = 0; st == ST_OK && t < p->n_tokens; t++) {
            const double sum = ref_dot(row, x + t * p->k, p->k) + (bias ? (double)bias[r] : 0.0);
            float *out = y + t * p->y_stride + r;
            *out = (float)(p->epilogue == LINEAR_ADD ? (double)*out + sum : sum);
        }
    }
    mem_free(x);
    mem_free(row);
    return st;
}

/* Rows copied to where the params say; the layout stays the file's. */
enum status ref_repack_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct repack_params *p = &call->params.repack;
    const uint64_t row_bytes = layout_bytes(call->tensors[0].dtype, LAYOUT_FILE, 1, p->k);
    const char *src = data[0];
    char *dst = data[1];
    for (uint64_t r = 0; r < p->n_rows; r++) {
        const uint64_t to = p->row0 + r / p->group * p->group_stride + r % p->group;
        memcpy(dst + to * row_bytes, src + r * row_bytes, row_bytes);
    }
    return ST_OK;
}
