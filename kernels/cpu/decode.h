/* What the host tells the one-launch decode kernel of CPU devices: shared by
 * engine/model/fused_cpu.c (C11) and kernels/cpu/decode.cl. Plain numbers; the same layout on both
 * sides.
 *
 * A place is a buffer and an offset in one word: number of the arena << 56 | byte offset.
 */
#ifndef OINFER_KERNELS_CPU_DECODE_H
#define OINFER_KERNELS_CPU_DECODE_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
typedef ulong cpu_place;
typedef uint cpu_uint;
#else
#include <stdint.h>
typedef uint64_t cpu_place;
typedef uint32_t cpu_uint;
#endif

#define DECODE_ARENAS 24 /* buffers in all: the arguments ARENA_LIST of decode.cl */
#define DECODE_TABLES 8  /* chunks of the embedding table */
#define DECODE_TYPES  4  /* different weight dtypes of linears */
#define DECODE_PARAMS 12 /* words of the largest params struct of a step */
#define DECODE_TOKENS 8  /* of one launch, for each sequence */
#define DECODE_ROWS   8  /* sequences of one launch */

/* What a step runs. CODE_LINEAR + i: weights of dtype TYPE_i. */
#define CODE_EMBED      0
#define CODE_ADD        1
#define CODE_NORM_F32   2
#define CODE_NORM_Q8    3
#define CODE_QUANTIZE   4
#define CODE_SWIGLU_F32 5
#define CODE_SWIGLU_Q8  6
#define CODE_ROPE_KV    7
#define CODE_ATTENTION  8
#define CODE_ARGMAX     9
#define CODE_MERGE      10 /* of the splits of the attention step before it */
#define CODE_LINEAR     11

struct cpu_step {
    cpu_place at[6]; /* the op's tensors, in order */
    cpu_uint code;
    cpu_uint own;     /* bit i: tensor i is a copy of the group's own, in its share of arena 0 */
    cpu_uint alone;   /* every group does all of it (into its own copy) */
    cpu_uint barrier; /* the groups meet after it (after rope_kv also where groups change heads) */
    cpu_uint params[DECODE_PARAMS]; /* its count of rows is that of the launch; add's n: of a row */
};

/* Of one launch. */
struct cpu_decode_params {
    cpu_place meta, index, found; /* int4 {position, slot}, argmax's outputs; of each row */
    cpu_place parts; /* what the splits of attention find: float [n_splits][n_head][2 + head_dim] */
    cpu_place ids[DECODE_TABLES]; /* int [n_rows]: the token's row in each chunk of the table */
    cpu_uint row0[DECODE_TABLES]; /* first row of each chunk */
    cpu_uint n_tables, n_steps;
    cpu_uint own_bytes; /* of a group's share of arena 0 */
    cpu_uint n_rows, n_tokens;
    cpu_uint first[DECODE_ROWS], position[DECODE_ROWS], slot[DECODE_ROWS]; /* the first tokens */
    cpu_uint phase;    /* meetings so far, over all launches */
    cpu_uint n_splits; /* of the cells of a long sequence that is alone; 1: none */
};

/* The control buffer: words. */
#define CONTROL_DEAD   0  /* not 0: groups waited in vain, results are void */
#define CONTROL_PHASE  1  /* meetings after the launch */
#define CONTROL_TOKENS 16 /* [DECODE_ROWS][DECODE_TOKENS]: arg-max after each token */
#define CONTROL_FOUND  (CONTROL_TOKENS + DECODE_ROWS * DECODE_TOKENS) /* its logit, a float */
#define CONTROL_PHASES \
    (CONTROL_FOUND + DECODE_ROWS * DECODE_TOKENS) /* each group's meetings, a cache line apart */
#define CONTROL_LINE 16

#endif
