/* The registry of variants and the choice among them.
 *
 * Rows come from kernels.def; the references of `host` are rows too, one per op. The choice is a
 * filter (query, caps, shape, marks) and a priority.
 */
#include "engine/ops/variant.h"

#include <string.h>

#include "engine/ops/ref/ref.h"
#include "engine/tune/tuned.h"

const struct variant variant_rows[] = {
#define X(op_, name_, file_, dtype_, ...) \
    {.op = op_, .name = name_, .file = file_, .dtype = dtype_, __VA_ARGS__},
#include "kernels/kernels.def"
#undef X
};
const uint32_t variant_row_count = sizeof variant_rows / sizeof *variant_rows;

_Static_assert(sizeof variant_rows / sizeof *variant_rows <= DEVICE_MARKS, "raise DEVICE_MARKS");

static const struct variant reference_rows[OP_COUNT] = {
#define X(id, op_name_, params, n, ...) \
    [id] = {.op = id, .name = "ref", .dtype = DT_ANY, .ref = ref_##params},
#include "engine/ops/ops.def"
#undef X
};

const char *variant_name(const struct variant *v)
{
    return v->name;
}

enum op_id variant_op(const struct variant *v)
{
    return v->op;
}

int variant_dtype(const struct variant *v)
{
    return v->dtype;
}

uint32_t variant_act(const struct variant *v)
{
    return v->act;
}

enum weight_layout variant_layout(const struct variant *v)
{
    return (enum weight_layout)v->layout;
}

const char *variant_tunables(const struct variant *v)
{
    return v->tunables ? v->tunables : "";
}

bool variant_has_scratch(const struct variant *v)
{
    return v->scratch_bytes > 0 || v->scratch != SCRATCH_BLOCKS;
}

uint32_t variant_rows_of(const struct variant *v)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < VARIANT_MAX_STAGES; i++)
        most = v->stages[i].rows > most ? v->stages[i].rows : most;
    return most;
}

uint32_t variant_tokens_of(const struct variant *v)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < VARIANT_MAX_STAGES; i++)
        most = v->stages[i].tokens > most ? v->stages[i].tokens : most;
    return most;
}

const struct variant *variant_reference(enum op_id op)
{
    return &reference_rows[op];
}

/* Number of a row of kernels.def; variant_row_count for a configured copy. */
static uint32_t row_number(const struct variant *v)
{
    const uintptr_t at = (uintptr_t)v, first = (uintptr_t)variant_rows;
    return at >= first && at < first + sizeof variant_rows ? (uint32_t)(v - variant_rows)
                                                           : variant_row_count;
}

enum variant_mark variant_mark_get(struct device *d, const struct variant *v)
{
    const uint32_t row = row_number(v);
    if (v->ref)
        return VARIANT_PASSED;
    return row < variant_row_count ? (enum variant_mark)device_marks(d)[row] : tuned_mark_get(d, v);
}

void variant_mark_set(struct device *d, const struct variant *v, enum variant_mark mark)
{
    const uint32_t row = row_number(v);
    if (v->ref)
        return;
    if (row < variant_row_count)
        device_marks(d)[row] = (uint8_t)mark;
    else
        tuned_mark_set(d, v, mark);
}

uint64_t variant_depth_max(struct device *d, const struct variant *v)
{
    if (v->ref || (device_caps(d) & CAP_LONG_LOOPS))
        return UINT64_MAX;
    return v->depth_max > 0 ? v->depth_max : VARIANT_DEPTH_MAX;
}

/* Time of all blocks, when every compute unit works on one at a time. */
static uint64_t cost_of(const struct variant *v, uint64_t rows, uint64_t tokens, uint32_t units)
{
    const struct stage *s = &v->stages[0];
    const uint64_t blocks = (s->rows ? (rows + s->rows - 1) / s->rows : 1) *
                            (s->tokens ? (tokens + s->tokens - 1) / s->tokens : 1) *
                            (v->k_splits > 1 ? v->k_splits : 1);
    const uint32_t n = units > 0 ? units : 1;
    return (blocks + n - 1) / n * v->block_cost;
}

int variant_compare(const struct variant *a, const struct variant *b, uint64_t rows,
                    uint64_t tokens, uint32_t units)
{
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->block_cost == 0 || b->block_cost == 0 || rows == 0 || tokens == 0)
        return 0;
    const uint64_t cost_a = cost_of(a, rows, tokens, units);
    const uint64_t cost_b = cost_of(b, rows, tokens, units);
    return cost_a == cost_b ? 0 : cost_a < cost_b ? -1 : 1;
}

static bool runs_on(struct device *d, const struct variant *v)
{
    return (v->needs & ~device_caps(d)) == 0;
}

/* Does the variant do what the query asks for, whatever the device? */
static bool answers(const struct variant *v, const struct variant_query *q)
{
    if (v->op != q->op || (q->name && strcmp(q->name, v->name) != 0))
        return false;
    if (q->dtype >= 0 && v->dtype != DT_ANY && v->dtype != q->dtype)
        return false;
    if ((q->act >= 0 && v->act != (uint32_t)q->act) ||
        (q->layout >= 0 && v->layout != (uint32_t)q->layout))
        return false;
    if (q->k > 0 &&
        ((v->k_multiple > 0 && q->k % v->k_multiple != 0) || (v->k_max > 0 && q->k > v->k_max)))
        return false;
    if (q->name)
        return true; /* forced: the range of tokens is only advice */
    return q->n_tokens == 0 ||
           (q->n_tokens >= v->tokens_min && (v->tokens_max == 0 || q->n_tokens <= v->tokens_max));
}

/* Can the variant be chosen for the query on this device at all? */
static bool can_serve(struct device *d, const struct variant *v, const void *user)
{
    const struct variant_query *query = user;
    return answers(v, query) && runs_on(d, v) && variant_mark_get(d, v) != VARIANT_FAILED &&
           (query->op != OP_LINEAR || query->k <= variant_depth_max(d, v));
}

/* What was tuned for the query, if anything, in place of the heuristic's choice. */
static const struct variant *choose_tuned(struct device *d, const struct variant *v,
                                          const struct variant_query *query)
{
    if (query->op != OP_LINEAR || query->dtype < 0)
        return v; /* the other ops are not asked for by shape */
    const struct shape shape = {
        .op = OP_LINEAR, .n_dims = 3, .dims = {query->m, query->k, query->n_tokens}};
    return tuned_choose(d, v, &shape, query->dtype, query->name ? NULL : can_serve, query);
}

const struct variant *variant_choose(struct device *d, const struct variant_query *query)
{
    if (device_is_host(d)) {
        const struct variant *ref = variant_reference(query->op);
        return answers(ref, query) ? ref : NULL;
    }
    const struct variant *best = NULL;
    const uint32_t units = device_info(d)->compute_units;
    for (uint32_t i = 0; i < variant_row_count; i++) {
        const struct variant *v = &variant_rows[i];
        if (can_serve(d, v, query) &&
            (!best || variant_compare(v, best, query->m, query->n_tokens, units) < 0))
            best = v;
    }
    return best ? choose_tuned(d, best, query) : NULL;
}

const struct variant *variant_at(struct device *d, enum op_id op, uint32_t i)
{
    if (device_is_host(d))
        return i == 0 ? variant_reference(op) : NULL;
    for (uint32_t row = 0; row < variant_row_count; row++) {
        const struct variant *v = &variant_rows[row];
        if (v->op == op && runs_on(d, v) && i-- == 0)
            return v;
    }
    return NULL;
}
