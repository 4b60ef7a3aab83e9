/* The order in which groups take the tiles of a matrix product. */
#ifndef OINFER_KERNELS_RASTER_H
#define OINFER_KERNELS_RASTER_H

#include "nvidia/ptx.h"

#define RASTER 8 /* tiles of one operand that are worked on beside each other */

struct tile_place {
    uint m, n; /* numbers of tiles */
};

/* Tile `block` of m_tiles x n_tiles: the m of a run of RASTER run fastest, so that a tile of b is
 * read by neighbouring groups at the same time and all of them share what the cache holds. */
PTX_INLINE struct tile_place tile_order(uint block, uint m_tiles, uint n_tiles)
{
    const uint run = block / (RASTER * n_tiles), within = block % (RASTER * n_tiles);
    const uint width = min(m_tiles - run * RASTER, (uint)RASTER);
    struct tile_place t = {run * RASTER + within % width, within / width};
    return t;
}

#endif
