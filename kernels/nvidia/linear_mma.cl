/* linear for many tokens on NVIDIA's matrix units (mma.sync): y = w x^T, quantised
 * weights in LAYOUT_R4, others in the file's, unpacked to halves on their way to local memory;
 * activations ACT_F16, sums in float.
 *
 *                 k                     A group makes the block ROWS x TOKENS of y with WARPS
 *          +---------------+            warps in a 2-wide grid over the tokens; k runs in steps of
 *   TOKENS | x half        |            32, one quantisation block per row:
 *          +---------------+              x: STAGES copies in flight (cp.async), tokens x 64 bytes
 *          +---------------+              w: an item owns rows r, r + LWS, ...: it loads the bytes
 *   ROWS   | w blocks of 32|                 of step i + 1 while step i is multiplied, then writes
 *          +---------------+                 the 64 bytes of halves into the other of two tiles.
 *                                       Tiles hold 16-byte chunks c of row r at c ^ (r / 2 % 4), so
 *                                       that 8 rows of one chunk lie in 8 different bank groups.
 * y[t][r] = sum over k of x[t][k] * w[r][k]; fragments: rows of A are tokens, columns of B rows of
 * w, so a lane holds two neighbouring r of a token and stores 8 bytes.
 * Needs k % 32 == 0. Reading past the last row or token is replaced by a row that exists, or zeros.
 */
#include "nvidia/copy.h"
#include "nvidia/mma.h"
#if OP_LAYOUT == 2 /* LAYOUT_R4 */
#include "nvidia/unpack_r4.h"
#else
#include "nvidia/unpack.h"
#endif

#define WARPS        (LWS / 32)
#define WARPS_TOKENS 2
#define WARPS_ROWS   (WARPS / WARPS_TOKENS)
#define WARP_TOKENS  (TOKENS / WARPS_TOKENS)
#define WARP_ROWS    (ROWS / WARPS_ROWS)
#define FRAG_TOKENS  (WARP_TOKENS / 16)
#define FRAG_ROWS    (WARP_ROWS / 8)
#define STAGES       3
#define STEP         32 /* k of a step: 64 bytes, 4 chunks a row */
#define X_BYTES      (TOKENS * 64)
#define W_BYTES      (ROWS * 64)
#define ROWS_ITEM    ((ROWS + LWS - 1) / LWS)

/* Byte of chunk c of row r in a tile of 64-byte rows. */
PTX_INLINE uint tile_byte(uint r, uint c)
{
    return r * 64 + ((c ^ (r >> 1 & 3)) << 4);
}

PTX_INLINE void copy_x(uint tile, const __global uchar *x, ulong row_bytes, uint n_left, uint step)
{
#pragma unroll
    for (uint i = get_local_id(0); i < TOKENS * 4; i += LWS) {
        uint t = i >> 2, c = i & 3;
        bool valid = t < n_left;
        ptx_copy16(tile + tile_byte(t, c),
                   x + (valid ? t : 0) * row_bytes + (ulong)step * 64 + c * 16, valid);
    }
}

PTX_INLINE void store_w(__local uchar *tile, uint r, const struct raw *raw)
{
    uint pairs[16];
    unpack_pairs(raw, pairs);
#pragma unroll
    for (uint c = 0; c < 4; c++)
        *(__local uint4 *)(tile + tile_byte(r, c)) = (uint4)(pairs[4 * c], pairs[4 * c + 1],
                                                             pairs[4 * c + 2], pairs[4 * c + 3]);
}

/* Stores rows r and r + 1 of token t. With LINEAR_SWIGLU rows come as 4 gates, then their 4 ups, so
 * the ups of a lane's two gates are two lanes on. Called by all lanes of a warp. */
PTX_INLINE void finish(__global float *y, const __global float *bias, uint t, uint r, float s0,
                       float s1, struct linear_params p)
{
    if (p.has_bias) {
        s0 += r < p.m ? bias[r] : 0.0f;
        s1 += r + 1 < p.m ? bias[r + 1] : 0.0f;
    }
    __global float *row = y + (ulong)t * p.y_stride;
    if (p.epilogue == LINEAR_SWIGLU) {
        const float up0 = ptx_shuffle_xor(s0, 2), up1 = ptx_shuffle_xor(s1, 2);
        const uint out = r / 8 * 4 + r % 8;
        if (t < p.n_tokens && r + 4 < p.m && r % 8 < 4) {
            row[out] = s0 / (1.0f + exp(-s0)) * up0;
            row[out + 1] = s1 / (1.0f + exp(-s1)) * up1;
        }
    } else if (t < p.n_tokens) {
        if (r < p.m)
            row[r] = p.epilogue == LINEAR_ADD ? row[r] + s0 : s0;
        if (r + 1 < p.m)
            row[r + 1] = p.epilogue == LINEAR_ADD ? row[r + 1] + s1 : s1;
    }
}

