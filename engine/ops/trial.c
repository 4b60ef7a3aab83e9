/* Trials: memory with canaries, the run, and the reference beside it. */
#include "engine/ops/trial.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/ops/act.h"
#include "engine/ops/rules.h"
#include "engine/ops/trial_impl.h"

#define CANARY_BYTES 256u
#define CANARY       0xa5

/* The tensors of the reference: file layout, f32 activations, KV_PLAIN. */
static void describe_reference(struct trial *t, const union op_params *params, enum dtype dtype)
{
    struct op_call *call = &t->ref_call;
    call->op = t->v->op;
    call->params = *params;
    for (uint32_t i = 0; i < op_tensor_count(call->op); i++) {
        const enum tensor_kind kind = op_tensor_kind(call->op, i);
        struct tensor *x = &call->tensors[i];
        x->dtype = kind == KIND_I32 ? DT_I32 : DT_F32;
        if (kind == KIND_WEIGHT || kind == KIND_CACHE || kind == KIND_BYTES || kind == KIND_REAL)
            x->dtype = dtype;
        x->bytes = op_tensor_bytes(call, i) * (kind == KIND_CACHE ? TRIAL_SLOTS : 1);
    }
}

/* The same tensors as the variant wants them. */
static void describe_variant(struct trial *t, const union op_params *params)
{
    t->call = t->ref_call;
    t->call.params = *params;
    for (uint32_t i = 0; i < op_tensor_count(t->call.op); i++) {
        const enum tensor_kind kind = op_tensor_kind(t->call.op, i);
        struct tensor *x = &t->call.tensors[i];
        if (kind == KIND_WEIGHT || kind == KIND_CACHE)
            x->layout = t->v->layout;
        else if (kind == KIND_ACT)
            x->layout = t->v->act;
        x->bytes = op_tensor_bytes(&t->call, i) * (kind == KIND_CACHE ? TRIAL_SLOTS : 1);
    }
}

void trial__describe(struct trial *t, const union op_params *params, enum dtype dtype)
{
    describe_reference(t, params, dtype);
    describe_variant(t, params);
}

enum status trial__blank(struct trial *t, uint32_t i, struct err *e)
{
    const struct tensor *x = &t->call.tensors[i];
    return queue_fill(t->d, QUEUE_COMPUTE, x->buffer, x->offset - CANARY_BYTES,
                      x->bytes + 2 * CANARY_BYTES, CANARY, "trial", e);
}

/* Device memory of the tensor's bytes between canaries. */
static enum status open_guarded(struct trial *t, uint32_t i, struct err *e)
{
    struct tensor *x = &t->call.tensors[i];
    const uint64_t n = x->bytes + 2 * CANARY_BYTES;
    enum status st = ST_OK;
    x->buffer = t->place;
    x->offset = t->place_at + CANARY_BYTES;
    if (t->place && (n > buffer_bytes(t->place) || t->place_at > buffer_bytes(t->place) - n))
        return err_set(e, ST_INVALID,
                       "trial: %" PRIu64 " bytes at %" PRIu64 " pass its buffer's %" PRIu64, n,
                       t->place_at, buffer_bytes(t->place));
    if (t->place) {
        t->place_at += (n + CANARY_BYTES - 1) / CANARY_BYTES * CANARY_BYTES;
    } else {
        st = buffer_open(t->d, n, BUFFER_IO, "trial", &t->buffers[i], e);
        x->buffer = t->buffers[i];
        x->offset = CANARY_BYTES;
    }
    return st == ST_OK ? trial__blank(t, i, e) : st;
}

/* Runs `op` once from host bytes `src` into tensor `dst`: how weights and activations get into a
 * variant's format. query: what else the op's variant must be. */
static enum status convert(struct trial *t, struct op_call *call, const struct variant_query *query,
                           const void *src, uint64_t n, struct err *e)
{
    const struct variant *v = variant_choose(t->d, query);
    if (!v)
        return err_set(e, ST_UNSUPPORTED, "trial of %s %s: no %s kernel for its inputs",
                       op_name(t->v->op), t->v->name, op_name(query->op));
    struct buffer *from;
    enum status st = buffer_open(t->d, n, BUFFER_IO, "trial source", &from, e);
    if (st != ST_OK)
        return st;
    call->op = query->op;
    call->tensors[0].buffer = from;
    call->tensors[0].bytes = n;
    st = queue_write(t->d, QUEUE_COMPUTE, from, 0, src, n, "trial", e);
    if (st == ST_OK)
        st = op_call_once(t->d, v, call, e);
    if (st == ST_OK)
        st = queue_wait(t->d, QUEUE_COMPUTE, e);
    buffer_close(from);
    return st;
}

