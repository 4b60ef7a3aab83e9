/* Synthetic models: shapes by name or by key, the list of a llama's tensors, and writing them.
 *
 * The rules of the mixes and of the fall-backs follow the files people use (see mix_dtype and
 * fit_dtype). Pure functions over their arguments.
 */
#include "engine/model/synth.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/mem.h"
#include "engine/model/synth_internal.h"

#define NORM_EPS          1e-5f
#define LOGIT_SPREAD      2.5f
#define LAYERS_GAIN       4.0f
#define TENSORS_PER_LAYER 9u
#define TENSOR_NAME_BYTES 64

static const struct synth_shape presets[] = {
    {.name = "135m",
     .n_layer = 30,
     .n_embd = 576,
     .n_ff = 1536,
     .n_head = 9,
     .n_head_kv = 3,
     .n_vocab = 49152,
     .n_ctx = 8192,
     .rope_base = 100000,
     .tied = 1,
     .seed = 1},
    {.name = "1.1b",
     .n_layer = 22,
     .n_embd = 2048,
     .n_ff = 5632,
     .n_head = 32,
     .n_head_kv = 4,
     .n_vocab = 32000,
     .n_ctx = 2048,
     .rope_base = 10000,
     .seed = 1},
    {.name = "7b",
     .n_layer = 32,
     .n_embd = 4096,
     .n_ff = 11008,
     .n_head = 32,
     .n_head_kv = 32,
     .n_vocab = 32000,
     .n_ctx = 4096,
     .rope_base = 10000,
     .seed = 1},
    {.name = "tiny",
     .n_layer = 2,
     .n_embd = 256,
     .n_ff = 512,
     .n_head = 4,
     .n_head_kv = 2,
     .n_vocab = 512,
     .n_ctx = 2048,
     .rope_base = 10000,
     .seed = 1},
};
#define N_PRESETS (sizeof presets / sizeof presets[0])

static const struct key {
    const char *name;
    size_t offset;
    uint32_t min, max;
} keys[] = {
#define KEY(name, min, max)                                 \
    {                                                       \
#name, offsetof(struct synth_shape, name), min, max \
    }
    KEY(n_layer, 1, 512),
    KEY(n_embd, 1, 1 << 17),
    KEY(n_ff, 1, 1 << 20),
    KEY(n_head, 1, 4096),
    KEY(n_head_kv, 1, 4096),
    KEY(head_dim, 0, 2048),
    KEY(n_vocab, SYNTH_VOCAB_MIN, 1 << 19),
    KEY(n_ctx, 1, 1 << 30),
    KEY(rope_base, 1, UINT32_MAX),
    KEY(window, 0, 1 << 30),
    KEY(tied, 0, 1),
    KEY(rope_freqs, 0, 1),
    KEY(seed, 0, UINT32_MAX),
#undef KEY
};
#define N_KEYS (sizeof keys / sizeof keys[0])

const char *synth_preset_names(void)
{
    return "135m 1.1b 7b tiny";
}

const char *synth_key_names(void)
{
    return "n_layer n_embd n_ff n_head n_head_kv head_dim n_vocab n_ctx rope_base window tied "
           "rope_freqs seed";
}

static uint32_t head_dim_of(const struct synth_shape *shape)
{
    return shape->head_dim != 0 ? shape->head_dim : shape->n_embd / shape->n_head;
}

static enum status check_shape(const struct synth_shape *shape, struct err *e)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        uint32_t value = *(const uint32_t *)((const char *)shape + keys[i].offset);
        if (value < keys[i].min || value > keys[i].max)
            return err_set(e, ST_INVALID, "shape: %s = %u is not in %u .. %u", keys[i].name, value,
                           keys[i].min, keys[i].max);
    }
    if (shape->n_head % shape->n_head_kv != 0)
        return err_set(e, ST_INVALID, "shape: n_head = %u is not a multiple of n_head_kv = %u",
                       shape->n_head, shape->n_head_kv);
    if (shape->head_dim == 0 && shape->n_embd % shape->n_head != 0)
        return err_set(e, ST_INVALID,
                       "shape: n_embd = %u is not a multiple of n_head = %u; give head_dim",
                       shape->n_embd, shape->n_head);
    if (head_dim_of(shape) % 2 != 0)
        return err_set(e, ST_INVALID, "shape: heads of %u values, expected an even number",
                       head_dim_of(shape));
    return ST_OK;
}

