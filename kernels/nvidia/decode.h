/* What the host tells the one-launch decode kernel: shared by engine/model/fused_nvidia.c (C11) and
 * kernels/nvidia/decode.cl. Plain numbers; the same layout on both sides.
 *
 * A place is a buffer and an offset in one word: number of the arena << 56 | byte offset.
 */
#ifndef OINFER_KERNELS_DECODE_H
#define OINFER_KERNELS_DECODE_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
typedef ulong decode_place;
typedef uint decode_uint;
#else
#include <stdint.h>
typedef uint64_t decode_place;
typedef uint32_t decode_uint;
#endif

#define DECODE_ARENAS    4 /* buffers that weights, and cells, may lie in */
#define DECODE_QKV_PARTS 3
#define DECODE_TYPES     3 /* different weight dtypes of one model */

/* Rows of a matrix that lie together in LAYOUT_R4. */
struct decode_part {
    decode_place at;
    decode_uint type; /* GGUF number */
    decode_uint row_groups;
};

struct decode_layer {
    struct decode_part qkv[DECODE_QKV_PARTS]; /* unused ones have no row groups */
    struct decode_part o, gate_up, down;
    decode_place attn_norm, ffn_norm; /* float [n_embd] */
    decode_place k, v;                /* the layer's cells, KV_PLAIN, half */
};

/* First of the table; the layers follow. */
struct decode_head {
    struct decode_part head;
    decode_place output_norm, embed; /* embed: [n_vocab][n_embd] in the file's layout */
};

/* Of one launch. */
struct decode_params {
    decode_uint first;    /* token that goes in first */
    decode_uint position; /* of that token */
    decode_uint slot, n_tokens;
    decode_uint arrivals; /* what the counter of arrivals stands at */
    decode_uint window;   /* attention looks back this far; 0: to the start */
    float scale;          /* of q k^T */
    float eps, embed_scale;
};

/* The control buffer: words. */
#define DECODE_COUNTER 0   /* arrivals of groups, ever growing */
#define DECODE_DEAD    1   /* not 0: groups waited in vain, results are void */
#define DECODE_TOKENS  16  /* arg-max after each token: words DECODE_TOKENS + t */
#define DECODE_FOUND   64  /* its logit, a float */
#define DECODE_BEST    128 /* each group's best: pairs {logit, index} */

#endif
