/* What the one-launch decode kernels share: their context, places, numbers that other groups wrote,
 * meetings of the groups, the ends of the qkv and head phases, and attention (decode_attend.h).
 *
 * Defined by the host, for all of them: THREADS N_LAYER N_EMBD N_FF N_HEAD N_HEAD_KV HEAD_DIM N_ROT
 * N_CTX N_VOCAB N_GROUPS MAX_K MAX_SPLITS TYPE_A TYPE_B TYPE_C (255: none) OP_DTYPE (of the embedding)
 * and the offsets in the work buffer AT_X AT_XB AT_Q AT_ATT AT_PARTS AT_H AT_LOGITS of arrays with a row
 * for each sequence; by the kernel's file: NUMBERS_ARE_HALVES, and FEEDERS, the items beside the THREADS
 * that feed rings (decode_ring.h). Sources: Su et al. 2021 (rotation).
 */
#ifndef OINFER_KERNELS_DECODE_COMMON_H
#define OINFER_KERNELS_DECODE_COMMON_H

#include "nvidia/decode.h"
#include "nvidia/r4_dot.h"
#include "weight.h"

#define WARPS     (THREADS / 32)
#define SPIN_CAP  (1u << 20)
#define Q_ROWS    (N_HEAD * HEAD_DIM)
#define KV_ROWS   (N_HEAD_KV * HEAD_DIM)

#define IS_FLOAT(type) ((type) == DT_F32 || (type) == DT_F16 || (type) == DT_BF16)
#define ANY_FLOAT (IS_FLOAT(TYPE_A) || IS_FLOAT(TYPE_B) || IS_FLOAT(TYPE_C))

/* A barrier of the THREADS items of the group. */
PTX_INLINE void group_barrier(void)
{
    if (FEEDERS == 0)
        barrier(CLK_LOCAL_MEM_FENCE);
    else
        __asm__ volatile("bar.sync 1, %0;" : : "n"(THREADS) : "memory");
}

/* The same, for what is in global memory too. */
PTX_INLINE void group_barrier_all(void)
{
    if (FEEDERS == 0)
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    else
        group_barrier();
}

/* What an item of a one-launch decode kernel carries through all phases. */
struct ctx {
    const __global uchar *weights[DECODE_ARENAS];
    __global uchar *cells[DECODE_ARENAS];
    const __global struct decode_layer *layers;
    const __global struct decode_head *head;
    const __global float2 *rope;
    __global uchar *work;
    __global uint *control;
    struct decode_settings p;
    uint group, n_groups, thread, lane, warp; /* n_groups: N_GROUPS, so that divisions are cheap */
    uint target; /* arrivals to wait for */
    uint turn;   /* of the two words that tell the group what its first item saw */
    uint n_rows; /* sequences */
    uint timed;  /* not 0: times of the phases are kept */
    __local uchar *body;
    __local float *floats;
    __local uint *words; /* [DECODE_WORDS] */
};

/* The arguments of the kernels, and their context: with them, `body`, `floats` and `words` in scope. */
#define DECODE_ARGS                                                                               \
    const __global uchar *w0, const __global uchar *w1, const __global uchar *w2,                 \
        const __global uchar *w3, __global uchar *cells0, __global uchar *cells1,                 \
        __global uchar *cells2, __global uchar *cells3, const __global uchar *table,              \
        const __global uchar *rope, ulong rope_offset, __global uchar *work,                      \
        __global uint *control, struct decode_params p
#define DECODE_CONTEXT(rows_)                                                                     \
    {{w0, w1, w2, w3},                                                                            \
     {cells0, cells1, cells2, cells3},                                                            \
     (const __global struct decode_layer *)(table + sizeof(struct decode_head)),                  \
     (const __global struct decode_head *)table,                                                  \
     (const __global float2 *)(rope + rope_offset),                                               \
     work,                                                                                        \
     control,                                                                                     \
     p.settings,                                                                                  \
     (uint)get_group_id(0),                                                                       \
     N_GROUPS,                                                                                    \
     (uint)get_local_id(0),                                                                       \
     (uint)get_local_id(0) & 31,                                                                  \
     (uint)get_local_id(0) >> 5,                                                                  \
     p.arrivals,                                                                                  \
     0,                                                                                           \
     rows_,                                                                                       \
     p.timed,                                                                                     \
     body,                                                                                        \
     floats,                                                                                      \
     words}