/* One "key=value" of length bytes into *shape. */
static enum status parse_pair(const char *text, size_t length, struct synth_shape *shape,
                              struct err *e)
{
    const char *equals = memchr(text, '=', length);
    if (equals == NULL)
        return err_set(e, ST_INVALID, "shape: \"%.*s\" is neither a preset (%s) nor key=value",
                       (int)length, text, synth_preset_names());
    size_t name_length = (size_t)(equals - text);
    char digits[16] = "";
    size_t n_digits = length - name_length - 1;
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strlen(keys[i].name) != name_length || memcmp(keys[i].name, text, name_length) != 0)
            continue;
        if (n_digits < sizeof digits)
            memcpy(digits, equals + 1, n_digits);
        char *end = digits;
        unsigned long long value = strtoull(digits, &end, 10);
        if (digits[0] < '0' || digits[0] > '9' || *end != '\0' || value < keys[i].min ||
            value > keys[i].max)
            return err_set(e, ST_INVALID, "shape: %s = \"%.*s\" is not a number in %u .. %u",
                           keys[i].name, (int)n_digits, equals + 1, keys[i].min, keys[i].max);
        *(uint32_t *)((char *)shape + keys[i].offset) = (uint32_t)value;
        snprintf(shape->name, sizeof shape->name, "custom");
        return ST_OK;
    }
    return err_set(e, ST_INVALID, "shape: unknown key \"%.*s\", known: %s", (int)name_length, text,
                   synth_key_names());
}

static const struct synth_shape *find_preset(const char *name, size_t length)
{
    for (size_t i = 0; i < N_PRESETS; i++)
        if (strlen(presets[i].name) == length && strncasecmp(presets[i].name, name, length) == 0)
            return &presets[i];
    return NULL;
}

enum status synth_shape_parse(const char *text, struct synth_shape *out, struct err *e)
{
    size_t length = strcspn(text, ",");
    const struct synth_shape *preset = find_preset(text, length);
    struct synth_shape shape = preset != NULL ? *preset : *find_preset("tiny", 4);
    const char *at = text;
    if (preset != NULL)
        at += length + (text[length] == ',' ? 1 : 0);
    while (*at != '\0' || at == text) {
        length = strcspn(at, ",");
        enum status status = parse_pair(at, length, &shape, e);
        if (status != ST_OK)
            return status;
        at += length + (at[length] == ',' ? 1 : 0);
    }
    enum status status = check_shape(&shape, e);
    if (status == ST_OK)
        *out = shape;
    return status;
}

enum status synth_dtype_parse(const char *text, struct synth_dtype *out, struct err *e)
{
    if (strcasecmp(text, "q4_k_m") == 0) {
        *out = (struct synth_dtype){DT_Q4_K, true};
        return ST_OK;
    }
    if (strcasecmp(text, "q5_k_m") == 0) {
        *out = (struct synth_dtype){DT_Q5_K, true};
        return ST_OK;
    }
    enum dtype dtype;
    if (!dtype_parse(text, &dtype) || !dtype_info((uint32_t)dtype)->compute)
        return err_set(e, ST_INVALID,
                       "dtype \"%.32s\" is unknown, known: f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 "
                       "q4_k q5_k q6_k q4_k_m q5_k_m",
                       text);
    *out = (struct synth_dtype){dtype, false};
    return ST_OK;
}

/* In a mix these matrices have 6 bits: output, and in the first and last eighth of the layers, and
 * every third of the others, attn_v and ffn_down. */
enum role { ROLE_OTHER, ROLE_OUTPUT, ROLE_BETTER_IN_SOME };

static enum dtype mix_dtype(struct synth_dtype dtype, enum role role, uint32_t layer,
                            uint32_t n_layer)
{
    uint32_t eighth = n_layer / 8;
    bool chosen = layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
    if (dtype.mix && (role == ROLE_OUTPUT || (role == ROLE_BETTER_IN_SOME && chosen)))
        return DT_Q6_K;
    return dtype.dtype;
}