/* A weight from its file layout into the variant's; under LINEAR_SWIGLU its first half are the gate
 * rows and its second half the up rows. */
static enum status upload_weight(struct trial *t, struct err *e)
{
    const struct tensor *w = &t->call.tensors[0];
    const bool embed = t->call.op == OP_EMBED;
    const uint32_t k = op_columns(&t->call);
    const uint32_t m = embed ? t->call.params.embed.n_vocab : t->call.params.linear.m;
    const bool paired = !embed && t->call.params.linear.epilogue == LINEAR_SWIGLU;
    const uint32_t group = layout_rows((enum weight_layout)t->v->layout);
    const struct variant_query query = {.op = OP_REPACK,
                                        .dtype = (int)w->dtype,
                                        .act = -1,
                                        .layout = (int)w->layout,
                                        .m = m,
                                        .k = k};
    const uint32_t parts = paired ? 2 : 1, rows = m / parts;
    const uint64_t part_bytes = layout_bytes(w->dtype, LAYOUT_FILE, rows, k);
    enum status st = ST_OK;
    for (uint32_t part = 0; st == ST_OK && part < parts; part++) {
        struct op_call call = {.tensors = {{.dtype = w->dtype}, *w}};
        call.params.repack = (struct repack_params){.n_rows = rows,
                                                    .k = k,
                                                    .m_total = m,
                                                    .row0 = part * group,
                                                    .group = group,
                                                    .group_stride = group * parts};
        st = convert(t, &call, &query, (const char *)t->host[0] + part * part_bytes, part_bytes, e);
    }
    return st;
}

/* Activations into the variant's format; where the host can read that format, the reference gets
 * the very same numbers, so that only the op itself is compared. */
static enum status upload_act(struct trial *t, struct err *e)
{
    const struct tensor *x = &t->call.tensors[1];
    const struct linear_params *p = &t->call.params.linear;
    const struct variant_query query = {.op = OP_QUANTIZE,
                                        .dtype = -1,
                                        .act = (int)x->layout,
                                        .layout = -1,
                                        .n_tokens = p->n_tokens,
                                        .k = p->k};
    struct op_call call = {.tensors = {{.dtype = DT_F32}, *x}};
    call.params.quantize = (struct quantize_params){p->n_tokens, p->k, p->k};
    enum status st = convert(t, &call, &query, t->host[1], t->ref_call.tensors[1].bytes, e);
    if (st != ST_OK || (x->layout != ACT_Q8 && x->layout != ACT_Q8T && x->layout != ACT_F16))
        return st;
    t->ref_call.tensors[1].layout = x->layout;
    t->ref_call.tensors[1].bytes = x->bytes;
    st = queue_read(t->d, QUEUE_COMPUTE, x->buffer, x->offset, t->host[1], x->bytes, "trial", e);
    return st == ST_OK ? queue_wait(t->d, QUEUE_COMPUTE, e) : st;
}

/* K between KV_PLAIN [cell][head_dim] and KV_TILED [cell / 16][head_dim][16], elements of `size`
 * bytes; to_tiled false: back. */
static void tile_cells(const char *from, char *to, uint64_t n_cells, uint32_t head_dim, size_t size,
                       bool to_tiled)
{
    for (uint64_t c = 0; c < n_cells; c++)
        for (uint64_t i = 0; i < head_dim; i++) {
            const uint64_t plain = c * head_dim + i;
            const uint64_t tiled = (c / 16 * head_dim + i) * 16 + c % 16;
            memcpy(to + (to_tiled ? tiled : plain) * size, from + (to_tiled ? plain : tiled) * size,
                   size);
        }
}

/* Is tensor i a K cache in tiles? Then `scratch` (of its bytes) gets the other order. */
static const void *retile(const struct trial *t, uint32_t i, const void *cells, void *scratch,
                          bool to_tiled)
{
    const bool is_k =
        (t->call.op == OP_ROPE_KV && i == 3) || (t->call.op == OP_ATTENTION && i == 1);
    const struct tensor *x = &t->call.tensors[i];
    if (!is_k || x->layout != KV_TILED)
        return cells;
    const size_t size = dtype_info(x->dtype)->block_bytes;
    const uint32_t head_dim = op_columns(&t->call);
    tile_cells(cells, scratch, x->bytes / size / head_dim, head_dim, size, to_tiled);
    return scratch;
}

