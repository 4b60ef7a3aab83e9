/* Linear phases and attention of the one-launch decode kernel, fed through rings in local memory.
 *
 * Beside each warp of the THREADS items there is one of feeders, which copies what that warp will read, in
 * the order in which it will read it: the units of its share of each matrix, and the cells that were there
 * before the launch. Each of these pairs has a ring of STAGES stages, and two barriers a stage: `full`
 * counts the bytes that arrive, `empty` the warp's leaving. Nothing that is copied depends on the launch,
 * so copies go on while the groups wait for one another: memory is never idle as long as the phases use
 * up in time what it brings.
 *   weights in LAYOUT_R4   a stage is a chunk of 32 blocks of 4 rows, as it lies
 *   floats                 PIECE_BYTES of each of 4 rows
 *   cells                  the keys of 8 cells, or their values
 * Defined by the host: LOCAL_BYTES, of local memory. Source: the PTX ISA, "cp.async.bulk".
 */
#ifndef OINFER_KERNELS_DECODE_RING_H
#define OINFER_KERNELS_DECODE_RING_H

#define FEEDERS       THREADS
#define FLOATS        (TYPE_A == DT_F32 || TYPE_A == DT_F16 || TYPE_A == DT_BF16) /* then of one dtype */
#define HALF_VECTORS  FLOATS
#define FLOAT_BYTES   (TYPE_A == DT_F32 ? 4 : 2)
#define PIECE_BYTES   1024
#define CHUNK_COLUMNS (FLOATS ? PIECE_BYTES / FLOAT_BYTES : 1024)
#include "nvidia/decode_vectors.h"
#include "nvidia/mbarrier.h"

#define LARGER(a, b)      ((a) > (b) ? (a) : (b))
#define UNIT_BYTES(type)                                                                           \
    ((type) == 255 ? 0 : FLOATS ? 4 * PIECE_BYTES : R4_BYTES(type, R4_CHUNK))
#define CELL_BYTES        (HEAD_DIM * 2)
#define STAGE_BYTES                                                                                \
    LARGER(LARGER(UNIT_BYTES(TYPE_A), UNIT_BYTES(TYPE_B)),                                         \
           LARGER(UNIT_BYTES(TYPE_C), TURN_CELLS *CELL_BYTES))
#define RING_REST         2048 /* bytes of local memory for other things */
#define STAGES            ((LOCAL_BYTES - LOCAL_ALL - RING_REST) / (WARPS * (STAGE_BYTES + 20)))

/* Local memory beside c->body: of each warp its stages, `full` and `empty`, and the stages' dtypes. */
struct rings {
    __local uchar *stages;
    __local ulong *barriers;
    __local uint *types;
    uint old; /* cells of the sequence before the launch */
};

PTX_INLINE __local uchar *ring_stage(const struct rings *r, uint warp, uint stage)
{
    return r->stages + (warp * STAGES + stage) * STAGE_BYTES;
}

PTX_INLINE uint ring_full(const struct rings *r, uint warp, uint stage)
{
    return ptx_local(r->barriers) + (warp * STAGES + stage) * 16;
}

PTX_INLINE uint ring_empty(const struct rings *r, uint warp, uint stage)
{
    return ring_full(r, warp, stage) + 8;
}

/* Barriers just made are seen by the copy engine too. */
PTX_INLINE void mbarrier_publish(void)
{
    __asm__ volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/* Called by all items; a barrier follows. */
PTX_INLINE void ring_open(const struct rings *r, uint thread)
{
    for (uint i = thread; i < WARPS * STAGES; i += THREADS + FEEDERS) {
        mbarrier_init(ring_full(r, 0, i), 1);
        mbarrier_init(ring_empty(r, 0, i), 1);
    }
    mbarrier_publish();
}

/* ---- the feeders ---- */

/* A place that was read, as one that the compiler knows to be the same in all lanes. */
PTX_INLINE ulong uniform_place(ulong place)
{
    return (ulong)ptx_uniform((uint)(place >> 32)) << 32 | ptx_uniform((uint)place);
}

/* Whether the phase of this parity is complete, after a while. */
PTX_INLINE bool mbarrier_try(uint at, uint parity)
{
    uint done;
    __asm__ volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    return ptx_uniform(done) != 0;
}

/* Copies n bytes, a multiple of 16 as both addresses are, whose arrival the barrier counts. */
PTX_INLINE void bulk_copy(uint to, const __global uchar *from, uint n, uint barrier_)
{
    __asm__ volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];"
                     :
                     : "r"(to), "l"(from), "r"(n), "r"(barrier_)
                     : "memory");
}