/* The dtype for rows of ne values: one of similar size with blocks of 32 where 256 does not divide
 * them, f16 where 32 does not either. */
static enum dtype fit_dtype(enum dtype dtype, uint64_t ne)
{
    if (dtype_info((uint32_t)dtype)->block == 256 && ne % 256 != 0)
        dtype = dtype == DT_Q4_K ? DT_Q5_0 : dtype == DT_Q5_K ? DT_Q5_1 : DT_Q8_0;
    return ne % dtype_info((uint32_t)dtype)->block == 0 ? dtype : DT_F16;
}

/* general.file_type, the number by which files say what they are made of. */
static uint32_t file_type(struct synth_dtype dtype)
{
    static const struct {
        enum dtype dtype;
        uint32_t plain, mix;
    } numbers[] = {{DT_F32, 0, 0},    {DT_F16, 1, 1},    {DT_Q4_0, 2, 2},  {DT_Q4_1, 3, 3},
                   {DT_Q8_0, 7, 7},   {DT_Q5_0, 8, 8},   {DT_Q5_1, 9, 9},  {DT_Q4_K, 14, 15},
                   {DT_Q5_K, 16, 17}, {DT_Q6_K, 18, 18}, {DT_BF16, 32, 32}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].dtype == dtype.dtype)
            return dtype.mix ? numbers[i].mix : numbers[i].plain;
    return 0;
}

struct entry {
    char name[TENSOR_NAME_BYTES];
    enum dtype dtype;
    uint64_t ne[2];
    float mean, spread;
};

struct tensor_list {
    struct entry *entries;
    size_t n;
    const struct synth_shape *shape;
    struct synth_dtype dtype;
};

