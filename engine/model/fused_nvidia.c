/* The one-launch executor for NVIDIA GPUs: the decode plan as one persistent kernel.
 *
 * open reads the plan's steps into a table of places (kernels/nvidia/decode.h) and builds
 * kernels/nvidia/decode.cl for the model's shape; run launches it for up to STEP_MAX_GREEDY tokens.
 * What the kernel cannot do (biases, other layouts, caches other than half, more than one sequence)
 * is ST_UNSUPPORTED at open, and the plan goes on stepwise. The kernel needs all its groups
 * resident: there are never more of them than compute units, and spins are capped (ST_TIMEOUT).
 * Belongs to the device's thread; the plan, its weights and its cache outlive it.
 */
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/fused.h"
#include "kernels/nvidia/decode.h"

#define MAX_THREADS   384
#define MIN_THREADS   256
#define MAX_GROUPS    512
#define CONTROL_WORDS (DECODE_BEST + 2 * MAX_GROUPS)
#define NO_TYPE       255 /* TYPE_B and TYPE_C of kernels/nvidia/decode.cl when unused */

/* The same numbers as the table's, and the sizes that the kernel is built for. */
struct shape {
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_rot, n_ctx, n_vocab;
    uint32_t n_types, types[DECODE_TYPES];
    uint32_t max_k, max_units;
    enum dtype embed_type;
};

struct fused_plan {
    struct device *device;
    struct kernel *kernel;
    struct buffer *table, *work, *control;
    struct shape shape;
    struct decode_params params; /* of the next launch; arrivals go on from launch to launch */
    bool unsure; /* a launch failed: arrivals on the device may not be those of params */
    uint32_t n_groups, threads;
    uint64_t token_bytes; /* weights read for one token */
};

/* What reading the plan fills in. */
struct reader {
    struct shape *shape;
    struct decode_params *params;
    struct decode_head *head;
    struct decode_layer *layers;
    struct buffer *weights[DECODE_ARENAS], *cells[DECODE_ARENAS];
    struct tensor rope;
    uint64_t token_bytes;
    bool has_embed, has_rope, has_argmax;
    struct err *e;
};

static enum status refuse(struct err *e, const char *why)
{
    return err_set(e, ST_UNSUPPORTED, "one-launch decoding: %s", why);
}

/* ---- reading the plan ---- */

/* The place of a tensor; its buffer becomes one of the arenas. */
static enum status place_of(struct buffer **arenas, const struct tensor *t, decode_place *out,
                            struct err *e)
{
    for (uint32_t i = 0; i < DECODE_ARENAS; i++) {
        if (!arenas[i])
            arenas[i] = t->buffer;
        if (arenas[i] == t->buffer) {
            *out = (uint64_t)i << 56 | t->offset;
            return ST_OK;
        }
    }
    return refuse(e, "the weights or cells lie in too many buffers");
}

static enum status note_type(struct shape *s, enum dtype type, struct err *e)
{
    for (uint32_t i = 0; i < s->n_types; i++)
        if (s->types[i] == (uint32_t)type)
            return ST_OK;
    if (s->n_types == DECODE_TYPES)
        return refuse(e, "too many different weight dtypes");
    s->types[s->n_types++] = (uint32_t)type;
    return ST_OK;
}

static uint32_t chunks_of(uint32_t k)
{
    return (k / 32 + 31) / 32;
}

/* The next free part of a role: q | k | v may come as up to three steps, others as one. */
static struct decode_part *part_of(struct reader *r, const struct plan_step *s)
{
    struct decode_layer *layer = s->layer >= 0 ? &r->layers[s->layer] : NULL;
    if (!layer)
        return strcmp(s->role, "head") == 0 && r->head->head.row_groups == 0 ? &r->head->head
                                                                             : NULL;
    struct decode_part *only = strcmp(s->role, "o") == 0         ? &layer->o
                               : strcmp(s->role, "gate_up") == 0 ? &layer->gate_up
                               : strcmp(s->role, "down") == 0    ? &layer->down
                                                                 : NULL;
    if (only)
        return only->row_groups == 0 ? only : NULL;
    if (strcmp(s->role, "qkv") != 0)
        return NULL;
    for (uint32_t i = 0; i < DECODE_QKV_PARTS; i++)
        if (layer->qkv[i].row_groups == 0)
            return &layer->qkv[i];
    return NULL;
}

