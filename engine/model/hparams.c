/* Reading hyper-parameters: two tables of keys with their ranges, then what depends on two keys.
 * No state; one call per model, from the loading thread. */
#include "engine/model/hparams.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES    128
#define LAYERS_MAX   512
#define HEAD_DIM_MAX 2048
#define CONTEXT_MAX  (1 << 30)
#define VOCAB_MAX    (1 << 24)

static const char *const scaling_names[] = {
    [ROPE_SCALING_NONE] = "none",
    [ROPE_SCALING_LINEAR] = "linear",
    [ROPE_SCALING_YARN] = "yarn",
    [ROPE_SCALING_LONGROPE] = "longrope",
};

const char *rope_scaling_name(enum rope_scaling scaling)
{
    return scaling_names[scaling];
}

/* Counts. A key that is absent leaves the field as it is; 0 then means "derive it". */
static const struct count {
    const char *key; /* without the architecture's prefix */
    size_t offset;
    uint32_t min, max;
    bool required;
    bool per_layer; /* may be an array of one number per layer; all must be equal */
} counts[] = {
#define COUNT(key, field, min, max, required, per_layer)                    \
    {                                                                       \
        key, offsetof(struct hparams, field), min, max, required, per_layer \
    }
    COUNT("block_count", n_layer, 1, LAYERS_MAX, true, false), /* first: arrays need it */
    COUNT("context_length", n_ctx_train, 1, CONTEXT_MAX, true, false),
    COUNT("embedding_length", n_embd, 1, 1 << 17, true, false),
    COUNT("feed_forward_length", n_ff, 0, 1 << 20, false, true),
    COUNT("attention.head_count", n_head, 1, 4096, true, true),
    COUNT("attention.head_count_kv", n_head_kv, 1, 4096, false, true),
    COUNT("attention.key_length", head_dim_k, 1, HEAD_DIM_MAX, false, false),
    COUNT("attention.value_length", head_dim_v, 1, HEAD_DIM_MAX, false, false),
    COUNT("attention.sliding_window", sliding_window, 0, CONTEXT_MAX, false, false),
    COUNT("attention.sliding_window_pattern", sliding_window_pattern, 0, LAYERS_MAX, false, false),
    COUNT("expert_count", n_expert, 0, 4096, false, false),
    COUNT("expert_used_count", n_expert_used, 0, 4096, false, false),
    COUNT("expert_feed_forward_length", n_ff_expert, 1, 1 << 20, false, false),
    COUNT("rope.dimension_count", n_rot, 1, HEAD_DIM_MAX, false, false),
    COUNT("rope.scaling.original_context_length", rope_ctx_orig, 1, CONTEXT_MAX, false, false),
#undef COUNT
};

/* Real numbers, with their defaults; finite and in [min, max]. */
static const struct real {
    const char *key;
    size_t offset;
    float min, max, absent;
} reals[] = {
#define REAL(key, field, min, max, absent)                     \
    {                                                          \
        key, offsetof(struct hparams, field), min, max, absent \
    }
    REAL("rope.freq_base", rope_base, 1.0f, 1e12f, 10000.0f),
    REAL("rope.freq_base_swa", rope_base_window, 1.0f, 1e12f, 0.0f),
    REAL("rope.scaling.factor", rope_factor, 0.0f, 1e6f, 0.0f),
    REAL("rope.scaling.attn_factor", rope_attn_factor, 0.0f, 1e6f, 1.0f),
    REAL("rope.scaling.yarn_ext_factor", yarn_ext_factor, -1.0f, 1e6f, -1.0f),
    REAL("rope.scaling.yarn_attn_factor", yarn_attn_factor, 0.0f, 1e6f, 1.0f),
    REAL("rope.scaling.yarn_beta_fast", yarn_beta_fast, 1e-6f, 1e6f, 32.0f),
    REAL("rope.scaling.yarn_beta_slow", yarn_beta_slow, 1e-6f, 1e6f, 1.0f),
    REAL("attention.scale", attn_scale, 0.0f, 1e6f, 0.0f),
    REAL("attn_logit_softcapping", attn_logit_softcap, 0.0f, 1e6f, 0.0f),
    REAL("final_logit_softcapping", logit_softcap, 0.0f, 1e6f, 0.0f),
    REAL("embedding_scale", embedding_scale, -1e6f, 1e6f, 1.0f),
    REAL("residual_scale", residual_scale, -1e6f, 1e6f, 1.0f),
    REAL("logit_scale", logit_scale, -1e6f, 1e6f, 1.0f),
#undef REAL
};

/* A required key that is absent makes the file malformed. */
static enum status missing(const char *key, struct err *e)
{
    return err_set(e, ST_FORMAT, "key %s is missing", key);
}

