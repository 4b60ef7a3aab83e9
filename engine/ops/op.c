/* Ops at run time: the table of ops, and steps (a call bound to a variant's kernels).
 *
 * A step holds one struct kernel per stage with all its arguments set, and the grid. Setting params
 * or a tensor changes arguments and grid only. On `host` a step is the reference and its call.
 */
#include "engine/ops/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/ops/rules.h"

#define MAX_GROUPS      (1u << 20)   /* kernels loop over more blocks than that */
#define LOCAL_BYTES_BIG (227u << 10) /* of a group, where CAP_BIG_LOCAL */

struct op_info {
    const char *name;
    const char *tensors[OP_MAX_TENSORS]; /* ">y": an output */
    uint32_t n_tensors;
    size_t params_bytes;
};

static const struct op_info op_infos[OP_COUNT] = {
#define X(id, op_name_, params, n, ...) [id] = {op_name_, {__VA_ARGS__}, n, sizeof(struct params)},
#include "engine/ops/ops.def"
#undef X
};

const char *op_name(enum op_id op)
{
    return (unsigned)op < OP_COUNT ? op_infos[op].name : "unknown";
}

uint32_t op_tensor_count(enum op_id op)
{
    return op_infos[op].n_tensors;
}

bool op_tensor_is_output(enum op_id op, uint32_t i)
{
    return op_infos[op].tensors[i][0] == '>';
}

const char *op_tensor_name(enum op_id op, uint32_t i)
{
    return op_infos[op].tensors[i] + (op_tensor_is_output(op, i) ? 1 : 0);
}

size_t op_params_bytes(enum op_id op)
{
    return op_infos[op].params_bytes;
}

struct op_step {
    struct device *d;
    const struct variant *v;
    struct op_call call;
    struct kernel *kernels[VARIANT_MAX_STAGES];
    size_t lws[VARIANT_MAX_STAGES], gws[VARIANT_MAX_STAGES];
    struct buffer *scratch; /* private memory of the variant; NULL if it needs none */
    uint64_t bytes, flops;
};

static uint64_t div_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks of a stage: kernels.def says how. */
static uint64_t stage_blocks(const struct stage *stage, const struct op_call *call)
{
    uint64_t rows, tokens;
    op_extent(call, &rows, &tokens);
    uint64_t blocks = (stage->rows ? div_up(rows, stage->rows) : 1) *
                      (stage->tokens ? div_up(tokens, stage->tokens) : 1);
    return stage->grid == GRID_SPLITS ? blocks * call->params.attention.n_splits : blocks;
}

static uint64_t stage_groups(const struct op_step *s, uint32_t i)
{
    const struct stage *stage = &s->v->stages[i];
    uint64_t groups = stage_blocks(stage, &s->call);
    if (i == 0 && s->v->k_splits > 1)
        groups *= s->v->k_splits;
    if (stage->grid == GRID_ITEMS)
        groups = div_up(groups, s->lws[i]);
    const uint64_t enough = device_grid_groups(s->d, s->lws[i]);
    const uint64_t most = stage->grid == GRID_UNITS ? device_info(s->d)->compute_units
                          : enough < MAX_GROUPS     ? enough
                                                    : MAX_GROUPS;
    return groups < most ? groups : most;
}

