/* The one-launch executor for CPU devices: the decode plan as one kernel that walks a table.
 *
 * open turns the plan's steps, one by one, into rows of a table (kernels/cpu/decode.h) and builds
 * kernels/cpu/decode.cl for the dtypes among them; run launches it with a work-group per compute
 * unit, for as many sequences as the plan has tokens. Any graph goes, as long as its steps are of
 * the family kernels/cpu; what is not is ST_UNSUPPORTED at open, and the plan goes on stepwise.
 * Short steps (norms, quantising a vector) are done by every group for itself, into its share of
 * `own`, which saves a meeting. Groups that do not meet are ST_TIMEOUT. Belongs to the device's
 * thread; the plan, its weights and its cache outlive it.
 */
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/fused.h"
#include "engine/ops/act.h"
#include "kernels/cpu/decode.h"

#define MAX_GROUPS      256
#define MAX_ALONE       4096 /* columns that every group quantises for itself */
#define MAX_QUERY_HEADS 32   /* of a KV head, that attention.cl takes at once */
#define NO_TYPE         255
#define OWN_ALIGN       64
#define CONTROL_WORDS   (CONTROL_PHASES + MAX_GROUPS * CONTROL_LINE)

_Static_assert(sizeof(struct attention_params) <= 4 * DECODE_PARAMS, "raise DECODE_PARAMS");
_Static_assert(sizeof(struct rope_kv_params) <= 4 * DECODE_PARAMS, "raise DECODE_PARAMS");

struct fused_plan {
    struct device *device;
    struct kernel *kernel;
    struct buffer *table, *own, *control;
    struct cpu_decode_params params; /* of the next launch */
    bool unsure; /* a launch failed: the phase on the device may not be that of params */
    uint32_t n_groups, max_rows;
    uint64_t part_bytes;  /* of what one split of attention finds */
    uint64_t token_bytes; /* weights read for one token of all rows */
    struct tensor logits; /* the plan's: float [max_rows][n_vocab] */
    uint32_t n_vocab;
};

/* What reading the plan fills in. */
struct reader {
    const struct plan *plan;
    struct fused_plan *f;
    struct cpu_step *table; /* row i: step i, until the merges are added */
    uint32_t n_arenas;
    struct buffer *arenas[DECODE_ARENAS]; /* 0: `own`, not made yet */
    uint32_t n_types, types[DECODE_TYPES];
    int linear_act, isa, table_dtype, table_layout, kv_dtype; /* -1: not known yet */
    uint64_t own_at[PLAN_MAX_VALUES]; /* 1 + offset of a value's own copies; 0: none */
    struct err *e;
};

static enum status refuse(const struct reader *r, const char *why)
{
    return err_set(r->e, ST_UNSUPPORTED, "one-launch decoding: %s", why);
}

/* ---- reading the plan ---- */

/* The place of a tensor; its buffer becomes one of the arenas. */
static enum status place_of(struct reader *r, const struct tensor *t, cpu_place *out)
{
    uint32_t i = 1;
    while (i < r->n_arenas && r->arenas[i] != t->buffer)
        i++;
    if (i == DECODE_ARENAS)
        return refuse(r, "the model lies in too many buffers");
    if (i == r->n_arenas)
        r->arenas[r->n_arenas++] = t->buffer;
    *out = (uint64_t)i << 56 | t->offset;
    return ST_OK;
}

/* All steps must agree on it. */
static enum status agree(const struct reader *r, int *known, int value, const char *why)
{
    if (*known >= 0 && *known != value)
        return refuse(r, why);
    *known = value;
    return ST_OK;
}

static enum status type_of(struct reader *r, enum dtype dtype, uint32_t *type)
{
    for (*type = 0; *type < r->n_types; ++*type)
        if (r->types[*type] == (uint32_t)dtype)
            return ST_OK;
    if (r->n_types == DECODE_TYPES)
        return refuse(r, "too many different weight dtypes");
    r->types[r->n_types++] = (uint32_t)dtype;
    return ST_OK;
}

/* CPU_ISA of a linear's variant (kernels/cpu/vec.h); its name tells. */
static int isa_of(const struct variant *v)
{
    const char *name = variant_name(v);
    return strstr(name, "vnni512") ? 3 : strstr(name, "vnni256") ? 2 : strstr(name, "avx2") ? 1 : 0;
}

