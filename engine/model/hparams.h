/* Hyper-parameters: the shape of a model, read from the key-values of its GGUF and checked.
 *
 * A plain value, written once by hparams_read and immutable afterwards. Every number has been
 * compared with its limit, so that sizes computed from them cannot overflow 64 bits; the tensors
 * are compared with them elsewhere (weights.c). What an architecture makes of a number (which
 * layers have a window, whether a scale multiplies or divides) is its graph builder's business.
 */
#ifndef OINFER_MODEL_HPARAMS_H
#define OINFER_MODEL_HPARAMS_H

#include "engine/model/gguf.h"

#define HPARAMS_ARCH_BYTES 32

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN,
    ROPE_SCALING_LONGROPE
};
const char *rope_scaling_name(enum rope_scaling scaling); /* as in the file: "none", "yarn" */

struct hparams {
    char arch[HPARAMS_ARCH_BYTES];   /* general.architecture; prefix of the keys below */
    uint32_t n_vocab;                /* tokens in the vocabulary; else ARCH.vocab_size */
    uint32_t n_ctx_train;            /* context_length */
    uint32_t n_layer;                /* block_count, 1..512 */
    uint32_t n_embd;                 /* embedding_length */
    uint32_t n_ff;                   /* feed_forward_length; may be 0 if every layer has experts */
    uint32_t n_head;                 /* attention.head_count, a multiple of n_head_kv */
    uint32_t n_head_kv;              /* attention.head_count_kv; default n_head */
    uint32_t head_dim_k;             /* attention.key_length; default n_embd / n_head */
    uint32_t head_dim_v;             /* attention.value_length; default n_embd / n_head */
    uint32_t sliding_window;         /* attention.sliding_window, tokens; 0: the whole context */
    uint32_t sliding_window_pattern; /* 1 layer in so many is global; 0: the architecture's own */
    uint32_t n_expert;               /* expert_count; 0: dense */
    uint32_t n_expert_used;          /* expert_used_count, 1..n_expert; 0 if dense */
    uint32_t n_ff_expert;            /* expert_feed_forward_length; default n_ff if n_expert > 0 */

    uint32_t n_rot;         /* rope.dimension_count, even, <= head_dim_k; default head_dim_k */
    float rope_base;        /* rope.freq_base; default 10000 */
    float rope_base_window; /* rope.freq_base_swa, for layers with a window; default rope_base */
    enum rope_scaling rope_scaling; /* rope.scaling.type; default linear if a factor is given */
    float rope_factor;              /* rope.scaling.factor (or rope.scale_linear); default 1 */
    uint32_t rope_ctx_orig;         /* rope.scaling.original_context_length; default n_ctx_train */
    float rope_attn_factor;         /* rope.scaling.attn_factor; default 1 */
    float yarn_ext_factor;          /* default 1 for yarn, else 0 */
    float yarn_attn_factor;         /* default 1 */
    float yarn_beta_fast;           /* default 32 */
    float yarn_beta_slow;           /* default 1 */

    float norm_eps;   /* attention.layer_norm_rms_epsilon, else attention.layer_norm_epsilon */
    bool norm_is_rms; /* which of the two it was */

    float attn_scale;         /* attention.scale; default 1 / sqrt(head_dim_k) */
    float attn_logit_softcap; /* attn_logit_softcapping; default 0: none */
    float logit_softcap;      /* final_logit_softcapping; default 0: none */
    float embedding_scale;    /* default 1 */
    float residual_scale;     /* default 1 */
    float logit_scale;        /* default 1 */
};

/* Reads and checks. ST_FORMAT (missing, wrong type or out of range: key, value and limit are
 * named), ST_UNSUPPORTED (head or feed-forward sizes that differ between layers; an unknown rope
 * scaling). *out is filled only on ST_OK. Any thread. */
enum status hparams_read(const struct gguf *g, struct hparams *out, struct err *e);

#endif
