/* Parameters of every op, shared by the host (C11) and the kernels (OpenCL C 1.2).
 *
 * Every kernel of an op takes the same arguments, whatever the variant: for each tensor of the op,
 * in the order of ops.def, `__global uchar *buffer, ulong offset_bytes`, then the op's params
 * struct by value. Fields are 32-bit only, so the layout is the same on both sides.
 */
#ifndef OINFER_KERNELS_PARAMS_H
#define OINFER_KERNELS_PARAMS_H

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
typedef uint p_uint;
typedef int p_int;
#else
#include <stdint.h>
typedef uint32_t p_uint;
typedef int32_t p_int;
#endif

/* Activation formats: how a [n_tokens][k] matrix of activations lies in memory. The bytes of each
 * are act_bytes() in engine/ops/act.h, which also describes the layouts in full. */
#define ACT_F32  0 /* [n_tokens][k] float */
#define ACT_Q8   1 /* int8 blocks of 32 for few tokens (decode): see act.h */
#define ACT_Q8T  2 /* the same numbers packed in tiles of tokens (prefill): see cpu/q8t.h */
#define ACT_F16  3 /* [n_tokens][k] half, saturated at +-65504 */
#define ACT_TILE 6 /* tokens of a tile of ACT_Q8T */

/* What OP_LINEAR does with a finished sum. */
#define LINEAR_STORE 0 /* y[t][r] = sum */
#define LINEAR_ADD   1 /* y[t][r] += sum (residual) */
#define LINEAR_SWIGLU                                                        \
    2 /* rows come in runs of layout_rows() gate rows, then as many up rows: \
         y[t][r] = silu(gate[r]) * up[r], y has m / 2 columns; not for LAYOUT_FILE */

/* KV cache layouts, per layer; both hold n_slots * n_head_kv * n_ctx * head_dim elements. */
#define KV_PLAIN 0 /* K, V: [slot][n_head_kv][n_ctx][head_dim]; q8_0 blocks run along head_dim */
#define KV_TILED 1 /* K: [slot][n_head_kv][n_ctx/16][head_dim][16]; V as KV_PLAIN */

/* embed: table [n_vocab][k] (dtype and layout: the variant's), ids [n_tokens] int,
 * y [n_tokens][k] float. y = table[id] * scale. An id outside the table gives zeros. */
struct embed_params {
    p_uint n_tokens, k, n_vocab;
    float scale;
};

/* norm: x [n_rows][x_stride] float, weight [len] float, bias [len] float, y in `act` format
 * (the variant's). kind 0 rms: x / sqrt(mean(x^2) + eps) * w; 1 layer: (x - mean) / sqrt(var + eps)
 * * w + b. bias is read when has_bias. */
struct norm_params {
    p_uint n_rows, len, x_stride, kind, has_bias;
    float eps;
};

/* quantize: x [n_rows][len] float -> y in the variant's act format. */
struct quantize_params {
    p_uint n_rows, len, x_stride;
};

/* linear: w [m][k] (dtype and layout: the variant's), x [n_tokens][k] (act: the variant's),
 * bias [m] float in the layout's order of rows, y [n_tokens][y_stride] float. bias is added when
 * has_bias, before the epilogue. */
struct linear_params {
    p_uint m, k, n_tokens, y_stride, epilogue, has_bias;
};

/* rope_kv: qkv [n_tokens][stride] float holding q | k | v at column 0, k_col, v_col;
 * table [n_ctx_table][n_rot / 2] float2 {cos, sin} (scaling and frequency factors included);
 * meta [n_tokens] int4 {position, slot, 0, 0}; k_cache, v_cache: one layer's cache (dtype and
 * layout: the variant's). Rotates q in place and writes rotated k, and v, into the cache at
 * (slot, position). mode 0: pairs (2i, 2i+1) ("norm"); 1: pairs (i, i + n_rot/2) ("neox").
 * Dimensions from n_rot up stay as they are; rotate 0: no rotation at all (k, v still stored).
 * Source: Su et al. 2021 (RoFormer), eq. 34. */
struct rope_kv_params {
    p_uint n_tokens, stride, k_col, v_col, n_head, n_head_kv, head_dim, n_rot, mode, n_ctx, rotate;
};

/* attention: q [n_tokens][q_stride] float (head h at column h * head_dim), k_cache, v_cache (dtype
 * and layout: the variant's), meta [n_tokens] int4 {position, slot, 0, 0}, scratch (bytes:
 * attention_scratch_bytes), y [n_tokens][n_head * head_dim] float.
 * y = softmax(scale * q k^T, soft-capped when softcap > 0) v over the cells c of the token's slot
 * with c <= position and, when window > 0, position - c < window. kv_max: largest position + 1
 * among the tokens (sizes the grid). n_splits: parts in which the
 * cells are worked on side by side (attention_splits; 1: no split), merged through scratch. Source:
 * Vaswani 2017; Dao 2022 for the online form. */