static enum status read_linear(struct reader *r, const struct plan_step *s, struct cpu_step *row)
{
    const struct tensor *w = &s->call.tensors[0];
    const uint32_t act = s->call.tensors[1].layout;
    uint32_t type = 0;
    if (w->layout != LAYOUT_R16)
        return refuse(r, "a weight is not in LAYOUT_R16");
    if (act != ACT_F32 && act != ACT_Q8)
        return refuse(r, "a linear reads another format");
    enum status status = type_of(r, w->dtype, &type);
    if (status == ST_OK && dtype_info(w->dtype)->block > 1)
        status = agree(r, &r->linear_act, (int)act, "linears read different formats");
    if (status == ST_OK && act == ACT_Q8)
        status = agree(r, &r->isa, isa_of(s->variant), "linears use different instructions");
    row->code = CODE_LINEAR + type;
    r->f->token_bytes += w->bytes;
    return status;
}

static enum status read_embed(struct reader *r, const struct plan_step *s)
{
    struct cpu_decode_params *p = &r->f->params;
    if (p->n_tables == DECODE_TABLES)
        return refuse(r, "the embedding lies in too many buffers");
    if (p->n_tables + 1 < DECODE_TABLES)
        p->row0[p->n_tables + 1] = p->row0[p->n_tables] + s->call.params.embed.n_vocab;
    const struct tensor *table = &s->call.tensors[0];
    enum status status = place_of(r, &s->call.tensors[1], &p->ids[p->n_tables]);
    p->n_tables++;
    if (status == ST_OK)
        status = agree(r, &r->table_dtype, (int)table->dtype,
                       "chunks of the embedding have different dtypes");
    return status == ST_OK ? agree(r, &r->table_layout, (int)table->layout,
                                   "chunks of the embedding have different layouts")
                           : status;
}

static enum status read_cache(struct reader *r, const struct tensor *k)
{
    if (k->layout != (k->dtype == DT_Q8_0 ? KV_PLAIN : KV_TILED))
        return refuse(r, "the cache has another layout");
    return agree(r, &r->kv_dtype, (int)k->dtype, "layers have caches of different dtypes");
}

/* CODE_* for the format that a norm or swiglu writes. */
static enum status code_of_act(const struct reader *r, const struct tensor *y, uint32_t f32,
                               uint32_t q8, cpu_uint *code)
{
    if (y->layout != ACT_F32 && y->layout != ACT_Q8)
        return refuse(r, "a format it does not write");
    *code = y->layout == ACT_F32 ? f32 : q8;
    return ST_OK;
}

static enum status read_code(struct reader *r, const struct plan_step *s, struct cpu_step *row)
{
    const struct tensor *t = s->call.tensors;
    struct cpu_decode_params *p = &r->f->params;
    enum status status = ST_OK;
    if (s->call.op == OP_LINEAR)
        return read_linear(r, s, row);
    if (s->call.op == OP_NORM)
        return code_of_act(r, &t[3], CODE_NORM_F32, CODE_NORM_Q8, &row->code);
    if (s->call.op == OP_SWIGLU)
        return code_of_act(r, &t[1], CODE_SWIGLU_F32, CODE_SWIGLU_Q8, &row->code);
    if (s->call.op == OP_QUANTIZE) {
        row->code = CODE_QUANTIZE;
        return t[1].layout == ACT_Q8 ? ST_OK : refuse(r, "a format it does not write");
    }
    if (s->call.op == OP_EMBED) {
        row->code = CODE_EMBED;
        return read_embed(r, s);
    }
    if (s->call.op == OP_ADD) {
        row->code = CODE_ADD;
        return ST_OK;
    }
    if (s->call.op == OP_ROPE_KV) {
        row->code = CODE_ROPE_KV;
        status = place_of(r, &t[2], &p->meta);
        return status == ST_OK ? read_cache(r, &t[3]) : status;
    }
    if (s->call.op == OP_ATTENTION) {
        row->code = CODE_ATTENTION;
        return read_cache(r, &t[1]);
    }
    if (s->call.op != OP_ARGMAX)
        return refuse(r, "an op it does not know");
    row->code = CODE_ARGMAX;
    status = place_of(r, &t[1], &p->index);
    return status == ST_OK ? place_of(r, &t[2], &p->found) : status;
}

