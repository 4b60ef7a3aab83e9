/* From graph to steps: one variant per node and chunk of weight, and the formats of activations.
 *
 * A norm or swiglu writes the formats that the linears reading it want, where there is a variant
 * for each; otherwise it writes floats and a quantize step follows. A value in several formats is
 * several plan values, all `fresh` until the graph value is written again.
 */
#include "engine/base/mem.h"
#include "engine/model/plan_internal.h"
#include "engine/ops/act.h"

#define ANY         (-1)
#define N_ACTS      4 /* ACT_F32 .. ACT_F16 */
#define META_BYTES  16
#define FLOAT_BYTES 4

struct builder {
    struct plan *p;
    const struct plan_context *c;
    const struct graph *g;
    uint32_t typical_tokens;
    uint8_t scratch; /* the value that serves the attention of all layers */
    struct err *e;
};

static const struct plan_operand no_operand = {.value = PLAN_NO_VALUE};

uint32_t plan__max_rows(const struct plan *p, enum graph_rows rows)
{
    return rows == ROWS_TOKENS ? p->max_tokens : p->max_outputs;
}

/* ---- values ---- */

static enum status new_value(struct builder *b, struct plan_value value, uint8_t *out)
{
    if (b->p->n_values == PLAN_MAX_VALUES)
        return err_set(b->e, ST_UNSUPPORTED, "plan: more than %d values", PLAN_MAX_VALUES);
    *out = (uint8_t)b->p->n_values;
    b->p->values[b->p->n_values++] = value;
    return ST_OK;
}

/* The plan value of (graph value, format), made when it is first asked for. */
static enum status find_value(struct builder *b, uint32_t graph_value, uint32_t act, uint8_t *out)
{
    for (uint32_t i = 0; i < b->p->n_values; i++) {
        if (b->p->values[i].graph_value == graph_value && b->p->values[i].act == act) {
            *out = (uint8_t)i;
            return ST_OK;
        }
    }
    const struct graph_value *v = &b->g->values[graph_value];
    uint64_t bytes = act_bytes(act, plan__max_rows(b->p, v->rows), v->columns);
    if (bytes == 0)
        return err_set(b->e, ST_UNSUPPORTED, "plan: %s with %u columns has no format %u", v->name,
                       v->columns, act);
    return new_value(b,
                     (struct plan_value){.graph_value = graph_value,
                                         .act = act,
                                         .columns = v->columns,
                                         .rows = v->rows,
                                         .bytes = bytes},
                     out);
}

/* The graph value is about to be written: no format of it holds its content any more. */
static void make_stale(struct builder *b, uint32_t graph_value)
{
    for (uint32_t i = 0; i < b->p->n_values; i++)
        if (b->p->values[i].graph_value == graph_value)
            b->p->values[i].fresh = false;
}

/* The operand for a value written by a step of `rows`, which it then holds. */
static enum status write_operand(struct builder *b, uint32_t graph_value, uint32_t act,
                                 enum graph_rows rows, struct plan_operand *out)
{
    uint8_t value = PLAN_NO_VALUE;
    enum status status = find_value(b, graph_value, act, &value);
    if (status != ST_OK)
        return status;
    struct plan_value *v = &b->p->values[value];
    v->fresh = true;
    *out = (struct plan_operand){.value = value};
    if (rows == ROWS_OUTPUTS && v->rows == ROWS_TOKENS)
        out->tail_bytes = (uint32_t)act_row_bytes(act, v->columns);
    return ST_OK;
}

/* ---- steps ---- */

static enum status add_step(struct builder *b, const struct graph_node *n, enum op_id op,
                            const struct variant *v, struct plan_step **out)
{
    struct plan *p = b->p;
    if (p->n_steps == p->steps_capacity) {
        uint32_t capacity = p->steps_capacity ? p->steps_capacity * 2 : 256;
        struct plan_step *bigger = mem_array_resize(p->steps, capacity, sizeof *bigger);
        if (!bigger)
            return err_set(b->e, ST_NO_MEMORY, "plan: %u steps", capacity);
        p->steps = bigger;
        p->steps_capacity = capacity;
    }
    struct plan_step *s = &p->steps[p->n_steps++];
    *s = (struct plan_step){
        .call = {.op = op}, .variant = v, .role = n->role, .layer = n->layer, .rows = n->rows};
    for (uint32_t i = 0; i < OP_MAX_TENSORS; i++)
        s->operands[i] = no_operand;
    *out = s;
    return ST_OK;
}

