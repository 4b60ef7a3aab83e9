/* From the fields of each operator to the engine's op: params, dtype, what is read and what comes
 * out. One function an operator; the engine checks the limits again. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "server/ops/request.h"

#define SPARSE_MAX_ELEMENTS ((uint64_t)1 << 28) /* of a generated matrix: each is looked at */

static void add_input(struct op_request *r, const char *name, uint32_t tensor, bool is_int,
                      uint32_t n_dims, const uint64_t *dims)
{
    struct op_array *x = &r->inputs[r->n_inputs++];
    *x = (struct op_array){.name = name, .tensor = tensor, .is_int = is_int, .n_dims = n_dims};
    memcpy(x->dims, dims, n_dims * sizeof *dims);
}

#define DIMS(...)                                                                      \
    (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / sizeof(uint64_t)), (const uint64_t[]) \
    {                                                                                  \
        __VA_ARGS__                                                                    \
    }
#define INPUT(name, tensor, ...)     add_input(r, name, tensor, false, DIMS(__VA_ARGS__))
#define INT_INPUT(name, tensor, ...) add_input(r, name, tensor, true, DIMS(__VA_ARGS__))

uint64_t op_array_count(const struct op_array *x)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < x->n_dims; i++)
        n *= x->dims[i];
    return n;
}

/* A contiguous output; ops with another layout change width, stride and offset. */
static void set_output(struct op_request *r, const char *name, uint32_t tensor, enum dtype dtype,
                       uint32_t n_dims, const uint64_t *dims)
{
    r->output = (struct op_output){
        .array = {.name = name, .tensor = tensor, .is_int = dtype == DT_I32, .n_dims = n_dims},
        .dtype = dtype};
    memcpy(r->output.array.dims, dims, n_dims * sizeof *dims);
    r->output.width = r->output.stride = op_array_count(&r->output.array);
}
#define OUTPUT(name, tensor, dtype, ...) set_output(r, name, tensor, dtype, DIMS(__VA_ARGS__))

static enum dtype real_dtype(int choice) /* "f32|f16", "f32|f16|bf16" */
{
    return choice == 0 ? DT_F32 : choice == 1 ? DT_F16 : DT_BF16;
}

static enum status shape_matmul(struct op_request *r, struct fault *f)
{
    (void)f;
    const struct op_fields *q = &r->fields;
    const uint32_t m = (uint32_t)q->matmul_m, n = (uint32_t)q->matmul_n, k = (uint32_t)q->matmul_k;
    const uint32_t batch = (uint32_t)q->matmul_batch;
    r->bench.op = OP_MATMUL;
    r->bench.dtype = real_dtype(q->matmul_dtype);
    r->bench.params.matmul = (struct matmul_params){.m = m,
                                                    .n = n,
                                                    .k = k,
                                                    .batch = batch,
                                                    .trans_a = q->matmul_trans_a,
                                                    .trans_b = q->matmul_trans_b,
                                                    .alpha = (float)q->matmul_alpha,
                                                    .beta = (float)q->matmul_beta};
    INPUT("a", 0, batch, q->matmul_trans_a ? k : m, q->matmul_trans_a ? m : k);
    INPUT("b", 1, batch, q->matmul_trans_b ? n : k, q->matmul_trans_b ? k : n);
    if (r->bench.params.matmul.beta < 0 || r->bench.params.matmul.beta > 0)
        INPUT("c", 2, batch, m, n);
    OUTPUT("c", 3, r->bench.dtype, batch, m, n);
    return ST_OK;
}

/* Length of the output along one axis; 0: the filter reaches over the padded input. */
static uint64_t conv_length(int64_t in, int64_t pad, int64_t dilation, int64_t kernel,
                            int64_t stride)
{
    const int64_t padded = in + 2 * pad, reach = dilation * (kernel - 1) + 1;
    return padded < reach ? 0 : (uint64_t)((padded - reach) / stride + 1);
}