static enum status read_linear(struct reader *r, const struct plan_step *s)
{
    const struct linear_params *p = &s->call.params.linear;
    const struct tensor *w = &s->call.tensors[0];
    struct decode_part *part = part_of(r, s);
    const bool head = s->layer < 0;
    if (!part)
        return refuse(r->e, "a linear step it does not know");
    if (w->layout != LAYOUT_R4)
        return refuse(r->e, "a weight is not in LAYOUT_R4");
    if (p->has_bias)
        return refuse(r->e, "a linear has a bias");
    if ((strcmp(s->role, "gate_up") == 0) != (p->epilogue == LINEAR_SWIGLU))
        return refuse(r->e, "gate and up are not interleaved");
    if ((!head && p->m % 4 != 0) || (p->epilogue == LINEAR_SWIGLU && p->m % 8 != 0))
        return refuse(r->e, "rows do not divide into row groups");
    if (p->k > r->shape->max_k)
        r->shape->max_k = p->k;
    part->type = (uint32_t)w->dtype;
    part->row_groups = (p->m + 3) / 4;
    r->token_bytes += w->bytes;
    enum status status = note_type(r->shape, w->dtype, r->e);
    return status == ST_OK ? place_of(r->weights, w, &part->at, r->e) : status;
}

static enum status read_norm(struct reader *r, const struct plan_step *s)
{
    const struct norm_params *p = &s->call.params.norm;
    if (p->kind != 0 || p->has_bias)
        return refuse(r->e, "a norm is not a plain RMS norm");
    r->params->eps = p->eps;
    decode_place *place = s->layer < 0                        ? &r->head->output_norm
                          : strcmp(s->role, "attn_norm") == 0 ? &r->layers[s->layer].attn_norm
                                                              : &r->layers[s->layer].ffn_norm;
    return place_of(r->weights, &s->call.tensors[1], place, r->e);
}

static enum status read_embed(struct reader *r, const struct plan_step *s)
{
    if (r->has_embed)
        return refuse(r->e, "the embedding lies in several buffers");
    r->has_embed = true;
    r->params->embed_scale = s->call.params.embed.scale;
    r->shape->embed_type = s->call.tensors[0].dtype;
    r->shape->n_vocab = s->call.params.embed.n_vocab;
    r->shape->n_embd = s->call.params.embed.k;
    return place_of(r->weights, &s->call.tensors[0], &r->head->embed, r->e);
}

static enum status read_rope_kv(struct reader *r, const struct plan_step *s)
{
    const struct rope_kv_params *p = &s->call.params.rope_kv;
    struct shape *shape = r->shape;
    if (p->mode != 0 || !p->rotate || p->n_rot % 2 != 0)
        return refuse(r->e, "its rotation is not of neighbouring pairs");
    if (s->call.tensors[3].dtype != DT_F16 || s->call.tensors[3].layout != KV_PLAIN)
        return refuse(r->e, "the cache is not plain f16");
    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return refuse(r->e, "the head size is none of 64, 128 and 256");
    r->has_rope = true;
    r->rope = s->call.tensors[1];
    shape->n_head = p->n_head;
    shape->n_head_kv = p->n_head_kv;
    shape->head_dim = p->head_dim;
    shape->n_rot = p->n_rot;
    shape->n_ctx = p->n_ctx;
    enum status status = place_of(r->cells, &s->call.tensors[3], &r->layers[s->layer].k, r->e);
    return status == ST_OK ? place_of(r->cells, &s->call.tensors[4], &r->layers[s->layer].v, r->e)
                           : status;
}

static enum status read_attention(struct reader *r, const struct plan_step *s)
{
    const struct attention_params *p = &s->call.params.attention;
    if (p->softcap > 0.0f)
        return refuse(r->e, "attention scores are capped");
    if (s->layer > 0 && p->window != r->params->window)
        return refuse(r->e, "layers have different windows");
    r->params->window = p->window;
    r->params->scale = p->scale;
    return ST_OK;
}