static enum status read_step(struct reader *r, const struct plan_step *s, struct cpu_step *row)
{
    enum status status = read_code(r, s, row);
    for (uint32_t i = 0; i < OP_MAX_TENSORS && status == ST_OK; i++)
        if (s->call.tensors[i].buffer)
            status = place_of(r, &s->call.tensors[i], &row->at[i]);
    memcpy(row->params, &s->call.params,
           sizeof s->call.params < sizeof row->params ? sizeof s->call.params : sizeof row->params);
    if (s->call.op == OP_ADD) { /* of a row */
        const uint32_t columns = r->plan->values[s->operands[0].value].columns;
        memcpy(row->params, &columns, sizeof columns);
    }
    row->barrier = 1;
    return status;
}

/* ---- own copies and meetings ---- */

/* Which tensor a norm or quantize step writes; -1 for other ops. */
static int vector_output(const struct plan_step *s)
{
    if (s->call.op == OP_NORM)
        return 3;
    return s->call.op == OP_QUANTIZE && s->call.params.quantize.len <= MAX_ALONE ? 1 : -1;
}

/* Is what step i writes to `value` read by linears alone, until it is written again? */
static bool linears_only(const struct plan *p, uint32_t i, uint8_t value)
{
    for (uint32_t j = i + 1; j < p->n_steps; j++) {
        const struct plan_step *s = &p->steps[j];
        for (int k = 0; k < OP_MAX_TENSORS; k++) {
            if (s->operands[k].fixed || s->operands[k].value != value)
                continue;
            if (k == vector_output(s))
                return true;
            if (s->call.op != OP_LINEAR || k != 1)
                return false;
        }
    }
    return true;
}

/* Steps whose output only linears read are done by every group for itself. Their readers: the
 * linears up to the next step that writes the value. */
static void give_own_copies(struct reader *r)
{
    const struct plan *p = r->plan;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const int output = vector_output(&p->steps[i]);
        if (output < 0)
            continue;
        const uint8_t value = p->steps[i].operands[output].value;
        if (!linears_only(p, i, value))
            continue;
        if (r->own_at[value] == 0) {
            r->own_at[value] = 1 + bytes;
            bytes += (p->values[value].bytes + OWN_ALIGN - 1) / OWN_ALIGN * OWN_ALIGN;
        }
        struct cpu_step *row = &r->table[i];
        row->alone = 1;
        row->barrier = 0;
        row->own = 1u << output;
        row->at[output] = r->own_at[value] - 1;
        for (uint32_t j = i + 1; j < p->n_steps; j++) {
            const struct plan_step *s = &p->steps[j];
            const int rewritten = vector_output(s);
            if (rewritten >= 0 && s->operands[rewritten].value == value)
                break;
            if (s->call.op == OP_LINEAR && s->operands[1].value == value) {
                r->table[j].own = 2;
                r->table[j].at[1] = r->own_at[value] - 1;
            }
        }
    }
    r->f->params.own_bytes = (uint32_t)bytes;
}

/* Where the KV heads do not divide among the groups, long sequences are split over them: a row
 * behind each attention merges what the splits found. `table` has room for it. */
static void add_merges(struct reader *r)
{
    const struct plan *p = r->plan;
    struct fused_plan *f = r->f;
    uint32_t n_attention = 0;
    uint64_t part_bytes = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const struct attention_params *a = &p->steps[i].call.params.attention;
        if (p->steps[i].call.op != OP_ATTENTION)
            continue;
        n_attention++;
        if (a->n_head_kv % f->n_groups != 0)
            f->params.n_splits = f->n_groups;
        const uint64_t bytes = sizeof(float) * a->n_head * (2ull + a->head_dim);
        part_bytes = bytes > part_bytes ? bytes : part_bytes;
    }
    f->params.n_steps = p->n_steps;
    if (f->params.n_splits == 1)
        return;
    f->params.parts = (uint64_t)f->n_groups * f->params.own_bytes;
    f->part_bytes = part_bytes;
    uint32_t to = f->params.n_steps += n_attention;
    for (uint32_t i = p->n_steps; i-- > 0;) {
        if (p->steps[i].call.op == OP_ATTENTION) {
            struct cpu_step *merge = &r->table[--to];
            *merge = r->table[i];
            merge->code = CODE_MERGE;
            merge->alone = 1;
            merge->barrier = 0;
        }
        r->table[--to] = r->table[i];
    }
}