static enum status shape_conv2d(struct op_request *r, struct fault *f)
{
    const struct op_fields *q = &r->fields;
    const uint64_t ho = conv_length(q->conv2d_h, q->conv2d_pad.h, q->conv2d_dilation.h,
                                    q->conv2d_kh, q->conv2d_stride.h);
    const uint64_t wo = conv_length(q->conv2d_w, q->conv2d_pad.w, q->conv2d_dilation.w,
                                    q->conv2d_kw, q->conv2d_stride.w);
    if (ho == 0 || wo == 0)
        return fault_set(f, FAULT_BAD_REQUEST, ho == 0 ? "kh" : "kw",
                         "%s is %" PRId64 ", which dilated reaches over the padded input",
                         ho == 0 ? "kh" : "kw", ho == 0 ? q->conv2d_kh : q->conv2d_kw);
    if (q->conv2d_c % q->conv2d_groups != 0 || q->conv2d_o % q->conv2d_groups != 0)
        return fault_set(f, FAULT_BAD_REQUEST, "groups",
                         "groups is %" PRId64 ", which does not divide c (%" PRId64
                         ") and o (%" PRId64 ")",
                         q->conv2d_groups, q->conv2d_c, q->conv2d_o);
    struct conv2d_params *p = &r->bench.params.conv2d;
    *p = (struct conv2d_params){.n = (uint32_t)q->conv2d_n,
                                .c = (uint32_t)q->conv2d_c,
                                .h = (uint32_t)q->conv2d_h,
                                .w = (uint32_t)q->conv2d_w,
                                .o = (uint32_t)q->conv2d_o,
                                .kh = (uint32_t)q->conv2d_kh,
                                .kw = (uint32_t)q->conv2d_kw,
                                .stride_h = (uint32_t)q->conv2d_stride.h,
                                .stride_w = (uint32_t)q->conv2d_stride.w,
                                .pad_h = (uint32_t)q->conv2d_pad.h,
                                .pad_w = (uint32_t)q->conv2d_pad.w,
                                .dil_h = (uint32_t)q->conv2d_dilation.h,
                                .dil_w = (uint32_t)q->conv2d_dilation.w,
                                .groups = (uint32_t)q->conv2d_groups,
                                .has_bias = q->conv2d_bias,
                                .act = (uint32_t)q->conv2d_activation,
                                .layout = (uint32_t)q->conv2d_layout,
                                .ho = (uint32_t)ho,
                                .wo = (uint32_t)wo};
    r->bench.op = OP_CONV2D;
    r->bench.dtype = real_dtype(q->conv2d_dtype);
    const uint32_t per_group = p->c / p->groups;
    if (p->layout == CONV_NCHW)
        INPUT("x", 0, p->n, p->c, p->h, p->w);
    else
        INPUT("x", 0, p->n, p->h, p->w, p->c);
    INPUT("w", 1, p->o, per_group, p->kh, p->kw);
    if (p->has_bias)
        INPUT("b", 2, p->o);
    if (p->layout == CONV_NCHW)
        OUTPUT("y", 3, r->bench.dtype, p->n, p->o, p->ho, p->wo);
    else
        OUTPUT("y", 3, r->bench.dtype, p->n, p->ho, p->wo, p->o);
    return ST_OK;
}

static enum status shape_softmax(struct op_request *r, struct fault *f)
{
    (void)f;
    const struct op_fields *q = &r->fields;
    const uint32_t rows = (uint32_t)q->softmax_rows, len = (uint32_t)q->softmax_len;
    r->bench.op = OP_SOFTMAX;
    r->bench.dtype = real_dtype(q->softmax_dtype);
    r->bench.params.softmax = (struct softmax_params){.rows = rows,
                                                      .len = len,
                                                      .log = q->softmax_log,
                                                      .has_mask = q->softmax_mask,
                                                      .scale = (float)q->softmax_scale};
    INPUT("x", 0, rows, len);
    if (q->softmax_mask)
        INPUT("mask", 1, rows, len);
    OUTPUT("y", 2, r->bench.dtype, rows, len);
    return ST_OK;
}

static enum status shape_argmax(struct op_request *r, struct fault *f)
{
    (void)f;
    const struct op_fields *q = &r->fields;
    const uint32_t rows = (uint32_t)q->argmax_rows, len = (uint32_t)q->argmax_len;
    const uint32_t k = (uint32_t)q->argmax_top_k;
    r->bench.dtype = DT_F32;
    if (k == 1) {
        r->bench.op = OP_ARGMAX;
        r->bench.params.argmax = (struct argmax_params){rows, len, len};
    } else {
        r->bench.op = OP_TOP_K;
        r->bench.params.top_k = (struct top_k_params){rows, len, k};
    }
    INPUT("x", 0, rows, len);
    OUTPUT("index", 1, DT_I32, rows, k);
    return ST_OK;
}

