/* conv2d, local tile: a group per TILE_W x LWS / TILE_W outputs of an image and ITEM_O channels of a
 * group; input tiles and weights of as many channels at a time as LOCAL_FLOATS holds.
 *
 *   inputs [channels][in_h][in_w], weights [ITEM_O][channels][kh kw] in local memory
 *   item lid: output row lid / TILE_W, column lid % TILE_W of the tile, ITEM_O sums
 *
 * A filter whose tile does not fit is read from global memory.
 */
#include "conv2d/conv2d.h"

#ifndef LOCAL_FLOATS
#define LOCAL_FLOATS 4096
#endif
#ifndef ITEM_O
#define ITEM_O 4
#endif
#define TILE_W (LWS < 8 ? LWS : 8)
#define TILE_H (LWS / TILE_W)

/* What a block of the grid is about. */
struct conv_block {
    uint image, o0, n_o, c0, row0, col0;
};

static struct conv_block conv_block_at(struct conv2d_params p, ulong block)
{
    const uint cols = div_up(p.wo, TILE_W), rows = div_up(p.ho, TILE_H), per_group = p.o / p.groups;
    const uint o_blocks = div_up(per_group, ITEM_O);
    const ulong rest = block / cols / rows;
    const uint group = (uint)(rest / o_blocks % p.groups), first = (uint)(rest % o_blocks) * ITEM_O;
    const struct conv_block b = {(uint)(rest / o_blocks / p.groups),
                                 group * per_group + first,
                                 min((uint)ITEM_O, per_group - first),
                                 group * (p.c / p.groups),
                                 (uint)(block / cols % rows) * TILE_H,
                                 (uint)(block % cols) * TILE_W};
    return b;
}

/* Adds `n_c` channels from c on, whose inputs and weights lie in local memory. */
static void add_local(const __local float *inputs, const __local float *weights,
                      struct conv2d_params p, uint n_c, uint in_w, uint in_area, float *sums)
{
    const uint row = get_local_id(0) / TILE_W * p.stride_h, col = get_local_id(0) % TILE_W * p.stride_w;
    const uint taps = p.kh * p.kw;
    for (uint c = 0; c < n_c; c++)
        for (uint r = 0; r < p.kh; r++)
            for (uint s = 0; s < p.kw; s++) {
                const float v = inputs[c * in_area + (row + r * p.dil_h) * in_w + col + s * p.dil_w];
                for (uint j = 0; j < ITEM_O; j++)
                    sums[j] = fma(v, weights[(j * n_c + c) * taps + r * p.kw + s], sums[j]);
            }
}

static void conv2d_tile_step(const __global uchar *x, const __global uchar *w,
                             const __global uchar *bias, __global uchar *y, struct conv2d_params p,
                             __local float *memory, uint group, uint n_groups)
{
    const uint lid = get_local_id(0), channels = p.c / p.groups, taps = p.kh * p.kw;
    const uint in_h = (TILE_H - 1) * p.stride_h + (p.kh - 1) * p.dil_h + 1;
    const uint in_w = (TILE_W - 1) * p.stride_w + (p.kw - 1) * p.dil_w + 1, in_area = in_h * in_w;
    const uint step = min(channels, (uint)(LOCAL_FLOATS / (in_area + ITEM_O * taps)));
    const ulong n = (ulong)p.n * p.groups * div_up(p.o / p.groups, ITEM_O) * div_up(p.ho, TILE_H) *
                    div_up(p.wo, TILE_W);
    for (ulong block = group; block < n; block += n_groups) {
        const struct conv_block b = conv_block_at(p, block);
        const uint row = b.row0 + lid / TILE_W, col = b.col0 + lid % TILE_W;
        float sums[ITEM_O];
        for (uint j = 0; j < ITEM_O; j++)
            sums[j] = 0.0f;
        for (uint c = 0; step > 0 && c < channels; c += step) {
            const uint n_c = min(step, channels - c);
            __local float *weights = memory + n_c * in_area;
            for (uint at = lid; at < n_c * in_area; at += LWS)
                memory[at] = conv_load(x, p, b.image, b.c0 + c + at / in_area,
                                       conv_top(p, b.row0) + (int)(at % in_area / in_w),
                                       conv_left(p, b.col0) + (int)(at % in_area % in_w));
            for (uint at = lid; at < ITEM_O * n_c * taps; at += LWS) {
                const uint j = at / taps / n_c;
                weights[at] = j < b.n_o ? real_load(w, ((ulong)(b.o0 + j) * channels + c) * taps +
                                                           at % (n_c * taps))
                                        : 0.0f;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            add_local(memory, weights, p, n_c, in_w, in_area, sums);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        for (uint k = 0; step == 0 && k < channels * taps; k++) {
            const float v = conv_column(x, p, b.image, b.c0 / channels, k, row, col);
            for (uint j = 0; j < b.n_o; j++)
                sums[j] = fma(v, real_load(w, (ulong)(b.o0 + j) * channels * taps + k), sums[j]);
        }
        if (row < p.ho && col < p.wo)
            for (uint j = 0; j < b.n_o; j++)
                conv_finish(y, bias, p, b.image, b.o0 + j, row, col, sums[j]);
    }
}

KERNEL(LWS) void conv2d_tile(CONV_ARGS)
{
    __local float memory[LOCAL_FLOATS];
    conv2d_tile_step(x + x_offset, w + w_offset, bias + bias_offset, y + y_offset, p, memory,
                     get_group_id(0), get_num_groups(0));
}
