/* Scratch: which values are alive at the same time, and an offset for each.
 *
 * A value is alive from the step that first writes it to the last one that reads that content.
 * Values alive at the same step must not overlap; of the rest, memory is shared.
 */
#include "engine/model/plan_internal.h"
#include "engine/ops/op.h"

#define VALUE_ALIGN 128

_Static_assert(PLAN_MAX_VALUES <= 64, "sets of values are the bits of a uint64_t");

bool plan_writes(enum op_id op, uint32_t operand)
{
    static const uint8_t written[OP_COUNT] = {
        [OP_EMBED] = 1 << 2,  [OP_NORM] = 1 << 3,    [OP_QUANTIZE] = 1 << 1,
        [OP_LINEAR] = 1 << 3, [OP_ROPE_KV] = 1 << 0, [OP_ATTENTION] = 1 << 4 | 1 << 5,
        [OP_SWIGLU] = 1 << 1, [OP_ADD] = 1 << 2,     [OP_ARGMAX] = 1 << 1 | 1 << 2,
        [OP_REPACK] = 1 << 1,
    };
    return written[op] >> operand & 1;
}

/* Does the step leave parts of what it writes as they were (or read them)? */
static bool keeps_content(const struct plan_step *s, uint32_t operand)
{
    return s->call.op == OP_ROPE_KV || s->operands[operand].column > 0 ||
           s->operands[operand].tail_bytes > 0 ||
           (s->call.op == OP_LINEAR && s->call.params.linear.epilogue == LINEAR_ADD);
}

static void step_sets(const struct plan_step *s, uint64_t *read, uint64_t *written)
{
    *read = *written = 0;
    for (uint32_t i = 0; i < OP_MAX_TENSORS; i++) {
        if (s->operands[i].value == PLAN_NO_VALUE)
            continue;
        uint64_t bit = 1ull << s->operands[i].value;
        bool is_written = plan_writes(s->call.op, i);
        if (is_written)
            *written |= bit;
        if (!is_written || keeps_content(s, i))
            *read |= bit;
    }
}

/* neighbours[v]: the values that v must not overlap. */
static void find_neighbours(const struct plan *p, uint64_t neighbours[PLAN_MAX_VALUES])
{
    uint64_t alive = 0; /* after the step; the steps are walked from last to first */
    for (uint32_t i = p->n_steps; i-- > 0;) {
        uint64_t read, written;
        step_sets(&p->steps[i], &read, &written);
        uint64_t together = alive | read | written;
        for (uint32_t v = 0; v < p->n_values; v++)
            if (together >> v & 1)
                neighbours[v] |= together & ~(1ull << v);
        alive = (alive & ~written) | read;
    }
}

/* Moves `offset` up to where v fits: into one scratch buffer, clear of its placed neighbours. */
static uint64_t first_fit(const struct plan *p, uint32_t v, uint64_t neighbours, uint64_t placed)
{
    uint64_t limit = p->context->scratch_limit, bytes = p->values[v].bytes, offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        if (offset / limit != (offset + bytes - 1) / limit) {
            offset = (offset / limit + 1) * limit;
            moved = true;
        }
        for (uint32_t i = 0; i < p->n_values; i++) {
            const struct plan_value *other = &p->values[i];
            if ((neighbours & placed) >> i & 1 && offset < other->offset + other->bytes &&
                other->offset < offset + bytes) {
                offset =
                    (other->offset + other->bytes + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN;
                moved = true;
            }
        }
    }
    return offset;
}

enum status plan__place_values(struct plan *p, struct err *e)
{
    uint64_t neighbours[PLAN_MAX_VALUES] = {0}, placed = 0;
    find_neighbours(p, neighbours);
    p->scratch_bytes = 0;
    for (uint32_t round = 0; round < p->n_values; round++) { /* the largest first */
        uint32_t v = PLAN_NO_VALUE;
        for (uint32_t i = 0; i < p->n_values; i++)
            if (!(placed >> i & 1) &&
                (v == PLAN_NO_VALUE || p->values[i].bytes > p->values[v].bytes))
                v = i;
        if (p->values[v].bytes > p->context->scratch_limit)
            return err_set(e, ST_NO_DEVICE_MEMORY,
                           "scratch: %llu bytes for %u rows of %u columns, the largest buffer of "
                           "%s has %llu",
                           (unsigned long long)p->values[v].bytes,
                           plan__max_rows(p, p->values[v].rows), p->values[v].columns,
                           device_info(p->context->device)->name,
                           (unsigned long long)p->context->scratch_limit);
        p->values[v].offset = first_fit(p, v, neighbours[v], placed);
        placed |= 1ull << v;
        uint64_t end = p->values[v].offset + p->values[v].bytes;
        p->scratch_bytes = end > p->scratch_bytes ? end : p->scratch_bytes;
    }
    return ST_OK;
}