static struct plan_operand fixed_operand(const struct tensor *t)
{
    return (struct plan_operand){.fixed = t, .value = PLAN_NO_VALUE};
}

static struct plan_operand meta_operand(const struct builder *b, const struct graph_node *n)
{
    struct plan_operand operand = fixed_operand(&b->c->meta);
    operand.tail_bytes = n->rows == ROWS_OUTPUTS ? META_BYTES : 0;
    return operand;
}

static enum status find_variant(struct builder *b, enum op_id op, int dtype, int act, int layout,
                                uint32_t m, uint32_t k, const struct variant **out)
{
    const struct variant_query query = {.op = op,
                                        .dtype = dtype,
                                        .act = act,
                                        .layout = layout,
                                        .n_tokens = b->typical_tokens,
                                        .m = m,
                                        .k = k};
    return need_variant(b->c->chooser, &query, out, b->e);
}

/* The operand for reading a graph value in a format; a quantize step is added if need be. */
static enum status read_operand(struct builder *b, const struct graph_node *n, uint32_t graph_value,
                                uint32_t act, struct plan_operand *out)
{
    uint8_t value = PLAN_NO_VALUE;
    enum status status = find_value(b, graph_value, act, &value);
    if (status != ST_OK)
        return status;
    if (b->p->values[value].fresh)
        return write_operand(b, graph_value, act, n->rows, out);
    ASSERT(act != ACT_F32 && b->g->values[graph_value].rows == n->rows);
    struct plan_operand floats;
    status = read_operand(b, n, graph_value, ACT_F32, &floats);
    const struct variant *v;
    uint32_t columns = b->g->values[graph_value].columns;
    if (status == ST_OK)
        status = find_variant(b, OP_QUANTIZE, ANY, (int)act, ANY, 0, columns, &v);
    struct plan_step *s;
    if (status == ST_OK)
        status = add_step(b, n, OP_QUANTIZE, v, &s);
    if (status != ST_OK)
        return status;
    s->role = "quantize";
    s->call.params.quantize = (struct quantize_params){.len = columns, .x_stride = columns};
    s->operands[0] = floats;
    status = write_operand(b, graph_value, act, n->rows, &s->operands[1]);
    *out = s->operands[1];
    return status;
}

/* ---- formats wanted by the readers of a value ---- */

static enum status linear_variant(struct builder *b, const struct weight_chunk *chunk,
                                  const struct variant **out)
{
    return find_variant(b, OP_LINEAR, (int)chunk->tensor.dtype, ANY, (int)chunk->tensor.layout,
                        chunk->n_rows, (uint32_t)chunk->tensor.ne[0], out);
}

/* Bit per format in which the nodes after number `node` read its output, until it is rewritten. */
static enum status wanted_formats(struct builder *b, uint32_t node, uint32_t *formats)
{
    uint32_t value = b->g->nodes[node].output;
    *formats = 0;
    for (uint32_t i = node + 1; i < b->g->n_nodes; i++) {
        const struct graph_node *n = &b->g->nodes[i];
        if (n->input == value && n->op != OP_LINEAR)
            *formats |= 1u << ACT_F32;
        for (uint32_t c = 0; n->input == value && n->op == OP_LINEAR; c++) {
            const struct weight *w = weights_at(b->c->weights, n->weight);
            if (c == w->n_chunks)
                break;
            const struct variant *v;
            enum status status = linear_variant(b, &w->chunks[c], &v);
            if (status != ST_OK)
                return status;
            *formats |= 1u << variant_act(v);
        }
        if (n->output == value)
            break;
    }
    return ST_OK;
}

/* ---- one function per op of the graph ---- */