/* The same for what is read once a token: the second cache keeps other things rather. */
PTX_INLINE void bulk_copy_once(uint to, const __global uchar *from, uint n, uint barrier_, ulong policy)
{
    __asm__ volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1], %2, [%3], %4;"
                     :
                     : "r"(to), "l"(from), "r"(n), "r"(barrier_), "l"(policy)
                     : "memory");
}

/* What of a warp's stream comes next. */
enum feed_phase { FEED_QKV, FEED_CELLS, FEED_O, FEED_GATE_UP, FEED_DOWN, FEED_HEAD, FEED_END };

struct feed {
    ulong policy; /* of the second cache, for weights */
    uint slot, token, layer, phase;
    uint left; /* stages of the phase */
    /* a matrix: the next unit, the sizes of its rows, and the part that it lies in */
    const __global struct decode_part *parts;
    uint n_parts, g, chunk, chunks, k;
    uint part_g0, part_g1, type, rows, chunk_bytes, group_bytes;
    const __global uchar *at;
    /* cells: the item (head x split), its head, the next cell and the end; are its values next? */
    uint item, head, cell, end;
    bool values;
};

PTX_INLINE void feed_part(const struct ctx *c, struct feed *f)
{
    const __global struct decode_part *part = f->parts;
    f->part_g0 = 0;
    f->part_g1 = ptx_uniform(ROW_GROUPS(part));
    for (uint i = 0; i + 1 < f->n_parts && f->g >= f->part_g1; i++) {
        f->part_g0 = f->part_g1;
        f->part_g1 += ptx_uniform(ROW_GROUPS(++part));
    }
    f->type = ptx_uniform(part->type);
    f->rows = ptx_uniform(part->rows);
    f->at = weight_at_place(c, uniform_place(part->at));
    if (FLOATS)
        return;
    BY_TYPE(f->type, f->chunk_bytes = R4_BYTES(TYPE_A, R4_CHUNK),
            f->chunk_bytes = R4_BYTES(TYPE_B, R4_CHUNK),
            f->chunk_bytes = R4_BYTES(TYPE_C, R4_CHUNK));
    BY_TYPE(f->type, f->group_bytes = (uint)r4_group_bytes(TYPE_A, f->k),
            f->group_bytes = (uint)r4_group_bytes(TYPE_B, f->k),
            f->group_bytes = (uint)r4_group_bytes(TYPE_C, f->k));
}

PTX_INLINE void feed_linear(const struct ctx *c, uint warp, struct feed *f)
{
    const __global struct decode_layer *layer = c->layers + f->layer;
    uint row_groups = EMBD_GROUPS;
    f->n_parts = 1;
    f->k = N_EMBD;
    if (f->phase == FEED_QKV) {
        f->parts = layer->qkv;
        f->n_parts = DECODE_QKV_PARTS;
        row_groups = QKV_GROUPS;
    } else if (f->phase == FEED_O) {
        f->parts = &layer->o;
        f->k = Q_ROWS;
    } else if (f->phase == FEED_GATE_UP) {
        f->parts = &layer->gate_up;
        row_groups = FF_GROUPS;
    } else if (f->phase == FEED_DOWN) {
        f->parts = &layer->down;
        f->k = N_FF;
    } else {
        f->parts = &c->head->head;
        row_groups = HEAD_GROUPS;
    }
    f->chunks = CHUNKS(f->k);
    const struct cut cut =
        cut_of(c, warp, f->chunks, row_groups, f->phase == FEED_GATE_UP ? 2 : 1);
    f->left = cut.u1 - cut.u0;
    f->g = cut.g0 + cut.u0 / f->chunks;
    f->chunk = cut.u0 % f->chunks;
    if (f->left > 0)
        feed_part(c, f);
}

/* The cells of item f->item, if there is one. */
PTX_INLINE void feed_cells(const struct ctx *c, const struct rings *r, uint warp, struct feed *f)
{
    const uint end = r->old + f->token + 1;
    const uint n = c->p.window > 0 ? min(end, c->p.window) : end, n_splits = splits_of(c, n);
    f->left = 0;
    f->values = false;
    if (f->item >= N_HEAD * n_splits)
        return;
    f->head = f->item / n_splits;
    const uint split = f->item % n_splits, first = end - n + n * split / n_splits;
    f->end = min(end - n + n * (split + 1) / n_splits, r->old);
    f->cell = first + warp * TURN_CELLS;
    if (f->cell < f->end)
        f->left = ((f->end - f->cell - 1) / (WARPS * TURN_CELLS) + 1) * 2;
}