/* ne_in x ne_out matrix; with `gain` 1 it keeps the magnitude of what it multiplies. */
static void add_matrix(struct tensor_list *list, const char *name, enum role role, uint32_t layer,
                       uint32_t ne_in, uint32_t ne_out, float gain)
{
    struct entry *entry = &list->entries[list->n++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->dtype = fit_dtype(mix_dtype(list->dtype, role, layer, list->shape->n_layer), ne_in);
    entry->ne[0] = ne_in;
    entry->ne[1] = ne_out;
    entry->spread = gain / sqrtf((float)ne_in);
}

/* f32 vector of values near 1. */
static void add_vector(struct tensor_list *list, const char *name, uint32_t ne)
{
    struct entry *entry = &list->entries[list->n++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->dtype = DT_F32;
    entry->ne[0] = ne;
    entry->ne[1] = 1;
    entry->mean = 1.0f;
    entry->spread = 0.1f;
}

static void add_layer(struct tensor_list *list, uint32_t i)
{
    const struct synth_shape *s = list->shape;
    uint32_t dim = head_dim_of(s);
    /* What a layer adds to the residual stream shrinks with the depth, so that the sum of all is
     * near 1: enough to outweigh the token's embedding, whose own logit would win if it is tied. */
    float gain = LAYERS_GAIN / sqrtf(2.0f * (float)s->n_layer);
    char name[TENSOR_NAME_BYTES];
#define NAME(part) (snprintf(name, sizeof name, "blk.%u.%s.weight", i, part), name)
    add_vector(list, NAME("attn_norm"), s->n_embd);
    add_matrix(list, NAME("attn_q"), ROLE_OTHER, i, s->n_embd, s->n_head * dim, 1.0f);
    add_matrix(list, NAME("attn_k"), ROLE_OTHER, i, s->n_embd, s->n_head_kv * dim, 1.0f);
    add_matrix(list, NAME("attn_v"), ROLE_BETTER_IN_SOME, i, s->n_embd, s->n_head_kv * dim, 1.0f);
    add_matrix(list, NAME("attn_output"), ROLE_OTHER, i, s->n_head * dim, s->n_embd, gain);
    add_vector(list, NAME("ffn_norm"), s->n_embd);
    add_matrix(list, NAME("ffn_gate"), ROLE_OTHER, i, s->n_embd, s->n_ff, 1.0f);
    add_matrix(list, NAME("ffn_up"), ROLE_OTHER, i, s->n_embd, s->n_ff, 1.0f);
    add_matrix(list, NAME("ffn_down"), ROLE_BETTER_IN_SOME, i, s->n_ff, s->n_embd, gain);
#undef NAME
}

/* The tensors in the order of the file; mem_free list->entries. */
static enum status list_tensors(struct tensor_list *list, struct err *e)
{
    const struct synth_shape *s = list->shape;
    list->entries = mem_array(s->n_layer * TENSORS_PER_LAYER + 4, sizeof *list->entries);
    if (list->entries == NULL)
        return err_set(e, ST_NO_MEMORY, "no memory for the tensors of %u layers", s->n_layer);
    add_matrix(list, "token_embd.weight", s->tied ? ROLE_OUTPUT : ROLE_OTHER, 0, s->n_embd,
               s->n_vocab, LOGIT_SPREAD);
    for (uint32_t i = 0; i < s->n_layer; i++)
        add_layer(list, i);
    add_vector(list, "output_norm.weight", s->n_embd);
    if (!s->tied)
        add_matrix(list, "output.weight", ROLE_OUTPUT, 0, s->n_embd, s->n_vocab, LOGIT_SPREAD);
    if (s->rope_freqs)
        add_vector(list, "rope_freqs.weight", head_dim_of(s) / 2);
    return ST_OK;
}

static enum status add_values(struct gguf_writer *w, const struct synth_shape *s,
                              struct synth_dtype dtype, struct err *e)
{
    char name[64];
    snprintf(name, sizeof name, "synthetic %s", s->name);
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_string(w, "general.name", name);
    gguf_writer_u32(w, "general.file_type", file_type(dtype));
    gguf_writer_u32(w, "general.quantization_version", 2);
    gguf_writer_u32(w, "llama.vocab_size", s->n_vocab);
    gguf_writer_u32(w, "llama.context_length", s->n_ctx);
    gguf_writer_u32(w, "llama.block_count", s->n_layer);
    gguf_writer_u32(w, "llama.embedding_length", s->n_embd);
    gguf_writer_u32(w, "llama.feed_forward_length", s->n_ff);
    gguf_writer_u32(w, "llama.attention.head_count", s->n_head);
    gguf_writer_u32(w, "llama.attention.head_count_kv", s->n_head_kv);
    if (s->head_dim != 0) {
        gguf_writer_u32(w, "llama.attention.key_length", s->head_dim);
        gguf_writer_u32(w, "llama.attention.value_length", s->head_dim);
    }
    if (s->window != 0)
        gguf_writer_u32(w, "llama.attention.sliding_window", s->window);
    gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", NORM_EPS);
    gguf_writer_u32(w, "llama.rope.dimension_count", head_dim_of(s));
    gguf_writer_f32(w, "llama.rope.freq_base", (float)s->rope_base);
    return synth__add_vocab(w, s->n_vocab, e);
}

enum status synth_write(const struct synth_shape *shape, struct synth_dtype dtype, const char *path,
                        struct err *e)
{
    enum status status = check_shape(shape, e);
    if (status != ST_OK)
        return status;
    struct tensor_list list = {.shape = shape, .dtype = dtype};
    struct gguf_writer *w = NULL;
    status = list_tensors(&list, e);
    if (status != ST_OK)
        return status;
    status = gguf_writer_open(path, &w, e);
    if (status != ST_OK)
        goto out;
    status = add_values(w, shape, dtype, e);
    if (status != ST_OK)
        goto out;
    for (size_t i = 0; i < list.n; i++)
        gguf_writer_tensor(w, list.entries[i].name, list.entries[i].dtype, list.entries[i].ne);
    status = gguf_writer_begin_data(w, e);
    for (size_t i = 0; i < list.n && status == ST_OK; i++) {
        const struct entry *entry = &list.entries[i];
        struct synth_weights weights = {
            .name = entry->name,
            .dtype = entry->dtype,
            .n = entry->ne[0] * entry->ne[1],
            .mean = entry->mean,
            .spread = entry->spread,
            .seed = shape->seed,
        };
        status = synth__write_weights(w, &weights, e);
    }
    if (status == ST_OK)
        status = gguf_writer_commit(w, e);
out:
    gguf_writer_close(w);
    mem_free(list.entries);
    return status;
}
