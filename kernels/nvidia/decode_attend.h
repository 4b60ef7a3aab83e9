/* Attention of the one-launch decode kernels: a team of warps per row, head and split of the cells,
 * online softmax; splits are merged by whoever reads the result (attention_of).
 *
 * Defined by the host: TEAM, the warps of a team; 0: all of a group. With many sequences there are
 * more items than groups, and several small teams wait less than one large one.
 * Sources: Milakov and Gimelshein 2018 (online softmax).
 */
#ifndef OINFER_KERNELS_DECODE_ATTEND_H
#define OINFER_KERNELS_DECODE_ATTEND_H

#include "nvidia/decode_common.h"

#define LANE_DIMS  (HEAD_DIM / 32)
#define TEAM_WARPS (TEAM > 0 && TEAM < WARPS ? TEAM : WARPS)
#define TEAMS      (WARPS / TEAM_WARPS) /* of a group */
#define ATT_FLOATS (WARPS * (HEAD_DIM + 2))

/* A barrier of the team. */
PTX_INLINE void team_barrier(uint team)
{
    if (TEAMS == 1)
        group_barrier();
    else
        __asm__ volatile("bar.sync %0, %1;" : : "r"(team + 1), "n"(TEAM_WARPS * 32) : "memory");
}

/* 8 halves of a cell, from their 16 bytes, times 8 floats. */
PTX_INLINE float dot8(uint4 h, const float *q)
{
    const uint w[4] = {h.x, h.y, h.z, h.w};
    float sum = 0.0f;
#pragma unroll
    for (uint i = 0; i < 4; i++)
        sum = fma(half_of_pair(w[i], 0), q[2 * i], fma(half_of_pair(w[i], 1), q[2 * i + 1], sum));
    return sum;
}

#define TURN_CELLS 8 /* that a warp looks at together */

/* For scores 4 lanes share a cell: each has a quarter of every 32 dimensions, in an order in which lanes
 * of neighbouring cells meet different banks of local memory. This is the lane's piece j, in halves. */
PTX_INLINE uint key_piece(uint lane, uint j)
{
    return 32 * (j ^ (lane >> 2 & 1)) + 8 * (lane & 3);
}

/* A lane's share of the keys of 8 cells. Past the end c1 the last cell is read again. */
PTX_INLINE void load_keys(const __global half *k, uint first, uint c1, uint lane,
                          uint4 keys[HEAD_DIM / 32])
{
    const __global half *at = k + (ulong)min(first + lane / 4, c1 - 1) * HEAD_DIM;
#pragma unroll
    for (uint j = 0; j < HEAD_DIM / 32; j++)
        keys[j] = *(const __global uint4 *)(at + key_piece(lane, j));
}

/* What a warp has found of a row's head: for values a lane has LANE_DIMS dimensions of all cells. */
struct found {
    float acc[LANE_DIMS], top, total;
};

PTX_INLINE void find_nothing(struct found *f)
{
#pragma unroll
    for (uint i = 0; i < LANE_DIMS; i++)
        f->acc[i] = 0.0f;
    f->top = -INFINITY;
    f->total = 0.0f;
}

/* The lane's share of a head's query, scaled. */
PTX_INLINE void load_query(const struct ctx *c, uint row, uint head, float q[HEAD_DIM / 4])
{
    const __global float *query =
        (const __global float *)(c->work + AT_Q) + row * Q_ROWS + head * HEAD_DIM;
#pragma unroll
    for (uint j = 0; j < HEAD_DIM / 32; j++) {
#pragma unroll
        for (uint i = 0; i < 8; i += 4) {
            const float4 part = fresh4(query + key_piece(c->lane, j) + i) * c->p.scale;
            q[8 * j + i] = part.x;
            q[8 * j + i + 1] = part.y;
            q[8 * j + i + 2] = part.z;
            q[8 * j + i + 3] = part.w;
        }
    }
}

PTX_INLINE float score_of(const uint4 keys[HEAD_DIM / 32], const float q[HEAD_DIM / 4])
{
    float score = 0.0f;
#pragma unroll
    for (uint j = 0; j < HEAD_DIM / 32; j++)
        score += dot8(keys[j], q + 8 * j);
    score += ptx_shuffle_xor(score, 1);
    return score + ptx_shuffle_xor(score, 2);
}