/* Words in local memory: two for waits in turn; of each row its token, position and slot; not 0 when
 * the groups did not meet; the clock at the last meeting. */
#define DECODE_WORDS   (4 + 3 * DECODE_ROWS)
#define ROW_TOKEN(r)   (2 + (r))
#define ROW_POSITION(r) (2 + DECODE_ROWS + (r))
#define ROW_SLOT(r)    (2 + 2 * DECODE_ROWS + (r))
#define WORD_LOST      (2 + 3 * DECODE_ROWS)
#define WORD_CLOCK     (3 + 3 * DECODE_ROWS)

/* ---- places, and numbers that other groups wrote ---- */

PTX_INLINE const __global uchar *weight_at_place(const struct ctx *c, ulong place)
{
    const uint arena = (uint)(place >> 56);
    const __global uchar *base = c->weights[0];
    base = arena == 1 ? c->weights[1] : base;
    base = arena == 2 ? c->weights[2] : base;
    base = arena == 3 ? c->weights[3] : base;
    return base + (place & 0x00FFFFFFFFFFFFFFul);
}

PTX_INLINE __global half *cells_at_place(const struct ctx *c, ulong place)
{
    const uint arena = (uint)(place >> 56);
    __global uchar *base = c->cells[0];
    base = arena == 1 ? c->cells[1] : base;
    base = arena == 2 ? c->cells[2] : base;
    base = arena == 3 ? c->cells[3] : base;
    return (__global half *)(base + (place & 0x00FFFFFFFFFFFFFFul));
}

/* Reads that see what another group stored before it arrived. */
PTX_INLINE float4 fresh4(const __global float *p)
{
    float4 v;
    __asm__ volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "l"(p)
                     : "memory");
    return v;
}

/* Eight numbers that travel between groups, from number i of the vector on. */
PTX_INLINE uint4 fresh_numbers(const __global ushort *vector, uint i)
{
    uint4 v;
    __asm__ volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(vector + i)
                     : "memory");
    return v;
}