/* On to the next stage that there is. */
PTX_INLINE void feed_find(const struct ctx *c, const struct rings *r, uint warp, uint n_tokens,
                          struct feed *f)
{
    while (f->left == 0 && f->phase != FEED_END) {
        if (f->phase == FEED_CELLS && f->item + c->n_groups < N_HEAD * MAX_SPLITS) {
            f->item += c->n_groups;
        } else if (f->phase == FEED_DOWN && f->layer + 1 < N_LAYER) {
            f->layer++;
            f->phase = FEED_QKV;
        } else if (f->phase == FEED_HEAD) {
            f->layer = 0;
            f->phase = ++f->token < n_tokens ? FEED_QKV : FEED_END;
        } else {
            f->phase++;
            f->item = c->group;
        }
        if (f->phase == FEED_CELLS)
            feed_cells(c, r, warp, f);
        else if (f->phase != FEED_END)
            feed_linear(c, warp, f);
    }
}

/* Starts the copies of a unit of floats: the same columns of 4 rows. */
PTX_INLINE void feed_floats(const struct feed *f, uint to, uint full)
{
    const uint first = f->chunk * CHUNK_COLUMNS, g = f->g - f->part_g0;
    const uint bytes = min((uint)CHUNK_COLUMNS, f->k - first) * FLOAT_BYTES;
    const uint row = f->phase == FEED_GATE_UP ? g / 2 * 4 + g % 2 * N_FF : g * 4;
    if (!ptx_elect())
        return;
    mbarrier_expect(full, 4 * bytes);
#pragma unroll
    for (uint i = 0; i < 4; i++)
        bulk_copy_once(to + i * PIECE_BYTES,
                       f->at + ((ulong)min(row + i, f->rows - 1) * f->k + first) * FLOAT_BYTES,
                       bytes, full, f->policy);
}

PTX_INLINE void feed_keys_or_values(const struct ctx *c, struct feed *f, uint to, uint full)
{
    const __global struct decode_layer *layer = c->layers + f->layer;
    const __global half *cells =
        cells_at_place(c, uniform_place(f->values ? layer->v : layer->k)) +
        cells_of(f->slot, f->head);
    const uint bytes = min((uint)TURN_CELLS, f->end - f->cell) * CELL_BYTES;
    if (ptx_elect()) {
        mbarrier_expect(full, bytes);
        bulk_copy(to, (const __global uchar *)(cells + (ulong)f->cell * HEAD_DIM), bytes, full);
    }
    f->cell += f->values ? WARPS * TURN_CELLS : 0;
    f->values = !f->values;
}

PTX_INLINE void feed_unit(const struct ctx *c, struct feed *f, uint to, uint full,
                          __local uint *type)
{
    if (f->g >= f->part_g1)
        feed_part(c, f);
    if (FLOATS) {
        feed_floats(f, to, full);
    } else {
        const uint at = f->chunk * f->chunk_bytes;
        const uint bytes = f->chunk + 1 < f->chunks ? f->chunk_bytes : f->group_bytes - at;
        const __global uchar *from = f->at + (ulong)(f->g - f->part_g0) * f->group_bytes + at;
        if (ptx_elect()) {
            if (TYPE_B != 255)
                *type = f->type;
            mbarrier_expect(full, bytes);
            bulk_copy_once(to, from, bytes, full, f->policy);
        }
    }
    if (++f->chunk == f->chunks) {
        f->chunk = 0;
        f->g++;
    }
}

/* Waits until a stage is empty. False: the groups have not met. */
PTX_INLINE bool feed_wait(const struct ctx *c, uint empty, uint parity)
{
    while (!mbarrier_try(empty, parity))
        if (ptx_uniform(*(volatile __local uint *)(c->words + WORD_LOST)) != 0)
            return false;
    return true;
}

/* The work of a warp of feeders: fills the ring of one warp. When the groups have not met, it ends once
 * what it began has arrived. */