/* The values of n <= 8 cells, of which the lane knows the score of cell lane / 4. */
PTX_INLINE void add_values(float score, uint n, uint lane, uint values[TURN_CELLS][LANE_DIMS / 2],
                           struct found *f)
{
    if (lane / 4 >= n)
        score = -INFINITY;
    float best = score;
#pragma unroll
    for (uint mask = 4; mask < 32; mask <<= 1)
        best = fmax(best, ptx_shuffle_xor(best, mask));
    const float new_top = fmax(f->top, best), shrink = ptx_exp(f->top - new_top);
    const float weight = ptx_exp(score - new_top);
    float sum = weight;
#pragma unroll
    for (uint mask = 4; mask < 32; mask <<= 1)
        sum += ptx_shuffle_xor(sum, mask);
    f->total = f->total * shrink + sum;
    f->top = new_top;
#pragma unroll
    for (uint i = 0; i < LANE_DIMS; i++)
        f->acc[i] *= shrink;
#pragma unroll
    for (uint j = 0; j < TURN_CELLS; j++) {
        const float w = ptx_shuffle(weight, 4 * j);
#pragma unroll
        for (uint i = 0; i < LANE_DIMS; i++)
            f->acc[i] = fma(w, half_of_pair(values[j][i / 2], i & 1), f->acc[i]);
    }
}

/* Element 0 of a row's head in the cells of a layer. */
PTX_INLINE ulong cells_of(uint slot, uint head)
{
    return ((ulong)slot * N_HEAD_KV + head / (N_HEAD / N_HEAD_KV)) * N_CTX * HEAD_DIM;
}

/* Cells c0 .. c1 - 1 of a row's head, by a team. */
PTX_INLINE void attend_cells(const struct ctx *c, const __global struct decode_layer *layer, uint row,
                             uint head, uint c0, uint c1, const float q[HEAD_DIM / 4],
                             struct found *f)
{
    const ulong base = cells_of(c->words[ROW_SLOT(row)], head);
    const __global half *k = cells_at_place(c, layer->k) + base;
    const __global half *v = cells_at_place(c, layer->v) + base;
    uint first = c0 + c->warp % TEAM_WARPS * TURN_CELLS;
    if (first >= c1)
        return;
    uint4 keys[HEAD_DIM / 32];
    load_keys(k, first, c1, c->lane, keys);
    for (; first < c1; first += TEAM_WARPS * TURN_CELLS) {
        uint values[TURN_CELLS][LANE_DIMS / 2];
#pragma unroll
        for (uint j = 0; j < TURN_CELLS; j++) {
            const __global uint *from =
                (const __global uint *)(v + (ulong)min(first + j, c1 - 1) * HEAD_DIM +
                                        c->lane * LANE_DIMS);
#pragma unroll
            for (uint i = 0; i < LANE_DIMS / 2; i++)
                values[j][i] = from[i];
        }
        const float score = score_of(keys, q);
        load_keys(k, first + TEAM_WARPS * TURN_CELLS, c1, c->lane, keys); /* of the next turn */
        add_values(score, c1 - first, c->lane, values, f);
    }
}

/* What the warps of a team found, together. */
PTX_INLINE void merge_team(const struct ctx *c, const struct found *f, __global uchar *out, bool split)
{
    const uint team = c->warp / TEAM_WARPS, warp_of_team = c->warp % TEAM_WARPS;
    __local float *mine = (__local float *)c->body + c->warp * (HEAD_DIM + 2);
#pragma unroll
    for (uint i = 0; i < LANE_DIMS; i++)
        mine[c->lane * LANE_DIMS + i] = f->acc[i];
    if (c->lane == 0) {
        mine[HEAD_DIM] = f->top;
        mine[HEAD_DIM + 1] = f->total;
    }
    team_barrier(team);
    const __local float *all = (const __local float *)c->body + team * TEAM_WARPS * (HEAD_DIM + 2);
    for (uint d = warp_of_team * 32 + c->lane; d < HEAD_DIM; d += TEAM_WARPS * 32) {
        float highest = -INFINITY, weights = 0.0f, value = 0.0f;
        for (uint w = 0; w < TEAM_WARPS; w++)
            highest = fmax(highest, all[w * (HEAD_DIM + 2) + HEAD_DIM]);
        for (uint w = 0; w < TEAM_WARPS; w++) {
            const __local float *warp = all + w * (HEAD_DIM + 2);
            const float weight = ptx_exp(warp[HEAD_DIM] - highest);
            weights += weight * warp[HEAD_DIM + 1];
            value += weight * warp[d];
        }
        if (!split) {
            ((__global ushort *)out)[d] = to_number(value / weights);
            continue;
        }
        __global float *part = (__global float *)out;
        part[d] = value;
        if (d == 0) {
            part[HEAD_DIM] = highest;
            part[HEAD_DIM + 1] = weights;
        }
    }
    team_barrier(team);
}

