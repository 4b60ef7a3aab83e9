/* Plans at run time: binding, counts, running, and looking at what ran. */
#include "engine/model/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/plan_internal.h"
#include "engine/ops/act.h"

enum status plan_open(const struct plan_context *c, uint32_t typical_tokens, uint32_t max_tokens,
                      struct plan **out, struct err *e)
{
    struct plan *p = mem_zalloc(sizeof *p);
    if (!p)
        return err_set(e, ST_NO_MEMORY, "plan: %zu bytes", sizeof *p);
    p->context = c;
    p->max_tokens = max_tokens;
    p->max_outputs = max_tokens < PLAN_MAX_OUTPUTS ? max_tokens : PLAN_MAX_OUTPUTS;
    enum status status = plan__build(p, typical_tokens, e);
    if (status == ST_OK)
        status = plan__place_values(p, e);
    if (status != ST_OK) {
        plan_close(p);
        return status;
    }
    *out = p;
    return ST_OK;
}

void plan_close(struct plan *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_steps; i++)
        op_step_close(p->steps[i].bound);
    mem_free(p->steps);
    mem_free(p);
}

uint64_t plan_scratch(const struct plan *p)
{
    return p->scratch_bytes;
}

/* ---- binding ---- */

/* The operand's tensor when the step works on the rows after the first `tail`. */
static struct tensor operand_tensor(const struct plan *p, const struct plan_operand *o,
                                    uint32_t tail)
{
    const struct plan_context *c = p->context;
    struct tensor t = {0};
    if (o->fixed) {
        t = *o->fixed;
    } else if (o->value != PLAN_NO_VALUE) {
        const struct plan_value *v = &p->values[o->value];
        t = (struct tensor){.buffer = c->scratch[v->offset / c->scratch_limit],
                            .offset = v->offset % c->scratch_limit,
                            .bytes = v->bytes,
                            .dtype = DT_F32,
                            .layout = v->act,
                            .ne = {v->columns, plan__max_rows(p, v->rows), 1, 1}};
    }
    uint64_t skipped = o->column * sizeof(float) + (uint64_t)tail * o->tail_bytes;
    t.offset += skipped;
    t.bytes -= skipped;
    return t;
}

struct tensor plan_operand_tensor(const struct plan *p, const struct plan_step *s, uint32_t i)
{
    return operand_tensor(p, &s->operands[i], 0);
}

struct tensor plan_logits(const struct plan *p)
{
    struct plan_operand o = {.value = PLAN_NO_VALUE};
    for (uint32_t i = 0; i < p->n_values; i++)
        if (p->values[i].graph_value == p->context->graph->logits && p->values[i].act == ACT_F32)
            o.value = (uint8_t)i;
    return operand_tensor(p, &o, 0);
}

void plan__set_counts(const struct plan *p, const struct plan_step *s, uint32_t n_rows,
                      uint32_t kv_max, union op_params *params)
{
    switch (s->call.op) {
    case OP_EMBED: params->embed.n_tokens = n_rows; break;
    case OP_NORM: params->norm.n_rows = n_rows; break;
    case OP_QUANTIZE: params->quantize.n_rows = n_rows; break;
    case OP_LINEAR: params->linear.n_tokens = n_rows; break;
    case OP_ROPE_KV: params->rope_kv.n_tokens = n_rows; break;
    case OP_ATTENTION:
        params->attention.n_tokens = n_rows;
        params->attention.kv_max = kv_max;
        params->attention.n_splits = attention_splits(p->context->device, &params->attention);
        break;
    case OP_SWIGLU: params->swiglu.n_tokens = n_rows; break;
    case OP_ADD: params->add.n = n_rows * p->values[s->operands[0].value].columns; break;
    case OP_ARGMAX: params->argmax.n_rows = n_rows; break;
    case OP_REPACK:
    CASE_RULED:
    case OP_COUNT: break;
    }
}

enum status plan_bind(struct plan *p, struct err *e)
{
    for (uint32_t i = 0; i < p->n_steps; i++) {
        struct plan_step *s = &p->steps[i];
        s->bound_rows = plan__max_rows(p, s->rows);
        s->bound_kv_max = p->context->kv->n_ctx;
        plan__set_counts(p, s, s->bound_rows, s->bound_kv_max, &s->call.params);
        for (uint32_t t = 0; t < OP_MAX_TENSORS; t++)
            s->call.tensors[t] = plan_operand_tensor(p, s, t);
        enum status status = op_bind(p->context->device, s->variant, &s->call, &s->bound, e);
        if (status != ST_OK)
            return err_prefix(e, "%s: ", s->role);
    }
    return ST_OK;
}

