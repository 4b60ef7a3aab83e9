/* Tiny seeded models for tests: a complete GGUF of architecture llama, every feature selectable.
 * The weights are pseudo-random numbers, quantised by the reference quantisers. */
#ifndef OINFER_TESTS_GOLDEN_TINY_H
#define OINFER_TESTS_GOLDEN_TINY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/tensor/dtype.h"

struct tiny {
    const char *name;   /* of the case, for messages */
    enum dtype dtype;   /* of all matrices but v's */
    enum dtype dtype_v; /* of attn_v and ffn_down; DT_COUNT: dtype too */
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv;
    uint32_t head_dim; /* written as key_length when n_head * head_dim differs from n_embd */
    uint32_t n_vocab;  /* at least 259 */
    uint32_t n_ctx_train;
    uint32_t window;     /* 0: none */
    const char *scaling; /* "linear", "yarn" or NULL */
    float factor;
    uint32_t ctx_orig;
    bool tied, rope_factors, biases;
    float poison; /* not 0: this value (NaN, say) is the first weight of blk.1.ffn_norm */
};

/* The usual shape: 2 layers, 256 wide, 4 heads on 2 KV heads of 64, untied, dtype q8_0. */
extern const struct tiny tiny_default;

/* Writes FILE. */
enum status tiny_write(const struct tiny *t, const char *path, struct err *e);

#endif