static enum status build_embed(struct builder *b, uint32_t node)
{
    const struct graph_node *n = &b->g->nodes[node];
    const struct weight *w = weights_at(b->c->weights, n->weight);
    uint32_t columns = b->g->values[n->output].columns;
    if (w->n_chunks > PLAN_MAX_TABLES)
        return err_set(b->e, ST_UNSUPPORTED, "embedding table: %u buffers, at most %d", w->n_chunks,
                       PLAN_MAX_TABLES);
    make_stale(b, n->output);
    uint8_t partial = PLAN_NO_VALUE;
    for (uint32_t c = 0; c < w->n_chunks; c++) {
        const struct weight_chunk *chunk = &w->chunks[c];
        const struct variant *v;
        struct plan_step *s;
        enum status status = find_variant(b, OP_EMBED, (int)chunk->tensor.dtype, ANY,
                                          (int)chunk->tensor.layout, 0, columns, &v);
        if (status == ST_OK)
            status = add_step(b, n, OP_EMBED, v, &s);
        if (status != ST_OK)
            return status;
        s->call.params.embed = n->params.embed;
        s->call.params.embed.k = columns;
        s->call.params.embed.n_vocab = chunk->n_rows;
        s->operands[0] = fixed_operand(&chunk->tensor);
        s->operands[1] = fixed_operand(&b->c->ids[c]);
        if (c == 0) {
            status = write_operand(b, n->output, ACT_F32, n->rows, &s->operands[2]);
            if (status != ST_OK)
                return status;
            continue;
        }
        /* ids outside a chunk give zeros: the sum over the chunks is the row */
        if (partial == PLAN_NO_VALUE)
            status = new_value(
                b,
                (struct plan_value){.graph_value = GRAPH_NONE,
                                    .columns = columns,
                                    .bytes = act_bytes(ACT_F32, b->p->max_tokens, columns)},
                &partial);
        s->operands[2].value = partial;
        if (status == ST_OK)
            status = find_variant(b, OP_ADD, ANY, ANY, ANY, 0, 0, &v);
        if (status == ST_OK)
            status = add_step(b, n, OP_ADD, v, &s);
        if (status == ST_OK)
            status = write_operand(b, n->output, ACT_F32, n->rows, &s->operands[0]);
        if (status != ST_OK)
            return status;
        s->role = "add_table";
        s->operands[1].value = partial;
        s->operands[2] = s->operands[0];
    }
    return ST_OK;
}

/* A norm or swiglu: once for every format that its readers want and a variant writes; once in
 * floats for all the others. */
static enum status build_formatted(struct builder *b, uint32_t node,
                                   enum status (*add)(struct builder *b, const struct graph_node *n,
                                                      const struct variant *v, uint32_t act))
{
    const struct graph_node *n = &b->g->nodes[node];
    uint32_t columns = b->g->values[n->output].columns, formats;
    enum status status = wanted_formats(b, node, &formats);
    make_stale(b, n->output);
    for (uint32_t act = N_ACTS; act-- > 0 && status == ST_OK;) {
        if (!(formats & 1u << act))
            continue;
        const struct variant_query query = {.op = n->op,
                                            .dtype = ANY,
                                            .act = (int)act,
                                            .layout = ANY,
                                            .n_tokens = b->typical_tokens,
                                            .k = columns};
        const struct variant *v = NULL;
        status = act == ACT_F32 ? need_variant(b->c->chooser, &query, &v, b->e)
                                : choose_variant(b->c->chooser, &query, &v, b->e);
        if (status == ST_OK && v)
            status = add(b, n, v, act);
        else
            formats |= 1u << ACT_F32; /* read_operand will quantize */
    }
    return status;
}

static enum status add_norm(struct builder *b, const struct graph_node *n, const struct variant *v,
                            uint32_t act)
{
    uint32_t columns = b->g->values[n->input].columns;
    struct plan_operand x;
    enum status status = read_operand(b, n, n->input, ACT_F32, &x);
    struct plan_step *s;
    if (status == ST_OK)
        status = add_step(b, n, OP_NORM, v, &s);
    if (status != ST_OK)
        return status;
    s->call.params.norm = n->params.norm;
    s->call.params.norm.len = columns;
    s->call.params.norm.x_stride = columns;
    s->operands[0] = x;
    s->operands[1] = fixed_operand(&weights_at(b->c->weights, n->weight)->chunks[0].tensor);
    return write_operand(b, n->output, act, n->rows, &s->operands[3]);
}