static enum status read_step(struct reader *r, const struct plan_step *s)
{
    if (s->layer >= (int32_t)r->shape->n_layer)
        return refuse(r->e, "more layers than the model has");
    const enum op_id op = s->call.op;
    if (op == OP_EMBED)
        return read_embed(r, s);
    if (op == OP_NORM)
        return read_norm(r, s);
    if (op == OP_LINEAR)
        return read_linear(r, s);
    if (op == OP_ROPE_KV)
        return read_rope_kv(r, s);
    if (op == OP_ATTENTION)
        return read_attention(r, s);
    r->has_argmax = r->has_argmax || op == OP_ARGMAX;
    return op == OP_QUANTIZE || op == OP_ARGMAX ? ST_OK : refuse(r->e, "an op it does not know");
}

/* Are all parts there, with the sizes that the kernel derives from the shape? */
static enum status check_table(struct reader *r)
{
    struct shape *s = r->shape;
    if (!r->has_embed || !r->has_rope || !r->has_argmax || s->n_vocab == 0 ||
        r->head->head.row_groups != (s->n_vocab + 3) / 4)
        return refuse(r->e, "the plan is not the one it expects");
    const uint32_t q_rows = s->n_head * s->head_dim, kv_rows = s->n_head_kv * s->head_dim;
    s->n_ff = r->layers[0].gate_up.row_groups * 2;
    for (uint32_t l = 0; l < s->n_layer; l++) {
        const struct decode_layer *layer = &r->layers[l];
        uint32_t qkv = 0;
        for (uint32_t i = 0; i < DECODE_QKV_PARTS; i++)
            qkv += layer->qkv[i].row_groups;
        if (qkv != (q_rows + 2 * kv_rows) / 4 || layer->o.row_groups != s->n_embd / 4 ||
            layer->down.row_groups != s->n_embd / 4 || layer->gate_up.row_groups != s->n_ff / 2)
            return refuse(r->e, "a layer has other sizes than the first");
    }
    return ST_OK;
}

/* ---- building ---- */

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Units of one group in its largest phase. */
static uint32_t largest_share(const struct shape *s, uint32_t n_groups)
{
    const uint32_t q_rows = s->n_head * s->head_dim, kv_rows = s->n_head_kv * s->head_dim;
    const uint32_t chunks = chunks_of(s->n_embd);
    uint32_t units = ((q_rows + 2 * kv_rows) / 4 / n_groups + 1) * chunks;
    units =
        most(units, (s->n_embd / 4 / n_groups + 1) * most(chunks_of(q_rows), chunks_of(s->n_ff)));
    units = most(units, (s->n_ff / 4 / n_groups + 1) * 2 * chunks);
    return most(units, ((s->n_vocab + 3) / 4 / n_groups + 1) * chunks);
}

/* Byte offsets in the work buffer. */
struct work_layout {
    uint64_t x, numbers, q, att, parts, h, bytes; /* numbers, att and h are of 2 bytes each */
};

static struct work_layout lay_out_work(const struct shape *s, uint32_t n_groups)
{
    const uint64_t q_rows = (uint64_t)s->n_head * s->head_dim;
    struct work_layout w = {.x = 0};
    w.numbers = w.x + (uint64_t)s->n_embd * 4;
    w.q = w.numbers + (uint64_t)s->n_embd * 2;
    w.att = w.q + q_rows * 4;
    w.parts = w.att + q_rows * 2;
    w.h = w.parts + (uint64_t)most(n_groups, s->n_head) * (s->head_dim + 4) * 4;
    w.bytes = w.h + (uint64_t)s->n_ff * 2;
    return w;
}