/* No meeting between linears of the same input, and none between rope_kv and attention: a group
 * does the same KV heads in both. */
static void drop_meetings(struct reader *r)
{
    const struct plan *p = r->plan;
    for (uint32_t i = 0; i + 1 < p->n_steps; i++) {
        const struct plan_step *s = &p->steps[i], *next = s + 1;
        const struct rope_kv_params *rope = &s->call.params.rope_kv;
        if (s->call.op == OP_LINEAR && next->call.op == OP_LINEAR &&
            s->operands[1].value == next->operands[1].value)
            r->table[i].barrier = 0;
        if (s->call.op == OP_ROPE_KV && next->call.op == OP_ATTENTION &&
            rope->n_head / rope->n_head_kv <= MAX_QUERY_HEADS)
            r->table[i].barrier = 0;
    }
}

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    return a->buffer && a->buffer == b->buffer && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Do groups touch the same memory, one of them writing, when one is in step i and another in step
 * j > i? Values share memory once nobody reads them, which without a meeting between is too soon.
 * Of one value, what drop_meetings counts on keeps the groups apart: linears write columns of their
 * own, and in rope_kv and attention a group stays with its KV heads. */
static bool collide(const struct reader *r, uint32_t i, uint32_t j)
{
    const struct plan_step *a = &r->plan->steps[i], *b = &r->plan->steps[j];
    const bool apart = (a->call.op == OP_LINEAR && b->call.op == OP_LINEAR) ||
                       (a->call.op == OP_ROPE_KV && b->call.op == OP_ATTENTION);
    for (uint32_t k = 0; k < OP_MAX_TENSORS; k++) {
        for (uint32_t l = 0; l < OP_MAX_TENSORS; l++) {
            const bool written = plan_writes(a->call.op, k) || plan_writes(b->call.op, l);
            const bool own = (r->table[i].own >> k & 1) || (r->table[j].own >> l & 1);
            const bool same_value = a->operands[k].value != PLAN_NO_VALUE &&
                                    a->operands[k].value == b->operands[l].value;
            if (written && !own && !(apart && same_value) &&
                overlap(&a->call.tensors[k], &b->call.tensors[l]))
                return true;
        }
    }
    return false;
}

/* Puts a meeting back where steps without one between them collide. */
static void restore_meetings(struct reader *r)
{
    uint32_t first = 0; /* step since the last meeting */
    for (uint32_t j = 0; j < r->plan->n_steps; j++) {
        for (uint32_t i = first; i < j; i++) {
            if (collide(r, i, j)) {
                r->table[j - 1].barrier = 1;
                first = j;
                break;
            }
        }
        if (r->table[j].barrier)
            first = j + 1;
    }
}

static enum status read_plan(struct reader *r)
{
    const struct plan *p = r->plan;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < p->n_steps && status == ST_OK; i++)
        status = read_step(r, &p->steps[i], &r->table[i]);
    if (status != ST_OK)
        return status;
    if (p->n_steps == 0 || p->steps[p->n_steps - 1].call.op != OP_ARGMAX || r->n_types == 0 ||
        r->table_dtype < 0 || r->kv_dtype < 0)
        return refuse(r, "the plan is not one of a decoder");
    give_own_copies(r);
    drop_meetings(r);
    restore_meetings(r);
    add_merges(r);
    return ST_OK;
}

/* ---- building ---- */

static enum status open_kernel(struct reader *r)
{
    char defines[256];
    snprintf(defines, sizeof defines,
             "-DLWS=1 -DTYPE_0=%u -DTYPE_1=%u -DTYPE_2=%u -DTYPE_3=%u -DLINEAR_ACT=%d "
             "-DTABLE_DTYPE=%d -DTABLE_LAYOUT=%d -DKV_DTYPE=%d -DCPU_ISA=%d",
             r->types[0], r->n_types > 1 ? r->types[1] : NO_TYPE,
             r->n_types > 2 ? r->types[2] : NO_TYPE, r->n_types > 3 ? r->types[3] : NO_TYPE,
             r->linear_act < 0 ? ACT_F32 : r->linear_act, r->table_dtype, r->table_layout,
             r->kv_dtype, r->isa < 0 ? 0 : r->isa);
    struct err why = {0};
    const enum status status =
        kernel_open(r->f->device, "cpu/decode.cl", defines, "decode", &r->f->kernel, &why);
    return status == ST_OK
               ? ST_OK
               : err_set(r->e, status == ST_BUILD ? ST_UNSUPPORTED : status, "%s", why.text);
}

