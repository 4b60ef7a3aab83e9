/* Inputs of single operators. Everything is written through small blocks, so that f16 and quantised
 * weights need no second copy. */
#include "engine/ops/data.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/ops/variant.h"
#include "engine/tensor/quant.h"

#define BLOCK 256u /* floats converted at once: a multiple of every dtype's block */

static uint32_t fmix32(uint32_t h)
{
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ h >> 16;
}

float data_value(uint32_t seed, uint32_t input, uint32_t i)
{
    const uint32_t u = fmix32(seed * 0x9E3779B9u + input * 0x85EBCA6Bu + i);
    return (float)(u >> 8) * 0x1p-23f - 1.0f;
}

bool data_kept(uint32_t seed, uint32_t i, double density)
{
    return (double)fmix32(seed * 0x9E3779B9u + 7u * 0x85EBCA6Bu + i) < density * 4294967296.0;
}

uint64_t data_count_kept(uint32_t seed, uint64_t m, uint64_t k, double density)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < m * k; i++)
        n += data_kept(seed, (uint32_t)i, density);
    return n > 0 ? n : 1;
}

/* Where the numbers of one input come from. */
struct source {
    const char *op, *name;
    const float *given;
    uint32_t seed, input;
};

static float value_at(const struct source *s, uint64_t i)
{
    return s->given ? s->given[i] : data_value(s->seed, s->input, (uint32_t)i);
}