static enum status open_kernel(struct fused_plan *f, uint32_t threads, struct err *e)
{
    const struct shape *s = &f->shape;
    const struct work_layout w = lay_out_work(s, f->n_groups);
    char defines[768];
    snprintf(
        defines, sizeof defines,
        "-DTHREADS=%u -DN_LAYER=%u -DN_EMBD=%u -DN_FF=%u -DN_HEAD=%u -DN_HEAD_KV=%u "
        "-DHEAD_DIM=%u -DN_ROT=%u -DN_CTX=%u -DN_VOCAB=%u -DMAX_UNITS=%u -DMAX_K=%u "
        "-DTYPE_A=%u -DTYPE_B=%u -DTYPE_C=%u -DOP_DTYPE=%d -DAT_X=%llu -DAT_XB=%llu -DAT_Q=%llu "
        "-DAT_ATT=%llu -DAT_PARTS=%llu -DAT_H=%llu",
        threads, s->n_layer, s->n_embd, s->n_ff, s->n_head, s->n_head_kv, s->head_dim, s->n_rot,
        s->n_ctx, s->n_vocab, s->max_units, s->max_k, s->types[0],
        s->n_types > 1 ? s->types[1] : NO_TYPE, s->n_types > 2 ? s->types[2] : NO_TYPE,
        (int)s->embed_type, (unsigned long long)w.x, (unsigned long long)w.numbers,
        (unsigned long long)w.q, (unsigned long long)w.att, (unsigned long long)w.parts,
        (unsigned long long)w.h);
    enum status status =
        kernel_open(f->device, "nvidia/decode.cl", defines, "decode", &f->kernel, e);
    if (status == ST_BUILD)
        return err_set(e, ST_UNSUPPORTED, "%s", e ? e->text : "");
    f->threads = threads;
    return status;
}

/* The widest groups that the registers of the device hold. */
static enum status build(struct fused_plan *f, struct err *e)
{
    for (uint32_t threads = MAX_THREADS; threads >= MIN_THREADS; threads -= 128) {
        enum status status = open_kernel(f, threads, e);
        if (status != ST_OK)
            return status;
        if (kernel_max_work_group(f->kernel) >= threads)
            return ST_OK;
        kernel_close(f->kernel);
        f->kernel = NULL;
    }
    return refuse(e, "the device's work-groups are too small for it");
}

static enum status set_arguments(struct fused_plan *f, const struct reader *r, struct err *e)
{
    enum status status = ST_OK;
    uint32_t n = 0;
    for (uint32_t i = 0; i < DECODE_ARENAS && status == ST_OK; i++)
        status =
            kernel_set_buffer(f->kernel, n++, r->weights[i] ? r->weights[i] : r->weights[0], e);
    for (uint32_t i = 0; i < DECODE_ARENAS && status == ST_OK; i++)
        status = kernel_set_buffer(f->kernel, n++, r->cells[i] ? r->cells[i] : r->cells[0], e);
    if (status == ST_OK)
        status = kernel_set_buffer(f->kernel, n++, f->table, e);
    if (status == ST_OK)
        status = kernel_set_buffer(f->kernel, n++, r->rope.buffer, e);
    if (status == ST_OK)
        status = kernel_set_bytes(f->kernel, n++, &r->rope.offset, sizeof r->rope.offset, e);
    if (status == ST_OK)
        status = kernel_set_buffer(f->kernel, n++, f->work, e);
    if (status == ST_OK)
        status = kernel_set_buffer(f->kernel, n, f->control, e);
    return status;
}

static enum status upload(struct fused_plan *f, const void *table, size_t bytes, struct err *e)
{
    static const uint32_t zeros[CONTROL_WORDS];
    const struct work_layout w = lay_out_work(&f->shape, f->n_groups);
    struct device *d = f->device;
    enum status status = buffer_open(d, bytes, BUFFER_SCRATCH, "one-launch table", &f->table, e);
    if (status == ST_OK)
        status = buffer_open(d, w.bytes, BUFFER_SCRATCH, "one-launch vectors", &f->work, e);
    if (status == ST_OK)
        status = buffer_open(d, sizeof zeros, BUFFER_SCRATCH, "one-launch control", &f->control, e);
    if (status == ST_OK)
        status = queue_write(d, QUEUE_COMPUTE, f->table, 0, table, bytes, "table", e);
    if (status == ST_OK)
        status = queue_write(d, QUEUE_COMPUTE, f->control, 0, zeros, sizeof zeros, "table", e);
    enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    return status == ST_OK ? waited : status;
}

static void close_nvidia(struct fused_plan *f)
{
    if (!f)
        return;
    kernel_close(f->kernel);
    buffer_close(f->table);
    buffer_close(f->work);
    buffer_close(f->control);
    mem_free(f);
}