static enum status shape_gemv(struct op_request *r, struct fault *f)
{
    static const enum dtype dtypes[] = {DT_F32,  DT_F16,  DT_BF16, DT_Q4_0, DT_Q4_1, DT_Q5_0,
                                        DT_Q5_1, DT_Q8_0, DT_Q4_K, DT_Q5_K, DT_Q6_K};
    const struct op_fields *q = &r->fields;
    const uint32_t m = (uint32_t)q->gemv_m, k = (uint32_t)q->gemv_k;
    const enum dtype dtype = dtypes[q->gemv_wtype]; /* in the order of fields.def */
    const struct dtype_info *info = dtype_info(dtype);
    if (k % info->block != 0)
        return fault_set(f, FAULT_BAD_REQUEST, "k",
                         "k is %u, expected a multiple of %u, the block of %s", k, info->block,
                         info->name);
    r->bench.op = OP_LINEAR;
    r->bench.dtype = dtype;
    r->bench.params.linear = (struct linear_params){.m = m, .k = k, .n_tokens = 1, .y_stride = m};
    INPUT("w", 0, m, k);
    INPUT("x", 1, k);
    OUTPUT("y", 3, DT_F32, m);
    return ST_OK;
}

static enum status shape_attention(struct op_request *r, struct fault *f)
{
    static const enum dtype dtypes[] = {DT_F16, DT_F32, DT_Q8_0};
    const struct op_fields *q = &r->fields;
    struct attention_params *p = &r->bench.params.attention;
    const int64_t n_head_kv =
        q->attention_n_head_kv > 0 ? q->attention_n_head_kv : q->attention_n_head;
    const enum dtype dtype = dtypes[q->attention_kv_dtype]; /* in the order of fields.def */
    const uint64_t width = (uint64_t)q->attention_n_head * (uint64_t)q->attention_head_dim;
    if (q->attention_n_head % n_head_kv != 0)
        return fault_set(f, FAULT_BAD_REQUEST, "n_head_kv",
                         "n_head_kv is %" PRId64 ", which does not divide n_head, %" PRId64,
                         n_head_kv, q->attention_n_head);
    if (q->attention_causal && q->attention_n_q > q->attention_n_kv)
        return fault_set(f, FAULT_BAD_REQUEST, "n_q",
                         "n_q is %" PRId64 ", over n_kv, %" PRId64
                         ": causal queries are the last ones of the keys",
                         q->attention_n_q, q->attention_n_kv);
    if (q->attention_window > 0 && !q->attention_causal)
        return fault_set(f, FAULT_BAD_REQUEST, "window", "window is %" PRId64 ", needs causal",
                         q->attention_window);
    if ((uint64_t)q->attention_head_dim % dtype_info(dtype)->block != 0)
        return fault_set(f, FAULT_BAD_REQUEST, "head_dim",
                         "head_dim is %" PRId64 ", expected a multiple of %u, the block of %s",
                         q->attention_head_dim, dtype_info(dtype)->block, dtype_name(dtype));
    if (width > OPS_MAX_DIM)
        return fault_set(f, FAULT_BAD_REQUEST, "n_head",
                         "n_head x head_dim is %" PRIu64 ", expected at most %u", width,
                         OPS_MAX_DIM);
    *p = (struct attention_params){.n_tokens = (uint32_t)q->attention_n_q,
                                   .q_stride = (uint32_t)width,
                                   .n_head = (uint32_t)q->attention_n_head,
                                   .n_head_kv = (uint32_t)n_head_kv,
                                   .head_dim = (uint32_t)q->attention_head_dim,
                                   .n_ctx = ((uint32_t)q->attention_n_kv + 15u) / 16u * 16u,
                                   .window = (uint32_t)q->attention_window,
                                   .kv_max = (uint32_t)q->attention_n_kv,
                                   .n_splits = 0,
                                   .scale = 1 / sqrtf((float)q->attention_head_dim),
                                   .softcap = (float)q->attention_softcap};
    r->bench.op = OP_ATTENTION;
    r->bench.dtype = dtype;
    r->bench.data.see_all = !q->attention_causal;
    INPUT("q", 0, p->n_tokens, p->n_head, p->head_dim);
    INPUT("k", 1, p->kv_max, p->n_head_kv, p->head_dim);
    INPUT("v", 2, p->kv_max, p->n_head_kv, p->head_dim);
    OUTPUT("o", 5, DT_F32, p->n_tokens, p->n_head, p->head_dim);
    r->output.last = true;
    return ST_OK;
}

