/* attention for many tokens on NVIDIA's matrix units: a group per head and TOKENS tokens, a warp per
 * 16 of them, online softmax in registers; caches of halves, KV_PLAIN.
 *
 *   q [16][HEAD_DIM] halves in registers (A fragments), scaled
 *   per tile of CELLS cells, two tiles of k and of v in flight (cp.async):
 *     s [16][CELLS] = q k^T        fragments of k: rows are cells (ldmatrix)
 *     p = e^(s - row's largest)    stays where it is: C fragments of s are A fragments of p
 *     y [16][HEAD_DIM] += p v      fragments of v: columns are dims (ldmatrix, transposed)
 * Tiles hold 16-byte chunk c of row r at c ^ (r % 8): rows of one chunk lie in different banks.
 * block = token block * n_head + head. Tokens of one slot that follow each other make a run; runs
 * are worked on one after another, tokens outside of the run seeing no cell. Halves round q, p and
 * the cells; sums are float. Source: Dao 2022 (FlashAttention).
 */
#include "nvidia/copy.h"
#include "nvidia/mma.h"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#define WARPS      (LWS / 32) /* TOKENS = 16 * WARPS */
#define CELLS      (4096 / HEAD_DIM)
#define ROW_CHUNKS (HEAD_DIM / 8)
#define TILE_BYTES (CELLS * HEAD_DIM * 2)
#define FRAG_CELLS (CELLS / 8)
#define FRAG_DIMS  (HEAD_DIM / 8)
#define Q_STEPS    (HEAD_DIM / 16)

PTX_INLINE uint cell_byte(uint row, uint chunk)
{
    return (row * ROW_CHUNKS + (chunk ^ (row & 7))) * 16;
}

/* Cells c0 .. c0 + CELLS - 1 of k and v into the tiles of a stage; zeros from `end` on. */
PTX_INLINE void copy_cells(uint tiles, const __global uchar *k, const __global uchar *v, uint c0,
                           uint end)
{
#pragma unroll
    for (uint i = get_local_id(0); i < CELLS * ROW_CHUNKS; i += WARPS * 32) {
        const uint row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
        const bool valid = c0 + row < end;
        const ulong from = (ulong)(valid ? c0 + row : 0) * (HEAD_DIM * 2) + chunk * 16;
        ptx_copy16(tiles + cell_byte(row, chunk), k + from, valid);
        ptx_copy16(tiles + TILE_BYTES + cell_byte(row, chunk), v + from, valid);
    }
}

/* The cells a token sees: [first, end). */
PTX_INLINE uint2 cells_seen(const __global int4 *meta, struct attention_params p, uint t)
{
    const uint end = (uint)meta[t].x + 1;
    return (uint2)(p.window > 0 ? end - min(end, p.window) : 0, end);
}

/* What a warp carries from tile to tile; index 0 is row lane / 4, index 1 row lane / 4 + 8. */
struct rows {
    float y[FRAG_DIMS][4];
    float largest[2], total[2];
};

PTX_INLINE float masked(float s, uint cell, uint2 seen, struct attention_params p)
{
    if (p.softcap > 0.0f)
        s = p.softcap * tanh(s / p.softcap);
    return cell >= seen.x && cell < seen.y ? s : -INFINITY;
}

/* One tile: scores, softmax, values. seen: of the lane's two rows. */
PTX_INLINE void attend_tile(struct rows *rows, const uint q[Q_STEPS][4], uint k_tile, uint v_tile,
                            uint c0, const uint2 seen[2], struct attention_params p, uint lane)
{
    float s[FRAG_CELLS][4];
#pragma unroll
    for (uint j = 0; j < FRAG_CELLS; j++)
#pragma unroll
        for (uint i = 0; i < 4; i++)
            s[j][i] = 0.0f;
#pragma unroll
    for (uint step = 0; step < Q_STEPS; step++) {
#pragma unroll
        for (uint j = 0; j < FRAG_CELLS; j += 2) {
            uint b[4];
            ptx_load_matrix4(b, k_tile + cell_byte(8 * j + (lane & 7) + (lane >> 4) * 8,
                                                   2 * step + (lane >> 3 & 1)));
            ptx_mma_16816(s[j], q[step], b);
            ptx_mma_16816(s[j + 1], q[step], b + 2);
        }
    }
    float largest[2] = {rows->largest[0], rows->largest[1]};
#pragma unroll
    for (uint j = 0; j < FRAG_CELLS; j++) {
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            const uint row = i / 2;
            s[j][i] = masked(s[j][i], c0 + 8 * j + 2 * (lane & 3) + i % 2, seen[row], p);
            largest[row] = fmax(largest[row], s[j][i]);
        }
    }
    float base[2], shrink[2];
#pragma unroll
    for (uint row = 0; row < 2; row++) {
        largest[row] = fmax(largest[row], ptx_shuffle_xor(largest[row], 1));
        largest[row] = fmax(largest[row], ptx_shuffle_xor(largest[row], 2));
        base[row] = largest[row] == -INFINITY ? 0.0f : largest[row];
        shrink[row] = ptx_exp(rows->largest[row] - base[row]);
        rows->largest[row] = largest[row];
        rows->total[row] *= shrink[row];
    }
#pragma unroll
    for (uint j = 0; j < FRAG_DIMS; j++)
#pragma unroll
        for (uint i = 0; i < 4; i++)
            rows->y[j][i] *= shrink[i / 2];