static enum status open_nvidia(const struct plan *plan, struct fused_plan **out, struct err *e)
{
    struct device *d = plan->context->device;
    const uint32_t needs = CAP_PTX_DP4A | CAP_PERSISTENT;
    if ((device_caps(d) & needs) != needs)
        return refuse(e, "the device lacks dp4a or resident groups");
    const uint32_t n_layer = plan->context->graph->hparams->n_layer;
    const size_t table_bytes = sizeof(struct decode_head) + n_layer * sizeof(struct decode_layer);
    struct fused_plan *f = mem_zalloc(sizeof *f);
    char *table = mem_zalloc(table_bytes);
    enum status status = ST_OK;
    if (!f || !table) {
        status = err_set(e, ST_NO_MEMORY, "one-launch decoding: %zu bytes", table_bytes);
        goto out;
    }
    f->device = d;
    f->shape.n_layer = n_layer;
    f->n_groups = device_info(d)->compute_units;
    if (f->n_groups > MAX_GROUPS)
        f->n_groups = MAX_GROUPS;
    struct reader reader = {.shape = &f->shape,
                            .params = &f->params,
                            .head = (struct decode_head *)table,
                            .layers = (struct decode_layer *)(table + sizeof(struct decode_head)),
                            .e = e};
    for (uint32_t i = 0; i < plan->n_steps && status == ST_OK; i++)
        status = read_step(&reader, &plan->steps[i]);
    if (status == ST_OK)
        status = check_table(&reader);
    if (status != ST_OK)
        goto out;
    f->token_bytes = reader.token_bytes;
    f->shape.max_units = largest_share(&f->shape, f->n_groups);
    status = build(f, e);
    if (status == ST_OK)
        status = upload(f, table, table_bytes, e);
    if (status == ST_OK)
        status = set_arguments(f, &reader, e);
out:
    mem_free(table);
    if (status != ST_OK) {
        close_nvidia(f);
        return status;
    }
    *out = f;
    return ST_OK;
}

/* ---- running ---- */

#define ARGUMENT_PARAMS (2 * DECODE_ARENAS + 5)

/* Both sides count arrivals from zero again. */
static enum status restart_arrivals(struct fused_plan *f, struct err *e)
{
    static const uint32_t zeros[CONTROL_WORDS];
    f->params.arrivals = 0;
    return queue_write(f->device, QUEUE_COMPUTE, f->control, 0, zeros, sizeof zeros, "table", e);
}

static enum status run_nvidia(struct fused_plan *f, const struct fused_call *call, struct err *e)
{
    struct device *d = f->device;
    struct decode_params *p = &f->params;
    p->first = (uint32_t)call->first[0];
    p->position = call->positions[0];
    p->slot = call->slots[0];
    p->n_tokens = call->n_tokens;
    const size_t gws[3] = {(size_t)f->n_groups * f->threads, 1, 1}, lws[3] = {f->threads, 1, 1};
    uint32_t control[DECODE_BEST];
    enum status status = f->unsure ? restart_arrivals(f, e) : ST_OK;
    f->unsure = true;
    if (status == ST_OK)
        status = kernel_set_bytes(f->kernel, ARGUMENT_PARAMS, p, sizeof *p, e);
    if (status == ST_OK)
        status = kernel_launch(f->kernel, gws, lws, "decode", "one_launch",
                               f->token_bytes * call->n_tokens, 0, e);
    if (status == ST_OK)
        status = queue_read(d, QUEUE_COMPUTE, f->control, 0, control, sizeof control, "arg-max", e);
    enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    if (status == ST_OK)
        status = waited;
    if (status != ST_OK)
        return status;
    if (control[DECODE_DEAD] != 0)
        return err_set(e, ST_TIMEOUT, "%u groups of %u items did not meet", f->n_groups,
                       f->threads);
    /* five phases a layer, and the head */
    p->arrivals += f->n_groups * call->n_tokens * (5 * f->shape.n_layer + 1);
    f->unsure = false;
    for (uint32_t t = 0; t < call->n_tokens; t++) {
        call->out[t] = (token_id)control[DECODE_TOKENS + t];
        memcpy(&call->found[t], &control[DECODE_FOUND + t], sizeof(float));
    }
    return ST_OK;
}

const struct fused_executor fused_nvidia = {.name = "one_launch_nvidia",
                                            .max_rows = 1,
                                            .max_tokens = 32,
                                            .open = open_nvidia,
                                            .run = run_nvidia,
                                            .close = close_nvidia};
