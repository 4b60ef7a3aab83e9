/* What the phases of the one-launch decode kernel are made of: places, meetings of the groups, vectors
 * quantised into local memory, and the shares of a linear phase.
 *
 * A part of nvidia/decode.cl, which defines struct ctx and the model's sizes before it.
 */
#ifndef OINFER_KERNELS_DECODE_PARTS_H
#define OINFER_KERNELS_DECODE_PARTS_H

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

/* Eight numbers that travel as bfloat16, from number i of the vector on. */
PTX_INLINE uint4 fresh_numbers(const __global ushort *vector, uint i)
{
    uint4 v;
    __asm__ volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(vector + i)
                     : "memory");
    return v;
}

PTX_INLINE void floats_of(uint4 numbers, float v[8])
{
    const uint w[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
#pragma unroll
    for (uint i = 0; i < 4; i++) {
        v[2 * i] = as_float(w[i] << 16);
        v[2 * i + 1] = as_float(w[i] & 0xFFFF0000);
    }
}

/* To the nearest bfloat16 (NaN stays NaN). */
PTX_INLINE ushort to_number(float v)
{
    ushort r;
    __asm__("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

PTX_INLINE float fresh(const __global float *p)
{
    float v;
    __asm__ volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}

/* ---- the groups meet ---- */

/* All stores of the group so far are seen by whoever waited for this arrival. */
PTX_INLINE void arrive(struct ctx *c)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (c->thread == 0)
        __asm__ volatile("red.release.gpu.global.add.u32 [%0], 1;"
                         :
                         : "l"(c->control + DECODE_COUNTER)
                         : "memory");
    c->target += c->n_groups;
}

/* Waits until all groups have arrived as often as this one. False: they did not come. */
PTX_INLINE bool wait_all(struct ctx *c)
{
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
        if (dead)
            *(volatile __global uint *)(c->control + DECODE_DEAD) = 1;
        *word = dead;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    return *word == 0;
}

/* ---- vectors: float in global memory to int8 blocks in local memory ---- */

#define LOCAL_D(k) ((__local float *)(c->body + (k)))
#define LOCAL_S(k) ((__local int *)(c->body + (k) + (k) / 32 * 4))

/* Eight neighbouring floats of the lane become bytes; 4 lanes share a block of 32. */
PTX_INLINE void store_block(const struct ctx *c, const uint k, uint block, bool valid,
                            const float v[8])
{
    float largest = 0.0f, sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < 8; i++)
        largest = fmax(largest, fabs(v[i]));
    largest = fmax(largest, ptx_shuffle_xor(largest, 1));
    largest = fmax(largest, ptx_shuffle_xor(largest, 2));
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    uint words[2] = {0, 0};
#pragma unroll
    for (uint i = 0; i < 8; i++) {
        const int q = convert_int_rte(v[i] * inverse);
        sum += (float)q;
        words[i / 4] |= (uint)(q & 255) << 8 * (i % 4);
    }
    sum += ptx_shuffle_xor(sum, 1);
    sum += ptx_shuffle_xor(sum, 2);
    if (!valid)
        return;
    /* bytes 0..15 of all blocks, then bytes 16..31: lanes then read 16 bytes side by side */
    const uint quarter = c->lane & 3;
    *(__local uint2 *)(c->body + quarter / 2 * (k / 2) + block * 16 + quarter % 2 * 8) =
        (uint2)(words[0], words[1]);
    if (quarter == 0) {
        LOCAL_D(k)[block] = largest / 127.0f;
        LOCAL_S(k)[block] = (int)sum;
    }
}

/* A sum over all threads of the group: shared before a barrier, read after it. */
PTX_INLINE void share_sum(const struct ctx *c, float v)
{
    v = warp_sum(v);
    if (c->lane == 0)
        c->warp_floats[c->warp] = v;
}

PTX_INLINE float shared_sum(const struct ctx *c)
{
    float sum = 0.0f;
#pragma unroll
    for (uint w = 0; w < WARPS; w++)
        sum += c->warp_floats[w];
    return sum;
}

/* A vector of k is cut in rounds: in each a lane has 8 numbers, a warp 8 blocks. All loads of all
 * rounds are issued before the first is waited for. */
#define ROUNDS(k) (((k) / 32 + WARPS * 8 - 1) / (WARPS * 8))

struct seat {
    uint block, i; /* i: the lane's first number */
    bool valid;
};

PTX_INLINE struct seat seat_of(const struct ctx *c, const uint k, uint round_)
{
    const uint block = (round_ * WARPS + c->warp) * 8 + (c->lane >> 2);
    const struct seat seat = {block, min(block, k / 32 - 1) * 32 + (c->lane & 3) * 8,
                              block < k / 32};
    return seat;
}

/* x (from the embedding of `token` when `embed`) times the norm's weight. */
PTX_INLINE void stage_normed(const struct ctx *c, ulong norm, bool embed, uint token)
{
    const __global ushort *x = (const __global ushort *)(c->work + AT_XB);
    const __global float *w = (const __global float *)weight_at_place(c, norm);
    const __global uchar *row =
        weight_at_place(c, c->head->embed) + (ulong)token * weight_row_bytes(N_EMBD);
    uint4 numbers[ROUNDS(N_EMBD)];
    float8 weights[ROUNDS(N_EMBD)];
    float squares = 0.0f;
#pragma unroll
    for (uint n = 0; n < ROUNDS(N_EMBD); n++) {
        const struct seat seat = seat_of(c, N_EMBD, n);
        weights[n] = vload8(0, w + seat.i);
        if (!embed)
            numbers[n] = fresh_numbers(x, seat.i);
    }
#pragma unroll
    for (uint n = 0; n < ROUNDS(N_EMBD); n++) {
        const struct seat seat = seat_of(c, N_EMBD, n);
        const float wi[8] = {weights[n].s0, weights[n].s1, weights[n].s2, weights[n].s3,
                             weights[n].s4, weights[n].s5, weights[n].s6, weights[n].s7};
        float v[8];
        if (embed) {
#pragma unroll
            for (uint i = 0; i < 8; i++)
                v[i] = weight_at(row, seat.i + i) * c->p.embed_scale;
        } else {
            floats_of(numbers[n], v);
        }
#pragma unroll
        for (uint i = 0; i < 8; i++) {
            squares += seat.valid ? v[i] * v[i] : 0.0f;
            v[i] *= wi[i];
        }
        store_block(c, N_EMBD, seat.block, seat.valid, v);
    }
    share_sum(c, squares);
}

PTX_INLINE void stage_plain(const struct ctx *c, const uint k, const __global ushort *x)
{
    uint4 numbers[(MAX_K / 32 + WARPS * 8 - 1) / (WARPS * 8)];
#pragma unroll
    for (uint n = 0; n < ROUNDS(k); n++)
        numbers[n] = fresh_numbers(x, seat_of(c, k, n).i);
#pragma unroll
    for (uint n = 0; n < ROUNDS(k); n++) {
        const struct seat seat = seat_of(c, k, n);
        float v[8];
        floats_of(numbers[n], v);
        store_block(c, k, seat.block, seat.valid, v);
    }
}

/* The heads' outputs; where the cells were split, the splits merge here. */
PTX_INLINE void stage_attention(const struct ctx *c, uint n_splits)
{
    const __global float *parts = (const __global float *)(c->work + AT_PARTS);
    if (n_splits == 1) {
        stage_plain(c, Q_ROWS, (const __global ushort *)(c->work + AT_ATT));
        return;
    }
    for (uint n = 0; n < ROUNDS(Q_ROWS); n++) {
        const struct seat seat = seat_of(c, Q_ROWS, n);
        const __global float *head = parts + seat.i / HEAD_DIM * n_splits * (HEAD_DIM + 4);
        float top = -INFINITY, total = 0.0f;
        float4 a = (float4)(0.0f), b = (float4)(0.0f);
        for (uint s = 0; s < n_splits; s++)
            top = fmax(top, fresh(head + s * (HEAD_DIM + 4) + HEAD_DIM));
        for (uint s = 0; s < n_splits; s++) {
            const __global float *part = head + s * (HEAD_DIM + 4);
            const float weight = ptx_exp(fresh(part + HEAD_DIM) - top);
            total += weight * fresh(part + HEAD_DIM + 1);
            a += weight * fresh4(part + seat.i % HEAD_DIM);
            b += weight * fresh4(part + seat.i % HEAD_DIM + 4);
        }
        a /= total;
        b /= total;
        const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        store_block(c, Q_ROWS, seat.block, seat.valid, v);
    }
}

/* ---- linear phases ---- */

/* A group's share of a linear phase: row groups g0 .. g1 - 1, this warp's units u0 .. u1 - 1. The
 * part that the last loaded unit lies in is kept: its rows, dtype and first byte. */
struct share {
    uint g0, g1, u0, u1, per_warp;
    uint part_g0, part_g1, type;
    const __global uchar *at;
    struct r4_raw a, b; /* units u0 and u0 + 1, or u and u + 1 */
    uint type_a, type_b;
};

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

#define CHUNKS(k) (((k) / 32 + 31) / 32)

/* Makes the part that row group g lies in the share's part. */
PTX_INLINE void enter_part(const struct ctx *c, const __global struct decode_part *part,
                           const uint n_parts, uint g, struct share *s)
{
    s->part_g0 = 0;
    for (uint i = 0; i + 1 < n_parts && g >= s->part_g0 + part->row_groups; i++, part++)
        s->part_g0 += part->row_groups;
    s->part_g1 = s->part_g0 + part->row_groups;
    s->type = part->type;
    s->at = weight_at_place(c, part->at);
}

PTX_INLINE void load_typed(const struct ctx *c, const uint type, const uint k,
                           const __global uchar *at, uint g, uint chunk, struct r4_raw *raw)
{
    const uint nb = min(R4_CHUNK, k / 32 - chunk * R4_CHUNK);
    r4_load(type, at + g * r4_group_bytes(type, k) + R4_BYTES(type, chunk * R4_CHUNK), nb, c->lane,
            raw);
}

PTX_INLINE void load_unit(const struct ctx *c, const __global struct decode_part *parts,
                          const uint n_parts, const uint k, struct share *s, uint unit,
                          struct r4_raw *raw, uint *type)
{
    uint g = s->g0 + unit / CHUNKS(k);
    const uint chunk = unit % CHUNKS(k);
    if (n_parts > 1 && g >= s->part_g1)
        enter_part(c, parts, n_parts, g, s);
    g -= s->part_g0;
    *type = s->type;
    BY_TYPE(s->type, load_typed(c, TYPE_A, k, s->at, g, chunk, raw),
            load_typed(c, TYPE_B, k, s->at, g, chunk, raw),
            load_typed(c, TYPE_C, k, s->at, g, chunk, raw));
}

/* The share of this warp, and its first loads. `step`: row groups that must stay together. */
PTX_INLINE void begin_linear(const struct ctx *c, const __global struct decode_part *parts,
                             const uint n_parts, const uint k, uint row_groups, const uint step,
                             struct share *s)
{
    const uint sets = row_groups / step;
    s->g0 = (uint)((ulong)sets * c->group / c->n_groups) * step;
    s->g1 = (uint)((ulong)sets * (c->group + 1) / c->n_groups) * step;
    const uint units = (s->g1 - s->g0) * CHUNKS(k);
    s->per_warp = (units + WARPS - 1) / WARPS;
    s->u0 = min(c->warp * s->per_warp, units);
    s->u1 = min(s->u0 + s->per_warp, units);
    if (s->u0 >= s->u1)
        return;
    enter_part(c, parts, n_parts, s->g0 + s->u0 / CHUNKS(k), s);
    load_unit(c, parts, n_parts, k, s, s->u0, &s->a, &s->type_a);
    if (s->u0 + 1 < s->u1)
        load_unit(c, parts, n_parts, k, s, s->u0 + 1, &s->b, &s->type_b);
}

PTX_INLINE void add_unit(const struct ctx *c, const uint k, const struct share *s, uint unit,
                         uint type, const struct r4_raw *raw, float acc[4])
{
    const uint chunk = unit % CHUNKS(k), block = chunk * R4_CHUNK + c->lane;
    if (block < k / 32) {
        const uint4 low = *(const __local uint4 *)(c->body + block * 16);
        const uint4 high = *(const __local uint4 *)(c->body + k / 2 + block * 16);
        const uint xs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const float dx = LOCAL_D(k)[block];
        const int sum = LOCAL_S(k)[block];
        BY_TYPE(type, r4_add(TYPE_A, raw, xs, dx, sum, acc),
                r4_add(TYPE_B, raw, xs, dx, sum, acc), r4_add(TYPE_C, raw, xs, dx, sum, acc));
    }
    if (chunk + 1 < CHUNKS(k) && unit + 1 < s->u1)
        return;
    /* the last unit of this row group in this warp: the lanes' sums meet */
    const uint local_g = unit / CHUNKS(k), first_warp = local_g * CHUNKS(k) / s->per_warp;
    __local float *out = c->sums + (local_g * CHUNKS(k) + c->warp - first_warp) * 4;
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        const float sum = warp_sum(acc[r]);
        if (c->lane == r)
            out[r] = sum;
        acc[r] = 0.0f;
    }
}