struct attention_params {
    p_uint n_tokens, q_stride, n_head, n_head_kv, head_dim, n_ctx, window, kv_max, n_splits;
    float scale, softcap;
};

/* swiglu: gate_up [n_tokens][x_stride] float, gate at column 0, up at column n; y [n_tokens][n] in
 * the variant's act format. act 0: silu(gate) * up, 1: gelu_tanh(gate) * up. */
struct swiglu_params {
    p_uint n_tokens, n, x_stride, act;
};

/* add: y [n] = a [n] + b [n], float. */
struct add_params {
    p_uint n;
};

/* argmax: x [n_rows][x_stride] float -> index [n_rows] int: the largest, lowest index on ties; NaN
 * never wins unless all are NaN; a row of -inf gives 0. found [n_rows] float: the value. */
struct argmax_params {
    p_uint n_rows, len, x_stride;
};

/* repack: src: n rows [n_rows][k] of a weight in its file layout -> dst: rows of the variant's
 * layout with m_total rows in all. Source row r lands in destination row
 *     row0 + (r / group) * group_stride + r % group
 * (group == group_stride: plain stacking; group 16, stride 32: gate and up interleaved). */
struct repack_params {
    p_uint n_rows, k, m_total, row0, group, group_stride;
};

/* matmul: a [batch][m][k] ([batch][k][m] when trans_a), b [batch][k][n] ([batch][n][k] when
 * trans_b), c, y [batch][m][n], all of the variant's dtype: y = alpha a b + beta c. c is read when
 * beta is not 0, and may be y. */
struct matmul_params {
    p_uint m, n, k, batch, trans_a, trans_b;
    float alpha, beta;
};

/* softmax: x, mask, y [rows][len] of the variant's dtype. y = softmax(scale * x + mask) of each
 * row, or its logarithm when log; mask is read when has_mask. A row that is -inf throughout gives
 * zeros (log: -inf). Source for the one-pass form: Milakov and Gimelshein 2018. */
struct softmax_params {
    p_uint rows, len, log, has_mask;
    float scale;
};

/* top_k: x [rows][len] float -> index [rows][k] int, found [rows][k] float: the k largest in order,
 * lower index first on ties, NaN after everything else. k <= len, k <= TOP_K_MAX. */
#define TOP_K_MAX 64
struct top_k_params {
    p_uint rows, len, k;
};

/* elementwise: x, y, z [n] of the variant's dtype; y is read by ELEMENTWISE_ADD, _MUL and _SWIGLU.
 * z = x + y, x * y, silu(x), gelu(x) (tanh form), max(x, 0), silu(x) * y, factor * x. */
#define ELEMENTWISE_ADD    0
#define ELEMENTWISE_MUL    1
#define ELEMENTWISE_SILU   2
#define ELEMENTWISE_GELU   3
#define ELEMENTWISE_RELU   4
#define ELEMENTWISE_SWIGLU 5
#define ELEMENTWISE_SCALE  6
struct elementwise_params {
    p_uint n, fn;
    float factor;
};

/* sparse_gemv: y [m] = A x, A [m][k] sparse, x [k] float.
 * SPARSE_CSR: values [nnz] float, col_indices [nnz] int, row_ptr [m + 1] int. SPARSE_2_4: two
 * values of each four columns are kept: values [m][k / 2] float, col_indices [m][ceil(k / 32)] int,
 * whose bits 4 g .. 4 g + 3 hold the two positions (2 bits each, first value lowest) of group g of
 * the 8 that an int covers; k a multiple of 4; row_ptr is not read. */
#define SPARSE_CSR 0
#define SPARSE_2_4 1
struct sparse_gemv_params {
    p_uint m, k, nnz, format;
};

/* conv2d: x [n][c][h][w] (CONV_NCHW) or [n][h][w][c] (CONV_NHWC), w [o][c / groups][kh][kw],
 * bias [o] (read when has_bias), y [n][o][ho][wo] or [n][ho][wo][o], of the variant's dtype.
 *   y[o][p][q] = act(bias[o] + sum over c, r, s of w[o][c][r][s] *
 *                    x[c][p stride_h - pad_h + r dil_h][q stride_w - pad_w + s dil_w])
 * with zeros outside of x; ho = (h + 2 pad_h - dil_h (kh - 1) - 1) / stride_h + 1, wo alike.
 * Output channel o reads the c / groups channels of its group. */
#define CONV_NCHW 0
#define CONV_NHWC 1
#define CONV_NONE 0
#define CONV_RELU 1
#define CONV_SILU 2
struct conv2d_params {
    p_uint n, c, h, w, o, kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups;
    p_uint has_bias, act, layout, ho, wo;
};

#endif