static enum status bind_tensor(struct op_step *s, uint32_t i, struct err *e)
{
    const struct tensor *t = &s->call.tensors[i];
    /* a tensor that this call does not use still needs some buffer as an argument */
    struct buffer *b = t->buffer ? t->buffer : s->call.tensors[0].buffer;
    const uint64_t offset = t->buffer ? t->offset : 0;
    for (uint32_t k = 0; k < VARIANT_MAX_STAGES && s->kernels[k]; k++) {
        enum status st = kernel_set_buffer(s->kernels[k], 2 * i, b, e);
        if (st == ST_OK)
            st = kernel_set_bytes(s->kernels[k], 2 * i + 1, &offset, sizeof offset, e);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

uint64_t op_scratch_bytes(const struct variant *v, const struct op_call *call)
{
    if (v->ref)
        return 0;
    if (v->scratch == SCRATCH_SCORES)
        return 4ull * call->params.attention.n_tokens * call->params.attention.n_head *
               call->params.attention.kv_max;
    return v->scratch != SCRATCH_BLOCKS ? op_rules(v->op)->scratch(v, call)
                                        : stage_blocks(&v->stages[0], call) * v->scratch_bytes;
}

/* Makes the private memory large enough and binds it behind the tensors. */
static enum status bind_scratch(struct op_step *s, struct err *e)
{
    const uint32_t index = 2 * op_tensor_count(s->v->op);
    const uint64_t need = op_scratch_bytes(s->v, &s->call);
    const uint64_t offset = 0;
    const bool image = s->v->scratch == SCRATCH_IMAGE;
    if (need == 0 || (s->scratch && !image && buffer_bytes(s->scratch) >= need))
        return ST_OK;
    struct buffer *b = NULL;
    enum status st = image ? buffer_open_image(s->d, op_rules(s->v->op)->image(&s->call),
                                               op_name(s->v->op), &b, e)
                           : buffer_open(s->d, need, BUFFER_SCRATCH, op_name(s->v->op), &b, e);
    for (uint32_t k = 0; st == ST_OK && k < VARIANT_MAX_STAGES && s->kernels[k]; k++) {
        st = kernel_set_buffer(s->kernels[k], index, b, e);
        if (st == ST_OK)
            st = kernel_set_bytes(s->kernels[k], index + 1, &offset, sizeof offset, e);
    }
    buffer_close(s->scratch);
    s->scratch = st == ST_OK ? b : NULL; /* after a failure all kernels are bound again */
    if (st != ST_OK)
        buffer_close(b);
    return st;
}

/* Params as an argument, and everything that follows from them: grid, scratch, work. */
static enum status bind_params(struct op_step *s, struct err *e)
{
    s->bytes = op_bytes(&s->call);
    s->flops = op_flops(&s->call);
    if (s->v->ref)
        return ST_OK;
    if (op_depth(&s->call) > variant_depth_max(s->d, s->v))
        return err_set(
            e, ST_UNSUPPORTED,
            "%s %s: depth %" PRIu64 ", at most %" PRIu64 " where a driver ends long loops early",
            op_name(s->v->op), s->v->name, op_depth(&s->call), variant_depth_max(s->d, s->v));
    enum status st = bind_scratch(s, e);
    if (st == ST_OK && s->v->k_splits > 1) /* where states lie follows from the shape */
        st = queue_fill(s->d, QUEUE_COMPUTE, s->scratch, 0, op_scratch_bytes(s->v, &s->call), 0,
                        "zeros", e);
    const uint32_t index = 2 * op_tensor_count(s->v->op) + (variant_has_scratch(s->v) ? 2 : 0);
    for (uint32_t k = 0; st == ST_OK && k < VARIANT_MAX_STAGES && s->kernels[k]; k++) {
        st = kernel_set_bytes(s->kernels[k], index, &s->call.params, op_params_bytes(s->v->op), e);
        s->gws[k] = (size_t)stage_groups(s, k) * s->lws[k];
    }
    return st;
}

/* Builds the kernels of all stages with their local sizes, halved until the kernel's own limit on
 * this device allows them. */
static enum status open_kernels(struct op_step *s, struct err *e)
{
    const struct variant *v = s->v;
    const uint32_t limit = device_info(s->d)->max_work_group;
    for (uint32_t k = 0; k < VARIANT_MAX_STAGES; k++) {
        s->lws[k] = v->stages[k].lws;
        while (s->lws[k] > 1 && limit > 0 && s->lws[k] > limit)
            s->lws[k] /= 2;
    }
    for (uint32_t k = 0; k < VARIANT_MAX_STAGES && v->stages[k].entry;) {
        char defines[512], dtype[32] = "";
        if (v->dtype != DT_ANY)
            snprintf(dtype, sizeof dtype, "-DOP_DTYPE=%d ", v->dtype);
        snprintf(
            defines, sizeof defines,
            "%s-DOP_ACT=%u -DOP_LAYOUT=%u -DROWS=%u -DTOKENS=%u -DLWS=%zu -DLWS2=%zu -DLWS3=%zu "
            "-DLWS4=%zu%s%s",
            dtype, v->act, v->layout, variant_rows_of(v), variant_tokens_of(v), s->lws[0],
            s->lws[1], s->lws[2], s->lws[3], v->defines ? " " : "", v->defines ? v->defines : "");
        enum status st = kernel_open(s->d, v->file, defines, v->stages[k].entry, &s->kernels[k], e);
        if (st != ST_OK)
            return st;
        if (v->exact_lws)
            kernel_expect_work_group(s->kernels[k], v->stages[k].lws);
        if (kernel_max_work_group(s->kernels[k]) >= s->lws[k] || s->lws[k] == 1) {
            k++;
            continue;
        }
        s->lws[k] /= 2; /* the local sizes are build options: start over */
        for (uint32_t i = 0; i <= k; i++) {
            kernel_close(s->kernels[i]);
            s->kernels[i] = NULL;
        }
        k = 0;
    }
    return ST_OK;
}

enum status op_bind(struct device *d, const struct variant *v, const struct op_call *call,
                    struct op_step **out, struct err *e)
{
    *out = NULL;
    enum status st = op_check(v, call, e);
    if (st != ST_OK)
        return st;
    struct op_step *s = mem_zalloc(sizeof *s);
    if (!s)
        return err_set(e, ST_NO_MEMORY, "%s %s: no memory for a step", op_name(v->op), v->name);
    s->d = d;
    s->v = v;
    s->call = *call;
    if (!v->ref) {
        st = open_kernels(s, e);
        for (uint32_t i = 0; st == ST_OK && i < op_tensor_count(v->op); i++)
            st = bind_tensor(s, i, e);
    }
    if (st == ST_OK)
        st = bind_params(s, e);
    if (st != ST_OK) {
        op_step_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void op_step_close(struct op_step *s)
{
    if (!s)
        return;
    for (uint32_t k = 0; k < VARIANT_MAX_STAGES; k++)
        kernel_close(s->kernels[k]);
    buffer_close(s->scratch);
    mem_free(s);
}

enum status op_step_set_params(struct op_step *s, const union op_params *params, struct err *e)
{
    struct op_call call = s->call;
    call.params = *params;
    enum status st = op_check(s->v, &call, e);
    if (st != ST_OK)
        return st;
    s->call = call;
    return bind_params(s, e);
}

enum status op_step_set_tensor(struct op_step *s, uint32_t index, const struct tensor *t,
                               struct err *e)
{
    struct op_call call = s->call;
    if (index >= op_tensor_count(call.op))
        return err_set(e, ST_INVALID, "%s: tensor %u, there are %u", op_name(call.op), index,
                       op_tensor_count(call.op));
    call.tensors[index] = *t;
    enum status st = op_check(s->v, &call, e);
    if (st != ST_OK)
        return st;
    s->call = call;
    return s->v->ref ? ST_OK : bind_tensor(s, index, e);
}

static enum status run_reference(struct op_step *s, struct err *e)
{
    void *data[OP_MAX_TENSORS] = {0};
    for (uint32_t i = 0; i < op_tensor_count(s->v->op); i++)
        if (s->call.tensors[i].buffer)
            data[i] = (char *)buffer_host(s->call.tensors[i].buffer) + s->call.tensors[i].offset;
    const uint64_t start_ns = clock_now_ns();
    enum status st = s->v->ref(&s->call, data, e);
    if (st == ST_OK && prof_enabled(s->d))
        prof_add(s->d, op_name(s->v->op), s->v->name, start_ns, clock_now_ns(), s->bytes, s->flops);
    return st;
}

enum status op_run(struct op_step *s, struct err *e)
{
    if (s->v->ref)
        return run_reference(s, e);
    enum status st = ST_OK;
    const bool merge = s->v->stages[0].grid != GRID_SPLITS || s->call.params.attention.n_splits > 1;
    for (uint32_t k = 0; st == ST_OK && k < VARIANT_MAX_STAGES && s->kernels[k]; k++) {
        if (k > 0 && !merge)
            break;
        const size_t gws[3] = {s->gws[k], 1, 1}, lws[3] = {s->lws[k], 1, 1};
        /* the work is counted once, at the first stage */
        st = kernel_launch(s->kernels[k], gws, lws, op_name(s->v->op), s->v->name,
                           k == 0 ? s->bytes : 0, k == 0 ? s->flops : 0, e);
    }
    return st;
}

enum status op_step_check_fit(const struct op_step *s, struct err *e)
{
    const uint64_t local_bytes =
        device_caps(s->d) & CAP_BIG_LOCAL ? LOCAL_BYTES_BIG : device_info(s->d)->local_bytes;
    for (uint32_t k = 0; k < VARIANT_MAX_STAGES && s->kernels[k]; k++) {
        const uint64_t needed = kernel_local_bytes(s->kernels[k]);
        if (s->lws[k] != s->v->stages[k].lws)
            return err_set(e, ST_UNSUPPORTED, "%s %s: groups of %u, the device allows %zu for %s",
                           op_name(s->v->op), s->v->name, s->v->stages[k].lws, s->lws[k],
                           s->v->stages[k].entry);
        if (local_bytes > 0 && needed > local_bytes)
            return err_set(e, ST_UNSUPPORTED,
                           "%s %s: %" PRIu64 " bytes of local memory, the device has %" PRIu64,
                           op_name(s->v->op), s->v->name, needed, local_bytes);
    }
    return ST_OK;
}

enum status op_call_once(struct device *d, const struct variant *v, const struct op_call *call,
                         struct err *e)
{
    struct op_step *s;
    enum status st = op_bind(d, v, call, &s, e);
    if (st != ST_OK)
        return st;
    st = op_run(s, e);
    op_step_close(s);
    return st;
}
