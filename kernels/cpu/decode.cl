/* Several greedy tokens of one sequence in one launch: a table of steps, run in order by all
 * groups, which meet where a step needs what another group wrote. A group of one item per compute
 * unit.
 *
 * Build options: TYPE_0 .. TYPE_3 (dtypes of the linears' weights, NO_TYPE where unused),
 * LINEAR_ACT (what quantised ones read), TABLE_DTYPE and TABLE_LAYOUT (of the embedding: 0 the
 * file's, 1 LAYOUT_R16), KV_DTYPE, CPU_ISA.
 */
#include "cpu/barrier.h"
#include "cpu/decode.h"

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
#undef TOKENS
#define TOKENS 1
#undef OP_DTYPE
#define OP_DTYPE TYPE_0
#include "cpu/linear_decode.inc"
#if TYPE_1 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_1
#include "cpu/linear_decode.inc"
#endif
#if TYPE_2 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_2
#include "cpu/linear_decode.inc"
#endif
#if TYPE_3 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_3
#include "cpu/linear_decode.inc"
#endif

/* One call of a step's function: its tensors at t[0 .. 5], its params, the group's share. */
#define SPLIT_FROM   64 /* position from which cells are split over the groups */
#define PARAMS(type) (*(const __global struct type *)s->params)
#define FLOATS(i)    ((__global float *)t[i])
#define INTS(i)      ((__global int *)t[i])

static void run_linear(const __global struct cpu_step *s, __global uchar *const *t, uint group,
                       uint n_groups)
{
    const struct linear_params p = PARAMS(linear_params);
#undef OP_DTYPE
#define OP_DTYPE TYPE_0
    if (s->code == CODE_LINEAR)
        linear_decode_step(t[0], t[1], FLOATS(2), FLOATS(3), p, group, n_groups);
#if TYPE_1 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_1
    if (s->code == CODE_LINEAR + 1)
        linear_decode_step(t[0], t[1], FLOATS(2), FLOATS(3), p, group, n_groups);
#endif
#if TYPE_2 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_2
    if (s->code == CODE_LINEAR + 2)
        linear_decode_step(t[0], t[1], FLOATS(2), FLOATS(3), p, group, n_groups);
#endif
#if TYPE_3 != NO_TYPE
#undef OP_DTYPE
#define OP_DTYPE TYPE_3
    if (s->code == CODE_LINEAR + 3)
        linear_decode_step(t[0], t[1], FLOATS(2), FLOATS(3), p, group, n_groups);
#endif
}

/* parts, n_splits: of attention. */
static void run_other(const __global struct cpu_step *s, __global uchar *const *t,
                      __global float *parts, uint n_splits, uint group, uint n_groups)
{
    switch (s->code) {
    case CODE_EMBED:
        EMBED_STEP(t[0], INTS(1), FLOATS(2), PARAMS(embed_params), group, n_groups);
        break;
    case CODE_ADD:
        add_plain_step(FLOATS(0), FLOATS(1), FLOATS(2), PARAMS(add_params), group, n_groups);
        break;
    case CODE_ROPE_KV:
        rope_kv_cpu_step(FLOATS(0), FLOATS(1), INTS(2), t[3], t[4], PARAMS(rope_kv_params), group,
                         n_groups);
        break;
    case CODE_ATTENTION:
        attention_cpu_step(FLOATS(0), t[1], t[2], INTS(3), FLOATS(5), PARAMS(attention_params),
                           parts, n_splits, group, n_groups);
        break;
    case CODE_MERGE:
        if (n_splits > 1)
            attention_merge_cpu_step(parts, FLOATS(5), PARAMS(attention_params), n_splits, group,
                                     n_groups);
        break;
    case CODE_ARGMAX:
        argmax_cpu_step(FLOATS(0), INTS(1), FLOATS(2), PARAMS(argmax_params), group, n_groups);
        break;
#undef OP_ACT
#define OP_ACT ACT_F32
    case CODE_NORM_F32:
        norm_cpu_step(FLOATS(0), FLOATS(1), FLOATS(2), t[3], PARAMS(norm_params), group, n_groups);
        break;
    case CODE_SWIGLU_F32:
        swiglu_cpu_step(FLOATS(0), t[1], PARAMS(swiglu_params), group, n_groups);
        break;
#undef OP_ACT
#define OP_ACT ACT_Q8
    case CODE_NORM_Q8:
        norm_cpu_step(FLOATS(0), FLOATS(1), FLOATS(2), t[3], PARAMS(norm_params), group, n_groups);
        break;
    case CODE_SWIGLU_Q8:
        swiglu_cpu_step(FLOATS(0), t[1], PARAMS(swiglu_params), group, n_groups);
        break;
    case CODE_QUANTIZE:
        quantize_cpu_step(FLOATS(0), t[1], PARAMS(quantize_params), group, n_groups);
        break;
    }
}

static __global uchar *place(__global uchar *const *arenas, cpu_place at)
{
    return arenas[at >> 56] + (at & 0xffffffffffffffUL);
}

/* Tells the steps which token goes in. Every group writes the same words, so that it can read them
 * without meeting the others. */
static void enter_token(__global uchar *const *arenas, const struct cpu_decode_params *p,
                        uint token, uint position)
{
    __global int *meta = (__global int *)place(arenas, p->meta);
    meta[0] = (int)position;
    meta[1] = (int)p->slot;
    for (uint i = 0; i < p->n_tables; i++)
        *(__global int *)place(arenas, p->ids[i]) = (int)(token - p->row0[i]);
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
    const uint group = get_group_id(0), n_groups = get_num_groups(0);
    uint phase = p.phase, token = p.first;
    for (uint n = 0; n < p.n_tokens; n++) {
        const uint n_splits = p.position + n >= SPLIT_FROM ? p.n_splits : 1;
        enter_token(arenas, &p, token, p.position + n);
        for (uint i = 0; i < p.n_steps; i++) {
            const __global struct cpu_step *s = steps + i;
            __global uchar *t[6];
            for (uint k = 0; k < 6; k++)
                t[k] = place(arenas, s->at[k]) + (s->own >> k & 1 ? group * p.own_bytes : 0);
            const uint share = s->alone ? 0 : group, shares = s->alone ? 1 : n_groups;
            if (s->code >= CODE_LINEAR)
                run_linear(s, t, share, shares);
            else
                run_other(s, t, (__global float *)place(arenas, p.parts), n_splits, share, shares);
            const bool meets = s->barrier || (s->code == CODE_ROPE_KV && n_splits > 1);
            if (meets && !meet(control, ++phase, group, n_groups))
                return;
        }
        token = *(__global uint *)place(arenas, p.index);
        if (group == 0) {
            control[CONTROL_TOKENS + n] = token;
            control[CONTROL_FOUND + n] = *(__global uint *)place(arenas, p.found);
        }
    }
    if (group == 0)
        control[CONTROL_PHASE] = phase;
}