/* Cells that a row looks at: the last n of them. */
PTX_INLINE uint cells_seen(const struct ctx *c, uint row)
{
    const uint end = c->words[ROW_POSITION(row)] + 1;
    return c->p.window > 0 ? min(end, c->p.window) : end;
}

/* Splits of the cells of one head when n cells are looked at. */
PTX_INLINE uint splits_of(const struct ctx *c, uint n)
{
    return max(1u, min(c->n_groups / (N_HEAD * c->n_rows), n / 256));
}

PTX_INLINE __global uchar *part_at(const struct ctx *c, uint row, uint head, uint split)
{
    return c->work + AT_PARTS +
           (ulong)((row * N_HEAD + head) * MAX_SPLITS + split) * (HEAD_DIM + 4) * 4;
}

/* A row's head by a team. */
PTX_INLINE void attend(const struct ctx *c, const __global struct decode_layer *layer, uint row,
                       uint head, uint c0, uint c1, __global uchar *out, bool split)
{
    float q[HEAD_DIM / 4];
    struct found f;
    load_query(c, row, head, q);
    find_nothing(&f);
    attend_cells(c, layer, row, head, c0, c1, q, &f);
    merge_team(c, &f, out, split);
}

PTX_INLINE void attention_phase(struct ctx *c, const __global struct decode_layer *layer)
{
    const uint team = c->warp / TEAM_WARPS, n_teams = c->n_groups * TEAMS;
    if (WARPS % TEAM_WARPS != 0 && team >= TEAMS) { /* warps that make no whole team */
        arrive(c);
        return;
    }
    uint first = team * c->n_groups + c->group; /* of a row's items: on from where the last ended */
    for (uint row = 0; row < c->n_rows; row++) {
        const uint end = c->words[ROW_POSITION(row)] + 1, n = cells_seen(c, row), start = end - n;
        const uint n_splits = splits_of(c, n), n_items = N_HEAD * n_splits;
        for (; first < n_items; first += n_teams) {
            const uint head = first / n_splits, split = first % n_splits;
            __global uchar *out =
                n_splits > 1 ? part_at(c, row, head, split)
                             : c->work + AT_ATT + (row * Q_ROWS + head * HEAD_DIM) * 2;
            attend(c, layer, row, head, start + (uint)((ulong)n * split / n_splits),
                   start + (uint)((ulong)n * (split + 1) / n_splits), out, n_splits > 1);
        }
        first -= n_items;
    }
    arrive(c);
}

/* Numbers i .. i + 7 of what a row's heads found. */
PTX_INLINE void attention_of(const struct ctx *c, uint row, uint n_splits, uint i, float v[8])
{
    if (n_splits == 1) {
        floats_of(fresh_numbers((const __global ushort *)(c->work + AT_ATT) + row * Q_ROWS, i), v);
        return;
    }
    const __global float *head = (const __global float *)part_at(c, row, i / HEAD_DIM, 0);
    float top = -INFINITY, total = 0.0f;
    float4 a = (float4)(0.0f), b = (float4)(0.0f);
    for (uint s = 0; s < n_splits; s++)
        top = fmax(top, fresh(head + s * (HEAD_DIM + 4) + HEAD_DIM));
    for (uint s = 0; s < n_splits; s++) {
        const __global float *part = head + s * (HEAD_DIM + 4);
        const float weight = ptx_exp(fresh(part + HEAD_DIM) - top);
        total += weight * fresh(part + HEAD_DIM + 1);
        a += weight * fresh4(part + i % HEAD_DIM);
        b += weight * fresh4(part + i % HEAD_DIM + 4);
    }
    a /= total;
    b /= total;
    v[0] = a.x;
    v[1] = a.y;
    v[2] = a.z;
    v[3] = a.w;
    v[4] = b.x;
    v[5] = b.y;
    v[6] = b.z;
    v[7] = b.w;
}

#endif