static enum status upload(struct trial *t, uint32_t i, struct err *e)
{
    const struct tensor *x = &t->call.tensors[i];
    enum status st = open_guarded(t, i, e);
    if (st != ST_OK || !t->host[i])
        return st;
    if (op_rules(t->call.op) && op_tensor_is_output(t->call.op, i))
        return ST_OK; /* stays as the canaries are */
    if (op_tensor_kind(t->call.op, i) == KIND_WEIGHT && x->layout != LAYOUT_FILE)
        return upload_weight(t, e);
    if (t->call.op == OP_LINEAR && i == 1 && x->layout != ACT_F32)
        return upload_act(t, e);
    if (x->layout != t->ref_call.tensors[i].layout && op_tensor_kind(t->call.op, i) == KIND_ACT)
        return ST_OK; /* an output in a format that the reference does not write */
    void *scratch = mem_alloc(x->bytes);
    if (!scratch)
        return err_set(e, ST_NO_MEMORY, "trial: no memory for %" PRIu64 " bytes", x->bytes);
    st = queue_write(t->d, QUEUE_COMPUTE, x->buffer, x->offset,
                     retile(t, i, t->host[i], scratch, true), x->bytes, "trial", e);
    if (st == ST_OK)
        st = queue_wait(t->d, QUEUE_COMPUTE, e);
    mem_free(scratch);
    return st;
}

/* Reads tensor i with its canaries, checks them, and compares it if it is an output. */
static enum status check_output(struct trial *t, uint32_t i, struct trial_result *out,
                                struct err *e)
{
    const struct tensor *x = &t->call.tensors[i];
    const uint64_t n = x->bytes + 2 * CANARY_BYTES;
    unsigned char *got = mem_alloc(n + x->bytes);
    if (!got)
        return err_set(e, ST_NO_MEMORY, "trial: no memory for %" PRIu64 " bytes", n);
    enum status st =
        queue_read(t->d, QUEUE_COMPUTE, x->buffer, x->offset - CANARY_BYTES, got, n, "trial", e);
    if (st == ST_OK)
        st = queue_wait(t->d, QUEUE_COMPUTE, e);
    for (uint64_t at = 0; st == ST_OK && out->passed && at < CANARY_BYTES; at++) {
        if (got[at] == CANARY && got[n - 1 - at] == CANARY)
            continue;
        out->passed = false;
        snprintf(out->reason, sizeof out->reason, "%s: wrote outside of its %" PRIu64 " bytes",
                 op_tensor_name(t->call.op, i), x->bytes);
    }
    if (st == ST_OK && op_tensor_is_output(t->call.op, i))
        st = trial_compare(t, i, retile(t, i, got + CANARY_BYTES, got + n, false), out, e);
    mem_free(got);
    return st;
}

/* The reference of a linear with LINEAR_SWIGLU: all rows stored, then the gated activation. The
 * variant's bias lies in the order of its rows, groups of gate and up in turn; here gate comes
 * first. */
static enum status run_swiglu_reference(struct trial *t, struct err *e)
{
    const struct linear_params *p = &t->call.params.linear;
    float *rows = mem_array((size_t)(p->n_tokens + 1) * p->m, sizeof *rows);
    if (!rows)
        return err_set(e, ST_NO_MEMORY, "trial: no memory for %u x %u rows", p->n_tokens, p->m);
    /* bias comes in the layout's order of rows */
    const float *bias = t->host[2];
    float *apart = rows + (size_t)p->n_tokens * p->m;
    const uint32_t group = layout_rows((enum weight_layout)t->v->layout);
    for (uint32_t r = 0; p->has_bias && r < p->m; r++) {
        const uint32_t half = r / group % 2, i = r / group / 2 * group + r % group;
        apart[half * (p->m / 2) + i] = bias[r];
    }
    struct op_call linear = t->ref_call, swiglu = {.op = OP_SWIGLU};
    linear.params.linear.epilogue = LINEAR_STORE;
    linear.params.linear.y_stride = p->m;
    void *linear_data[] = {t->host[0], t->host[1], apart, rows};
    swiglu.params.swiglu = (struct swiglu_params){p->n_tokens, p->m / 2, p->m, 0};
    void *swiglu_data[] = {rows, t->host[3]};
    enum status st = variant_reference(OP_LINEAR)->ref(&linear, linear_data, e);
    if (st == ST_OK)
        st = variant_reference(OP_SWIGLU)->ref(&swiglu, swiglu_data, e);
    mem_free(rows);
    return st;
}