/* nnz of CSR: as many as are given (dimension 0 until they are read), else 0: what the engine
 * generates. */
static enum status shape_sparse_gemv(struct op_request *r, struct fault *f)
{
    const struct op_fields *q = &r->fields;
    struct sparse_gemv_params *p = &r->bench.params.sparse_gemv;
    const uint64_t m = (uint64_t)q->sparse_gemv_m, k = (uint64_t)q->sparse_gemv_k;
    *p = (struct sparse_gemv_params){
        .m = (uint32_t)m, .k = (uint32_t)k, .format = (uint32_t)q->sparse_gemv_format};
    r->bench.op = OP_SPARSE_GEMV;
    r->bench.dtype = DT_F32;
    r->bench.data.density = q->sparse_gemv_density;
    if (m * k > SPARSE_MAX_ELEMENTS)
        return fault_set(f, FAULT_BAD_REQUEST, "m",
                         "m x k is %" PRIu64 ", expected at most %" PRIu64, m * k,
                         SPARSE_MAX_ELEMENTS);
    if (p->format == SPARSE_2_4 && k % 4 != 0)
        return fault_set(f, FAULT_BAD_REQUEST, "k", "k is %" PRIu64 ", expected a multiple of 4",
                         k);
    if (p->format == SPARSE_2_4) {
        INPUT("values", 0, m, k / 2);
        INT_INPUT("col_indices", 1, m, (k + 31) / 32);
    } else {
        INPUT("values", 0, 0);
        INT_INPUT("col_indices", 1, 0);
        INT_INPUT("row_ptr", 2, m + 1);
    }
    INPUT("x", 3, k);
    OUTPUT("y", 4, DT_F32, m);
    return ST_OK;
}

static enum status shape_norm(struct op_request *r, struct fault *f)
{
    (void)f;
    const struct op_fields *q = &r->fields;
    const uint32_t rows = (uint32_t)q->norm_rows, len = (uint32_t)q->norm_len;
    r->bench.op = OP_NORM;
    r->bench.dtype = DT_F32;
    r->bench.f32_output = true;
    r->bench.params.norm = (struct norm_params){.n_rows = rows,
                                                .len = len,
                                                .x_stride = len,
                                                .kind = (uint32_t)q->norm_kind,
                                                .has_bias = q->norm_kind == 1,
                                                .eps = (float)q->norm_eps};
    INPUT("x", 0, rows, len);
    INPUT("weight", 1, len);
    if (q->norm_kind == 1)
        INPUT("bias", 2, len);
    OUTPUT("y", 3, DT_F32, rows, len);
    return ST_OK;
}

/* The engine's op rotates queries in place in rows of queries, keys and values, and stores the
 * latter two in a cache: here one head of each, which nobody sees. */
