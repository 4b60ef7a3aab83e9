/* The decode plan, step by step, into the table of places that the one-launch kernels walk. */
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/fused_nvidia.h"

struct reader {
    struct decode_model *m;
    bool has_embed, has_rope, has_argmax;
    struct err *e;
};

static enum status refuse(struct err *e, const char *why)
{
    return err_set(e, ST_UNSUPPORTED, "one-launch decoding: %s", why);
}

static bool is_float(uint32_t type)
{
    return type == DT_F32 || type == DT_F16 || type == DT_BF16;
}

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

static enum status note_type(struct decode_shape *s, enum dtype type, struct err *e)
{
    for (uint32_t i = 0; i < s->n_types; i++)
        if (s->types[i] == (uint32_t)type)
            return ST_OK;
    if (s->n_types == DECODE_TYPES)
        return refuse(e, "too many different weight dtypes");
    s->types[s->n_types++] = (uint32_t)type;
    return ST_OK;
}

/* The next free part of a role: q | k | v may come as up to three steps, others as one. */
static struct decode_part *part_of(struct decode_model *m, const struct plan_step *s)
{
    struct decode_layer *layer = s->layer >= 0 ? &m->layers[s->layer] : NULL;
    if (!layer)
        return strcmp(s->role, "head") == 0 && m->head->head.rows == 0 ? &m->head->head : NULL;
    struct decode_part *only = strcmp(s->role, "o") == 0         ? &layer->o
                               : strcmp(s->role, "gate_up") == 0 ? &layer->gate_up
                               : strcmp(s->role, "down") == 0    ? &layer->down
                                                                 : NULL;
    if (only)
        return only->rows == 0 ? only : NULL;
    if (strcmp(s->role, "qkv") != 0)
        return NULL;
    for (uint32_t i = 0; i < DECODE_QKV_PARTS; i++)
        if (layer->qkv[i].rows == 0)
            return &layer->qkv[i];
    return NULL;
}

/* What the layout of a matrix asks for, and which of the kernels can do it. */
static enum status check_rows(struct reader *r, const struct plan_step *s)
{
    const struct linear_params *p = &s->call.params.linear;
    const struct tensor *w = &s->call.tensors[0];
    const bool floats = is_float((uint32_t)w->dtype);
    const bool gate_up = strcmp(s->role, "gate_up") == 0, head = s->layer < 0;
    if (p->has_bias)
        return refuse(r->e, "a linear has a bias");
    if (w->layout != (floats ? LAYOUT_FILE : LAYOUT_R4))
        return refuse(r->e, "a weight has another layout");
    if (!floats && gate_up != (p->epilogue == LINEAR_SWIGLU))
        return refuse(r->e, "gate and up are not interleaved");
    if (p->k % 32 != 0 || w->offset % 16 != 0)
        return refuse(r->e, "columns do not divide into blocks");
    const bool groups = head || p->m % (gate_up ? 8 : 4) == 0;
    r->m->dots = r->m->dots && !floats && groups;
    r->m->float_dots = r->m->float_dots && floats && groups;
    r->m->tiles = r->m->tiles && (head || p->m % 16 == 0);
    return ST_OK;
}

static enum decode_phase phase_of(const char *role)
{
    return strcmp(role, "qkv") == 0       ? DECODE_QKV
           : strcmp(role, "o") == 0       ? DECODE_O
           : strcmp(role, "gate_up") == 0 ? DECODE_GATE_UP
           : strcmp(role, "down") == 0    ? DECODE_DOWN
                                          : DECODE_OUTPUT;
}

static enum status read_linear(struct reader *r, const struct plan_step *s)
{
    const struct linear_params *p = &s->call.params.linear;
    const struct tensor *w = &s->call.tensors[0];
    struct decode_shape *shape = &r->m->shape;
    struct decode_part *part = part_of(r->m, s);
    if (!part)
        return refuse(r->e, "a linear step it does not know");
    enum status status = check_rows(r, s);
    if (status != ST_OK)
        return status;
    if (p->k > shape->max_k)
        shape->max_k = p->k;
    part->type = (uint32_t)w->dtype;
    part->rows = p->m;
    r->m->phase_bytes[phase_of(s->role)] += w->bytes;
    status = note_type(shape, w->dtype, r->e);
    return status == ST_OK ? place_of(r->m->weights, w, &part->at, r->e) : status;
}

static enum status read_norm(struct reader *r, const struct plan_step *s)
{
    const struct norm_params *p = &s->call.params.norm;
    if (p->kind != 0 || p->has_bias)
        return refuse(r->e, "a norm is not a plain RMS norm");
    r->m->settings.eps = p->eps;
    decode_place *place = s->layer < 0                        ? &r->m->head->output_norm
                          : strcmp(s->role, "attn_norm") == 0 ? &r->m->layers[s->layer].attn_norm
                                                              : &r->m->layers[s->layer].ffn_norm;
    return place_of(r->m->weights, &s->call.tensors[1], place, r->e);
}

