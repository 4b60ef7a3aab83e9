/* Shapes of the ops that are run over HTTP, for cases.h. */
#ifndef OINFER_TESTS_OPS_CASES_HTTP_H
#define OINFER_TESTS_OPS_CASES_HTTP_H

#define MATMUL(size, m_, n_, k_, batch_, ta, tb, alpha_, beta_) \
    {OP_MATMUL,                                                 \
     size,                                                      \
     {.matmul = {.m = m_,                                       \
                 .n = n_,                                       \
                 .k = k_,                                       \
                 .batch = batch_,                               \
                 .trans_a = ta,                                 \
                 .trans_b = tb,                                 \
                 .alpha = alpha_,                               \
                 .beta = beta_}}},
#define SOFTMAX(size, rows_, len_, log_, mask, scale_) \
    {OP_SOFTMAX,                                       \
     size,                                             \
     {.softmax = {.rows = rows_, .len = len_, .log = log_, .has_mask = mask, .scale = scale_}}},
#define TOP_K(size, rows_, len_, k_) {OP_TOP_K, size, {.top_k = {rows_, len_, k_}}},

#define ELEMENTWISE(size, n_, fn_) \
    {OP_ELEMENTWISE, size, {.elementwise = {.n = n_, .fn = ELEMENTWISE_##fn_, .factor = 1.5f}}},
#define SPARSE(size, m_, k_, nnz_, format_) \
    {OP_SPARSE_GEMV, size, {.sparse_gemv = {.m = m_, .k = k_, .nnz = nnz_, .format = format_}}},

/* n, c, h, w, o, kernel, stride, padding, dilation, groups, bias, activation, layout, output */
#define CONV(size, n_, c_, h_, w_, o_, kh_, kw_, sh, sw, ph, pw, dh, dw, g, b, a, layout_, ho_, \
             wo_)                                                                               \
    {OP_CONV2D,                                                                                 \
     size,                                                                                      \
     {.conv2d = {n_, c_, h_, w_, o_, kh_, kw_, sh, sw, ph, pw, dh, dw, g, b, a, layout_, ho_,   \
                 wo_}}},

#define HTTP_CASES                                                                      \
    MATMUL(SMALL, 1, 1, 1, 1, 0, 0, 1, 0)                                               \
    MATMUL(SMALL, 3, 5, 7, 1, 0, 0, 1, 0)                                               \
    MATMUL(SMALL, 17, 19, 23, 2, 1, 0, 0.5f, 0)                                         \
    MATMUL(SMALL, 13, 37, 33, 1, 0, 1, 1, 0.25f)                                        \
    MATMUL(SMALL, 9, 10, 40, 3, 1, 1, -2, 1)                                            \
    MATMUL(MEDIUM, 33, 18, 40, 3, 1, 1, -2, 1)                                          \
    MATMUL(SMALL, 67, 66, 5, 1, 0, 0, 1, 0)                                             \
    MATMUL(MEDIUM, 70, 67, 16, 1, 0, 0, 1, 0)                                           \
    MATMUL(LARGE, 1, 515, 1031, 1, 0, 0, 1, 0)                                          \
    MATMUL(LARGE, 509, 1, 257, 1, 1, 0, 1, 0)                                           \
    MATMUL(LARGE, 131, 257, 129, 2, 0, 1, 1, 0)                                         \
    MATMUL(LARGE, 256, 256, 256, 1, 0, 0, 1, 0)                                         \
    MATMUL(LARGE, 250, 190, 310, 1, 1, 1, 0.5f, -1)                                     \
    MATMUL(LARGE, 136, 264, 200, 1, 1, 1, 1, 0)                                         \
    MATMUL(LARGE, 264, 136, 72, 2, 1, 0, 1, 0)                                          \
    MATMUL(LARGE, 70, 200, 2057, 2, 0, 0, 1, 0.5f)                                      \
    MATMUL(LARGE, 72, 136, 2048, 1, 1, 1, 1, 0)                                         \
    MATMUL(LARGE, 150, 43, 1100, 2, 0, 1, 0.5f, -1)                                     \
    MATMUL(MANY_BLOCKS, 520, 1100, 2048, 1, 0, 0, 1, 0)                                 \
    MATMUL(MANY_BLOCKS, 2120, 2184, 136, 1, 0, 0, 1, 0)                                 \
    MATMUL(MANY_BLOCKS, 1061, 1091, 65, 4, 0, 1, 1, 0.5f)                               \
    SOFTMAX(SMALL, 1, 1, 0, 0, 1)                                                       \
    SOFTMAX(SMALL, 3, 37, 0, 1, 0.5f)                                                   \
    SOFTMAX(SMALL, 5, 64, 1, 1, 2)                                                      \
    SOFTMAX(SMALL, 2, 4099, 1, 0, 3)                                                    \
    SOFTMAX(LARGE, 7, 32768, 0, 1, 4)                                                   \
    SOFTMAX(LARGE, 1, 262144, 0, 0, 1)                                                  \
    SOFTMAX(LARGE, 1031, 129, 1, 0, 1)                                                  \
    SOFTMAX(LARGE, 140, 8196, 0, 0, 1)                                                  \
    SOFTMAX(LARGE, 3, 16389, 1, 0, 1)                                                   \
    TOP_K(SMALL, 5, 1, 1)                                                               \
    TOP_K(SMALL, 5, 37, 5)                                                              \
    TOP_K(SMALL, 2, 4100, 7)                                                            \
    TOP_K(MEDIUM, 6, 4100, 7)                                                           \
    TOP_K(LARGE, 5, 49155, 40)                                                          \
    TOP_K(LARGE, 2, 262144, 64)                                                         \
    TOP_K(SMALL, 5, 64, 64)                                                             \
    ELEMENTWISE(SMALL, 1, ADD)                                                          \
    ELEMENTWISE(SMALL, 67, MUL)                                                         \
    ELEMENTWISE(SMALL, 33, SILU)                                                        \
    ELEMENTWISE(SMALL, 130, GELU)                                                       \
    ELEMENTWISE(SMALL, 5, RELU)                                                         \
    ELEMENTWISE(SMALL, 1001, SWIGLU)                                                    \
    ELEMENTWISE(SMALL, 16, SCALE)                                                       \
    ELEMENTWISE(LARGE, 100003, GELU)                                                    \
    SPARSE(SMALL, 1, 4, 1, SPARSE_CSR)                                                  \
    SPARSE(SMALL, 37, 53, 300, SPARSE_CSR)                                              \
    SPARSE(SMALL, 7, 36, 0, SPARSE_2_4)                                                 \
    SPARSE(SMALL, 3, 4, 0, SPARSE_2_4)                                                  \
    SPARSE(LARGE, 1031, 2048, 100003, SPARSE_CSR)                                       \
    SPARSE(LARGE, 515, 4096, 0, SPARSE_2_4)                                             \
    CONV(SMALL, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, CONV_NCHW, 1, 1)        \
    CONV(SMALL, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, CONV_NHWC, 1, 1)        \
    CONV(SMALL, 1, 3, 7, 9, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, CONV_NCHW, 7, 9)        \
    CONV(SMALL, 1, 3, 7, 9, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, CONV_NHWC, 7, 9)        \
    CONV(SMALL, 2, 4, 9, 8, 6, 3, 2, 2, 1, 1, 0, 1, 2, 2, 1, 2, CONV_NCHW, 5, 6)        \
    CONV(SMALL, 2, 4, 9, 8, 6, 3, 2, 2, 1, 1, 0, 1, 2, 2, 1, 2, CONV_NHWC, 5, 6)        \
    CONV(SMALL, 1, 6, 11, 10, 6, 3, 3, 1, 1, 1, 1, 1, 1, 6, 0, 0, CONV_NCHW, 11, 10)    \
    CONV(SMALL, 1, 6, 11, 10, 6, 3, 3, 1, 1, 1, 1, 1, 1, 6, 0, 0, CONV_NHWC, 11, 10)    \
    CONV(SMALL, 1, 5, 6, 11, 7, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, CONV_NCHW, 6, 11)      \
    CONV(SMALL, 1, 5, 6, 11, 7, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, CONV_NHWC, 6, 11)      \
    CONV(SMALL, 1, 2, 13, 12, 3, 5, 7, 2, 2, 2, 3, 1, 1, 1, 0, 0, CONV_NCHW, 7, 6)      \
    CONV(SMALL, 1, 2, 13, 12, 3, 5, 7, 2, 2, 2, 3, 1, 1, 1, 0, 0, CONV_NHWC, 7, 6)      \
    CONV(LARGE, 1, 64, 28, 28, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, CONV_NCHW, 28, 28)  \
    CONV(LARGE, 1, 64, 28, 28, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, CONV_NHWC, 28, 28)  \
    CONV(LARGE, 2, 33, 17, 33, 35, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0, 0, CONV_NCHW, 17, 33)  \
    CONV(LARGE, 2, 33, 17, 33, 35, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0, 0, CONV_NHWC, 17, 33)  \
    CONV(LARGE, 1, 3, 56, 56, 40, 7, 7, 2, 2, 3, 3, 1, 1, 1, 1, 1, CONV_NCHW, 28, 28)   \
    CONV(LARGE, 1, 3, 56, 56, 40, 7, 7, 2, 2, 3, 3, 1, 1, 1, 1, 1, CONV_NHWC, 28, 28)   \
    CONV(LARGE, 1, 96, 14, 14, 50, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 2, CONV_NCHW, 14, 14)  \
    CONV(LARGE, 1, 96, 14, 14, 50, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 2, CONV_NHWC, 14, 14)  \
    CONV(LARGE, 3, 40, 7, 7, 70, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, CONV_NCHW, 7, 7)      \
    CONV(LARGE, 3, 40, 7, 7, 70, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, CONV_NHWC, 7, 7)      \
    CONV(LARGE, 1, 24, 56, 56, 24, 3, 3, 1, 1, 1, 1, 1, 1, 24, 1, 2, CONV_NCHW, 56, 56) \
    CONV(LARGE, 1, 24, 56, 56, 24, 3, 3, 1, 1, 1, 1, 1, 1, 24, 1, 2, CONV_NHWC, 56, 56) \
    CONV(LARGE, 1, 12, 20, 40, 12, 3, 3, 2, 2, 1, 1, 1, 1, 12, 0, 0, CONV_NCHW, 10, 20) \
    CONV(LARGE, 1, 12, 20, 40, 12, 3, 3, 2, 2, 1, 1, 1, 1, 12, 0, 0, CONV_NHWC, 10, 20)

#endif