static enum status shape_rope(struct op_request *r, struct fault *f)
{
    const struct op_fields *q = &r->fields;
    const struct op_list *positions = &q->rope_positions;
    const uint64_t width = (uint64_t)q->rope_n_head * (uint64_t)q->rope_head_dim;
    const uint32_t n_tokens = (uint32_t)q->rope_n_tokens, head_dim = (uint32_t)q->rope_head_dim;
    uint32_t n_ctx = n_tokens;
    if (head_dim % 2 != 0)
        return fault_set(f, FAULT_BAD_REQUEST, "head_dim",
                         "head_dim is %u, expected an even number", head_dim);
    if (width > OPS_MAX_DIM / 2)
        return fault_set(f, FAULT_BAD_REQUEST, "n_head",
                         "n_head x head_dim is %" PRIu64 ", expected at most %u", width,
                         OPS_MAX_DIM / 2);
    if (positions->present && positions->count != n_tokens)
        return fault_set(f, FAULT_BAD_REQUEST, "positions",
                         "positions has %" PRIu32 " items, expected %u, one a token",
                         positions->count, n_tokens);
    for (uint32_t i = 1; i < positions->count; i++)
        if (positions->items[i] <= positions->items[i - 1])
            return fault_set(f, FAULT_BAD_REQUEST, "positions",
                             "positions: item %" PRIu32 " is %d, expected more than %d, the one "
                             "before it",
                             i, (int)positions->items[i], (int)positions->items[i - 1]);
    if (positions->present)
        n_ctx = (uint32_t)positions->items[n_tokens - 1] + 1;
    n_ctx = (n_ctx + 15u) / 16u * 16u;
    r->bench.op = OP_ROPE_KV;
    r->bench.dtype = DT_F32;
    r->bench.data.rope_base = q->rope_base;
    r->bench.data.positions = positions->items;
    if (!positions->present) {
        int32_t *items =
            arena_array(r->arena, n_tokens <= OPS_MAX_POSITIONS ? n_tokens : 1, sizeof *items);
        if (n_tokens > OPS_MAX_POSITIONS)
            return fault_set(f, FAULT_BAD_REQUEST, "n_tokens",
                             "n_tokens is %u, expected at most %d", n_tokens, OPS_MAX_POSITIONS);
        if (items == NULL)
            return fault_set(f, FAULT_MEMORY, NULL, "out of memory while reading the request");
        for (uint32_t i = 0; i < n_tokens; i++)
            items[i] = (int32_t)i;
        r->bench.data.positions = items;
    }
    r->bench.params.rope_kv = (struct rope_kv_params){.n_tokens = n_tokens,
                                                      .stride = (uint32_t)width + 2 * head_dim,
                                                      .k_col = (uint32_t)width,
                                                      .v_col = (uint32_t)width + head_dim,
                                                      .n_head = (uint32_t)q->rope_n_head,
                                                      .n_head_kv = 1,
                                                      .head_dim = head_dim,
                                                      .n_rot = head_dim,
                                                      .mode = (uint32_t)q->rope_mode,
                                                      .n_ctx = n_ctx,
                                                      .rotate = 1};
    INPUT("x", 0, n_tokens, (uint64_t)q->rope_n_head, head_dim);
    OUTPUT("y", 0, DT_F32, n_tokens, (uint64_t)q->rope_n_head, head_dim);
    r->output.width = width;
    r->output.stride = width + 2 * head_dim;
    return ST_OK;
}

static enum status shape_elementwise(struct op_request *r, struct fault *f)
{
    (void)f;
    const struct op_fields *q = &r->fields;
    const uint32_t n = (uint32_t)q->elementwise_n, fn = (uint32_t)q->elementwise_fn;
    r->bench.op = OP_ELEMENTWISE;
    r->bench.dtype = real_dtype(q->elementwise_dtype);
    r->bench.params.elementwise =
        (struct elementwise_params){.n = n, .fn = fn, .factor = (float)q->elementwise_factor};
    INPUT("x", 0, n);
    if (fn == ELEMENTWISE_ADD || fn == ELEMENTWISE_MUL || fn == ELEMENTWISE_SWIGLU)
        INPUT("y", 1, n);
    OUTPUT("z", 2, r->bench.dtype, n);
    return ST_OK;
}

enum status op__shape(struct op_request *r, struct fault *f)
{
    static enum status (*const shapes[API_COUNT])(struct op_request * r, struct fault * f) = {
#define OP(id, name) [id] = shape_##name,
#define FIELD(...)
#include "server/ops/fields.def"
#undef FIELD
#undef OP
    };
    return shapes[r->op](r, f);
}

const char *op__dims_text(uint32_t n_dims, const uint64_t *dims, char *text, size_t n)
{
    size_t used = (size_t)snprintf(text, n, "[");
    for (uint32_t i = 0; i < n_dims && used < n; i++)
        used += (size_t)snprintf(text + used, n - used, "%s%" PRIu64, i > 0 ? ", " : "", dims[i]);
    if (used < n)
        snprintf(text + used, n - used, "]");
    return text;
}

const char *op__shape_text(const struct op_array *x, char *text, size_t n)
{
    return op__dims_text(x->n_dims, x->dims, text, n);
}
