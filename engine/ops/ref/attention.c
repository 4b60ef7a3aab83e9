/* References of rope_kv and attention, over KV_PLAIN caches of any cache dtype. */
#include <math.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/ops/act.h"
#include "engine/ops/ref/ref.h"
#include "engine/tensor/quant.h"

/* Bytes of one cell (head_dim elements) of a cache, and the place of a cell in it. */
static uint64_t cell_bytes(enum dtype dtype, uint32_t head_dim)
{
    return layout_bytes(dtype, LAYOUT_FILE, 1, head_dim);
}

static uint64_t cell_index(uint32_t slot, uint32_t head, uint32_t position, uint32_t n_head_kv,
                           uint32_t n_ctx)
{
    return ((uint64_t)slot * n_head_kv + head) * n_ctx + position;
}

/* Rotates one head [head_dim] by the angles of its position: mode 0 pairs (2i, 2i+1), mode 1 pairs
 * (i, i + n_rot/2). angles: n_rot / 2 pairs {cos, sin}. */
static void rotate(const struct rope_kv_params *p, float *head, const float *angles)
{
    const uint32_t half = p->n_rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        float *a = p->mode == 0 ? head + 2 * i : head + i;
        float *b = p->mode == 0 ? a + 1 : a + half;
        const double c = (double)angles[2 * i], s = (double)angles[2 * i + 1];
        const double x = (double)*a, y = (double)*b;
        *a = (float)(x * c - y * s);
        *b = (float)(x * s + y * c);
    }
}

enum status ref_rope_kv_params(const struct op_call *call, void *const *data, struct err *e)
{
    const struct rope_kv_params *p = &call->params.rope_kv;
    const int32_t *meta = data[2];
    const enum dtype k_dtype = call->tensors[3].dtype, v_dtype = call->tensors[4].dtype;
    char *k_cache = data[3], *v_cache = data[4];
    float *key = mem_array(p->head_dim, sizeof *key);
    if (!key)
        return err_set(e, ST_NO_MEMORY, "rope_kv ref: no memory for a head of %u", p->head_dim);
    enum status st = ST_OK;
    for (uint64_t t = 0; st == ST_OK && t < p->n_tokens; t++) {
        const uint32_t position = (uint32_t)meta[4 * t], slot = (uint32_t)meta[4 * t + 1];
        float *row = (float *)data[0] + t * p->stride;
        const float *angles =
            p->rotate ? (const float *)data[1] + (uint64_t)position * p->n_rot : NULL;
        for (uint32_t h = 0; angles && h < p->n_head; h++)
            rotate(p, row + (uint64_t)h * p->head_dim, angles);
        for (uint32_t h = 0; st == ST_OK && h < p->n_head_kv; h++) {
            const uint64_t cell = cell_index(slot, h, position, p->n_head_kv, p->n_ctx);
            memcpy(key, row + p->k_col + (uint64_t)h * p->head_dim, p->head_dim * sizeof *key);
            if (angles)
                rotate(p, key, angles);
            st = quant_from_f32(k_dtype, key, k_cache + cell * cell_bytes(k_dtype, p->head_dim),
                                p->head_dim, e);
            if (st == ST_OK)
                st = quant_from_f32(v_dtype, row + p->v_col + (uint64_t)h * p->head_dim,
                                    v_cache + cell * cell_bytes(v_dtype, p->head_dim), p->head_dim,
                                    e);
        }
    }
    mem_free(key);
    return st;
}

/* The cells [0, n_cells) of one slot and head of a cache as floats [n_cells][head_dim]. */
static enum status load_cells(const struct op_call *call, void *const *data, uint32_t tensor,
                              uint32_t slot, uint32_t head, uint32_t n_cells, float *out,
                              struct err *e)
{
    const struct attention_params *p = &call->params.attention;
    const enum dtype dtype = call->tensors[tensor].dtype;
    const uint64_t cell = cell_index(slot, head, 0, p->n_head_kv, p->n_ctx);
    const char *from = (const char *)data[tensor] + cell * cell_bytes(dtype, p->head_dim);
    return quant_to_f32(dtype, from, out, (uint64_t)n_cells * p->head_dim, e);
}

/* One token and head: y = softmax(scores) v over the cells that the token sees. */
static void attend(const struct attention_params *p, const float *q, const float *k, const float *v,
                   uint32_t position, double *scores, double *sum, float *y)
{
    const uint32_t first = p->window > 0 && position + 1 > p->window ? position + 1 - p->window : 0;
    double largest = -INFINITY, divisor = 0;
    for (uint32_t c = first; c <= position; c++) {
        double s = (double)p->scale * ref_dot(q, k + (uint64_t)c * p->head_dim, p->head_dim);
        if (p->softcap > 0)
            s = (double)p->softcap * tanh(s / (double)p->softcap);
        scores[c] = s;
        largest = fmax(largest, s);
    }
    memset(sum, 0, p->head_dim * sizeof *sum);
    for (uint32_t c = first; c <= position; c++) {
        const double weight = exp(scores[c] - largest);
        divisor += weight;
        for (uint32_t i = 0; i < p->head_dim; i++)
            sum[i] += weight * (double)v[(uint64_t)c * p->head_dim + i];
    }
    for (uint32_t i = 0; i < p->head_dim; i++)
        y[i] = (float)(sum[i] / divisor);
}

enum status ref_attention_params(const struct op_call *call, void *const *data, struct err *e)
{
    const struct attention_params *p = &call->params.attention;
    const int32_t *meta = data[3];
    const uint32_t heads_per_kv = p->n_head / p->n_head_kv;
    const size_t n_cells = p->kv_max;
    float *k = mem_array(n_cells * p->head_dim, sizeof *k);
    float *v = mem_array(n_cells * p->head_dim, sizeof *v);
    double *scores = mem_array(n_cells, sizeof *scores);
    double *sum = mem_array(p->head_dim, sizeof *sum);
    enum status st = ST_OK;
    if (!k || !v || !scores || !sum)
        st = err_set(e, ST_NO_MEMORY, "attention ref: no memory for %u cells of %u", p->kv_max,
                     p->head_dim);
    for (uint32_t hk = 0; st == ST_OK && hk < p->n_head_kv; hk++) {
        int32_t loaded = -1; /* slot whose cells are in k and v */
        for (uint64_t t = 0; st == ST_OK && t < p->n_tokens; t++) {
            const uint32_t position = (uint32_t)meta[4 * t];
            const int32_t slot = meta[4 * t + 1];
            if (slot != loaded) {
                st = load_cells(call, data, 1, (uint32_t)slot, hk, p->kv_max, k, e);
                if (st == ST_OK)
                    st = load_cells(call, data, 2, (uint32_t)slot, hk, p->kv_max, v, e);
                loaded = slot;
            }
            for (uint32_t j = 0; st == ST_OK && j < heads_per_kv; j++) {
                const uint64_t column = (uint64_t)(hk * heads_per_kv + j) * p->head_dim;
                attend(p, (const float *)data[0] + t * p->q_stride + column, k, v, position, scores,
                       sum, (float *)data[5] + t * p->n_head * p->head_dim + column);
            }
        }
    }
    mem_free(sum);
    mem_free(scores);
    mem_free(v);
    mem_free(k);
    return st;
}