static enum status read_arch(const struct gguf *g, struct hparams *h, struct err *e)
{
    const char *key = "general.architecture";
    struct gguf_string name;
    enum status status = gguf_get_string(g, key, &name, e);
    if (status == ST_NOT_FOUND)
        return missing(key, e);
    if (status != ST_OK)
        return status;
    if (name.length == 0 || name.length >= sizeof h->arch)
        return err_set(e, ST_FORMAT, "key %s: %zu bytes, expected 1 to %zu", key, name.length,
                       sizeof h->arch - 1);
    for (size_t i = 0; i < name.length; i++) {
        char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
            return err_set(e, ST_FORMAT, "key %s: byte 0x%02x at %zu, expected a-z 0-9 - _", key,
                           (unsigned char)c, i);
    }
    memcpy(h->arch, name.data, name.length);
    h->arch[name.length] = '\0';
    return ST_OK;
}

/* One number for all layers, from an array of at least one number per layer. */
static enum status read_layers(const struct gguf *g, const char *key, uint32_t n_layer,
                               int64_t *value, struct err *e)
{
    uint64_t n;
    enum status status = gguf_array(g, key, GGUF_I32, &n, e);
    if (status != ST_OK)
        return status;
    if (n < n_layer)
        return err_set(e, ST_FORMAT, "key %s: %llu numbers for %u layers", key,
                       (unsigned long long)n, n_layer);
    *value = gguf_array_int(g, key, 0);
    for (uint32_t i = 1; i < n_layer; i++) {
        int64_t other = gguf_array_int(g, key, i);
        if (other != *value)
            return err_set(e, ST_UNSUPPORTED,
                           "key %s: layer %u has %lld, layer 0 has %lld: layers of different "
                           "sizes are not supported",
                           key, i, (long long)other, (long long)*value);
    }
    return ST_OK;
}

static enum status read_count(const struct gguf *g, const struct count *row, struct hparams *h,
                              struct err *e)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", h->arch, row->key);
    enum gguf_type type;
    bool is_array = false;
    uint64_t n;
    if (!gguf_kv_type(g, key, &type, &is_array, &n))
        return row->required ? missing(key, e) : ST_OK;
    int64_t value;
    enum status status = is_array && row->per_layer ? read_layers(g, key, h->n_layer, &value, e)
                                                    : gguf_get_i64(g, key, &value, e);
    if (status != ST_OK)
        return status;
    if (value < row->min || value > row->max)
        return err_set(e, ST_FORMAT, "key %s: %lld is not in %u .. %u", key, (long long)value,
                       row->min, row->max);
    *(uint32_t *)((char *)h + row->offset) = (uint32_t)value;
    return ST_OK;
}

static enum status read_real(const struct gguf *g, const struct real *row, struct hparams *h,
                             struct err *e)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", h->arch, row->key);
    float *field = (float *)((char *)h + row->offset);
    *field = row->absent;
    if (!gguf_has(g, key))
        return ST_OK;
    enum status status = gguf_get_f32(g, key, field, e);
    if (status == ST_OK && !(*field >= row->min && *field <= row->max))
        return err_set(e, ST_FORMAT, "key %s: %g is not in %g .. %g", key, (double)*field,
                       (double)row->min, (double)row->max);
    return status;
}

/* The vocabulary itself says how long it is; a model without one says it in a key. */
static enum status read_vocab_size(const struct gguf *g, struct hparams *h, struct err *e)
{
    char key[KEY_BYTES] = "tokenizer.ggml.tokens";
    uint64_t n = 0;
    if (gguf_has(g, key)) {
        enum status status = gguf_array(g, key, GGUF_STRING, &n, e);
        if (status != ST_OK)
            return status;
    } else {
        snprintf(key, sizeof key, "%s.vocab_size", h->arch);
        uint32_t said = 0;
        enum status status = gguf_get_u32(g, key, &said, e);
        if (status == ST_NOT_FOUND)
            return err_set(e, ST_FORMAT, "keys tokenizer.ggml.tokens and %s are both missing", key);
        if (status != ST_OK)
            return status;
        n = said;
    }
    if (n < 1 || n > VOCAB_MAX)
        return err_set(e, ST_FORMAT, "key %s: %llu tokens, expected 1 to %d", key,
                       (unsigned long long)n, VOCAB_MAX);
    h->n_vocab = (uint32_t)n;
    return ST_OK;
}

static enum status read_norm(const struct gguf *g, struct hparams *h, struct err *e)
{
    char rms[KEY_BYTES], key[KEY_BYTES];
    snprintf(rms, sizeof rms, "%s.attention.layer_norm_rms_epsilon", h->arch);
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", h->arch);
    h->norm_is_rms = gguf_has(g, rms);
    const char *used = h->norm_is_rms ? rms : key;
    enum status status = gguf_get_f32(g, used, &h->norm_eps, e);
    if (status == ST_NOT_FOUND)
        return missing(rms, e);
    if (status == ST_OK && !(h->norm_eps > 0.0f && h->norm_eps <= 1.0f))
        return err_set(e, ST_FORMAT, "key %s: %g is not above 0 and at most 1", used,
                       (double)h->norm_eps);
    return status;
}

