/* Several greedy tokens of one or a few sequences (rows) in one launch: a table of steps, run in
 * order by all groups, which meet where a step needs what another group wrote. A group of one item
 * per compute unit.
 *
 * Build options: TYPE_0 .. TYPE_3 (dtypes of the linears' weights, NO_TYPE where unused),
 * LINEAR_ACT (what quantised ones read), TABLE_DTYPE and TABLE_LAYOUT (of the embedding: 0 the
 * file's, 1 LAYOUT_R16), KV_DTYPE, CPU_ISA. Checked with: -DTYPE_0=2 -DTYPE_1=14 -DTYPE_2=1
 * -DTYPE_3=8 -DLINEAR_ACT=1 -DTABLE_DTYPE=2 -DTABLE_LAYOUT=1 -DKV_DTYPE=1 -DCPU_ISA=1.
 */
#include "cpu/barrier.h"
#include "cpu/decode.h"
#include "cpu/linear.h" /* here: programs hold a header where it is first named, be it skipped there */

#ifndef TYPE_0
#define TYPE_0 DT_Q4_0
#define TYPE_1 DT_F32
#define TYPE_2 NO_TYPE
#define TYPE_3 NO_TYPE
#define LINEAR_ACT   ACT_F32
#define TABLE_DTYPE  DT_F16
#define TABLE_LAYOUT 1
#define KV_DTYPE     DT_F16
#endif
#define NO_TYPE 255

#include "cpu/argmax.cl"
#include "cpu/attention.cl"
#include "cpu/rope.cl"
#include "elementwise/add.cl"
#undef OP_DTYPE
#define OP_DTYPE TABLE_DTYPE
#if TABLE_LAYOUT == 1
#include "cpu/embed.cl"
#define EMBED_STEP embed_r16_step
#else
#include "embed/plain.cl"
#define EMBED_STEP embed_plain_step
#endif

#undef OP_ACT
#define OP_ACT ACT_F32
#include "cpu/activations.inc"
#undef OP_ACT
#define OP_ACT ACT_Q8
#include "cpu/activations.inc"

#undef OP_ACT
#define OP_ACT LINEAR_ACT
#undef OP_DTYPE
#define OP_DTYPE TYPE_0
#include "cpu/r16.inc"
#include "cpu/linear_few.inc"
#if TYPE_1 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_1
#include "cpu/r16.inc"
#include "cpu/linear_few.inc"
#endif
#if TYPE_2 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_2
#include "cpu/r16.inc"
#include "cpu/linear_few.inc"
#endif
#if TYPE_3 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_3
#include "cpu/r16.inc"
#include "cpu/linear_few.inc"
#endif

/* One call of a step's function: its tensors at t[0 .. 5], its params, the group's share. */
#define SPLIT_FROM   64 /* position from which cells are split over the groups */
#define PARAMS(type) (*(const __global struct type *)s->params)
#define FLOATS(i)    ((__global float *)t[i])
#define INTS(i)      ((__global int *)t[i])

static void run_linear(const __global struct cpu_step *s, __global uchar *const *t, uint n_rows,
                       __private int *prepared, uint group, uint n_groups)
{
    struct linear_params p = PARAMS(linear_params);
    p.n_tokens = n_rows;
#undef OP_DTYPE
#define OP_DTYPE TYPE_0
    if (s->code == CODE_LINEAR)
        linear_few_step(t[0], t[1], FLOATS(2), FLOATS(3), p, prepared, group, n_groups);
#if TYPE_1 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_1
    if (s->code == CODE_LINEAR + 1)
        linear_few_step(t[0], t[1], FLOATS(2), FLOATS(3), p, prepared, group, n_groups);
#endif
#if TYPE_2 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_2
    if (s->code == CODE_LINEAR + 2)
        linear_few_step(t[0], t[1], FLOATS(2), FLOATS(3), p, prepared, group, n_groups);
#endif
#if TYPE_3 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_3
    if (s->code == CODE_LINEAR + 3)
        linear_few_step(t[0], t[1], FLOATS(2), FLOATS(3), p, prepared, group, n_groups);
#endif
}

/* `use` in which p are the step's params with n_rows rows. */
#define WITH_ROWS(type, count, use)  \
    do {                             \
        struct type p = PARAMS(type); \
        p.count = n_rows;            \
        use;                         \
    } while (0)

