/* Filling the stages of nvidia/wgmma.h with matrices of 16-bit numbers, by a team of 128 items. */
#ifndef OINFER_KERNELS_WGMMA_COPY_H
#define OINFER_KERNELS_WGMMA_COPY_H

#include "nvidia/copy.h"
#include "nvidia/wgmma.h"

/* Publishes a stage that was copied: PTX_COPY_WAIT comes before. */
PTX_INLINE void copy_publish(struct ring *r)
{
    ptx_fence_async();
    ring_publish(r);
}

/* A matrix in global memory: `rows` rows of k numbers, row by row (K first), or k lines of `rows`
 * numbers (K last). Its lines are `line_bytes` apart; copies in the background need all of them at
 * multiples of 16 bytes. */
struct operand {
    const __global uchar *at;
    uint rows, k, line_bytes;
    bool aligned;
};

PTX_INLINE struct operand operand_of(const __global uchar *at, uint rows, uint k, const bool k_last)
{
    const uint line_bytes = 2 * (k_last ? rows : k);
    struct operand o = {at, rows, k, line_bytes, (((ulong)at | line_bytes) & 15) == 0};
    return o;
}

/* Numbers of the 8 from `first` on that lie before `end`. */
PTX_INLINE uint numbers_left(uint first, uint end)
{
    return first < end ? min(end - first, 8u) : 0;
}

/* A chunk of which n numbers exist, the others being zeros, number by number. */
PTX_INLINE void gather_chunk(uint to, const __global ushort *from, uint n)
{
    uint v[4];
#pragma unroll
    for (uint i = 0; i < 4; i++)
        v[i] = (2 * i < n ? from[2 * i] : 0u) | (2 * i + 1 < n ? (uint)from[2 * i + 1] : 0u) << 16;
    __asm__ volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                     : "memory");
}

/* Chunk item % 8 of line item / 8 + 16 i of a tile with k first, for one i after another. */
PTX_INLINE void copy_k_first(const struct operand *o, uint tile, uint row0, const uint n_rows, uint step)
{
    const uint line = team_item() / 8, chunk = team_item() % 8, column = step * STEP + 8 * chunk;
    const uint to = tile + line * LINE_BYTES + ((chunk ^ (line & 7)) << 4);
    const uint row = min(row0 + line, o->rows - 1), left = o->rows - 1 - row;
    const uint n = numbers_left(column, o->k);
    const __global uchar *from = o->at + (ulong)row * o->line_bytes + 2ul * column;
    if (o->aligned) {
#pragma unroll
        for (uint i = 0; i < n_rows / 16; i++)
            ptx_copy_bytes(to + i * 16 * LINE_BYTES, from + (ulong)min(16 * i, left) * o->line_bytes,
                           2 * n);
    } else {
#pragma unroll 1
        for (uint i = 0; i < n_rows / 16; i++)
            gather_chunk(to + i * 16 * LINE_BYTES,
                         (const __global ushort *)(from + (ulong)min(16 * i, left) * o->line_bytes), n);
    }
}

/* The same with k last, where the lines are those of box i / 4, one box after another. */
PTX_INLINE void copy_k_last(const struct operand *o, uint tile, uint row0, const uint n_rows, uint step)
{
    const uint line = team_item() / 8, chunk = team_item() % 8, row = row0 + 8 * chunk;
    const uint to = tile + line * LINE_BYTES + ((chunk ^ (line & 7)) << 4), k0 = step * STEP + line;
    const __global uchar *from = o->at + (ulong)k0 * o->line_bytes + 2ul * row;
    if (o->aligned) {
#pragma unroll
        for (uint i = 0; i < n_rows / 16; i++) {
            const uint n = k0 + i % 4 * 16 < o->k ? numbers_left(row + i / 4 * 64, o->rows) : 0;
            ptx_copy_bytes(to + i * 16 * LINE_BYTES,
                           from + (ulong)(i % 4 * 16) * o->line_bytes + i / 4 * 128, 2 * n);
        }
    } else {
#pragma unroll 1
        for (uint i = 0; i < n_rows / 16; i++) {
            const uint n = k0 + i % 4 * 16 < o->k ? numbers_left(row + i / 4 * 64, o->rows) : 0;
            const __global uchar *at = from + (ulong)(i % 4 * 16) * o->line_bytes + i / 4 * 128;
            gather_chunk(to + i * 16 * LINE_BYTES, (const __global ushort *)at, n);
        }
    }
}

/* Stage `step` of the rows row0 .. row0 + n_rows - 1 to local memory at `tile`. Rows past the last
 * are that one again, or zeros; k past the end gives zeros. */
PTX_INLINE void copy_stage(const struct operand *o, uint tile, uint row0, const uint n_rows, uint step,
                           const bool k_last)
{
    if (k_last)
        copy_k_last(o, tile, row0, n_rows, step);
    else
        copy_k_first(o, tile, row0, n_rows, step);
}

#endif