/* All units of the warp, two loads ahead; a barrier at the end makes the sums readable. */
PTX_INLINE void run_linear(const struct ctx *c, const __global struct decode_part *parts,
                           const uint n_parts, const uint k, struct share *s)
{
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint u = s->u0; u < s->u1; u += 2) {
        add_unit(c, k, s, u, s->type_a, &s->a, acc);
        if (u + 2 < s->u1)
            load_unit(c, parts, n_parts, k, s, u + 2, &s->a, &s->type_a);
        if (u + 1 < s->u1)
            add_unit(c, k, s, u + 1, s->type_b, &s->b, acc);
        if (u + 3 < s->u1)
            load_unit(c, parts, n_parts, k, s, u + 3, &s->b, &s->type_b);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Sum of row r of the group's row group local_g, over the warps that had a part of it. */
PTX_INLINE float row_sum(const struct ctx *c, const uint k, const struct share *s, uint local_g,
                         uint r)
{
    const uint first = local_g * CHUNKS(k) / s->per_warp;
    const uint last = (local_g * CHUNKS(k) + CHUNKS(k) - 1) / s->per_warp;
    float sum = 0.0f;
    for (uint w = 0; w <= last - first; w++)
        sum += c->sums[(local_g * CHUNKS(k) + w) * 4 + r];
    return sum;
}

#endif