static enum status add_swiglu(struct builder *b, const struct graph_node *n,
                              const struct variant *v, uint32_t act)
{
    struct plan_operand x;
    enum status status = read_operand(b, n, n->input, ACT_F32, &x);
    struct plan_step *s;
    if (status == ST_OK)
        status = add_step(b, n, OP_SWIGLU, v, &s);
    if (status != ST_OK)
        return status;
    s->call.params.swiglu = (struct swiglu_params){.n = b->g->values[n->output].columns,
                                                   .x_stride = b->g->values[n->input].columns,
                                                   .act = n->params.swiglu.act};
    s->operands[0] = x;
    return write_operand(b, n->output, act, n->rows, &s->operands[1]);
}

static enum status build_linear(struct builder *b, uint32_t node)
{
    const struct graph_node *n = &b->g->nodes[node];
    const struct weight *w = weights_at(b->c->weights, n->weight);
    uint32_t output = n->output, epilogue = n->params.linear.epilogue;
    if (w->paired) { /* the swiglu node that follows is done by the epilogue */
        ASSERT(n[1].op == OP_SWIGLU && n[1].input == n->output);
        output = n[1].output;
        epilogue = LINEAR_SWIGLU;
    }
    if (epilogue != LINEAR_ADD)
        make_stale(b, output);
    for (uint32_t c = 0; c < w->n_chunks; c++) {
        const struct weight_chunk *chunk = &w->chunks[c];
        const struct variant *v;
        struct plan_operand x;
        struct plan_step *s;
        enum status status = linear_variant(b, chunk, &v);
        if (status == ST_OK)
            status = read_operand(b, n, n->input, variant_act(v), &x);
        if (status == ST_OK)
            status = add_step(b, n, OP_LINEAR, v, &s);
        if (status == ST_OK)
            status = write_operand(b, output, ACT_F32, n->rows, &s->operands[3]);
        if (status != ST_OK)
            return status;
        s->call.params.linear = (struct linear_params){.m = chunk->n_rows,
                                                       .k = (uint32_t)chunk->tensor.ne[0],
                                                       .y_stride = b->g->values[output].columns,
                                                       .epilogue = epilogue,
                                                       .has_bias = n->bias != GRAPH_NONE};
        s->operands[0] = fixed_operand(&chunk->tensor);
        s->operands[1] = x;
        s->operands[3].column = w->paired ? chunk->row0 / 2 : chunk->row0;
        if (n->bias != GRAPH_NONE) {
            s->operands[2] = fixed_operand(&weights_at(b->c->weights, n->bias)->chunks[0].tensor);
            s->operands[2].column = chunk->row0;
        }
    }
    return ST_OK;
}

static enum status build_rope_kv(struct builder *b, uint32_t node)
{
    const struct graph_node *n = &b->g->nodes[node];
    const struct kv *kv = b->c->kv;
    const struct variant *v;
    struct plan_step *s;
    enum status status = find_variant(b, OP_ROPE_KV, (int)kv->dtype, ANY, (int)kv->layout, 0,
                                      n->params.rope_kv.head_dim, &v);
    if (status == ST_OK)
        status = add_step(b, n, OP_ROPE_KV, v, &s);
    if (status != ST_OK)
        return status;
    s->call.params.rope_kv = n->params.rope_kv;
    s->call.params.rope_kv.stride = b->g->values[n->input].columns;
    s->call.params.rope_kv.n_ctx = kv->n_ctx;
    s->operands[1] = fixed_operand(&b->c->rope);
    s->operands[2] = meta_operand(b, n);
    s->operands[3] = fixed_operand(&kv->k[n->layer]);
    s->operands[4] = fixed_operand(&kv->v[n->layer]);
    return write_operand(b, n->input, ACT_F32, n->rows, &s->operands[0]);
}