/* Numbers travel as half between decode_rows.cl's groups, as bfloat16 between those of decode.cl. */
PTX_INLINE void floats_of(uint4 numbers, float v[8])
{
    const uint w[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
#pragma unroll
    for (uint i = 0; i < 4; i++) {
        v[2 * i] = NUMBERS_ARE_HALVES ? half_of_pair(w[i], 0) : as_float(w[i] << 16);
        v[2 * i + 1] = NUMBERS_ARE_HALVES ? half_of_pair(w[i], 1) : as_float(w[i] & 0xFFFF0000);
    }
}

/* To the nearest number that travels (NaN stays NaN). */
PTX_INLINE ushort to_number(float v)
{
    ushort r;
    if (NUMBERS_ARE_HALVES)
        __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    else
        __asm__("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

PTX_INLINE float fresh(const __global float *p)
{
    float v;
    __asm__ volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}

/* ---- times ---- */

/* Cycles of this compute unit. */
PTX_INLINE uint clock_now(void)
{
    uint v;
    __asm__ volatile("mov.u32 %0, %%clock;" : "=r"(v) : : "memory");
    return v;
}

PTX_INLINE ulong timer_ns(void)
{
    ulong v;
    __asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(v) : : "memory");
    return v;
}

PTX_INLINE __global struct decode_times *times_of(const struct ctx *c)
{
    return (__global struct decode_times *)(c->control + DECODE_TIMES);
}

PTX_INLINE void begin_times(const struct ctx *c)
{
    if (c->timed == 0 || c->group != 0 || c->thread != 0)
        return;
    __global struct decode_times *times = times_of(c);
    for (uint i = 0; i < DECODE_PHASES; i++) {
        times->phases[i].total = 0;
        times->phases[i].least = 0xFFFFFFFF;
        times->phases[i].most = 0;
    }
    times->start_ns = timer_ns();
    c->words[WORD_CLOCK] = clock_now();
}

/* The groups have met after a phase; of the first item of the first group. */
PTX_INLINE void note_phase(const struct ctx *c, enum decode_phase phase)
{
    __global struct decode_cycles *cycles = &times_of(c)->phases[phase];
    const uint now = clock_now(), spent = now - c->words[WORD_CLOCK];
    c->words[WORD_CLOCK] = now;
    __asm__ volatile("red.relaxed.gpu.global.add.u64 [%0], %1;"
                     :
                     : "l"(&cycles->total), "l"((ulong)spent)
                     : "memory");
    __asm__ volatile("red.relaxed.gpu.global.min.u32 [%0], %1;"
                     :
                     : "l"(&cycles->least), "r"(spent)
                     : "memory");
    __asm__ volatile("red.relaxed.gpu.global.max.u32 [%0], %1;"
                     :
                     : "l"(&cycles->most), "r"(spent)
                     : "memory");
    if (phase == DECODE_OUTPUT)
        times_of(c)->end_ns = timer_ns();
}

/* ---- the groups meet ---- */

/* All stores of the group so far are seen by whoever waited for this arrival. */
PTX_INLINE void arrive(struct ctx *c)
{
    group_barrier_all();
    if (c->thread == 0)
        __asm__ volatile("red.release.gpu.global.add.u32 [%0], 1;"
                         :
                         : "l"(c->control + DECODE_COUNTER)
                         : "memory");
    c->target += c->n_groups;
}

/* What the compiler derives from these is computed anew in each phase: kept for all phases it would
 * take the registers of the loads in flight. */
PTX_INLINE void forget_derived(struct ctx *c)
{
    __asm__ volatile("mov.u32 %0, %0;" : "+r"(c->thread));
    __asm__ volatile("mov.u32 %0, %0;" : "+r"(c->lane));
    __asm__ volatile("mov.u32 %0, %0;" : "+r"(c->warp));
    __asm__ volatile("mov.u32 %0, %0;" : "+r"(c->group));
}

/* Waits until all groups have arrived as often as this one, at the end of a phase. False: they did not
 * come. */
PTX_INLINE bool wait_all(struct ctx *c, const enum decode_phase phase)
{
    forget_derived(c);
    __local uint *word = c->words + c->turn;
    c->turn ^= 1;
    if (c->thread == 0) {
        uint dead = 1, seen;
        for (uint spin = 0; spin < SPIN_CAP; spin++) {
            __asm__ volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen)
                             : "l"(c->control + DECODE_COUNTER)
                             : "memory");
            if ((int)(seen - c->target) >= 0) {
                dead = 0;
                break;
            }
            if ((spin & 1023) == 1023 && *(volatile __global uint *)(c->control + DECODE_DEAD) != 0)
                break;
        }
        if (dead) {
            *(volatile __global uint *)(c->control + DECODE_DEAD) = 1;
            *(volatile __local uint *)(c->words + WORD_LOST) = 1;
        }
        if (c->timed != 0 && c->group == 0)
            note_phase(c, phase);
        *word = dead;
    }
    group_barrier_all();
    return *word == 0;
}

/* ---- rows ---- */

/* Numbers r and r + 1 of q | k | v of a row: rotated, into its query or its cells. */
PTX_INLINE void finish_qkv(const struct ctx *c, const __global struct decode_layer *layer,
                           uint row, uint r, float a, float b)
{
    const uint position = c->words[ROW_POSITION(row)], slot = c->words[ROW_SLOT(row)];
    const bool is_v = r >= Q_ROWS + KV_ROWS;
    const uint dim = r % HEAD_DIM;
    if (!is_v && dim < N_ROT) {
        const float2 turn = c->rope[(ulong)position * (N_ROT / 2) + dim / 2];
        const float x = a, y = b;
        a = x * turn.x - y * turn.y;
        b = x * turn.y + y * turn.x;
    }
    if (r < Q_ROWS) {
        __global float *q = (__global float *)(c->work + AT_Q) + row * Q_ROWS + r;
        q[0] = a;
        q[1] = b;
        return;
    }
    const uint of_kv = is_v ? r - Q_ROWS - KV_ROWS : r - Q_ROWS;
    __global half *cells = cells_at_place(c, is_v ? layer->v : layer->k);
    const ulong at =
        (((ulong)slot * N_HEAD_KV + of_kv / HEAD_DIM) * N_CTX + position) * HEAD_DIM + dim;
    *(__global uint *)(cells + at) = ptx_half2_of(a, b);
}