static enum status read_embed(struct reader *r, const struct plan_step *s)
{
    if (r->has_embed)
        return refuse(r->e, "the embedding lies in several buffers");
    r->has_embed = true;
    r->m->settings.embed_scale = s->call.params.embed.scale;
    r->m->shape.embed_type = s->call.tensors[0].dtype;
    r->m->shape.n_vocab = s->call.params.embed.n_vocab;
    r->m->shape.n_embd = s->call.params.embed.k;
    return place_of(r->m->weights, &s->call.tensors[0], &r->m->head->embed, r->e);
}

static enum status read_rope_kv(struct reader *r, const struct plan_step *s)
{
    const struct rope_kv_params *p = &s->call.params.rope_kv;
    struct decode_shape *shape = &r->m->shape;
    if (p->mode != 0 || !p->rotate || p->n_rot % 2 != 0)
        return refuse(r->e, "its rotation is not of neighbouring pairs");
    if (s->call.tensors[3].dtype != DT_F16 || s->call.tensors[3].layout != KV_PLAIN)
        return refuse(r->e, "the cache is not plain f16");
    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return refuse(r->e, "the head size is none of 64, 128 and 256");
    r->has_rope = true;
    r->m->rope = s->call.tensors[1];
    shape->n_head = p->n_head;
    shape->n_head_kv = p->n_head_kv;
    shape->head_dim = p->head_dim;
    shape->n_rot = p->n_rot;
    shape->n_ctx = p->n_ctx;
    enum status status =
        place_of(r->m->cells, &s->call.tensors[3], &r->m->layers[s->layer].k, r->e);
    return status == ST_OK
               ? place_of(r->m->cells, &s->call.tensors[4], &r->m->layers[s->layer].v, r->e)
               : status;
}

static enum status read_attention(struct reader *r, const struct plan_step *s)
{
    const struct attention_params *p = &s->call.params.attention;
    if (p->softcap > 0.0f)
        return refuse(r->e, "attention scores are capped");
    if (s->layer > 0 && p->window != r->m->settings.window)
        return refuse(r->e, "layers have different windows");
    r->m->settings.window = p->window;
    r->m->settings.scale = p->scale;
    return ST_OK;
}

static enum status read_step(struct reader *r, const struct plan_step *s)
{
    if (s->layer >= (int32_t)r->m->shape.n_layer)
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
    if (op == OP_SWIGLU && s->call.params.swiglu.act != 0)
        return refuse(r->e, "its gates have another function");
    r->has_argmax = r->has_argmax || op == OP_ARGMAX;
    return op == OP_QUANTIZE || op == OP_SWIGLU || op == OP_ARGMAX
               ? ST_OK
               : refuse(r->e, "an op it does not know");
}

/* Are all parts there, with the sizes that the kernel derives from the shape? */
static enum status check_table(struct reader *r)
{
    struct decode_shape *s = &r->m->shape;
    if (!r->has_embed || !r->has_rope || !r->has_argmax || s->n_vocab == 0 ||
        r->m->head->head.rows != s->n_vocab)
        return refuse(r->e, "the plan is not the one it expects");
    const uint32_t q_rows = s->n_head * s->head_dim, kv_rows = s->n_head_kv * s->head_dim;
    s->n_ff = r->m->layers[0].gate_up.rows / 2;
    for (uint32_t l = 0; l < s->n_layer; l++) {
        const struct decode_layer *layer = &r->m->layers[l];
        uint32_t qkv = 0;
        for (uint32_t i = 0; i < DECODE_QKV_PARTS; i++)
            qkv += layer->qkv[i].rows;
        if (qkv != q_rows + 2 * kv_rows || layer->o.rows != s->n_embd ||
            layer->down.rows != s->n_embd || layer->gate_up.rows != s->n_ff * 2)
            return refuse(r->e, "a layer has other sizes than the first");
        for (uint32_t i = 1; i < DECODE_QKV_PARTS; i++)
            if (layer->qkv[i].rows > 0 &&
                is_float(layer->qkv[i].type) != is_float(layer->qkv[0].type))
                return refuse(r->e, "some of q, k and v are quantised, some are not");
    }
    return ST_OK;
}

enum status decode_read_plan(const struct plan *plan, struct decode_model *m, struct err *e)
{
    const uint32_t n_layer = plan->context->graph->hparams->n_layer;
    struct reader r = {.m = m, .e = e};
    *m = (struct decode_model){
        .shape.n_layer = n_layer, .dots = true, .float_dots = true, .tiles = true};
    m->table_bytes = sizeof *m->head + n_layer * sizeof *m->layers;
    m->head = mem_zalloc(m->table_bytes);
    if (!m->head)
        return err_set(e, ST_NO_MEMORY, "one-launch decoding: %zu bytes", m->table_bytes);
    m->layers = (struct decode_layer *)(m->head + 1);
    enum status status = ST_OK;
    for (uint32_t i = 0; i < plan->n_steps && status == ST_OK; i++)
        status = read_step(&r, &plan->steps[i]);
    return status == ST_OK ? check_table(&r) : status;
}
