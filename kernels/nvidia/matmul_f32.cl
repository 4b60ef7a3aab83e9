/* matmul of f32 by the float units (nvidia/f32_tile.h): transposed or not, any size.
 *
 *           k                    TOKENS
 *      +---------+           +------------+    A group makes blocks of ROWS x TOKENS of y, batch after
 * ROWS | a       |         k | b          |    batch; items copy both operands 4 or 16 bytes at a time,
 *      +---------+           +------------+    turning what has k first.
 */
#include "matmul/matmul.h"

#define TILE_M ROWS
#define TILE_N TOKENS
#include "nvidia/f32_tile.h"
#include "nvidia/raster.h"

struct source {
    struct cursor a, b;
};

PTX_INLINE void copy_stage(struct source *s, uint stage)
{
    cursor_copy(&s->a, stage, TILE_M);
    cursor_copy(&s->b, stage + 4 * A_FLOATS, TILE_N);
}

PTX_INLINE uint form_of(const __global float *operand, uint line, bool k_first)
{
    if (k_first)
        return FORM_K_FIRST;
    return ((ulong)operand & 15) == 0 && line % 4 == 0 ? FORM_QUADS : FORM_NUMBERS;
}

PTX_INLINE struct source source_of(const __global float *a, const __global float *b,
                                   struct matmul_params p, uint batch, struct tile_place t)
{
    a += (ulong)batch * p.m * p.k;
    b += (ulong)batch * p.n * p.k;
    struct source s = {cursor_open(a, p.trans_a ? p.m : p.k, t.m * TILE_M, p.m, p.k,
                                   form_of(a, p.m, !p.trans_a), TILE_M),
                       cursor_open(b, p.trans_b ? p.k : p.n, t.n * TILE_N, p.n, p.k,
                                   form_of(b, p.n, p.trans_b), TILE_N)};
    return s;
}

PTX_INLINE void store_sums(const float *sums, const __global uchar *c, __global uchar *y,
                           struct matmul_params p, uint batch, struct tile_place t)
{
    const struct item_place place = item_place();
    const bool quads = ((ulong)y & 15) == 0 && p.n % 4 == 0;
#pragma unroll
    for (uint r = 0; r < 8; r++) {
        const uint row = t.m * TILE_M + sums_row(place, r);
#pragma unroll
        for (uint h = 0; h < 2; h++) {
            const uint col = t.n * TILE_N + place.col + 16 * h;
            const ulong at = ((ulong)batch * p.m + row) * p.n + col;
            if (row >= p.m || col >= p.n)
                continue;
            if (quads && p.beta == 0.0f) {
                *(__global float4 *)(y + 4 * at) = p.alpha * sums_quad(sums, r, h);
                continue;
            }
#pragma unroll
            for (uint j = 0; j < 4; j++)
                if (col + j < p.n)
                    matmul_finish(y, c, p, at + j, sums[8 * r + 4 * h + j]);
        }
    }
}

KERNEL(LWS) void matmul_f32(MATMUL_ARGS)
{
    ASK_GROUPS;
    __local float memory[STAGES * STAGE_FLOATS] __attribute__((aligned(16)));
    const uint m_tiles = div_up(p.m, TILE_M), n_tiles = div_up(p.n, TILE_N), tiles = m_tiles * n_tiles;
    const ulong blocks = (ulong)tiles * p.batch;
    for (ulong block = get_group_id(0); block < blocks; block += get_num_groups(0)) {
        const uint batch = (uint)(block / tiles);
        const struct tile_place t = tile_order((uint)(block % tiles), m_tiles, n_tiles);
        struct source s = source_of((const __global float *)(a + a_offset),
                                    (const __global float *)(b + b_offset), p, batch, t);
        float sums[64];
        multiply_tile(sums, &s, div_up(p.k, STEP), memory);
        store_sums(sums, c + c_offset, y + y_offset, p, batch, t);
    }
}
