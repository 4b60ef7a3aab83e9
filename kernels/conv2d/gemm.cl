/* conv2d as a matrix product per group: y [o][places] = w [o][depth] x columns [depth][places], places =
 * outputs of all images. A group per TILE x TILE tile, DEPTH_STEP of depth at a time through local memory,
 * every item 4 x 4 sums.
 *
 * COLUMNS 0: implicit, the columns are computed as they are loaded; 1: pointwise, a column is the pixel
 * itself; 2: the first stage writes them (im2col), [n][groups][depth][ho wo] in private memory.
 */
#include "conv2d/conv2d.h"

#ifndef COLUMNS
#define COLUMNS 0
#endif
#define GROUP      (COLUMNS == 2 ? LWS2 : LWS)
#define TILE       64
#define DEPTH_STEP 16
#define STRIDE     (TILE + 4)
#define SIDE       (TILE / 4) /* items along a side of a full tile */
#define ROUNDS     (SIDE * SIDE / GROUP > 0 ? SIDE * SIDE / GROUP : 1)

static float column_at(const __global uchar *x, const __global float *columns, struct conv2d_params p,
                       uint image, uint group, uint k, uint place)
{
#if COLUMNS == 2
    return columns[(((ulong)image * p.groups + group) * conv_depth(p) + k) * p.ho * p.wo + place];
#elif COLUMNS == 1
    return real_load(x, conv_x(p, image, k, place / p.w, place % p.w));
#else
    return conv_column(x, p, image, group, k, place / p.wo, place % p.wo);
#endif
}

static void conv2d_gemm_step(const __global uchar *x, const __global uchar *w,
                             const __global uchar *bias, __global uchar *y,
                             const __global float *columns, struct conv2d_params p,
                             __local float *ws, __local float *xs, uint group, uint n_groups)
{
    const uint per_group = p.o / p.groups, depth = conv_depth(p), area = p.ho * p.wo;
    const uint o_blocks = div_up(per_group, TILE), blocks = div_up(area, TILE), lid = get_local_id(0);
    const ulong n = (ulong)p.n * p.groups * o_blocks * blocks;
    for (ulong block = group; block < n; block += n_groups) {
        const uint place0 = (uint)(block % blocks) * TILE;
        const uint o0 = (uint)(block / blocks % o_blocks) * TILE;
        const uint g = (uint)(block / blocks / o_blocks % p.groups);
        const uint image = (uint)(block / blocks / o_blocks / p.groups);
        float4 sums[ROUNDS][4];
        for (uint t = 0; t < ROUNDS; t++)
            for (uint j = 0; j < 4; j++)
                sums[t][j] = (float4)(0.0f);
        for (uint k0 = 0; k0 < depth; k0 += DEPTH_STEP) {
            for (uint at = lid; at < TILE * DEPTH_STEP; at += GROUP) {
                const uint k = k0 + at % DEPTH_STEP, o = o0 + at / DEPTH_STEP;
                ws[at % DEPTH_STEP * STRIDE + at / DEPTH_STEP] =
                    k < depth && o < per_group
                        ? real_load(w, ((ulong)g * per_group + o) * depth + k)
                        : 0.0f;
            }
            for (uint at = lid; at < TILE * DEPTH_STEP; at += GROUP) {
                const uint k = k0 + at / TILE, place = place0 + at % TILE;
                xs[at / TILE * STRIDE + at % TILE] =
                    k < depth && place < area ? column_at(x, columns, p, image, g, k, place) : 0.0f;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint t = 0; t < ROUNDS; t++) {
                const uint at = lid + t * GROUP, a = at / SIDE, b = at % SIDE;
                for (uint k = 0; k < DEPTH_STEP && a < SIDE; k++) {
                    const float4 wv = vload4(a, ws + k * STRIDE), xv = vload4(b, xs + k * STRIDE);
                    sums[t][0] = fma((float4)(wv.x), xv, sums[t][0]);
                    sums[t][1] = fma((float4)(wv.y), xv, sums[t][1]);
                    sums[t][2] = fma((float4)(wv.z), xv, sums[t][2]);
                    sums[t][3] = fma((float4)(wv.w), xv, sums[t][3]);
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        for (uint t = 0; t < ROUNDS; t++) {
            const uint at = lid + t * GROUP, a = at / SIDE, b = at % SIDE;
            for (uint j = 0; j < 4; j++) {
                const uint o = o0 + 4 * a + j;
                const float one[4] = {sums[t][j].x, sums[t][j].y, sums[t][j].z, sums[t][j].w};
                for (uint i = 0; i < 4; i++) {
                    const uint place = place0 + 4 * b + i;
                    if (a < SIDE && o < per_group && place < area)
                        conv_finish(y, bias, p, image, g * per_group + o, place / p.wo, place % p.wo,
                                    one[i]);
                }
            }
        }
    }
}

#if COLUMNS == 2
KERNEL(LWS) void conv2d_im2col(CONV_SCRATCH_ARGS)
{
    const uint depth = conv_depth(p);
    const ulong n = (ulong)p.n * p.groups * depth * p.ho * p.wo;
    for (ulong at = get_global_id(0); at < n; at += get_global_size(0)) {
        const uint col = (uint)(at % p.wo), row = (uint)(at / p.wo % p.ho);
        const ulong rest = at / p.wo / p.ho;
        ((__global float *)(scratch + scratch_offset))[at] =
            conv_column(x + x_offset, p, (uint)(rest / depth / p.groups),
                        (uint)(rest / depth % p.groups), (uint)(rest % depth), row, col);
    }
}

KERNEL(LWS2) void conv2d_gemm(CONV_SCRATCH_ARGS)
{
    __local float ws[DEPTH_STEP * STRIDE], xs[DEPTH_STEP * STRIDE];
    conv2d_gemm_step(x + x_offset, w + w_offset, bias + bias_offset, y + y_offset,
                     (const __global float *)(scratch + scratch_offset), p, ws, xs, get_group_id(0),
                     get_num_groups(0));
}
#else
KERNEL(LWS) void conv2d_gemm(CONV_ARGS)
{
    __local float ws[DEPTH_STEP * STRIDE], xs[DEPTH_STEP * STRIDE];
    conv2d_gemm_step(x + x_offset, w + w_offset, bias + bias_offset, y + y_offset, 0, p, ws, xs,
                     get_group_id(0), get_num_groups(0));
}
#endif