/* Elements from..from+n of an input, as dtype, at out. */
static enum status write_run(const struct source *s, uint64_t from, uint64_t n, enum dtype dtype,
                             char *out, struct err *e)
{
    const struct dtype_info *info = dtype_info(dtype);
    float block[BLOCK];
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint64_t count = n - at < BLOCK ? n - at : BLOCK;
        for (uint64_t j = 0; j < count; j++) {
            block[j] = value_at(s, from + at + j);
            if (isnan(block[j]))
                return err_set(e, ST_INVALID, "%s: %s: element %" PRIu64 " is NaN", s->op, s->name,
                               from + at + j);
        }
        enum status st =
            quant_from_f32(dtype, block, out + at / info->block * info->block_bytes, count, e);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

static struct source source_of(const struct op_call *call, const struct op_data *data, uint32_t i)
{
    return (struct source){op_name(call->op), op_tensor_name(call->op, i), data->inputs[i],
                           data->seed, i};
}

/* A cache of one slot [n_head_kv][n_ctx][head_dim] from [n_kv][n_head_kv][head_dim]. */
static enum status write_cache(const struct op_call *call, const struct op_data *data, uint32_t i,
                               char *out, struct err *e)
{
    const struct attention_params *p = &call->params.attention;
    const struct source s = source_of(call, data, i);
    const enum dtype dtype = call->tensors[i].dtype;
    uint64_t cell_bytes;
    if (!dtype_row_bytes(dtype, p->head_dim, &cell_bytes))
        return err_set(e, ST_INVALID, "attention: head_dim is %u, which %s cannot hold",
                       p->head_dim, dtype_name(dtype));
    for (uint64_t c = 0; c < p->kv_max; c++)
        for (uint64_t h = 0; h < p->n_head_kv; h++) {
            enum status st = write_run(&s, (c * p->n_head_kv + h) * p->head_dim, p->head_dim, dtype,
                                       out + (h * p->n_ctx + c) * cell_bytes, e);
            if (st != ST_OK)
                return st;
        }
    return ST_OK;
}

/* meta of consecutive tokens in slot 0, the last one at position end - 1. */
static void write_meta(uint32_t n_tokens, uint32_t end, int32_t *meta)
{
    for (uint32_t t = 0; t < n_tokens; t++) {
        memset(meta + 4 * t, 0, 4 * sizeof *meta);
        meta[4 * t] = (int32_t)(end - n_tokens + t);
    }
}

/* Queries x [n_tokens][n_head][head_dim] in rows of qkv; what lies behind them in each row, keys
 * and values, goes on from there, or is zero where x is given. */
static enum status write_qkv(const struct op_call *call, const struct op_data *data, float *out,
                             struct err *e)
{
    const struct rope_kv_params *p = &call->params.rope_kv;
    const struct source s = source_of(call, data, 0);
    const uint64_t width = (uint64_t)p->n_head * p->head_dim, n_x = p->n_tokens * width;
    const uint64_t total = op_tensor_bytes(call, 0) / sizeof *out;
    for (uint64_t t = 0; t < p->n_tokens; t++) {
        float *row = out + t * p->stride;
        const uint64_t left = total - t * p->stride;
        const uint64_t behind = (left < p->stride ? left : p->stride) - width;
        enum status st = write_run(&s, t * width, width, DT_F32, (char *)row, e);
        if (st != ST_OK)
            return st;
        for (uint64_t i = 0; i < behind; i++)
            row[width + i] = s.given ? 0 : value_at(&s, n_x + t * (p->stride - width) + i);
    }
    return ST_OK;
}

/* cos and sin of position * base^(-2 i / n_rot), pairs. */
static enum status write_angles(const struct rope_kv_params *p, double base, float *table)
{
    for (uint32_t c = 0; c < p->n_ctx; c++)
        for (uint32_t i = 0; i < p->n_rot / 2; i++) {
            const double angle = c * pow(base, -2.0 * i / p->n_rot);
            *table++ = (float)cos(angle);
            *table++ = (float)sin(angle);
        }
    return ST_OK;
}

/* The kept elements of a generated [m][k] matrix in CSR. */
static void write_csr(const struct sparse_gemv_params *p, const struct op_data *data, float *values,
                      int32_t *columns, int32_t *row_ptr)
{
    uint64_t n = 0;
    for (uint64_t r = 0; r < p->m; r++) {
        row_ptr[r] = (int32_t)n;
        for (uint64_t c = 0; c < p->k; c++) {
            const uint32_t i = (uint32_t)(r * p->k + c);
            if (n == p->nnz || !data_kept(data->seed, i, data->density))
                continue;
            values[n] = data_value(data->seed, 0, i);
            columns[n++] = (int32_t)c;
        }
    }
    row_ptr[p->m] = (int32_t)n;
}

/* The two largest magnitudes of each four of a generated [m][k] matrix, lower column first. */
static void write_2_4(const struct sparse_gemv_params *p, const struct op_data *data, float *values,
                      int32_t *words)
{
    const uint64_t per_row = (p->k + 31u) / 32u;
    memset(words, 0, p->m * per_row * sizeof *words);
    for (uint64_t r = 0; r < p->m; r++)
        for (uint64_t g = 0; g < p->k / 4; g++) {
            float four[4];
            uint32_t best = 0, next = 1;
            for (uint32_t j = 0; j < 4; j++)
                four[j] = data_value(data->seed, 0, (uint32_t)(r * p->k + 4 * g + j));
            if (fabsf(four[1]) > fabsf(four[0]))
                best = 1, next = 0;
            for (uint32_t j = 2; j < 4; j++) {
                if (fabsf(four[j]) > fabsf(four[best]))
                    next = best, best = j;
                else if (fabsf(four[j]) > fabsf(four[next]))
                    next = j;
            }
            const uint32_t low = best < next ? best : next, high = best < next ? next : best;
            values[r * (p->k / 2) + 2 * g] = four[low];
            values[r * (p->k / 2) + 2 * g + 1] = four[high];
            words[r * per_row + g / 8] |= (int32_t)((low | high << 2) << 4 * (g % 8));
        }
}

static enum status check_csr(const struct sparse_gemv_params *p, const int32_t *columns,
                             const int32_t *row_ptr, struct err *e)
{
    for (uint64_t r = 0; r <= p->m; r++) {
        const int64_t low = r == 0 ? 0 : row_ptr[r - 1];
        if (row_ptr[r] < low || row_ptr[r] > (int64_t)p->nnz)
            return err_set(e, ST_INVALID,
                           "sparse_gemv: row_ptr: element %" PRIu64 " is %d, expected %" PRId64
                           " to %u",
                           r, row_ptr[r], low, p->nnz);
    }
    for (uint64_t i = 0; i < p->nnz; i++)
        if (columns[i] < 0 || (uint32_t)columns[i] >= p->k)
            return err_set(e, ST_INVALID,
                           "sparse_gemv: col_indices: element %" PRIu64 " is %d, expected 0 to %u",
                           i, columns[i], p->k - 1);
    return ST_OK;
}

static enum status make_sparse(const struct op_call *call, const struct op_data *data,
                               void *const *host, struct err *e)
{
    const struct sparse_gemv_params *p = &call->params.sparse_gemv;
    const bool csr = p->format == SPARSE_CSR;
    if (!data->inputs[0] && csr)
        write_csr(p, data, host[0], host[1], host[2]);
    else if (!data->inputs[0])
        write_2_4(p, data, host[0], host[1]);
    for (uint32_t i = 1; data->inputs[0] && i < (csr ? 3u : 2u); i++) {
        if (!data->inputs[i])
            return err_set(e, ST_INVALID, "sparse_gemv: %s is missing, values are given",
                           op_tensor_name(call->op, i));
        memcpy(host[i], data->inputs[i], op_tensor_bytes(call, i));
    }
    if (csr) {
        enum status st = check_csr(p, host[1], host[2], e);
        if (st != ST_OK)
            return st;
    }
    for (uint32_t i = 0; i < 4; i += 3) { /* values, x */
        const struct source s = source_of(call, data, i);
        if (i == 0 && !data->inputs[0])
            continue;
        enum status st = write_run(&s, 0, op_tensor_bytes(call, i) / 4, DT_F32, host[i], e);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

enum status data_make(const struct op_call *call, const struct op_data *data, void *const *host,
                      struct err *e)
{
    if (call->op == OP_SPARSE_GEMV)
        return make_sparse(call, data, host, e);
    for (uint32_t i = 0; i < op_tensor_count(call->op); i++) {
        const struct tensor *t = &call->tensors[i];
        const uint64_t bytes = op_tensor_bytes(call, i);
        const bool in_place = call->op == OP_ROPE_KV && i == 0;
        if (bytes == 0 || t->dtype == DT_I32 || (op_tensor_is_output(call->op, i) && !in_place))
            continue;
        enum status st;
        const struct source s = source_of(call, data, i);
        const struct dtype_info *info = dtype_info(t->dtype);
        if (call->op == OP_ATTENTION && (i == 1 || i == 2))
            st = write_cache(call, data, i, host[i], e);
        else if (in_place)
            st = write_qkv(call, data, host[i], e);
        else if (call->op == OP_ROPE_KV && i == 1)
            st = write_angles(&call->params.rope_kv, data->rope_base, host[i]);
        else
            st = write_run(&s, 0, bytes / info->block_bytes * info->block, t->dtype, host[i], e);
        if (st != ST_OK)
            return st;
    }
    if (call->op == OP_ATTENTION) {
        const struct attention_params *p = &call->params.attention;
        int32_t *meta = host[3];
        write_meta(p->n_tokens, p->kv_max, meta);
        for (uint32_t t = 0; t < p->n_tokens && data->see_all; t++)
            meta[4 * t] = (int32_t)p->kv_max - 1;
    } else if (call->op == OP_ROPE_KV) {
        const struct rope_kv_params *p = &call->params.rope_kv;
        int32_t *meta = host[2];
        write_meta(p->n_tokens, p->n_ctx, meta);
        for (uint32_t t = 0; t < p->n_tokens && data->positions; t++)
            meta[4 * t] = data->positions[t];
    }
    return ST_OK;
}