static enum status read_rope_scaling(const struct gguf *g, struct hparams *h, struct err *e)
{
    char key[KEY_BYTES], old[KEY_BYTES];
    snprintf(key, sizeof key, "%s.rope.scaling.type", h->arch);
    snprintf(old, sizeof old, "%s.rope.scale_linear", h->arch);
    if (h->rope_factor == 0.0f && gguf_has(g, old)) { /* the key's name before 2024 */
        enum status status = gguf_get_f32(g, old, &h->rope_factor, e);
        if (status != ST_OK)
            return status;
        if (!(h->rope_factor >= 0.0f && h->rope_factor <= 1e6f))
            return err_set(e, ST_FORMAT, "key %s: %g is not in 0 .. 1e6", old,
                           (double)h->rope_factor);
    }
    if (h->rope_factor == 0.0f)
        h->rope_factor = 1.0f;
    h->rope_scaling = h->rope_factor != 1.0f ? ROPE_SCALING_LINEAR : ROPE_SCALING_NONE;
    if (gguf_has(g, key)) {
        struct gguf_string name;
        enum status status = gguf_get_string(g, key, &name, e);
        if (status != ST_OK)
            return status;
        size_t i = 0;
        while (i <= ROPE_SCALING_LONGROPE &&
               (strlen(scaling_names[i]) != name.length ||
                memcmp(scaling_names[i], name.data, name.length) != 0))
            i++;
        if (i > ROPE_SCALING_LONGROPE)
            return err_set(e, ST_UNSUPPORTED, "key %s: \"%.*s\", known: none linear yarn longrope",
                           key, (int)(name.length < 32 ? name.length : 32), name.data);
        h->rope_scaling = (enum rope_scaling)i;
    }
    if (h->yarn_ext_factor < 0.0f)
        h->yarn_ext_factor = h->rope_scaling == ROPE_SCALING_YARN ? 1.0f : 0.0f;
    if (h->rope_ctx_orig == 0)
        h->rope_ctx_orig = h->n_ctx_train;
    return ST_OK;
}

/* Heads: defaults and the checks between two numbers. */
static enum status derive_heads(struct hparams *h, struct err *e)
{
    if (h->n_head_kv == 0)
        h->n_head_kv = h->n_head;
    if (h->n_head % h->n_head_kv != 0)
        return err_set(e, ST_FORMAT,
                       "key %s.attention.head_count: %u is not a multiple of head_count_kv %u",
                       h->arch, h->n_head, h->n_head_kv);
    if (h->head_dim_k == 0 || h->head_dim_v == 0) {
        if (h->n_embd % h->n_head != 0 || h->n_embd / h->n_head > HEAD_DIM_MAX)
            return err_set(e, ST_FORMAT,
                           "key %s.embedding_length: %u over %u heads is not a whole number of at "
                           "most %d, and attention.key_length or value_length is missing",
                           h->arch, h->n_embd, h->n_head, HEAD_DIM_MAX);
        if (h->head_dim_k == 0)
            h->head_dim_k = h->n_embd / h->n_head;
        if (h->head_dim_v == 0)
            h->head_dim_v = h->n_embd / h->n_head;
    }
    if (h->n_rot == 0)
        h->n_rot = h->head_dim_k;
    if (h->n_rot > h->head_dim_k || h->n_rot % 2 != 0)
        return err_set(e, ST_FORMAT,
                       "key %s.rope.dimension_count: %u is not even or is above the head size %u",
                       h->arch, h->n_rot, h->head_dim_k);
    if (h->attn_scale == 0.0f)
        h->attn_scale = 1.0f / sqrtf((float)h->head_dim_k);
    if (h->rope_base_window == 0.0f)
        h->rope_base_window = h->rope_base;
    return ST_OK;
}

static enum status derive_experts(struct hparams *h, struct err *e)
{
    if (h->n_expert == 0 && h->n_expert_used != 0)
        return err_set(e, ST_FORMAT, "key %s.expert_used_count: %u, but expert_count is 0", h->arch,
                       h->n_expert_used);
    if (h->n_expert > 0 && (h->n_expert_used == 0 || h->n_expert_used > h->n_expert))
        return err_set(e, ST_FORMAT, "key %s.expert_used_count: %u is not in 1 .. %u", h->arch,
                       h->n_expert_used, h->n_expert);
    if (h->n_expert > 0 && h->n_ff_expert == 0)
        h->n_ff_expert = h->n_ff;
    if (h->n_ff == 0 && h->n_ff_expert == 0)
        return err_set(e, ST_FORMAT, "key %s.feed_forward_length is missing or 0", h->arch);
    return ST_OK;
}

enum status hparams_read(const struct gguf *g, struct hparams *out, struct err *e)
{
    struct hparams h = {0};
    enum status status = read_arch(g, &h, e);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && status == ST_OK; i++)
        status = read_count(g, &counts[i], &h, e);
    for (size_t i = 0; i < sizeof reals / sizeof reals[0] && status == ST_OK; i++)
        status = read_real(g, &reals[i], &h, e);
    if (status == ST_OK)
        status = read_vocab_size(g, &h, e);
    if (status == ST_OK)
        status = read_norm(g, &h, e);
    if (status == ST_OK)
        status = derive_heads(&h, e);
    if (status == ST_OK)
        status = read_rope_scaling(g, &h, e);
    if (status == ST_OK)
        status = derive_experts(&h, e);
    if (status == ST_OK)
        *out = h;
    return status;
}