static enum status open_buffers(struct reader *r)
{
    static const uint32_t zeros[CONTROL_WORDS];
    struct fused_plan *f = r->f;
    struct device *d = f->device;
    const uint64_t table_bytes = f->params.n_steps * sizeof *r->table;
    const uint64_t own_bytes = f->n_groups * (f->params.own_bytes + f->part_bytes);
    enum status status =
        buffer_open(d, table_bytes, BUFFER_SCRATCH, "one-launch table", &f->table, r->e);
    if (status == ST_OK)
        status = buffer_open(d, own_bytes > 0 ? own_bytes : OWN_ALIGN, BUFFER_SCRATCH,
                             "one-launch copies", &f->own, r->e);
    if (status == ST_OK)
        status =
            buffer_open(d, sizeof zeros, BUFFER_SCRATCH, "one-launch control", &f->control, r->e);
    if (status == ST_OK)
        status = queue_write(d, QUEUE_COMPUTE, f->table, 0, r->table, table_bytes, "table", r->e);
    if (status == ST_OK)
        status = queue_write(d, QUEUE_COMPUTE, f->control, 0, zeros, sizeof zeros, "table", r->e);
    const enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? r->e : NULL);
    return status == ST_OK ? waited : status;
}

static enum status set_arguments(struct reader *r)
{
    struct fused_plan *f = r->f;
    enum status status = ST_OK;
    r->arenas[0] = f->own;
    for (uint32_t i = 0; i < DECODE_ARENAS && status == ST_OK; i++)
        status = kernel_set_buffer(f->kernel, i, i < r->n_arenas ? r->arenas[i] : f->own, r->e);
    if (status == ST_OK)
        status = kernel_set_buffer(f->kernel, DECODE_ARENAS, f->table, r->e);
    if (status == ST_OK)
        status = kernel_set_buffer(f->kernel, DECODE_ARENAS + 1, f->control, r->e);
    return status;
}

/* ---- running ---- */

/* Both sides count meetings from zero again. */
static enum status restart_phases(struct fused_plan *f, struct err *e)
{
    static const uint32_t zeros[CONTROL_WORDS];
    f->params.phase = 0;
    return queue_write(f->device, QUEUE_COMPUTE, f->control, 0, zeros, sizeof zeros, "table", e);
}

/* Runs p->n_tokens tokens and reads what the groups say, and the logits of the call (may be NULL);
 * waits. */
static enum status launch(struct fused_plan *f, const struct fused_call *call,
                          uint32_t control[CONTROL_PHASES], struct err *e)
{
    struct device *d = f->device;
    const size_t gws[3] = {f->n_groups, 1, 1}, lws[3] = {1, 1, 1};
    enum status status = f->unsure ? restart_phases(f, e) : ST_OK;
    f->unsure = true;
    if (status == ST_OK)
        status = kernel_set_bytes(f->kernel, DECODE_ARENAS + 2, &f->params, sizeof f->params, e);
    if (status == ST_OK)
        status = kernel_launch(f->kernel, gws, lws, "decode", "one_launch",
                               f->token_bytes * f->params.n_tokens, 0, e);
    if (status == ST_OK)
        status = queue_read(d, QUEUE_COMPUTE, f->control, 0, control,
                            CONTROL_PHASES * sizeof *control, "arg-max", e);
    const uint64_t row_bytes = f->n_vocab * sizeof(float);
    if (status == ST_OK && call && call->n_logits > 0)
        status = queue_read(d, QUEUE_COMPUTE, f->logits.buffer,
                            f->logits.offset + (call->n_rows - call->n_logits) * row_bytes,
                            call->logits, call->n_logits * row_bytes, "logits", e);
    const enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    if (status != ST_OK || waited != ST_OK)
        return status != ST_OK ? status : waited;
    if (control[CONTROL_DEAD] != 0)
        return err_set(e, ST_TIMEOUT, "%u groups did not meet", f->n_groups);
    f->params.phase = control[CONTROL_PHASE];
    f->unsure = false;
    return ST_OK;
}

