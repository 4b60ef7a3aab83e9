/* A tile of a product of f32 matrices by the float units: y [TILE_M][TILE_N] = a [TILE_M][k] b [k][TILE_N].
 *
 * Tiles of STEP k of both operands lie in local memory, k first, STAGES of them, filled in the
 * background. GROUP items keep 8 x 8 sums each, as 2 x 2 blocks of 4 x 4; a warp has 64 x 32 of the
 * tile, 8 items down and 4 across. The next k's numbers are loaded while the last ones multiply.
 *
 * The file that includes this defines TILE_M, TILE_N, STAGES, `struct source` and copy_stage.
 */
#ifndef OINFER_KERNELS_F32_TILE_H
#define OINFER_KERNELS_F32_TILE_H

#include "nvidia/copy.h"

#define STEP         16
#define GROUP        (TILE_M * TILE_N / 64)
#define PITCH_M      (TILE_M + 4) /* so that turned operands are written to different banks */
#define PITCH_N      (TILE_N + 4)
#define A_FLOATS     (STEP * PITCH_M)
#define STAGE_FLOATS (STEP * (PITCH_M + PITCH_N))
#define WARPS_N      (TILE_N / 32)
#if TILE_M % 64 != 0 || TILE_N % 32 != 0 || GROUP % 32 != 0
#error "tiles are made of 64 x 32"
#endif

#ifndef ASK_GROUPS
#define ASK_GROUPS /* stands first in a kernel: nvidia/capped.h */
#endif

/* Keeps compilers from computing what follows from a value before the loop, which takes registers. */
#define HIDE_INT(v)     __asm__ volatile("" : "+r"(v))
#define HIDE_POINTER(v) __asm__ volatile("" : "+l"(v))

/* What copies the operands of one tile; copy_stage copies the next STEP of k to the stage at a local
 * address (zeros behind the last k), and is called by all items. */
struct source;
PTX_INLINE void copy_stage(struct source *s, uint stage);

/* Where an item's sums lie: rows row .. row + 3 and row + 32 .., columns col .. and col + 16 .. */
struct item_place {
    uint row, col;
};

/* Lanes whose numbers differ by 1 read the same of a, by 2 the same of b: such loads are one. */
PTX_INLINE struct item_place item_place(void)
{
    const uint item = (uint)get_local_id(0), lane = item & 31, warp = item / 32;
    const uint down = (lane >> 1 & 3) | (lane >> 2 & 4), across = (lane & 1) | (lane >> 2 & 2);
    const struct item_place at = {warp / WARPS_N * 64 + 4 * down, warp % WARPS_N * 32 + 4 * across};
    return at;
}

