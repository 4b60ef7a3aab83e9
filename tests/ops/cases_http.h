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

#define HTTP_CASES                               \
    MATMUL(SMALL, 1, 1, 1, 1, 0, 0, 1, 0)        \
    MATMUL(SMALL, 3, 5, 7, 1, 0, 0, 1, 0)        \
    MATMUL(SMALL, 17, 19, 23, 2, 1, 0, 0.5f, 0)  \
    MATMUL(SMALL, 13, 37, 33, 1, 0, 1, 1, 0.25f) \
    MATMUL(SMALL, 33, 18, 40, 3, 1, 1, -2, 1)    \
    MATMUL(SMALL, 70, 67, 16, 1, 0, 0, 1, 0)     \
    MATMUL(LARGE, 1, 515, 1031, 1, 0, 0, 1, 0)   \
    MATMUL(LARGE, 509, 1, 257, 1, 1, 0, 1, 0)    \
    MATMUL(LARGE, 131, 257, 129, 2, 0, 1, 1, 0)  \
    MATMUL(LARGE, 256, 256, 256, 1, 0, 0, 1, 0)  \
    MATMUL(LARGE, 250, 190, 310, 1, 1, 1, 0.5f, -1)

#endif