/* ---- running ---- */

static enum status move_tail(struct plan *p, struct plan_step *s, uint32_t tail, struct err *e)
{
    for (uint32_t i = 0; i < OP_MAX_TENSORS; i++) {
        if (s->operands[i].tail_bytes == 0)
            continue;
        struct tensor t = operand_tensor(p, &s->operands[i], tail);
        enum status status = op_step_set_tensor(s->bound, i, &t, e);
        if (status != ST_OK)
            return status;
    }
    s->bound_tail = tail;
    return ST_OK;
}

static enum status set_counts(struct plan *p, struct plan_step *s, uint32_t n_rows, uint32_t kv_max,
                              struct err *e)
{
    union op_params params = s->call.params;
    plan__set_counts(p, s, n_rows, kv_max, &params);
    s->bound_rows = n_rows;
    s->bound_kv_max = kv_max;
    return op_step_set_params(s->bound, &params, e);
}

/* Gives a step the counts of a batch. Every state in between must pass op's checks too, so fewer
 * rows are set before their place moves up, and more rows after it moved down. */
static enum status adjust(struct plan *p, struct plan_step *s, const struct plan_batch *batch,
                          struct err *e)
{
    bool outputs = s->rows == ROWS_OUTPUTS;
    uint32_t n_rows = outputs ? batch->n_outputs : batch->n_tokens;
    uint32_t tail = outputs ? batch->n_tokens - batch->n_outputs : 0;
    bool counts_differ =
        n_rows != s->bound_rows || (s->call.op == OP_ATTENTION && batch->kv_max != s->bound_kv_max);
    enum status status = ST_OK;
    if (counts_differ && n_rows <= s->bound_rows) {
        status = set_counts(p, s, n_rows, batch->kv_max, e);
        counts_differ = false;
    }
    if (status == ST_OK && tail != s->bound_tail)
        status = move_tail(p, s, tail, e);
    if (status == ST_OK && counts_differ)
        status = set_counts(p, s, n_rows, batch->kv_max, e);
    return status;
}

/* Layers stream as the run comes to them: *at is the one it is in, -1 outside. */
static enum status move_to_layer(const struct plan *p, int32_t *at, int32_t layer, struct err *e)
{
    struct streamer *s = p->context->streamer;
    enum status status = ST_OK;
    if (!s || *at == layer)
        return ST_OK;
    if (*at >= 0)
        status = streamer_leave(s, (uint32_t)*at, e);
    if (status == ST_OK && layer >= 0)
        status = streamer_enter(s, (uint32_t)layer, e);
    *at = layer;
    return status;
}

/* A run that does not come to its end leaves the layers' rotation anywhere. */
static void break_off(const struct plan *p)
{
    if (p->context->streamer)
        streamer_restart(p->context->streamer);
}

enum status plan_run(struct plan *p, const struct plan_batch *batch, struct err *e)
{
    ASSERT(batch->n_tokens > 0 && batch->n_tokens <= p->max_tokens &&
           batch->n_outputs <= p->max_outputs && batch->n_outputs <= batch->n_tokens);
    enum status status = ST_OK;
    int32_t layer = -1;
    for (uint32_t i = 0; i < p->n_steps && status == ST_OK; i++) {
        struct plan_step *s = &p->steps[i];
        status = move_to_layer(p, &layer, s->layer, e);
        if (status != ST_OK || (s->rows == ROWS_OUTPUTS && batch->n_outputs == 0))
            continue;
        status = adjust(p, s, batch, e);
        if (status == ST_OK)
            status = op_run(s->bound, e);
    }
    if (status == ST_OK)
        status = move_to_layer(p, &layer, -1, e);
    if (status == ST_OK && p->context->streamer)
        status = streamer_finish(p->context->streamer, e);
    if (status != ST_OK)
        break_off(p);
    return status;
}

/* ---- reports ---- */

/* The float operand a step writes and the columns of it; false when it writes no floats. */
static bool float_output(const struct plan *p, const struct plan_step *s, uint32_t *operand,
                         uint32_t *columns)
{
    switch (s->call.op) {
    case OP_EMBED: *operand = 2; break;
    case OP_NORM: *operand = 3; break;
    case OP_LINEAR: *operand = 3; break;
    case OP_ROPE_KV: *operand = 0; break;
    case OP_ATTENTION: *operand = 5; break;
    case OP_SWIGLU: *operand = 1; break;
    case OP_ADD: *operand = 2; break;
    case OP_QUANTIZE:
    case OP_ARGMAX:
    case OP_REPACK:
    CASE_RULED:
    case OP_COUNT: return false;
    }
    const struct plan_value *v = &p->values[s->operands[*operand].value];
    *columns = v->columns;
    if (s->call.op == OP_LINEAR)
        *columns = s->call.params.linear.epilogue == LINEAR_SWIGLU ? s->call.params.linear.m / 2
                                                                   : s->call.params.linear.m;
    return v->act == ACT_F32;
}

