/* What a call of each op must look like: extents, bytes of every tensor, and the checks.
 *
 * Pure functions of the call, so a plan can be checked before anything is allocated. Dimensions are
 * bounded by DIM_MAX, which keeps every product below in 64 bits.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/ops/act.h"
#include "engine/ops/check_dims.h"
#include "engine/ops/rules.h"

static const uint8_t tensor_kinds[OP_COUNT][OP_MAX_TENSORS] = {
    [OP_EMBED] = {KIND_WEIGHT, KIND_I32, KIND_F32},
    [OP_NORM] = {KIND_F32, KIND_F32, KIND_F32, KIND_ACT},
    [OP_QUANTIZE] = {KIND_F32, KIND_ACT},
    [OP_LINEAR] = {KIND_WEIGHT, KIND_ACT, KIND_F32, KIND_F32},
    [OP_ROPE_KV] = {KIND_F32, KIND_F32, KIND_I32, KIND_CACHE, KIND_CACHE},
    [OP_ATTENTION] = {KIND_F32, KIND_CACHE, KIND_CACHE, KIND_I32, KIND_F32, KIND_F32},
    [OP_SWIGLU] = {KIND_F32, KIND_ACT},
    [OP_ADD] = {KIND_F32, KIND_F32, KIND_F32},
    [OP_ARGMAX] = {KIND_F32, KIND_I32, KIND_F32},
    [OP_REPACK] = {KIND_BYTES, KIND_WEIGHT},
    [OP_MATMUL] = {KIND_REAL, KIND_REAL, KIND_REAL, KIND_REAL},
    [OP_SOFTMAX] = {KIND_REAL, KIND_REAL, KIND_REAL},
    [OP_TOP_K] = {KIND_F32, KIND_I32, KIND_F32},
    [OP_ELEMENTWISE] = {KIND_REAL, KIND_REAL, KIND_REAL},
    [OP_SPARSE_GEMV] = {KIND_F32, KIND_I32, KIND_I32, KIND_F32, KIND_F32},
    [OP_CONV2D] = {KIND_REAL, KIND_REAL, KIND_REAL, KIND_REAL},
};

enum tensor_kind op_tensor_kind(enum op_id op, uint32_t i)
{
    return (enum tensor_kind)tensor_kinds[op][i];
}

/* Floats that a strided matrix [n_rows][stride] with `width` used columns spans. */
static uint64_t span_floats(uint64_t n_rows, uint64_t stride, uint64_t width)
{
    return (n_rows - 1) * stride + width;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void op_extent(const struct op_call *call, uint64_t *rows, uint64_t *tokens)
{
    const union op_params *p = &call->params;
    *tokens = 1;
    switch (call->op) {
    case OP_EMBED: *rows = p->embed.k, *tokens = p->embed.n_tokens; break;
    case OP_NORM: *rows = p->norm.len, *tokens = p->norm.n_rows; break;
    case OP_QUANTIZE: *rows = p->quantize.len, *tokens = p->quantize.n_rows; break;
    case OP_LINEAR: *rows = p->linear.m, *tokens = p->linear.n_tokens; break;
    case OP_ROPE_KV:
        *rows = (uint64_t)p->rope_kv.n_head + 2ull * p->rope_kv.n_head_kv;
        *tokens = p->rope_kv.n_tokens;
        break;
    case OP_ATTENTION: *rows = p->attention.n_head, *tokens = p->attention.n_tokens; break;
    case OP_SWIGLU: *rows = p->swiglu.n, *tokens = p->swiglu.n_tokens; break;
    case OP_ADD: *rows = p->add.n; break;
    case OP_ARGMAX: *rows = p->argmax.len, *tokens = p->argmax.n_rows; break;
    case OP_REPACK:
        *rows = p->repack.n_rows, *tokens = p->repack.k;
        break;
    CASE_RULED:
        op_rules(call->op)->extent(p, rows, tokens);
        break;
    case OP_COUNT: *rows = 0; break;
    }
}

uint32_t op_columns(const struct op_call *call)
{
    const union op_params *p = &call->params;
    switch (call->op) {
    case OP_EMBED: return p->embed.k;
    case OP_NORM: return p->norm.len;
    case OP_QUANTIZE: return p->quantize.len;
    case OP_LINEAR: return p->linear.k;
    case OP_ROPE_KV: return p->rope_kv.head_dim;
    case OP_ATTENTION: return p->attention.head_dim;
    case OP_SWIGLU: return p->swiglu.n;
    case OP_REPACK: return p->repack.k;
    case OP_ADD:
    case OP_ARGMAX:
    CASE_RULED:
    case OP_COUNT: break;
    }
    return 0;
}

/* Columns of linear's output: a gate and an up row make one under LINEAR_SWIGLU. */
static uint32_t linear_columns(const struct linear_params *p)
{
    return p->epilogue == LINEAR_SWIGLU ? p->m / 2 : p->m;
}

/* Bytes of one slot of a K or V cache. */
static uint64_t cache_slot_bytes(enum dtype dtype, uint32_t n_head_kv, uint32_t n_ctx,
                                 uint32_t head_dim)
{
    uint64_t cell_bytes = 0;
    (void)dtype_row_bytes(dtype, head_dim, &cell_bytes);
    return cell_bytes * n_head_kv * n_ctx;
}

uint64_t op_tensor_bytes(const struct op_call *call, uint32_t i)
{
    const struct tensor *t = &call->tensors[i];
    const union op_params *p = &call->params;
    switch (call->op) {
    case OP_EMBED: {
        const struct embed_params *q = &p->embed;
        const uint64_t bytes[] = {
            layout_bytes(t->dtype, (enum weight_layout)t->layout, q->n_vocab, q->k),
            4ull * q->n_tokens, 4ull * q->n_tokens * q->k};
        return bytes[i];
    }
    case OP_NORM: {
        const struct norm_params *q = &p->norm;
        const uint64_t bytes[] = {4 * span_floats(q->n_rows, q->x_stride, q->len), 4ull * q->len,
                                  q->has_bias ? 4ull * q->len : 0,
                                  act_bytes(t->layout, q->n_rows, q->len)};
        return bytes[i];
    }
    case OP_QUANTIZE: {
        const struct quantize_params *q = &p->quantize;
        return i == 0 ? 4 * span_floats(q->n_rows, q->x_stride, q->len)
                      : act_bytes(t->layout, q->n_rows, q->len);
    }
    case OP_LINEAR: {
        const struct linear_params *q = &p->linear;
        const uint64_t bytes[] = {layout_bytes(t->dtype, (enum weight_layout)t->layout, q->m, q->k),
                                  act_bytes(t->layout, q->n_tokens, q->k),
                                  q->has_bias ? 4ull * q->m : 0,
                                  4 * span_floats(q->n_tokens, q->y_stride, linear_columns(q))};
        return bytes[i];
    }
    case OP_ROPE_KV: {
        const struct rope_kv_params *q = &p->rope_kv;
        const uint64_t kv_width = (uint64_t)q->n_head_kv * q->head_dim;
        const uint64_t width =
            max_u64((uint64_t)q->n_head * q->head_dim, max_u64(q->k_col, q->v_col) + kv_width);
        const uint64_t cache = cache_slot_bytes(t->dtype, q->n_head_kv, q->n_ctx, q->head_dim);
        const uint64_t bytes[] = {4 * span_floats(q->n_tokens, q->stride, width),
                                  q->rotate ? 4ull * q->n_ctx * q->n_rot : 0, 16ull * q->n_tokens,
                                  cache, cache};
        return bytes[i];
    }
    case OP_ATTENTION: {
        const struct attention_params *q = &p->attention;
        const uint64_t width = (uint64_t)q->n_head * q->head_dim;
        const uint64_t cache = cache_slot_bytes(t->dtype, q->n_head_kv, q->n_ctx, q->head_dim);
        const uint64_t bytes[] = {4 * span_floats(q->n_tokens, q->q_stride, width),
                                  cache,
                                  cache,
                                  16ull * q->n_tokens,
                                  attention_scratch_bytes(NULL, q),
                                  4 * width * q->n_tokens};
        return bytes[i];
    }
    case OP_SWIGLU: {
        const struct swiglu_params *q = &p->swiglu;
        return i == 0 ? 4 * span_floats(q->n_tokens, q->x_stride, 2ull * q->n)
                      : act_bytes(t->layout, q->n_tokens, q->n);
    }
    case OP_ADD: return 4ull * p->add.n;
    case OP_ARGMAX: {
        const struct argmax_params *q = &p->argmax;
        return i == 0 ? 4 * span_floats(q->n_rows, q->x_stride, q->len) : 4ull * q->n_rows;
    }
    case OP_REPACK: {
        const struct repack_params *q = &p->repack;
        return i == 0 ? layout_bytes(t->dtype, LAYOUT_FILE, q->n_rows, q->k)
                      : layout_bytes(t->dtype, (enum weight_layout)t->layout, q->m_total, q->k);
    }
    CASE_RULED:
        return op_rules(call->op)->tensor_bytes(call, i);
    case OP_COUNT: break;
    }
    return 0;
}

static enum status check_linear(const struct variant *v, const struct op_call *call, struct err *e)
{
    const char *op = op_name(OP_LINEAR);
    const struct linear_params *p = &call->params.linear;
    CHECK_DIMS({"m", p->m}, {"k", p->k}, {"n_tokens", p->n_tokens}, {"y_stride", p->y_stride});
    CHECK(check_at_least(op, "y_stride", p->y_stride, linear_columns(p), e));
    CHECK(check_at_most(op, "epilogue", p->epilogue, LINEAR_SWIGLU, e));
    if (p->epilogue != LINEAR_SWIGLU)
        return ST_OK;
    if (v->layout == LAYOUT_FILE)
        return err_set(e, ST_UNSUPPORTED, "%s %s: gate and up rows must be interleaved by a layout",
                       op, v->name);
    return check_multiple(op, "m", p->m, 2ull * layout_rows((enum weight_layout)v->layout), e);
}

/* Cells of KV_TILED come in tiles of 16. */
static enum status check_cache(const char *op, const struct tensor *k_cache, uint32_t n_ctx,
                               struct err *e)
{
    return check_multiple(op, "n_ctx", n_ctx, k_cache->layout == KV_TILED ? 16 : 1, e);
}

static enum status check_rope_kv(const struct op_call *call, struct err *e)
{
    const char *op = op_name(OP_ROPE_KV);
    const struct rope_kv_params *p = &call->params.rope_kv;
    const uint64_t kv_width = (uint64_t)p->n_head_kv * p->head_dim;
    CHECK_DIMS({"n_tokens", p->n_tokens}, {"stride", p->stride}, {"n_head", p->n_head},
               {"n_head_kv", p->n_head_kv}, {"head_dim", p->head_dim}, {"n_ctx", p->n_ctx});
    CHECK(check_at_least(op, "k_col", p->k_col, (uint64_t)p->n_head * p->head_dim, e));
    CHECK(check_at_least(op, "v_col", p->v_col, p->k_col + kv_width, e));
    CHECK(check_at_least(op, "stride", p->stride, p->v_col + kv_width, e));
    CHECK(check_at_most(op, "n_rot", p->n_rot, p->head_dim, e));
    CHECK(check_multiple(op, "n_rot", p->n_rot, 2, e));
    CHECK(check_cache(op, &call->tensors[3], p->n_ctx, e));
    return check_at_most(op, "mode", p->mode, 1, e);
}

static enum status check_attention(const struct op_call *call, struct err *e)
{
    const char *op = op_name(OP_ATTENTION);
    const struct attention_params *p = &call->params.attention;
    CHECK_DIMS({"n_tokens", p->n_tokens}, {"n_head", p->n_head}, {"n_head_kv", p->n_head_kv},
               {"head_dim", p->head_dim}, {"n_ctx", p->n_ctx}, {"kv_max", p->kv_max},
               {"n_splits", p->n_splits});
    CHECK(check_at_least(op, "q_stride", p->q_stride, (uint64_t)p->n_head * p->head_dim, e));
    CHECK(check_multiple(op, "n_head", p->n_head, p->n_head_kv, e));
    CHECK(check_at_most(op, "kv_max", p->kv_max, p->n_ctx, e));
    CHECK(check_cache(op, &call->tensors[1], p->n_ctx, e));
    return check_at_most(op, "n_splits", p->n_splits, ATTENTION_MAX_SPLITS, e);
}

static enum status check_repack(const struct variant *v, const struct op_call *call, struct err *e)
{
    const char *op = op_name(OP_REPACK);
    const struct repack_params *p = &call->params.repack;
    CHECK_DIMS({"n_rows", p->n_rows}, {"k", p->k}, {"m_total", p->m_total}, {"group", p->group},
               {"group_stride", p->group_stride});
    CHECK(check_at_least(op, "group_stride", p->group_stride, p->group, e));
    const uint64_t last = p->n_rows - 1;
    CHECK(check_at_most(op, "last row",
                        p->row0 + last / p->group * p->group_stride + last % p->group,
                        p->m_total - 1u, e));
    const uint32_t rows = layout_rows((enum weight_layout)v->layout);
    if (p->group != p->group_stride)
        CHECK(check_multiple(op, "group", p->group, rows, e));
    return check_multiple(op, "row0", p->row0, rows, e);
}

enum status op_check_params(const struct variant *v, const struct op_call *call, struct err *e)
{
    const char *op = op_name(call->op);
    const union op_params *p = &call->params;
    switch (call->op) {
    case OP_EMBED:
        CHECK_DIMS({"n_tokens", p->embed.n_tokens}, {"k", p->embed.k},
                   {"n_vocab", p->embed.n_vocab});
        return ST_OK;
    case OP_NORM:
        CHECK_DIMS({"n_rows", p->norm.n_rows}, {"len", p->norm.len});
        CHECK(check_at_least(op, "x_stride", p->norm.x_stride, p->norm.len, e));
        return check_at_most(op, "kind", p->norm.kind, 1, e);
    case OP_QUANTIZE:
        CHECK_DIMS({"n_rows", p->quantize.n_rows}, {"len", p->quantize.len});
        return check_at_least(op, "x_stride", p->quantize.x_stride, p->quantize.len, e);
    case OP_LINEAR: return check_linear(v, call, e);
    case OP_ROPE_KV: return check_rope_kv(call, e);
    case OP_ATTENTION: return check_attention(call, e);
    case OP_SWIGLU:
        CHECK_DIMS({"n_tokens", p->swiglu.n_tokens}, {"n", p->swiglu.n});
        CHECK(check_at_least(op, "x_stride", p->swiglu.x_stride, 2ull * p->swiglu.n, e));
        return check_at_most(op, "act", p->swiglu.act, 1, e);
    case OP_ADD: CHECK_DIMS({"n", p->add.n}); return ST_OK;
    case OP_ARGMAX:
        CHECK_DIMS({"n_rows", p->argmax.n_rows}, {"len", p->argmax.len});
        return check_at_least(op, "x_stride", p->argmax.x_stride, p->argmax.len, e);
    case OP_REPACK:
        return check_repack(v, call, e);
    CASE_RULED:
        return op_rules(call->op)->check(v, call, e);
    case OP_COUNT: break;
    }
    return err_set(e, ST_INVALID, "op %u: no such op", (unsigned)call->op);
}

/* Bytes that the offset of a tensor must be a multiple of. */
static uint32_t tensor_align(enum tensor_kind kind, const struct tensor *t)
{
    if (kind == KIND_ACT)
        return t->layout == ACT_F32 ? 4 : t->layout == ACT_F16 ? 16 : 64;
    if (kind == KIND_WEIGHT && t->layout != LAYOUT_FILE)
        return t->layout == LAYOUT_R16 ? 64 : 16;
    if (kind == KIND_WEIGHT || kind == KIND_BYTES || kind == KIND_CACHE || kind == KIND_REAL)
        return t->dtype == DT_F32 ? 4 : 2;
    return 4;
}

/* dtype and layout of tensor i against the variant. */
static enum status check_type(const struct variant *v, const struct op_call *call, uint32_t i,
                              struct err *e)
{
    const enum tensor_kind kind = (enum tensor_kind)tensor_kinds[call->op][i];
    const struct tensor *t = &call->tensors[i];
    const char *op = op_name(call->op), *name = op_tensor_name(call->op, i);
    uint32_t layout = t->layout;
    int dtype = (int)t->dtype;
    switch (kind) {
    case KIND_F32: dtype = DT_F32, layout = 0; break;
    case KIND_I32: dtype = DT_I32, layout = 0; break;
    case KIND_BYTES: dtype = v->dtype, layout = LAYOUT_FILE; break;
    case KIND_REAL: dtype = v->dtype, layout = 0; break;
    case KIND_WEIGHT:
    case KIND_CACHE: dtype = v->dtype, layout = v->layout; break;
    case KIND_ACT: layout = v->ref ? layout : v->act; break;
    case KIND_NONE: break;
    }
    if (dtype != DT_ANY && (int)t->dtype != dtype)
        return err_set(e, ST_INVALID, "%s %s: tensor %s is %s, expected %s", op, v->name, name,
                       dtype_name(t->dtype), dtype_name((uint32_t)dtype));
    if (dtype == DT_ANY && (!dtype_info(t->dtype) || !dtype_info(t->dtype)->compute))
        return err_set(e, ST_INVALID, "%s %s: tensor %s is %s, which no op reads", op, v->name,
                       name, dtype_name(t->dtype));
    if (t->layout != layout)
        return err_set(e, ST_INVALID, "%s %s: tensor %s has layout %u, expected %u", op, v->name,
                       name, t->layout, layout);
    return ST_OK;
}

static enum status check_tensor(const struct variant *v, const struct op_call *call, uint32_t i,
                                struct err *e)
{
    const struct tensor *t = &call->tensors[i];
    const char *op = op_name(call->op), *name = op_tensor_name(call->op, i);
    const enum tensor_kind kind = (enum tensor_kind)tensor_kinds[call->op][i];
    const uint64_t need = op_tensor_bytes(call, i);
    if (need == 0) {
        if (kind == KIND_WEIGHT || kind == KIND_CACHE || kind == KIND_ACT || kind == KIND_BYTES)
            return err_set(e, ST_INVALID,
                           "%s %s: tensor %s: %u columns do not fit dtype %s in layout %u", op,
                           v->name, name, op_columns(call), dtype_name(t->dtype), t->layout);
        return ST_OK;
    }
    CHECK(check_type(v, call, i, e));
    if (!t->buffer)
        return err_set(e, ST_INVALID, "%s: tensor %s has no buffer, expected %" PRIu64 " bytes", op,
                       name, need);
    CHECK(check_at_least(op, name, t->bytes, need, e));
    CHECK(check_multiple(op, name, t->offset, tensor_align(kind, t), e));
    const uint64_t have = buffer_bytes(t->buffer);
    if (t->offset > have || t->bytes > have - t->offset)
        return err_set(e, ST_INVALID,
                       "%s: tensor %s: %" PRIu64 " bytes at %" PRIu64 " pass its buffer's %" PRIu64,
                       op, name, t->bytes, t->offset, have);
    return ST_OK;
}

enum status op_check(const struct variant *v, const struct op_call *call, struct err *e)
{
    if (call->op >= OP_COUNT || v->op != call->op)
        return err_set(e, ST_INVALID, "op %u: variant %s is of op %s", (unsigned)call->op, v->name,
                       op_name(v->op));
    CHECK(op_check_params(v, call, e));
    const uint32_t columns = op_columns(call);
    if (v->k_multiple > 0)
        CHECK(check_multiple(op_name(v->op), "columns", columns, v->k_multiple, e));
    if (v->k_max > 0)
        CHECK(check_at_most(op_name(v->op), "columns", columns, v->k_max, e));
    const char *why = variant_refuses(v, call);
    if (why)
        return err_set(e, ST_UNSUPPORTED, "%s %s: %s", op_name(v->op), v->name, why);
    for (uint32_t i = 0; i < op_tensor_count(call->op); i++)
        CHECK(check_tensor(v, call, i, e));
    return ST_OK;
}