/* One block of y; local memory: STAGES x tiles, then 2 w tiles. */
static void linear_mma_step(const __global uchar *w, const __global uchar *x,
                            const __global float *bias, __global float *y, struct linear_params p,
                            uint group, __local uchar *local_memory)
{
    const uint lid = get_local_id(0), lane = lid & 31, warp = lid >> 5;
    const uint row_blocks = (p.m + ROWS - 1) / ROWS;
    const uint r0 = group % row_blocks * ROWS, t0 = group / row_blocks * TOKENS;
    const uint warp_t = warp % WARPS_TOKENS * WARP_TOKENS, warp_r = warp / WARPS_TOKENS * WARP_ROWS;
    const uint n_steps = p.k / STEP, n_left = p.n_tokens - t0;
    const ulong x_bytes = (ulong)p.k * 2;
    const __global uchar *x0 = x + t0 * x_bytes;
    const uint x_tiles = ptx_local(local_memory);
    __local uchar *w_tiles = local_memory + STAGES * X_BYTES;

    struct unpack_row w_rows[ROWS_ITEM];
    struct raw raw[ROWS_ITEM];
#pragma unroll
    for (uint i = 0; i < ROWS_ITEM; i++) {
        w_rows[i] = unpack_row_of(w, min(r0 + lid + i * LWS, p.m - 1), p.k);
        unpack_load(&w_rows[i], 0, &raw[i]);
    }
#pragma unroll
    for (uint s = 0; s < STAGES - 1; s++) {
        if (s < n_steps)
            copy_x(x_tiles + s * X_BYTES, x0, x_bytes, n_left, s);
        ptx_copy_commit();
    }

    float acc[FRAG_TOKENS][FRAG_ROWS][4];
#pragma unroll
    for (uint i = 0; i < FRAG_TOKENS; i++)
#pragma unroll
        for (uint j = 0; j < FRAG_ROWS; j++)
#pragma unroll
            for (uint c = 0; c < 4; c++)
                acc[i][j][c] = 0.0f;

    for (uint step = 0; step < n_steps; step++) {
        __local uchar *w_tile = w_tiles + (step & 1) * W_BYTES;
        const uint w_at = ptx_local(w_tile), x_at = x_tiles + step % STAGES * X_BYTES;
#pragma unroll
        for (uint i = 0; i < ROWS_ITEM; i++) {
            if (lid + i * LWS < ROWS)
                store_w(w_tile, lid + i * LWS, &raw[i]);
            unpack_load(&w_rows[i], min(step + 1, n_steps - 1), &raw[i]);
        }
        ptx_copy_wait1();
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + STAGES - 1 < n_steps)
            copy_x(x_tiles + (step + STAGES - 1) % STAGES * X_BYTES, x0, x_bytes, n_left,
                   step + STAGES - 1);
        ptx_copy_commit();
#pragma unroll
        for (uint half_step = 0; half_step < 2; half_step++) {
            uint a[FRAG_TOKENS][4], b[FRAG_ROWS][2];
#pragma unroll
            for (uint i = 0; i < FRAG_TOKENS; i++)
                ptx_load_matrix4(a[i], x_at + tile_byte(warp_t + 16 * i + (lane & 15),
                                                        2 * half_step + (lane >> 4)));
#pragma unroll
            for (uint j = 0; j < FRAG_ROWS; j += 2) {
                uint r[4];
                ptx_load_matrix4(
                    r, w_at + tile_byte(warp_r + 8 * j + (lane & 7) + (lane >> 4) * 8,
                                        2 * half_step + (lane >> 3 & 1)));
                b[j][0] = r[0];
                b[j][1] = r[1];
                b[j + 1][0] = r[2];
                b[j + 1][1] = r[3];
            }
#pragma unroll
            for (uint i = 0; i < FRAG_TOKENS; i++)
#pragma unroll
                for (uint j = 0; j < FRAG_ROWS; j++)
                    ptx_mma_16816(acc[i][j], a[i], b[j]);
        }
    }
    ptx_copy_wait0();
    barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll
    for (uint i = 0; i < FRAG_TOKENS; i++) {
#pragma unroll
        for (uint j = 0; j < FRAG_ROWS; j++) {
            uint t = t0 + warp_t + 16 * i + (lane >> 2), r = r0 + warp_r + 8 * j + 2 * (lane & 3);
            finish(y, bias, t, r, acc[i][j][0], acc[i][j][1], p);
            finish(y, bias, t + 8, r, acc[i][j][2], acc[i][j][3], p);
        }
    }
}

KERNEL(LWS) void linear_mma(const __global uchar *w, ulong w_offset, const __global uchar *x, ulong x_offset,
           const __global uchar *bias, ulong bias_offset, __global uchar *y, ulong y_offset,
           struct linear_params p)
{
    __local uchar local_memory[STAGES * X_BYTES + 2 * W_BYTES] __attribute__((aligned(128)));
    const uint blocks = (p.m + ROWS - 1) / ROWS * ((p.n_tokens + TOKENS - 1) / TOKENS);
    for (uint block = get_group_id(0); block < blocks; block += get_num_groups(0))
        linear_mma_step(w + w_offset, x + x_offset, (const __global float *)(bias + bias_offset),
                        (__global float *)(y + y_offset), p, block, local_memory);
}