/* The most scratch that attention takes for any count of tokens of this plan. */
static uint64_t attention_scratch(const struct builder *b, struct attention_params params)
{
    uint64_t most = 0;
    for (uint32_t i = 1; i <= b->p->max_tokens; i++) {
        params.n_tokens = i;
        params.n_splits = attention_splits(b->c->device, &params);
        uint64_t bytes = attention_scratch_bytes(b->c->device, &params);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static enum status build_attention(struct builder *b, uint32_t node)
{
    const struct graph_node *n = &b->g->nodes[node];
    const struct kv *kv = b->c->kv;
    const struct variant *v;
    struct plan_step *s;
    struct plan_operand q;
    enum status status = find_variant(b, OP_ATTENTION, (int)kv->dtype, ANY, (int)kv->layout, 0,
                                      n->params.attention.head_dim, &v);
    if (status == ST_OK)
        status = read_operand(b, n, n->input, ACT_F32, &q);
    make_stale(b, n->output);
    if (status == ST_OK)
        status = add_step(b, n, OP_ATTENTION, v, &s);
    if (status != ST_OK)
        return status;
    s->call.params.attention = n->params.attention;
    s->call.params.attention.q_stride = b->g->values[n->input].columns;
    s->call.params.attention.n_ctx = kv->n_ctx;
    s->call.params.attention.kv_max = kv->n_ctx;
    s->operands[0] = q;
    s->operands[1] = fixed_operand(&kv->k[n->layer]);
    s->operands[2] = fixed_operand(&kv->v[n->layer]);
    s->operands[3] = meta_operand(b, n);
    uint64_t scratch = attention_scratch(b, s->call.params.attention);
    if (scratch > 0 && b->scratch == PLAN_NO_VALUE)
        status = new_value(b, (struct plan_value){.graph_value = GRAPH_NONE, .bytes = scratch},
                           &b->scratch);
    s->operands[4].value = b->scratch;
    return status == ST_OK ? write_operand(b, n->output, ACT_F32, n->rows, &s->operands[5])
                           : status;
}

static enum status build_argmax(struct builder *b, uint32_t node)
{
    const struct graph_node *n = &b->g->nodes[node];
    const struct variant *v;
    struct plan_step *s;
    struct plan_operand x;
    enum status status = find_variant(b, OP_ARGMAX, ANY, ANY, ANY, 0, 0, &v);
    if (status == ST_OK)
        status = read_operand(b, n, n->input, ACT_F32, &x);
    if (status == ST_OK)
        status = add_step(b, n, OP_ARGMAX, v, &s);
    if (status != ST_OK)
        return status;
    uint32_t columns = b->g->values[n->input].columns;
    s->call.params.argmax = (struct argmax_params){.len = columns, .x_stride = columns};
    s->operands[0] = x;
    s->operands[1] = fixed_operand(&b->c->index);
    s->operands[2] = fixed_operand(&b->c->found);
    return ST_OK;
}

enum status plan__build(struct plan *p, uint32_t typical_tokens, struct err *e)
{
    struct builder b = {.p = p,
                        .c = p->context,
                        .g = p->context->graph,
                        .typical_tokens = typical_tokens,
                        .scratch = PLAN_NO_VALUE,
                        .e = e};
    enum status status = ST_OK;
    for (uint32_t i = 0; i < b.g->n_nodes && status == ST_OK; i++) {
        const struct graph_node *n = &b.g->nodes[i];
        switch (n->op) {
        case OP_EMBED: status = build_embed(&b, i); break;
        case OP_NORM: status = build_formatted(&b, i, add_norm); break;
        case OP_SWIGLU:
            if (!weights_at(b.c->weights, n[-1].weight)->paired)
                status = build_formatted(&b, i, add_swiglu);
            break;
        case OP_LINEAR: status = build_linear(&b, i); break;
        case OP_ROPE_KV: status = build_rope_kv(&b, i); break;
        case OP_ATTENTION: status = build_attention(&b, i); break;
        case OP_ARGMAX: status = build_argmax(&b, i); break;
        case OP_QUANTIZE:
        case OP_ADD:
        case OP_REPACK:
        CASE_RULED:
        case OP_COUNT:
            return err_set(e, ST_INTERNAL, "graph node %u: %s is not for graphs", i,
                           op_name(n->op));
        }
    }
    return status;
}