static enum status output_is_finite(const struct plan *p, const struct plan_step *s, bool *finite,
                                    struct err *e)
{
    uint32_t operand = 0, columns = 0;
    *finite = true;
    if (!float_output(p, s, &operand, &columns))
        return ST_OK;
    uint32_t stride = p->values[s->operands[operand].value].columns;
    struct tensor t = operand_tensor(p, &s->operands[operand], s->bound_tail);
    uint64_t n = (uint64_t)(s->bound_rows - 1) * stride + columns;
    float *values = mem_array(n, sizeof *values);
    if (!values)
        return err_set(e, ST_NO_MEMORY, "plan: %llu floats to look at", (unsigned long long)n);
    struct device *d = p->context->device;
    enum status status =
        queue_read(d, QUEUE_COMPUTE, t.buffer, t.offset, values, n * sizeof *values, "read", e);
    if (status == ST_OK)
        status = queue_wait(d, QUEUE_COMPUTE, e);
    for (uint64_t i = 0; status == ST_OK && i < n && *finite; i++)
        *finite = i % stride >= columns || isfinite(values[i]);
    mem_free(values);
    return status;
}

enum status plan_find_bad(struct plan *p, const struct plan_batch *batch, uint32_t *step,
                          struct err *e)
{
    bool finite = true;
    enum status status = ST_OK;
    int32_t layer = -1;
    for (*step = 0; *step < p->n_steps; ++*step) {
        struct plan_step *s = &p->steps[*step];
        status = move_to_layer(p, &layer, s->layer, e);
        if (status == ST_OK && s->rows == ROWS_OUTPUTS && batch->n_outputs == 0)
            continue;
        if (status == ST_OK)
            status = adjust(p, s, batch, e);
        if (status == ST_OK)
            status = op_run(s->bound, e);
        if (status == ST_OK)
            status = output_is_finite(p, s, &finite, e);
        if (status != ST_OK || !finite)
            break;
    }
    break_off(p);
    return status;
}

/* Steps that differ in nothing but their layer are one line. */
static bool same_line(const struct plan_step *a, const struct plan_step *b)
{
    return a->call.op == b->call.op && a->variant == b->variant && a->role == b->role &&
           a->call.tensors[0].ne[0] == b->call.tensors[0].ne[0] &&
           a->call.tensors[0].ne[1] == b->call.tensors[0].ne[1] &&
           a->call.tensors[0].dtype == b->call.tensors[0].dtype;
}

bool plan_line(const struct plan *p, uint32_t i, char *line, size_t n)
{
    for (uint32_t at = 0; at < p->n_steps; at++) {
        const struct plan_step *s = &p->steps[at];
        bool seen = false;
        for (uint32_t j = 0; j < at && !seen; j++)
            seen = same_line(&p->steps[j], s);
        if (seen || i-- > 0)
            continue;
        uint32_t count = 0;
        for (uint32_t j = at; j < p->n_steps; j++)
            count += same_line(&p->steps[j], s);
        const char *name = op_name(s->call.op);
        int used = snprintf(line, n, "%s%s%s %s", name, strcmp(name, s->role) ? " " : "",
                            strcmp(name, s->role) ? s->role : "", variant_name(s->variant));
        const struct tensor *weight = &s->call.tensors[0];
        if ((s->call.op == OP_LINEAR || s->call.op == OP_EMBED) && used >= 0 && (size_t)used < n)
            used += snprintf(line + used, n - (size_t)used, " %s %llu x %llu",
                             dtype_name(weight->dtype), (unsigned long long)weight->ne[1],
                             (unsigned long long)weight->ne[0]);
        uint32_t act = variant_act(s->variant);
        if (s->call.op == OP_LINEAR && act != ACT_F32 && used >= 0 && (size_t)used < n)
            used +=
                snprintf(line + used, n - (size_t)used, " x %s", act == ACT_F16 ? "f16" : "int8");
        if (used >= 0 && (size_t)used < n)
            snprintf(line + used, n - (size_t)used, ", %u a step", count);
        return true;
    }
    return false;
}