PTX_INLINE void put4(float *to, float4 v)
{
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

/* The item's numbers of one k, from where its first ones lie. */
PTX_INLINE void load_numbers(float *a, float *b, const __local float *at_a, const __local float *at_b)
{
    put4(a, *(const __local float4 *)at_a);
    put4(a + 4, *(const __local float4 *)(at_a + 32));
    put4(b, *(const __local float4 *)at_b);
    put4(b + 4, *(const __local float4 *)(at_b + 16));
}

PTX_INLINE void multiply_numbers(float *sums, const float *a, const float *b)
{
#pragma unroll
    for (uint r = 0; r < 8; r++)
#pragma unroll
        for (uint c = 0; c < 8; c++)
            sums[8 * r + c] = fma(a[r], b[c], sums[8 * r + c]);
}

/* sums[8 r + c]: rows and columns in the order of struct item_place. */
PTX_INLINE void multiply_tile(float *sums, struct source *s, uint n_steps, __local float *memory)
{
    const struct item_place place = item_place();
    const uint stages = ptx_local(memory);
    const __local float *at_a = memory + place.row, *at_b = memory + A_FLOATS + place.col;
    float a[2][8], b[2][8];
#pragma unroll
    for (uint i = 0; i < 64; i++)
        sums[i] = 0.0f;
#pragma unroll 1
    for (uint i = 0; i < STAGES - 1; i++) {
        if (i < n_steps)
            copy_stage(s, stages + i * STAGE_FLOATS * 4);
        ptx_copy_commit();
    }
    PTX_COPY_WAIT(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    load_numbers(a[0], b[0], at_a, at_b);
    uint slot = 0, filled = STAGES - 1;
#pragma unroll 1
    for (uint step = 0; step < n_steps; step++) {
        const uint here = slot * STAGE_FLOATS;
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        load_numbers(a[1], b[1], at_a + here + PITCH_M, at_b + here + PITCH_N);
        if (step + STAGES - 1 < n_steps)
            copy_stage(s, stages + filled * STAGE_FLOATS * 4);
        ptx_copy_commit();
        filled = filled + 1 == STAGES ? 0 : filled + 1;
        multiply_numbers(sums, a[0], b[0]);
#pragma unroll
        for (uint k = 1; k < STEP - 1; k++) {
            load_numbers(a[(k + 1) & 1], b[(k + 1) & 1], at_a + here + (k + 1) * PITCH_M,
                         at_b + here + (k + 1) * PITCH_N);
            multiply_numbers(sums, a[k & 1], b[k & 1]);
        }
        PTX_COPY_WAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE); /* the next stage has arrived, this one has been read */
        load_numbers(a[0], b[0], at_a + slot * STAGE_FLOATS, at_b + slot * STAGE_FLOATS);
        multiply_numbers(sums, a[1], b[1]);
    }
}

/* Row r of 8, and the first of columns of half h, of the item's sums. */
PTX_INLINE uint sums_row(struct item_place at, uint r)
{
    return at.row + r % 4 + r / 4 * 32;
}

PTX_INLINE float4 sums_quad(const float *sums, uint r, uint h)
{
    const float *v = sums + 8 * r + 4 * h;
    return (float4)(v[0], v[1], v[2], v[3]);
}

/* ---- copying an operand ---- */

/* Forms in which an operand lies: lines of k numbers; or k lines of numbers, in whole quads (whose
 * places are multiples of 16 bytes) or not, or of which an item copies single ones. */
#define FORM_K_FIRST 0
#define FORM_QUADS   1
#define FORM_NUMBERS 2
#define FORM_PLACE   3

/* What an item copies of an operand: `from` its first number of the next stage, `pass` numbers
 * between its copies, `step` numbers to the next stage, `to` bytes from the operand's part of a
 * stage, of which `n` (copies in FORM_K_FIRST, numbers of a quad else) exist. `k_left`: numbers of k
 * left from its own first one on. */
struct cursor {
    const __global float *from;
    uint pass, step, to, form;
    int n, k_left;
};

/* The cursor over an operand of `count` rows (columns of b) from `first` on, `line` numbers apart, of
 * a tile of TILE of them. */
PTX_INLINE struct cursor cursor_open(const __global float *operand, uint line, uint first, uint count,
                                     uint k, uint form, const uint tile)
{
    const uint item = (uint)get_local_id(0), lines = GROUP / STEP, quads = tile / 4;
    struct cursor c;
    c.form = form;
    if (form == FORM_K_FIRST) { /* a warp copies 4 lines of 8 numbers */
        const uint i = (item & 7) | (item >> 2 & 8), row = (item >> 3 & 3) | item >> 6 << 2;
        c.from = operand + (ulong)(first + row) * line + i;
        c.pass = lines * line;
        c.step = STEP;
        c.to = 4 * (i * (tile + 4) + row);
        c.n = ((int)count - (int)(first + row) + (int)lines - 1) / (int)lines;
        c.k_left = (int)(k - i);
    } else {
        const uint quad = item % quads * 4, i = item / quads;
        c.from = operand + (ulong)i * line + first + quad;
        c.pass = GROUP / quads * line;
        c.step = STEP * line;
        c.to = 4 * (i * (tile + 4) + quad);
        c.n = (int)count - (int)(first + quad);
        c.k_left = (int)(k - i);
    }
    return c;
}

/* Copies the next STEP of k to the operand's part of a stage. */
PTX_INLINE void cursor_copy(struct cursor *c, uint part, const uint tile)
{
    const uint lines = GROUP / STEP, quads = tile / 4, rows = GROUP / quads;
    const __global float *from = c->from;
    uint to = part + c->to;
    int n = c->n, k_left = c->k_left;
    HIDE_INT(n);
    HIDE_INT(k_left);
    HIDE_INT(to);
    if (c->form == FORM_K_FIRST) {
        const uint bytes = k_left > 0 ? 4 : 0;
#pragma unroll
        for (uint j = 0; j < tile / lines; j++) {
            if ((int)j < n)
                ptx_copy4(to + 4 * j * lines, from, bytes);
            from += c->pass;
            HIDE_POINTER(from);
        }
    } else if (c->form == FORM_QUADS) {
#pragma unroll
        for (uint j = 0; j < STEP / rows; j++) {
            if (n > 0)
                ptx_copy_bytes(to + 4 * j * rows * (tile + 4), from, k_left > (int)(j * rows) ? 16 : 0);
            from += c->pass;
            HIDE_POINTER(from);
        }
    } else if (c->form == FORM_PLACE) {
        const uint items = GROUP / tile;
#pragma unroll
        for (uint j = 0; j < STEP / items; j++) {
            if (n > 0)
                ptx_copy4(to + 4 * j * items * (tile + 4), from, k_left > (int)(j * items) ? 4 : 0);
            from += c->pass;
            HIDE_POINTER(from);
        }
    } else {
#pragma unroll 1
        for (uint j = 0; j < STEP / rows; j++) {
#pragma unroll
            for (uint i = 0; i < 4; i++)
                if ((int)i < n)
                    ptx_copy4(to + 4 * (j * rows * (tile + 4) + i), from + i,
                              k_left > (int)(j * rows) ? 4 : 0);
            from += c->pass;
            HIDE_POINTER(from);
        }
    }
    c->from += c->step;
    c->k_left -= STEP;
}

#endif
