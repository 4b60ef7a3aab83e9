/* Data of trials: numbers from a seed, shaped for each op (ties and NaN for argmax, positions and
 * slots for caches, angles for rope). */
#include <math.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/ops/act.h"
#include "engine/ops/rules.h"
#include "engine/ops/trial_impl.h"
#include "engine/tensor/quant.h"

/* splitmix64: a full-period generator whose state is a counter. */
static uint64_t next_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1). */
static float next_float(uint64_t *state)
{
    return (float)(next_u64(state) >> 40) * 0x1p-23f - 1.0f;
}

static void fill_floats(float *x, uint64_t n, uint64_t *state)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = next_float(state);
}

/* n elements of dtype, made of random floats in pieces of one super-block. */
static enum status fill_weights(enum dtype dtype, char *out, uint64_t n_bytes, uint64_t *state,
                                struct err *e)
{
    const struct dtype_info *info = dtype_info(dtype);
    for (uint64_t at = 0; at < n_bytes; at += info->block_bytes) {
        float block[256];
        fill_floats(block, info->block, state);
        enum status st = quant_from_f32(dtype, block, out + at, info->block, e);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

/* Rows for argmax, one special case after another: plain, all equal, all NaN, all -inf, a NaN first
 * and the largest number twice, the largest number last. */
static void fill_argmax(const struct argmax_params *p, float *x, uint64_t *state)
{
    for (uint64_t r = 0; r < p->n_rows; r++) {
        float *row = x + r * p->x_stride;
        fill_floats(row, p->len, state);
        for (uint32_t i = 0; i < p->len; i++) {
            if (r % 6 == 1)
                row[i] = 0.5f;
            else if (r % 6 == 2)
                row[i] = NAN;
            else if (r % 6 == 3)
                row[i] = -INFINITY;
        }
        if (r % 6 == 4) {
            row[0] = NAN;
            row[p->len / 2] = row[p->len - 1] = 2.0f;
        } else if (r % 6 == 5) {
            row[p->len - 1] = 2.0f;
        }
    }
}

/* meta [n_tokens] {position, slot, 0, 0}: two slots, in each the last positions before n_cells in
 * order. An even number of tokens comes slot after slot, an odd one in turns. No two tokens share a
 * cell while n_tokens <= 2 n_cells. */
static void fill_meta(int32_t *meta, uint32_t n_tokens, uint32_t n_cells)
{
    for (uint32_t t = 0; t < n_tokens; t++) {
        const uint32_t left = n_tokens - 1 - t; /* tokens after this one */
        const bool in_turns = n_tokens % TRIAL_SLOTS != 0;
        const uint32_t per_slot = n_tokens / TRIAL_SLOTS;
        const uint32_t back = in_turns ? left / TRIAL_SLOTS : left % per_slot;
        meta[4 * t] = (int32_t)(n_cells - 1 - back % n_cells);
        meta[4 * t + 1] = (int32_t)(in_turns ? left % TRIAL_SLOTS : left / per_slot);
        meta[4 * t + 2] = meta[4 * t + 3] = 0;
    }
}

/* NaN in the cells of a cache that no token sees: a slot's former sequence may have left them, and
 * 0 * NaN is not 0. All ones are NaN in every dtype of caches. */
static void spoil_unseen_cells(const struct tensor *cache, const struct attention_params *p,
                               unsigned char *cells)
{
    const uint64_t n_heads = (uint64_t)TRIAL_SLOTS * p->n_head_kv;
    const uint64_t head_bytes = cache->bytes / n_heads, cell_bytes = head_bytes / p->n_ctx;
    for (uint64_t h = 0; h < n_heads; h++)
        memset(cells + h * head_bytes + p->kv_max * cell_bytes, 0xff,
               (p->n_ctx - p->kv_max) * cell_bytes);
}

static void fill_angles(const struct rope_kv_params *p, float *table)
{
    for (uint32_t c = 0; c < p->n_ctx; c++)
        for (uint32_t i = 0; i < p->n_rot / 2; i++) {
            const double angle = c * pow(10000.0, -2.0 * i / p->n_rot);
            *table++ = (float)cos(angle);
            *table++ = (float)sin(angle);
        }
}

/* Ids of embed: all of the table in turn, then one before and one past its ends. */
static void fill_ids(const struct embed_params *p, int32_t *ids)
{
    for (uint32_t t = 0; t < p->n_tokens; t++)
        ids[t] = (int32_t)(t * 7919u % p->n_vocab);
    if (p->n_tokens > 2) {
        ids[1] = -1;
        ids[2] = (int32_t)p->n_vocab;
    }
}

enum status trial_fill(struct trial *t, struct err *e)
{
    const struct op_call *call = &t->ref_call;
    uint64_t state = t->seed;
    for (uint32_t i = 0; i < op_tensor_count(call->op); i++) {
        const struct tensor *x = &call->tensors[i];
        if (x->bytes == 0)
            continue;
        if (x->dtype == DT_I32) {
            memset(t->host[i], 0, x->bytes);
        } else {
            enum status st = fill_weights(x->dtype, t->host[i], x->bytes, &state, e);
            if (st != ST_OK)
                return st;
        }
    }
    switch (call->op) {
    case OP_EMBED: fill_ids(&call->params.embed, t->host[1]); break;
    case OP_ROPE_KV:
        fill_meta(t->host[2], call->params.rope_kv.n_tokens, call->params.rope_kv.n_ctx);
        if (call->params.rope_kv.rotate)
            fill_angles(&call->params.rope_kv, t->host[1]);
        break;
    case OP_ATTENTION:
        fill_meta(t->host[3], call->params.attention.n_tokens, call->params.attention.kv_max);
        for (uint32_t i = 1; i <= 2; i++)
            spoil_unseen_cells(&call->tensors[i], &call->params.attention, t->host[i]);
        break;
    CASE_RULED:
        if (op_rules(call->op)->fill)
            op_rules(call->op)->fill(call, t->host);
        break;
    case OP_ARGMAX: fill_argmax(&call->params.argmax, t->host[0], &state); break;
    case OP_NORM:
    case OP_QUANTIZE:
    case OP_LINEAR:
    case OP_SWIGLU:
    case OP_ADD:
    case OP_REPACK:
    case OP_COUNT: break;
    }
    return ST_OK;
}