static enum status run_cpu(struct fused_plan *f, const struct fused_call *call, struct err *e)
{
    uint32_t control[CONTROL_PHASES];
    const uint32_t n = call->n_tokens;
    if (call->n_rows > f->max_rows)
        return err_set(e, ST_UNSUPPORTED, "one-launch decoding: %u sequences, at most %u",
                       call->n_rows, f->max_rows);
    f->params.n_rows = call->n_rows;
    f->params.n_tokens = n;
    for (uint32_t r = 0; r < call->n_rows; r++) {
        f->params.first[r] = (uint32_t)call->first[r];
        f->params.position[r] = call->positions[r];
        f->params.slot[r] = call->slots[r];
    }
    const enum status status = launch(f, call, control, e);
    for (uint32_t r = 0; status == ST_OK && r < call->n_rows; r++) {
        const uint32_t *tokens = &control[CONTROL_TOKENS + r * DECODE_TOKENS];
        for (uint32_t t = 0; t < n; t++)
            call->out[r * n + t] = (token_id)tokens[t];
        memcpy(&call->found[r * n], &control[CONTROL_FOUND + r * DECODE_TOKENS], n * sizeof(float));
    }
    return status;
}

/* ---- opening ---- */

static void close_cpu(struct fused_plan *f)
{
    if (!f)
        return;
    kernel_close(f->kernel);
    buffer_close(f->table);
    buffer_close(f->own);
    buffer_close(f->control);
    mem_free(f);
}

static enum status open_cpu(const struct plan *plan, struct fused_plan **out, struct err *e)
{
    struct device *d = plan->context->device;
    const uint32_t needs = CAP_CPU | CAP_PERSISTENT;
    if ((device_caps(d) & needs) != needs)
        return err_set(e, ST_UNSUPPORTED, "one-launch decoding: not a CPU with resident groups");
    struct fused_plan *f = mem_zalloc(sizeof *f);
    struct reader *r = mem_zalloc(sizeof *r);
    struct cpu_step *table = mem_array(2ull * plan->n_steps, sizeof *table); /* with merges */
    enum status status = ST_OK;
    if (!f || !r || !table) {
        status = err_set(e, ST_NO_MEMORY, "one-launch decoding: %u steps", plan->n_steps);
        goto out;
    }
    const uint32_t units = device_info(d)->compute_units;
    f->device = d;
    f->n_groups = units < MAX_GROUPS ? units : MAX_GROUPS;
    f->max_rows = plan->max_tokens < DECODE_ROWS ? plan->max_tokens : DECODE_ROWS;
    f->params.n_splits = 1;
    f->params.n_rows = 1;
    f->logits = plan_logits(plan);
    f->n_vocab = plan->context->graph->hparams->n_vocab;
    *r = (struct reader){.plan = plan,
                         .f = f,
                         .table = table,
                         .n_arenas = 1,
                         .linear_act = -1,
                         .isa = -1,
                         .table_dtype = -1,
                         .table_layout = -1,
                         .kv_dtype = -1,
                         .e = e};
    status = read_plan(r);
    if (status == ST_OK)
        status = open_kernel(r);
    if (status == ST_OK)
        status = open_buffers(r);
    if (status == ST_OK)
        status = set_arguments(r);
    /* for no tokens: drivers that compile at the first launch do it now */
    uint32_t control[CONTROL_PHASES];
    if (status == ST_OK)
        status = launch(f, NULL, control, e);
out:
    mem_free(table);
    mem_free(r);
    if (status != ST_OK) {
        close_cpu(f);
        return status;
    }
    *out = f;
    return ST_OK;
}

const struct fused_executor fused_cpu = {.name = "one_launch_cpu",
                                         .max_rows = DECODE_ROWS,
                                         .max_tokens = DECODE_TOKENS,
                                         .plan_tokens = DECODE_ROWS,
                                         .open = open_cpu,
                                         .run = run_cpu,
                                         .close = close_cpu};