PTX_INLINE bool better(float v, uint i, float than, uint than_i)
{
    return v > than || (v == than && i < than_i);
}

/* Best {value, index} of a warp's lanes, in all lanes. */
PTX_INLINE void warp_best(float *v, uint *index)
{
#pragma unroll
    for (uint mask = 16; mask > 0; mask >>= 1) {
        const float other = ptx_shuffle_xor(*v, mask);
        const uint other_index = as_uint(ptx_shuffle_xor(as_float(*index), mask));
        if (better(other, other_index, *v, *index)) {
            *v = other;
            *index = other_index;
        }
    }
}

/* This group's best of a row's logits, given by one lane. */
PTX_INLINE void put_best(const struct ctx *c, uint row, float best, uint index)
{
    __global float *out =
        (__global float *)(c->control + DECODE_BEST) + 2 * (row * DECODE_GROUPS + c->group);
    out[0] = best;
    out[1] = as_float(index);
}

/* Leaves logit i of a row for the host. */
PTX_INLINE void put_logit(const struct ctx *c, uint row, uint i, float logit)
{
    ((__global float *)(c->work + AT_LOGITS))[row * N_VOCAB + i] = logit;
}

/* Each row's next token is the best of all groups; 0 when no logit is a number. Positions move on. */
PTX_INLINE void next_tokens(const struct ctx *c, uint t)
{
    for (uint row = c->warp; row < c->n_rows; row += WARPS) {
        const __global float *bests =
            (const __global float *)(c->control + DECODE_BEST) + 2 * row * DECODE_GROUPS;
        float best = -INFINITY;
        uint index = 0xFFFFFFFF;
        for (uint g = c->lane; g < c->n_groups; g += 32) {
            const float v = fresh(bests + 2 * g);
            const uint i = as_uint(fresh(bests + 2 * g + 1));
            if (better(v, i, best, index)) {
                best = v;
                index = i;
            }
        }
        warp_best(&best, &index);
        if (c->lane == 0) {
            const uint token = index < N_VOCAB ? index : 0;
            c->words[ROW_TOKEN(row)] = token;
            c->words[ROW_POSITION(row)]++;
            if (c->group == 0) {
                c->control[DECODE_TOKENS + row * DECODE_AHEAD + t] = token;
                ((__global float *)c->control)[DECODE_FOUND + row * DECODE_AHEAD + t] = best;
            }
        }
    }
    group_barrier();
}

/* The row that the embedding has for a row's token. */
PTX_INLINE const __global uchar *embedding_of(const struct ctx *c, uint row)
{
    return weight_at_place(c, c->head->embed) +
           (ulong)c->words[ROW_TOKEN(row)] * weight_row_bytes(N_EMBD);
}

/* Numbers i0 .. i1 - 1 of x of every row, which this group owns, from the embedding. */
PTX_INLINE void embed_own(const struct ctx *c, uint i0, uint i1)
{
    for (uint row = 0; row < c->n_rows; row++) {
        const __global uchar *from = embedding_of(c, row);
        __global float *x = (__global float *)(c->work + AT_X) + row * N_EMBD;
        for (uint i = i0 + c->thread; i < i1; i += THREADS)
            x[i] = weight_at(from, i) * c->p.embed_scale;
    }
}

/* Tokens, positions and slots of the rows of a launch, to local memory; seen after a barrier. */
PTX_INLINE void keep_rows(const struct ctx *c, struct decode_params p)
{
#pragma unroll
    for (uint r = 0; r < DECODE_ROWS; r++) {
        if (c->thread != r)
            continue;
        c->words[ROW_TOKEN(r)] = p.first[r];
        c->words[ROW_POSITION(r)] = p.position[r];
        c->words[ROW_SLOT(r)] = p.slot[r];
    }
    if (c->thread == 0)
        c->words[WORD_LOST] = 0;
}

/* One of the calls, by a dtype that is one of the model's. */
#define BY_TYPE(type, call_a, call_b, call_c)                                                      \
    do {                                                                                           \
        if (TYPE_B == 255 || (type) == TYPE_A) {                                                   \
            call_a;                                                                                \
        } else if (TYPE_C == 255 || (type) == TYPE_B) {                                            \
            call_b;                                                                                \
        } else {                                                                                   \
            call_c;                                                                                \
        }                                                                                          \
    } while (0)

#endif