/* parts, n_splits: of attention. */
static void run_other(const __global struct cpu_step *s, __global uchar *const *t, uint n_rows,
                      __global float *parts, uint n_splits, uint group, uint n_groups)
{
    switch (s->code) {
    case CODE_EMBED:
        WITH_ROWS(embed_params, n_tokens,
                  EMBED_STEP(t[0], INTS(1), FLOATS(2), p, group, n_groups));
        break;
    case CODE_ADD: {
        struct add_params p = PARAMS(add_params);
        p.n *= n_rows;
        add_plain_step(FLOATS(0), FLOATS(1), FLOATS(2), p, group, n_groups);
        break;
    }
    case CODE_ROPE_KV:
        WITH_ROWS(rope_kv_params, n_tokens,
                  rope_kv_cpu_step(FLOATS(0), FLOATS(1), INTS(2), t[3], t[4], p, group, n_groups));
        break;
    case CODE_ATTENTION:
        WITH_ROWS(attention_params, n_tokens,
                  attention_cpu_step(FLOATS(0), t[1], t[2], INTS(3), FLOATS(5), p, 1, parts,
                                     n_splits, group, n_groups));
        break;
    case CODE_MERGE:
        if (n_splits > 1)
            attention_merge_cpu_step(parts, FLOATS(5), PARAMS(attention_params), n_splits, group,
                                     n_groups);
        break;
    case CODE_ARGMAX:
        WITH_ROWS(argmax_params, n_rows,
                  argmax_cpu_step(FLOATS(0), INTS(1), FLOATS(2), p, group, n_groups));
        break;
#undef OP_ACT
#define OP_ACT ACT_F32
    case CODE_NORM_F32:
        WITH_ROWS(norm_params, n_rows,
                  norm_cpu_step(FLOATS(0), FLOATS(1), FLOATS(2), t[3], p, group, n_groups));
        break;
    case CODE_SWIGLU_F32:
        WITH_ROWS(swiglu_params, n_tokens, swiglu_cpu_step(FLOATS(0), t[1], p, group, n_groups));
        break;
#undef OP_ACT
#define OP_ACT ACT_Q8
    case CODE_NORM_Q8:
        WITH_ROWS(norm_params, n_rows,
                  norm_cpu_step(FLOATS(0), FLOATS(1), FLOATS(2), t[3], p, group, n_groups));
        break;
    case CODE_SWIGLU_Q8:
        WITH_ROWS(swiglu_params, n_tokens, swiglu_cpu_step(FLOATS(0), t[1], p, group, n_groups));
        break;
    case CODE_QUANTIZE:
        WITH_ROWS(quantize_params, n_rows,
                  quantize_cpu_step(FLOATS(0), t[1], p, group, n_groups));
        break;
    }
}

static __global uchar *place(__global uchar *const *arenas, cpu_place at)
{
    return arenas[at >> 56] + (at & 0xffffffffffffffUL);
}

/* Tells the steps which token of row r goes in. Every group writes the same words, so that it can read
 * them without meeting the others. */
static void enter_token(__global uchar *const *arenas, const struct cpu_decode_params *p, uint r,
                        uint token, uint position)
{
    __global int *meta = (__global int *)place(arenas, p->meta) + 4 * r;
    meta[0] = (int)position;
    meta[1] = (int)p->slot[r];
    for (uint i = 0; i < p->n_tables; i++)
        ((__global int *)place(arenas, p->ids[i]))[r] = (int)(token - p->row0[i]);
}

#define EACH_ARENA(X)                                                              \
    X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7), X(8), X(9), X(10), X(11), X(12), \
    X(13), X(14), X(15), X(16), X(17), X(18), X(19), X(20), X(21), X(22), X(23)
#define ARENA_ARGUMENT(i) __global uchar *arena##i
#define ARENA_NAME(i)     arena##i

KERNEL(1) void decode(EACH_ARENA(ARENA_ARGUMENT), const __global struct cpu_step *steps,
                      __global uint *control, struct cpu_decode_params p)
{
    __global uchar *arenas[DECODE_ARENAS] = {EACH_ARENA(ARENA_NAME)};
    const uint group = get_group_id(0), n_groups = get_num_groups(0), n_rows = p.n_rows;
    int prepared[PREPARED_WORDS];
    uint phase = p.phase, tokens[DECODE_ROWS];
    for (uint r = 0; r < n_rows; r++)
        tokens[r] = p.first[r];
    for (uint n = 0; n < p.n_tokens; n++) {
        const uint n_splits = n_rows == 1 && p.position[0] + n >= SPLIT_FROM ? p.n_splits : 1;
        for (uint r = 0; r < n_rows; r++)
            enter_token(arenas, &p, r, tokens[r], p.position[r] + n);
        for (uint i = 0; i < p.n_steps; i++) {
            const __global struct cpu_step *s = steps + i;
            __global uchar *t[6];
            for (uint k = 0; k < 6; k++)
                t[k] = place(arenas, s->at[k]) + (s->own >> k & 1 ? group * p.own_bytes : 0);
            const uint share = s->alone ? 0 : group, shares = s->alone ? 1 : n_groups;
            if (s->code >= CODE_LINEAR)
                run_linear(s, t, n_rows, prepared, share, shares);
            else
                run_other(s, t, n_rows, (__global float *)place(arenas, p.parts), n_splits, share,
                          shares);
            const bool changes = s->code == CODE_ROPE_KV && (n_splits > 1 || n_rows > 1);
            if ((s->barrier || changes) && !meet(control, ++phase, group, n_groups))
                return;
        }
        for (uint r = 0; r < n_rows; r++) {
            tokens[r] = ((__global uint *)place(arenas, p.index))[r];
            if (group == 0) {
                control[CONTROL_TOKENS + r * DECODE_TOKENS + n] = tokens[r];
                control[CONTROL_FOUND + r * DECODE_TOKENS + n] =
                    ((__global uint *)place(arenas, p.found))[r];
            }
        }
    }
    if (group == 0)
        control[CONTROL_PHASE] = phase;
}
