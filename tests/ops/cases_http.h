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

#define HTTP_CASES                                  \
    MATMUL(SMALL, 1, 1, 1, 1, 0, 0, 1, 0)           \
    MATMUL(SMALL, 3, 5, 7, 1, 0, 0, 1, 0)           \
    MATMUL(SMALL, 17, 19, 23, 2, 1, 0, 0.5f, 0)     \
    MATMUL(SMALL, 13, 37, 33, 1, 0, 1, 1, 0.25f)    \
    MATMUL(SMALL, 33, 18, 40, 3, 1, 1, -2, 1)       \
    MATMUL(SMALL, 70, 67, 16, 1, 0, 0, 1, 0)        \
    MATMUL(LARGE, 1, 515, 1031, 1, 0, 0, 1, 0)      \
    MATMUL(LARGE, 509, 1, 257, 1, 1, 0, 1, 0)       \
    MATMUL(LARGE, 131, 257, 129, 2, 0, 1, 1, 0)     \
    MATMUL(LARGE, 256, 256, 256, 1, 0, 0, 1, 0)     \
    MATMUL(LARGE, 250, 190, 310, 1, 1, 1, 0.5f, -1) \
    SOFTMAX(SMALL, 1, 1, 0, 0, 1)                   \
    SOFTMAX(SMALL, 3, 37, 0, 1, 0.5f)               \
    SOFTMAX(SMALL, 5, 64, 1, 1, 2)                  \
    SOFTMAX(SMALL, 2, 4099, 1, 0, 3)                \
    SOFTMAX(LARGE, 7, 32768, 0, 1, 4)               \
    SOFTMAX(LARGE, 1, 262144, 0, 0, 1)              \
    SOFTMAX(LARGE, 1031, 129, 1, 0, 1)              \
    TOP_K(SMALL, 5, 1, 1)                           \
    TOP_K(SMALL, 5, 37, 5)                          \
    TOP_K(SMALL, 6, 4100, 7)                        \
    TOP_K(LARGE, 5, 49155, 40)                      \
    TOP_K(LARGE, 2, 262144, 64)                     \
    TOP_K(SMALL, 5, 64, 64)                         \
    ELEMENTWISE(SMALL, 1, ADD)                      \
    ELEMENTWISE(SMALL, 67, MUL)                     \
    ELEMENTWISE(SMALL, 33, SILU)                    \
    ELEMENTWISE(SMALL, 130, GELU)                   \
    ELEMENTWISE(SMALL, 5, RELU)                     \
    ELEMENTWISE(SMALL, 1001, SWIGLU)                \
    ELEMENTWISE(SMALL, 16, SCALE)                   \
    ELEMENTWISE(LARGE, 100003, GELU)                \
    SPARSE(SMALL, 1, 4, 1, SPARSE_CSR)              \
    SPARSE(SMALL, 37, 53, 300, SPARSE_CSR)          \
    SPARSE(SMALL, 7, 36, 0, SPARSE_2_4)             \
    SPARSE(SMALL, 3, 4, 0, SPARSE_2_4)              \
    SPARSE(LARGE, 1031, 2048, 100003, SPARSE_CSR)   \
    SPARSE(LARGE, 515, 4096, 0, SPARSE_2_4)

#endif
