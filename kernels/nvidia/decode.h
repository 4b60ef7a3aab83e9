/* What the host tells the one-launch decode kernels: shared by engine/model/fused_nvidia.c (C11)
 * and kernels/nvidia/decode.cl and decode_rows.cl. Plain numbers; the same layout on both sides.
 *
 * A place is a buffer and an offset in one word: number of the arena << 56 | byte offset.
 */
#ifndef OINFER_KERNELS_DECODE_H
#define OINFER_KERNELS_DECODE_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
typedef ulong decode_place;
typedef uint decode_uint;
typedef ulong decode_ulong;
#else
#include <stdint.h>
typedef uint64_t decode_place;
typedef uint32_t decode_uint;
typedef uint64_t decode_ulong;
#endif

#define DECODE_ARENAS    4 /* buffers that weights, and cells, may lie in */
#define DECODE_QKV_PARTS 3
#define DECODE_TYPES     3   /* different weight dtypes of one model */
#define DECODE_ROWS      32  /* sequences of one launch */
#define DECODE_AHEAD     32  /* tokens of one launch, of each sequence */
#define DECODE_GROUPS    512 /* work-groups of one launch */

/* Rows of a matrix that lie together, in LAYOUT_R4 if they are quantised, else as in the file. */
struct decode_part {
    decode_place at;
    decode_uint type; /* GGUF number */
    decode_uint rows; /* those of the matrix; LAYOUT_R4 pads the last row group */
};

struct decode_layer {
    struct decode_part qkv[DECODE_QKV_PARTS]; /* unused ones have no rows */
    struct decode_part o, gate_up,
        down;                         /* gate_up: row groups in turn, or all gates, then all ups */
    decode_place attn_norm, ffn_norm; /* float [n_embd] */
    decode_place k, v;                /* the layer's cells, KV_PLAIN, half */
};

/* First of the table; the layers follow. */
struct decode_head {
    struct decode_part head;
    decode_place output_norm, embed; /* embed: [n_vocab][n_embd] in the file's layout */
};

/* Of the model. */
struct decode_settings {
    decode_uint window; /* attention looks back this far; 0: to the start */
    float scale;        /* of q k^T */
    float eps, embed_scale;
};

/* The phases whose times are kept: those of a layer, then the head. */
enum decode_phase {
    DECODE_QKV,
    DECODE_ATTENTION,
    DECODE_O,
    DECODE_GATE_UP,
    DECODE_DOWN,
    DECODE_OUTPUT,
    DECODE_PHASES
};

/* Cycles of one kind of phase in a launch, of one compute unit. */
struct decode_cycles {
    decode_ulong total;
    decode_uint least, most;
};

/* What a launch took, as its first group sees it: from one meeting of the groups to the next. */
struct decode_times {
    decode_ulong start_ns, end_ns; /* of the device's timer */
    struct decode_cycles phases[DECODE_PHASES];
};

/* Of one launch. Without tokens the groups only meet. */
struct decode_params {
    struct decode_settings settings;
    decode_uint n_rows, n_tokens;
    decode_uint timed;                 /* not 0: decode_times are kept */
    decode_uint arrivals;              /* what the counter of arrivals stands at */
    decode_uint first[DECODE_ROWS];    /* token that goes in first */
    decode_uint position[DECODE_ROWS]; /* of that token */
    decode_uint slot[DECODE_ROWS];
};

/* The control buffer: words. */
#define DECODE_COUNTER 0  /* arrivals of groups, ever growing */
#define DECODE_DEAD    1  /* not 0: groups waited in vain, results are void */
#define DECODE_TOKENS  16 /* [row][DECODE_AHEAD]: arg-max after each token */
#define DECODE_FOUND   (DECODE_TOKENS + DECODE_ROWS * DECODE_AHEAD) /* its logit, a float */
#define DECODE_TIMES   (DECODE_FOUND + DECODE_ROWS * DECODE_AHEAD) /* struct decode_times */
#define DECODE_BEST    (DECODE_TIMES + sizeof(struct decode_times) / 4) /* [row][group] {logit, index} */
#define DECODE_CONTROL (DECODE_BEST + 2 * DECODE_ROWS * DECODE_GROUPS)

#endif