#pragma unroll
    for (uint step = 0; step < CELLS / 16; step++) {
        uint a[4];
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            const uint j = 2 * step + i / 2, row = i % 2;
            const float w0 = ptx_exp(s[j][2 * row] - base[row]);
            const float w1 = ptx_exp(s[j][2 * row + 1] - base[row]);
            rows->total[row] += w0 + w1;
            a[i] = ptx_half2_of(w0, w1);
        }
#pragma unroll
        for (uint j = 0; j < FRAG_DIMS; j += 2) {
            uint b[4];
            ptx_load_matrix4_transposed(
                b, v_tile + cell_byte(16 * step + (lane & 15), j + (lane >> 4)));
            ptx_mma_16816(rows->y[j], a, b);
            ptx_mma_16816(rows->y[j + 1], a, b + 2);
        }
    }
}

static void attention_mma_step(const __global float *q, const __global uchar *k_cache,
                               const __global uchar *v_cache, const __global int4 *meta,
                               __global float *y, struct attention_params p, uint block,
                               uint local_memory)
{
    const uint lane = get_local_id(0) & 31, warp = get_local_id(0) >> 5;
    const uint head = block % p.n_head, t0 = block / p.n_head * TOKENS;
    const uint t_end = min(t0 + TOKENS, p.n_tokens), kv_head = head / (p.n_head / p.n_head_kv);
    const uint t[2] = {t0 + warp * 16 + (lane >> 2), t0 + warp * 16 + (lane >> 2) + 8};
    uint fragments[Q_STEPS][4];
#pragma unroll
    for (uint step = 0; step < Q_STEPS; step++) {
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            const __global float *from = q + (ulong)min(t[i % 2], p.n_tokens - 1) * p.q_stride +
                                         head * HEAD_DIM + 16 * step + 8 * (i / 2) + 2 * (lane & 3);
            fragments[step][i] = ptx_half2_of(from[0] * p.scale, from[1] * p.scale);
        }
    }
    struct rows rows;
#pragma unroll
    for (uint j = 0; j < FRAG_DIMS; j++)
#pragma unroll
        for (uint i = 0; i < 4; i++)
            rows.y[j][i] = 0.0f;
    rows.largest[0] = rows.largest[1] = -INFINITY;
    rows.total[0] = rows.total[1] = 0.0f;

    for (uint run = t0; run < t_end;) {
        const uint first = run;
        const int slot = meta[first].y;
        uint begin = UINT_MAX, end = 0;
        for (; run < t_end && meta[run].y == slot; run++) {
            const uint2 seen = cells_seen(meta, p, run);
            begin = min(begin, seen.x);
            end = max(end, seen.y);
        }
        uint2 seen[2];
#pragma unroll
        for (uint i = 0; i < 2; i++)
            seen[i] = t[i] >= first && t[i] < run ? cells_seen(meta, p, t[i]) : (uint2)(0, 0);
        const ulong cells = ((ulong)(uint)slot * p.n_head_kv + kv_head) * p.n_ctx * (HEAD_DIM * 2);
        const __global uchar *k = k_cache + cells, *v = v_cache + cells;
        copy_cells(local_memory, k, v, begin, end);
        ptx_copy_commit();
        uint stage = 0;
        for (uint c0 = begin; c0 < end; c0 += CELLS, stage ^= 1) {
            if (c0 + CELLS < end)
                copy_cells(local_memory + (stage ^ 1) * 2 * TILE_BYTES, k, v, c0 + CELLS, end);
            ptx_copy_commit();
            ptx_copy_wait1();
            barrier(CLK_LOCAL_MEM_FENCE);
            const uint tile = local_memory + stage * 2 * TILE_BYTES;
            attend_tile(&rows, fragments, tile, tile + TILE_BYTES, c0, seen, p, lane);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
#pragma unroll
    for (uint row = 0; row < 2; row++) {
        float total = rows.total[row];
        total += ptx_shuffle_xor(total, 1);
        total += ptx_shuffle_xor(total, 2);
        if (t[row] >= t_end)
            continue;
        __global float *out = y + ((ulong)t[row] * p.n_head + head) * HEAD_DIM + 2 * (lane & 3);
#pragma unroll
        for (uint j = 0; j < FRAG_DIMS; j++)
            vstore2((float2)(rows.y[j][2 * row], rows.y[j][2 * row + 1]) / total, 0, out + 8 * j);
    }
}

KERNEL(LWS) void attention_mma(const __global uchar *q, ulong q_offset,
                               const __global uchar *k_cache, ulong k_offset,
                               const __global uchar *v_cache, ulong v_offset,
                               const __global uchar *meta, ulong meta_offset,
                               const __global uchar *scratch, ulong scratch_offset,
                               __global uchar *y, ulong y_offset, struct attention_params p)
{
    __local uchar local_memory[4 * TILE_BYTES] __attribute__((aligned(128)));
    const uint blocks = (p.n_tokens + TOKENS - 1) / TOKENS * p.n_head;
    for (uint block = get_group_id(0); block < blocks; block += get_num_groups(0))
        attention_mma_step((const __global float *)(q + q_offset), k_cache + k_offset,
                           v_cache + v_offset, (const __global int4 *)(meta + meta_offset),
                           (__global float *)(y + y_offset), p, block, ptx_local(local_memory));
}
