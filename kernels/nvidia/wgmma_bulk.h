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

/* Describes `lines` lines of `columns` numbers, to be copied in boxes of box_lines x 64. */
PTX_INLINE void bulk_map(__global uchar *map, uint type, const __global uchar *at, uint columns,
                         uint lines, uint line_bytes, uint box_lines)
{
    __global uint4 *words = (__global uint4 *)map;
    const ulong address = (ulong)at;
    words[0] = (uint4)((uint)address, (uint)(address >> 32), type, line_bytes >> 4);
    words[1] = (uint4)(0);
    words[2] = (uint4)(columns - 1, lines - 1, 0, 0);
    words[3] = (uint4)(0, 63u << 24, box_lines - 1, 0);
#pragma unroll
    for (uint i = 4; i < MAP_BYTES / 16; i++)
        words[i] = (uint4)(0);
    __asm__ volatile("fence.proxy.tensormap::generic.release.gpu;\n\t"
                     "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;"
                     :
                     : "l"((ulong)map)
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
    __asm__ volatile("{\n\t.reg .b64 state;\n\t"
                     "mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n\t}"
                     :
                     : "r"(ring_full(r)), "r"(n)
                     : "memory");
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
