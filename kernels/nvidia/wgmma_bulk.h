/* Filling the stages of nvidia/wgmma.h by the tensor copy engine: one item starts copies of whole
 * boxes, whose bytes the stage's full barrier counts. The engine reads a description of the matrix
 * (a tensor map of 128 bytes) from global memory, which the kernel writes itself; the format was
 * read off what the driver's own encoder makes, and a probe (CAP_PTX_WGMMA) checks what comes of it.
 * Numbers outside the matrix arrive as zeros.
 */
#ifndef OINFER_KERNELS_WGMMA_BULK_H
#define OINFER_KERNELS_WGMMA_BULK_H

#include "nvidia/wgmma.h"

#define MAP_BYTES 128
#define MAP_F16   0x6310u /* two dimensions, halves, swizzle of 128 bytes */
#define MAP_BF16  0x6510u

/* Whether the engine can read lines this far apart from here on. */
PTX_INLINE bool bulk_takes(const __global uchar *at, uint line_bytes)
{
    return (((ulong)at | line_bytes) & 15) == 0;
}

/* A matrix of `lines` lines of `columns` numbers, to be copied in boxes of box_lines x 64. */
struct bulk_matrix {
    const __global uchar *at;
    uint type, columns, lines, line_bytes, box_lines;
};

/* Word i of its map. */
PTX_INLINE uint bulk_map_word(const struct bulk_matrix *m, uint i)
{
    const ulong address = (ulong)m->at;
    switch (i) {
    case 0: return (uint)address;
    case 1: return (uint)(address >> 32);
    case 2: return m->type;
    case 3: return m->line_bytes >> 4;
    case 8: return m->columns - 1;
    case 9: return m->lines - 1;
    case 13: return 63u << 24;
    case 14: return m->box_lines - 1;
    default: return 0;
    }
}

/* What lies in the place of n (up to 2) maps: a word of each per lane. The engine begins to fetch them
 * as well. */
PTX_INLINE void bulk_maps_read(const __global uchar *maps, uint *have, const uint n)
{
#pragma unroll
    for (uint i = 0; i < n; i++) {
        const ulong at = (ulong)maps + i * MAP_BYTES;
        __asm__ volatile("ld.global.b32 %0, [%1];"
                         : "=r"(have[i])
                         : "l"(at + 4 * (ptx_item() & 31))
                         : "memory");
        __asm__ volatile("prefetch.tensormap [%0];" : : "l"(at) : "memory");
    }
}

/* Describes n matrices in maps, of which `have` was read; called by a whole warp, which alone copies by
 * them. Maps that the launch before left there are kept when they are right: to make written ones
 * known to the copy engine takes microseconds. */
PTX_INLINE void bulk_maps(__global uchar *maps, const uint *have, const struct bulk_matrix *m,
                          const uint n)
{
    __global uint *words = (__global uint *)maps + (ptx_item() & 31);
    uint want[2], wrong = 0;
#pragma unroll
    for (uint i = 0; i < n; i++) {
        want[i] = bulk_map_word(m + i, ptx_item() & 31);
        wrong |= have[i] ^ want[i];
    }
    if (!ptx_any(wrong != 0))
        return;
#pragma unroll
    for (uint i = 0; i < n; i++)
        words[i * MAP_BYTES / 4] = want[i];
    __asm__ volatile("fence.proxy.tensormap::generic.release.gpu;" : : : "memory");
    ptx_warp_sync();
#pragma unroll
    for (uint i = 0; i < n; i++)
        __asm__ volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;"
                         :
                         : "l"((ulong)maps + i * MAP_BYTES)
                         : "memory");
}

/* The stage's full barrier waits for n bytes more; with bulk_arrive also for one arrival less. */
PTX_INLINE void bulk_expect(const struct ring *r, uint n)
{
    __asm__ volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                     :
                     : "r"(ring_full(r)), "r"(n)
                     : "memory");
}

PTX_INLINE void bulk_arrive(const struct ring *r, uint n)
{
    mbarrier_expect(ring_full(r), n);
}

PTX_INLINE void bulk_box(const struct ring *r, uint to, const __global uchar *map, uint column, uint line)
{
    __asm__ volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];"
                     :
                     : "r"(to), "l"((ulong)map), "r"(column), "r"(line), "r"(ring_full(r))
                     : "memory");
}

/* Rows row0 .. row0 + n_rows - 1 of columns k0 .. k0 + 63, to the tile `to`: with k last they are
 * boxes of 64. first_line: of the matrix, where the map describes several one after another. */
PTX_INLINE void bulk_tile(const struct ring *r, uint to, const __global uchar *map, uint row0,
                          const uint n_rows, uint k0, uint first_line, const bool k_last)
{
    if (k_last) {
#pragma unroll
        for (uint i = 0; i < n_rows / 64; i++)
            bulk_box(r, to + i * 64 * LINE_BYTES, map, row0 + 64 * i, first_line + k0);
    } else {
        bulk_box(r, to, map, k0, first_line + row0);
    }
}

#endif
