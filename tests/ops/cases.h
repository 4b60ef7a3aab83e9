/* The shapes that every variant is tried on: 1, odd, prime, tails of blocks, larger; per op a
 * table. SMALL cases also run on interpreters and software rasterisers, MEDIUM ones on the latter:
 * an interpreter gets a smaller one instead. Those with MANY_BLOCKS, more than a GPU has compute
 * units, are only for variants that are chosen by their blocks. */
#ifndef OINFER_TESTS_OPS_CASES_H
#define OINFER_TESTS_OPS_CASES_H

#include "cases_http.h"
#include "engine/ops/op.h"

struct op_case {
    enum op_id op;
    int size; /* SMALL, MEDIUM, LARGE or MANY_BLOCKS */
    union op_params params;
};

#define SMALL       0
#define MEDIUM      1
#define LARGE       2
#define MANY_BLOCKS 3

static const struct op_case op_cases[] = {
#define EMBED(size, t, k_, n)                                                \
    {                                                                        \
        OP_EMBED, size,                                                      \
        {                                                                    \
            .embed = {.n_tokens = t, .k = k_, .n_vocab = n, .scale = 1.25f } \
        }                                                                    \
    }
    EMBED(SMALL, 1, 1, 1),
    EMBED(SMALL, 5, 37, 11),
    EMBED(SMALL, 7, 256, 33),
    EMBED(LARGE, 3, 544, 1009),
    EMBED(LARGE, 129, 2048, 515),
#undef EMBED

#define NORM(size, n, l, stride, kind_, bias) \
    {                                         \
        OP_NORM, size,                        \
        {                                     \
            .norm = {                         \
                .n_rows = n,                  \
                .len = l,                     \
                .x_stride = stride,           \
                .kind = kind_,                \
                .has_bias = bias,             \
                .eps = 1e-5f                  \
            }                                 \
        }                                     \
    }
    NORM(SMALL, 1, 1, 1, 0, 0),
    NORM(SMALL, 3, 37, 40, 0, 0),
    NORM(SMALL, 2, 64, 64, 1, 1),
    NORM(SMALL, 5, 576, 576, 0, 1),
    NORM(LARGE, 131, 2048, 2060, 0, 0),
    NORM(LARGE, 2, 8192, 8192, 1, 0),
#undef NORM

#define QUANTIZE(size, n, l, stride)                                 \
    {                                                                \
        OP_QUANTIZE, size,                                           \
        {                                                            \
            .quantize = {.n_rows = n, .len = l, .x_stride = stride } \
        }                                                            \
    }
    QUANTIZE(SMALL, 1, 32, 32),
    QUANTIZE(SMALL, 3, 37, 41),
    QUANTIZE(SMALL, 7, 96, 97),
    QUANTIZE(LARGE, 130, 2048, 2048),
#undef QUANTIZE

#define LINEAR(size, m_, k_, t, stride, epilogue_, bias) \
    {                                                    \
        OP_LINEAR, size,                                 \
        {                                                \
            .linear = {                                  \
                .m = m_,                                 \
                .k = k_,                                 \
                .n_tokens = t,                           \
                .y_stride = stride,                      \
                .epilogue = epilogue_,                   \
                .has_bias = bias                         \
            }                                            \
        }                                                \
    }
    LINEAR(SMALL, 1, 1, 1, 1, LINEAR_STORE, 0),
    LINEAR(SMALL, 5, 37, 3, 6, LINEAR_STORE, 1),
    LINEAR(SMALL, 3, 32, 1, 3, LINEAR_ADD, 0),
    LINEAR(SMALL, 67, 64, 2, 67, LINEAR_STORE, 0),
    LINEAR(SMALL, 17, 256, 1, 17, LINEAR_STORE, 1),
    LINEAR(SMALL, 9, 512, 5, 12, LINEAR_ADD, 1),
    LINEAR(MEDIUM, 33, 768, 5, 40, LINEAR_ADD, 1),
    LINEAR(SMALL, 64, 256, 1, 32, LINEAR_SWIGLU, 0),
    LINEAR(LARGE, 577, 576, 1, 577, LINEAR_STORE, 0),
    LINEAR(LARGE, 131, 1031, 13, 131, LINEAR_STORE, 0),
    LINEAR(LARGE, 256, 2048, 8, 256, LINEAR_ADD, 0),
    LINEAR(LARGE, 320, 512, 70, 321, LINEAR_STORE, 1),
    LINEAR(LARGE, 192, 1536, 129, 192, LINEAR_ADD, 0),
    LINEAR(LARGE, 512, 512, 9, 256, LINEAR_SWIGLU, 1),
    LINEAR(LARGE, 352, 1056, 300, 176, LINEAR_SWIGLU, 0),
    LINEAR(MANY_BLOCKS, 4353, 64, 1050, 4356, LINEAR_ADD, 1),
    LINEAR(MANY_BLOCKS, 4360, 256, 1050, 4360, LINEAR_STORE, 0),
#undef LINEAR

#define ROPE(size, t, heads, kv, dim, rot, mode_, ctx, on)  \
    {                                                       \
        OP_ROPE_KV, size,                                   \
        {                                                   \
            .rope_kv = {                                    \
                .n_tokens = t,                              \
                .stride = ((heads) + 2 * (kv)) * (dim) + 3, \
                .k_col = (heads) * (dim),                   \
                .v_col = ((heads) + (kv)) * (dim),          \
                .n_head = heads,                            \
                .n_head_kv = kv,                            \
                .head_dim = dim,                            \
                .n_rot = rot,                               \
                .mode = mode_,                              \
                .n_ctx = ctx,                               \
                .rotate = on                                \
            }                                               \
        }                                                   \
    }
    ROPE(SMALL, 1, 1, 1, 32, 32, 0, 16, 1),
    ROPE(SMALL, 3, 3, 1, 64, 64, 0, 16, 1),
    ROPE(SMALL, 5, 4, 2, 64, 32, 1, 32, 1),
    ROPE(SMALL, 2, 2, 2, 80, 80, 1, 16, 1),
    ROPE(SMALL, 2, 2, 1, 64, 0, 0, 16, 0),
    ROPE(LARGE, 67, 9, 3, 64, 64, 0, 128, 1),
    ROPE(LARGE, 33, 8, 2, 128, 128, 1, 64, 1),
#undef ROPE

#define ATTENTION(size, t, heads, kv, dim, ctx, max, win, splits, cap) \
    {                                                                  \
        OP_ATTENTION, size,                                            \
        {                                                              \
            .attention = {                                             \
                .n_tokens = t,                                         \
                .q_stride = (heads) * (dim) + 7,                       \
                .n_head = heads,                                       \
                .n_head_kv = kv,                                       \
                .head_dim = dim,                                       \
                .n_ctx = ctx,                                          \
                .window = win,                                         \
                .kv_max = max,                                         \
                .n_splits = splits,                                    \
                .scale = 0.25f,                                        \
                .softcap = cap                                         \
            }                                                          \
        }                                                              \
    }
    ATTENTION(SMALL, 1, 1, 1, 32, 16, 1, 0, 1, 0),
    ATTENTION(SMALL, 1, 4, 2, 64, 48, 37, 0, 1, 0),
    ATTENTION(SMALL, 1, 3, 1, 64, 80, 80, 0, 3, 0),
    ATTENTION(SMALL, 3, 2, 2, 80, 32, 31, 5, 2, 0),
    ATTENTION(SMALL, 11, 3, 1, 64, 32, 17, 0, 1, 2.5f),
    ATTENTION(LARGE, 1, 9, 3, 64, 1040, 1031, 0, 1, 0),
    ATTENTION(LARGE, 2, 8, 2, 128, 1040, 1031, 0, 16, 0),
    ATTENTION(LARGE, 133, 9, 3, 64, 256, 251, 0, 1, 0),
    ATTENTION(SMALL, 18, 2, 1, 48, 32, 15, 0, 1, 0),
    ATTENTION(MEDIUM, 34, 2, 1, 48, 32, 29, 0, 1, 0),
    ATTENTION(LARGE, 70, 4, 1, 128, 128, 127, 33, 1, 0),
    ATTENTION(LARGE, 5, 2, 1, 256, 64, 64, 0, 64, 0),
#undef ATTENTION

#define SWIGLU(size, t, n_, stride, act_)                                        \
    {                                                                            \
        OP_SWIGLU, size,                                                         \
        {                                                                        \
            .swiglu = {.n_tokens = t, .n = n_, .x_stride = stride, .act = act_ } \
        }                                                                        \
    }
    SWIGLU(SMALL, 1, 1, 2, 0),
    SWIGLU(SMALL, 3, 37, 80, 1),
    SWIGLU(SMALL, 2, 64, 128, 0),
    SWIGLU(SMALL, 2, 96, 192, 1),
    SWIGLU(LARGE, 65, 1536, 3072, 0),
#undef SWIGLU

    {OP_ADD, SMALL, {.add = {1}}},
    {OP_ADD, SMALL, {.add = {67}}},
    {OP_ADD, LARGE, {.add = {100003}}},

#define ARGMAX(size, n, l, stride)                                 \
    {                                                              \
        OP_ARGMAX, size,                                           \
        {                                                          \
            .argmax = {.n_rows = n, .len = l, .x_stride = stride } \
        }                                                          \
    }
    ARGMAX(SMALL, 6, 1, 1),
    ARGMAX(SMALL, 6, 37, 41),
    ARGMAX(SMALL, 7, 4097, 4097),
    ARGMAX(LARGE, 6, 49155, 49155),
    ARGMAX(LARGE, 12, 151936, 151936),
    ARGMAX(LARGE, 1, 262144, 262144),
#undef ARGMAX

#define REPACK(size, n, k_)                                                                \
    {                                                                                      \
        OP_REPACK, size,                                                                   \
        {                                                                                  \
            .repack = {.n_rows = n, .k = k_, .m_total = n, .group = 1, .group_stride = 1 } \
        }                                                                                  \
    }
    REPACK(SMALL, 5, 256),
    REPACK(LARGE, 131, 768),
#undef REPACK
    HTTP_CASES};

#define OP_CASES (sizeof op_cases / sizeof *op_cases)

#endif