enum status trial__reference(struct trial *t, struct err *e)
{
    if (t->call.op == OP_LINEAR && t->call.params.linear.epilogue == LINEAR_SWIGLU)
        return run_swiglu_reference(t, e);
    return variant_reference(t->call.op)->ref(&t->ref_call, t->host, e);
}

enum status trial__host(struct trial *t, struct err *e)
{
    const uint32_t n = op_tensor_count(t->call.op);
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < n; i++) {
        /* at least what the variant's own format takes, so that it can be read back into it */
        const uint64_t bytes = t->ref_call.tensors[i].bytes, other = t->call.tensors[i].bytes;
        if (bytes > 0 && !(t->host[i] = mem_zalloc(bytes > other ? bytes : other)))
            st = err_set(e, ST_NO_MEMORY, "trial: no memory for %" PRIu64 " bytes", bytes);
    }
    return st;
}

enum status trial__upload(struct trial *t, struct err *e)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < op_tensor_count(t->call.op); i++)
        if (t->call.tensors[i].bytes > 0)
            st = upload(t, i, e);
    return st;
}

enum status trial__check(struct trial *t, struct trial_result *out, struct err *e)
{
    *out = (struct trial_result){.passed = true, .bound = 1};
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < op_tensor_count(t->call.op); i++)
        if (t->call.tensors[i].bytes > 0)
            st = check_output(t, i, out, e);
    return st;
}

void trial__close_buffers(struct trial *t)
{
    for (uint32_t i = 0; i < OP_MAX_TENSORS; i++) {
        buffer_close(t->buffers[i]);
        t->buffers[i] = NULL;
    }
}

void trial__close(struct trial *t)
{
    trial__close_buffers(t);
    for (uint32_t i = 0; i < OP_MAX_TENSORS; i++) {
        mem_free(t->host[i]);
        t->host[i] = NULL;
    }
}

/* A repack kernel is right when an op that reads its layout gets right results. */
static enum status run_repack(struct device *d, const struct variant *v,
                              const struct repack_params *p, uint64_t seed, struct buffer *place,
                              uint64_t first, struct trial_result *out, struct err *e)
{
    union op_params params = {
        .linear = {.m = p->m_total, .k = p->k, .n_tokens = 1, .y_stride = p->m_total}};
    struct variant_query query = {.op = OP_LINEAR,
                                  .dtype = v->dtype,
                                  .act = -1,
                                  .layout = (int)v->layout,
                                  .n_tokens = 1,
                                  .m = p->m_total,
                                  .k = p->k};
    const struct variant *reader = variant_choose(d, &query);
    if (!reader)
        return err_set(e, ST_UNSUPPORTED, "trial of repack %s: nothing reads its layout", v->name);
    return trial_run_in(d, reader, &params, (enum dtype)v->dtype, seed, place, first, out, e);
}

/* More than once where a launch begins with what the one before left in private memory. */
static enum status run_call(struct trial *t, struct err *e)
{
    struct op_step *step;
    enum status st = op_bind(t->d, t->v, &t->call, &step, e);
    for (uint32_t i = 0; st == ST_OK && i < (t->v->k_splits > 1 ? 3 : 1); i++)
        st = op_run(step, e);
    op_step_close(step);
    return st;
}

enum status trial_run(struct device *d, const struct variant *v, const union op_params *params,
                      enum dtype dtype, uint64_t seed, struct trial_result *out, struct err *e)
{
    return trial_run_in(d, v, params, dtype, seed, NULL, 0, out, e);
}

enum status trial_run_in(struct device *d, const struct variant *v, const union op_params *params,
                         enum dtype dtype, uint64_t seed, struct buffer *place, uint64_t first,
                         struct trial_result *out, struct err *e)
{
    *out = (struct trial_result){.passed = true, .bound = 1};
    if (v->op == OP_REPACK)
        return run_repack(d, v, &params->repack, seed, place, first, out, e);
    struct trial *t = mem_zalloc(sizeof *t);
    if (!t)
        return err_set(e, ST_NO_MEMORY, "trial: no memory");
    t->d = d;
    t->v = v;
    t->seed = seed;
    t->place = place;
    t->place_at = first;
    trial__describe(t, params, dtype);
    enum status st = trial__host(t, e);
    if (st == ST_OK)
        st = trial_fill(t, e);
    if (st == ST_OK)
        st = trial__upload(t, e);
    if (st == ST_OK)
        st = run_call(t, e);
    if (st == ST_OK)
        st = trial__reference(t, e);
    if (st == ST_OK)
        st = trial__check(t, out, e);
    trial__close(t);
    mem_free(t);
    return st;
}