PTX_INLINE void feed_all(const struct ctx *c, const struct rings *r, uint n_tokens)
{
    const uint warp = ptx_uniform(c->warp) - WARPS;
    uint stage = 0, parity = 1, n = 0;
    struct feed f;
    if (n_tokens == 0)
        return;
    f.slot = ptx_uniform(c->words[ROW_SLOT(0)]);
    f.token = f.layer = f.item = 0;
    f.phase = FEED_QKV;
    __asm__("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(f.policy));
    feed_linear(c, warp, &f);
    feed_find(c, r, warp, n_tokens, &f);
    while (f.phase != FEED_END && feed_wait(c, ring_empty(r, warp, stage), parity)) {
        const uint to = ptx_local(ring_stage(r, warp, stage)), full = ring_full(r, warp, stage);
        if (f.phase == FEED_CELLS)
            feed_keys_or_values(c, &f, to, full);
        else
            feed_unit(c, &f, to, full, r->types + warp * STAGES + stage);
        f.left--;
        feed_find(c, r, warp, n_tokens, &f);
        n++;
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    if (f.phase == FEED_END)
        return;
    for (stage = 0; stage < min(n, (uint)STAGES); stage++)
        mbarrier_wait(ring_full(r, warp, stage), (n - 1 - stage) / STAGES & 1);
}

/* ---- the phases ---- */

/* A group's share of a linear phase, and this warp's place in its ring. */
struct share {
    struct cut cut;
    struct rings rings;
    uint stage, parity;
};

/* The warp's next stage, when it is full; ring_leave gives it back. */
PTX_INLINE const __local uchar *ring_enter(const struct ctx *c, const struct share *s)
{
    mbarrier_wait(ring_full(&s->rings, c->warp, s->stage), s->parity);
    return ring_stage(&s->rings, c->warp, s->stage);
}

PTX_INLINE void ring_leave(const struct ctx *c, struct share *s)
{
    ptx_warp_sync();
    if (c->lane == 0)
        mbarrier_arrive(ring_empty(&s->rings, c->warp, s->stage));
    if (++s->stage == STAGES) {
        s->stage = 0;
        s->parity ^= 1;
    }
}

PTX_INLINE void begin_linear(const struct ctx *c, const __global struct decode_part *parts,
                             const uint n_parts, const uint k, uint row_groups, const uint step,
                             struct share *s)
{
    (void)parts;
    (void)n_parts;
    s->cut = cut_of(c, c->warp, CHUNKS(k), row_groups, step);
}

PTX_INLINE void local16(const __local uchar *p, uint *w)
{
    const uint4 v = *(const __local uint4 *)p;
    w[0] = v.x;
    w[1] = v.y;
    w[2] = v.z;
    w[3] = v.w;
}

PTX_INLINE void local8(const __local uchar *p, uint *w)
{
    const uint2 v = *(const __local uint2 *)p;
    w[0] = v.x;
    w[1] = v.y;
}

/* As r4_load, from local memory. */
PTX_INLINE void r4_load_local(const uint type, const __local uchar *chunk, uint nb, uint lane,
                              struct r4_raw *raw)
{
    const uint j = min(lane, nb - 1);
#pragma unroll
    for (uint r = 0; r < 4; r++) {
        local16(chunk + r4_quants(type, nb, r, 0, j), raw->q[r]);
        if (R4_IS_Q8(type))
            local16(chunk + r4_quants(type, nb, r, 1, j), raw->q[r] + 4);
        if (R4_HIGH(type) == 4)
            raw->h[r][0] = *(const __local uint *)(chunk + r4_high(type, nb, r, j));
        if (R4_HIGH(type) == 8)
            local8(chunk + r4_high(type, nb, r, j), raw->h[r]);
    }
    if (R4_SCALES(type) == 16)
        local16(chunk + r4_scales(type, nb, j), raw->s);
    else
        local8(chunk + r4_scales(type, nb, j), raw->s);
    if (R4_SUPER(type) == 16)
        local16(chunk + r4_super(type, nb, j), raw->super);
    if (R4_SUPER(type) == 8)
        local8(chunk + r4_super(type, nb, j), raw->super);
}

/* Weight i of 8 of two bytes, or 4 of four. */
PTX_INLINE float float_of(const uint *w, uint i)
{
    if (TYPE_A == DT_F32)
        return as_float(w[i]);
    if (TYPE_A == DT_F16)
        return half_of_pair(w[i / 2], i & 1);
    return as_float(i & 1 ? w[i / 2] & 0xFFFF0000 : w[i / 2] << 16);
}

/* acc[r] += row r of a chunk of floats times the vector. A lane has 16 bytes of every 512 of a row. */
PTX_INLINE void add_floats(const struct ctx *c, const uint k, uint chunk, const __local uchar *stage,
                           float acc[4])
{
#define LANE_FLOATS (16 / FLOAT_BYTES)
    uint w[PIECE_BYTES / 512][4][4];
#pragma unroll
    for (uint n = 0; n < PIECE_BYTES / 512; n++)
#pragma unroll
        for (uint r = 0; r < 4; r++)
            local16(stage + r * PIECE_BYTES + n * 512 + c->lane * 16, w[n][r]);
#pragma unroll
    for (uint n = 0; n < PIECE_BYTES / 512; n++) {
        const uint column = chunk * CHUNK_COLUMNS + (n * 32 + c->lane) * LANE_FLOATS;
        if (column >= k)
            break;
        uint x[4];
        if (LANE_FLOATS == 8)
            local16(c->body + column * 2, x);
        else
            local8(c->body + column * 2, x);
#pragma unroll
        for (uint i = 0; i < LANE_FLOATS; i++)
#pragma unroll
            for (uint r = 0; r < 4; r++)
                acc[r] = fma(float_of(w[n][r], i), half_of_pair(x[i / 2], i & 1), acc[r]);
    }
}

/* All units of the warp; a barrier at the end makes the sums readable. */
PTX_INLINE void run_linear(const struct ctx *c, const __global struct decode_part *parts,
                           const uint n_parts, const uint k, struct share *s)
{
    (void)parts;
    (void)n_parts;
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    uint g = s->cut.u0 / CHUNKS(k), chunk = s->cut.u0 % CHUNKS(k);
    for (uint u = s->cut.u0; u < s->cut.u1; u++) {
        const __local uchar *stage = ring_enter(c, s);
        if (FLOATS) {
            add_floats(c, k, chunk, stage, acc);
            ring_leave(c, s);
        } else {
            const uint type = TYPE_B == 255 ? TYPE_A : s->rings.types[c->warp * STAGES + s->stage];
            const uint nb = min(R4_CHUNK, k / 32 - chunk * R4_CHUNK);
            struct r4_raw raw;
            BY_TYPE(type, r4_load_local(TYPE_A, stage, nb, c->lane, &raw),
                    r4_load_local(TYPE_B, stage, nb, c->lane, &raw),
                    r4_load_local(TYPE_C, stage, nb, c->lane, &raw));
            ring_leave(c, s);
            add_block(c, k, chunk, type, &raw, acc);
        }
        if (++chunk == CHUNKS(k) || u + 1 == s->cut.u1) { /* this warp's last of the row group */
            put_sums(c, g, acc);
            chunk = 0;
            g++;
        }
    }
    group_barrier();
}

/* Cells c0 .. c1 - 1 that come through the ring. */
PTX_INLINE void attend_streamed(const struct ctx *c, struct share *s, uint c0, uint c1,
                                const float q[HEAD_DIM / 4], struct found *f)
{
    for (uint first = c0 + c->warp * TURN_CELLS; first < c1; first += WARPS * TURN_CELLS) {
        const uint last = min(c1 - first, (uint)TURN_CELLS) - 1;
        uint4 keys[HEAD_DIM / 32];
        uint values[TURN_CELLS][LANE_DIMS / 2];
        const __local uchar *stage = ring_enter(c, s) + min(c->lane / 4, last) * CELL_BYTES;
#pragma unroll
        for (uint j = 0; j < HEAD_DIM / 32; j++)
            keys[j] = *(const __local uint4 *)(stage + 2 * key_piece(c->lane, j));
        ring_leave(c, s);
        const float score = score_of(keys, q);
        stage = ring_enter(c, s) + c->lane * (LANE_DIMS * 2);
#pragma unroll
        for (uint j = 0; j < TURN_CELLS; j++) {
            const __local uint *from = (const __local uint *)(stage + min(j, last) * CELL_BYTES);
#pragma unroll
            for (uint i = 0; i < LANE_DIMS / 2; i++)
                values[j][i] = from[i];
        }
        ring_leave(c, s);
        add_values(score, last + 1, c->lane, values, f);
    }
}

/* As attention_phase, but cells from before the launch come through the ring. */
PTX_INLINE void run_attention(struct ctx *c, const __global struct decode_layer *layer, struct share *s)
{
    const uint end = c->words[ROW_POSITION(0)] + 1, n = cells_seen(c, 0), start = end - n;
    const uint n_splits = splits_of(c, n);
    for (uint item = c->group; item < N_HEAD * n_splits; item += c->n_groups) {
        const uint head = item / n_splits, split = item % n_splits;
        const uint c0 = start + n * split / n_splits, c1 = start + n * (split + 1) / n_splits;
        __global uchar *out = n_splits > 1 ? part_at(c, 0, head, split)
                                           : c->work + AT_ATT + head * HEAD_DIM * 2;
        float q[HEAD_DIM / 4];
        struct found f;
        load_query(c, 0, head, q);
        find_nothing(&f);
        attend_streamed(c, s, c0, min(c1, s->rings.old), q, &f);
        attend_cells(c, layer, 0, head, max(c0, s->rings.old), c1, q, &f);
        merge_team(c, &f, out, n_splits > 1);
    }
    arrive(c);
}

#endif
