/* Linear phases of the one-launch decode kernel by dp4a, for one sequence and weights in LAYOUT_R4.
 * A warp loads its first units into registers before it waits: weights do not depend on the other
 * groups.
 */
#ifndef OINFER_KERNELS_DECODE_DOT_H
#define OINFER_KERNELS_DECODE_DOT_H

#define FEEDERS       0
#define HALF_VECTORS  0
#define CHUNK_COLUMNS 1024
#include "nvidia/decode_vectors.h"

#define UNITS_AHEAD 2 /* units of a warp that are being loaded */

/* A group's share of a linear phase. The part that the last loaded unit lies in is kept: its rows, dtype
 * and first byte. */
struct share {
    struct cut cut;
    uint part_g0, part_g1, type;
    const __global uchar *at;
    struct r4_raw raw[UNITS_AHEAD];
    uint raw_type[UNITS_AHEAD];
};

/* Makes the part that row group g lies in the share's part. */
PTX_INLINE void enter_part(const struct ctx *c, const __global struct decode_part *part,
                           const uint n_parts, uint g, struct share *s)
{
    s->part_g0 = 0;
    for (uint i = 0; i + 1 < n_parts && g >= s->part_g0 + ROW_GROUPS(part); i++, part++)
        s->part_g0 += ROW_GROUPS(part);
    s->part_g1 = s->part_g0 + ROW_GROUPS(part);
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
                          const uint n)
{
    uint g = s->cut.g0 + unit / CHUNKS(k);
    const uint chunk = unit % CHUNKS(k);
    if (n_parts > 1 && g >= s->part_g1)
        enter_part(c, parts, n_parts, g, s);
    g -= s->part_g0;
    s->raw_type[n] = s->type;
    BY_TYPE(s->type, load_typed(c, TYPE_A, k, s->at, g, chunk, &s->raw[n]),
            load_typed(c, TYPE_B, k, s->at, g, chunk, &s->raw[n]),
            load_typed(c, TYPE_C, k, s->at, g, chunk, &s->raw[n]));
}

/* The share of this warp, and its first loads. `step`: row groups that must stay together. */
PTX_INLINE void begin_linear(const struct ctx *c, const __global struct decode_part *parts,
                             const uint n_parts, const uint k, uint row_groups, const uint step,
                             struct share *s)
{
    s->cut = cut_of(c, c->warp, CHUNKS(k), row_groups, step);
    if (s->cut.u0 >= s->cut.u1)
        return;
    enter_part(c, parts, n_parts, s->cut.g0 + s->cut.u0 / CHUNKS(k), s);
#pragma unroll
    for (uint n = 0; n < UNITS_AHEAD; n++)
        if (s->cut.u0 + n < s->cut.u1)
            load_unit(c, parts, n_parts, k, s, s->cut.u0 + n, n);
}

PTX_INLINE void add_unit(const struct ctx *c, const uint k, const struct share *s, uint unit,
                         uint type, const struct r4_raw *raw, float acc[4])
{
    const uint chunk = unit % CHUNKS(k);
    add_block(c, k, chunk, type, raw, acc);
    if (chunk + 1 == CHUNKS(k) || unit + 1 == s->cut.u1) /* this warp's last of the row group */
        put_sums(c, unit / CHUNKS(k), acc);
}

/* All units of the warp, UNITS_AHEAD of them being loaded; a barrier at the end makes the sums readable. */
PTX_INLINE void run_linear(const struct ctx *c, const __global struct decode_part *parts,
                           const uint n_parts, const uint k, struct share *s)
{
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint u = s->cut.u0; u < s->cut.u1; u += UNITS_AHEAD) {
#pragma unroll
        for (uint n = 0; n < UNITS_AHEAD; n++) {
            if (u + n < s->cut.u1)
                add_unit(c, k, s, u + n, s->raw_type[n], &s->raw[n], acc);
            if (u + n + UNITS_AHEAD < s->cut.u1)
                load_unit(c, parts, n_parts, k, s, u + n + UNITS_AHEAD, n);
        }
    }
    group_barrier();
}

/* A phase of attention, which streams nothing ahead. */
PTX_INLINE void run_attention(struct ctx *c, const __global struct decode_layer *layer, struct share *s)
{
    (void)s;
    attention_phase(c, layer);
}

#endif
