/* Writing tiny models. Values come from a linear congruential generator, summed to a bell. */
#include "tests/golden/tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/gguf_writer.h"
#include "engine/tensor/quant.h"

#define MAX_TENSORS 96
#define N_SPECIAL   3 /* <unk> <s> </s>, then the bytes */

const struct tiny tiny_default = {
    .name = "default",
    .dtype = DT_Q8_0,
    .dtype_v = DT_COUNT,
    .n_layer = 2,
    .n_embd = 256,
    .n_ff = 512,
    .n_head = 4,
    .n_head_kv = 2,
    .head_dim = 64,
    .n_vocab = 288,
    .n_ctx_train = 512,
};

enum fill { FILL_MATRIX, FILL_NORM, FILL_BIAS, FILL_FACTORS };

struct planned {
    char name[64];
    enum dtype dtype;
    uint64_t ne[2];
    enum fill fill;
};

struct maker {
    const struct tiny *t;
    struct gguf_writer *w;
    struct planned tensors[MAX_TENSORS];
    uint32_t n_tensors;
    uint32_t state;
};

static double uniform(struct maker *m)
{
    m->state = m->state * 1664525u + 1013904223u;
    return (double)(m->state >> 8) / (1 << 24);
}

static float bell(struct maker *m)
{
    double sum = -2.0;
    for (int i = 0; i < 4; i++)
        sum += uniform(m);
    return (float)(sum * 1.7320508); /* variance 1 */
}

static void plan(struct maker *m, const char *name, enum dtype dtype, uint64_t ne0, uint64_t ne1,
                 enum fill fill)
{
    ASSERT(m->n_tensors < MAX_TENSORS);
    struct planned *p = &m->tensors[m->n_tensors++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->dtype = dtype;
    p->ne[0] = ne0;
    p->ne[1] = ne1;
    p->fill = fill;
    gguf_writer_tensor(m->w, p->name, dtype, p->ne);
}

static void plan_layer(struct maker *m, uint32_t layer)
{
    const struct tiny *t = m->t;
    uint64_t q = (uint64_t)t->n_head * t->head_dim, kv = (uint64_t)t->n_head_kv * t->head_dim;
    enum dtype v = t->dtype_v == DT_COUNT ? t->dtype : t->dtype_v;
    const struct {
        const char *name;
        enum dtype dtype;
        uint64_t ne0, ne1;
    } rows[] = {{"attn_q", t->dtype, t->n_embd, q},
                {"attn_k", t->dtype, t->n_embd, kv},
                {"attn_v", v, t->n_embd, kv},
                {"attn_output", t->dtype, q, t->n_embd},
                {"ffn_gate", t->dtype, t->n_embd, t->n_ff},
                {"ffn_up", t->dtype, t->n_embd, t->n_ff},
                {"ffn_down", v, t->n_ff, t->n_embd}};
    char name[64];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, rows[i].name);
        plan(m, name, rows[i].dtype, rows[i].ne0, rows[i].ne1, FILL_MATRIX);
        snprintf(name, sizeof name, "blk.%u.%s.bias", layer, rows[i].name);
        if (t->biases)
            plan(m, name, DT_F32, rows[i].ne1, 1, FILL_BIAS);
    }
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", layer);
    plan(m, name, DT_F32, t->n_embd, 1, FILL_NORM);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", layer);
    plan(m, name, DT_F32, t->n_embd, 1, FILL_NORM);
}

static void write_keys(struct maker *m)
{
    const struct tiny *t = m->t;
    struct gguf_writer *w = m->w;
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_string(w, "general.name", t->name);
    gguf_writer_u32(w, "llama.block_count", t->n_layer);
    gguf_writer_u32(w, "llama.context_length", t->n_ctx_train);
    gguf_writer_u32(w, "llama.embedding_length", t->n_embd);
    gguf_writer_u32(w, "llama.feed_forward_length", t->n_ff);
    gguf_writer_u32(w, "llama.attention.head_count", t->n_head);
    gguf_writer_u32(w, "llama.attention.head_count_kv", t->n_head_kv);
    gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (t->head_dim * t->n_head != t->n_embd) {
        gguf_writer_u32(w, "llama.attention.key_length", t->head_dim);
        gguf_writer_u32(w, "llama.attention.value_length", t->head_dim);
    }
    if (t->window)
        gguf_writer_u32(w, "llama.attention.sliding_window", t->window);
    if (t->scaling) {
        gguf_writer_string(w, "llama.rope.scaling.type", t->scaling);
        gguf_writer_f32(w, "llama.rope.scaling.factor", t->factor);
        gguf_writer_u32(w, "llama.rope.scaling.original_context_length", t->ctx_orig);
    }
}

static enum status write_vocabulary(struct maker *m, struct err *e)
{
    uint32_t n = m->t->n_vocab;
    float *scores = mem_array(n, sizeof *scores);
    int32_t *types = mem_array(n, sizeof *types);
    if (!scores || !types) {
        mem_free(scores);
        mem_free(types);
        return err_set(e, ST_NO_MEMORY, "tiny model: %u tokens", n);
    }
    gguf_writer_string(m->w, "tokenizer.ggml.model", "llama");
    gguf_writer_strings(m->w, "tokenizer.ggml.tokens", n);
    static const char *const special[N_SPECIAL] = {"<unk>", "<s>", "</s>"};
    for (uint32_t i = 0; i < n; i++) {
        char text[16];
        if (i < N_SPECIAL)
            snprintf(text, sizeof text, "%s", special[i]);
        else if (i < N_SPECIAL + 256)
            snprintf(text, sizeof text, "<0x%02X>", i - N_SPECIAL);
        else
            snprintf(text, sizeof text, "w%u", i);
        gguf_writer_add_string(m->w, text, strlen(text));
        scores[i] = -(float)i;
        types[i] = i == 0 ? 2 : i < N_SPECIAL ? 3 : i < N_SPECIAL + 256 ? 6 : 1;
    }
    gguf_writer_f32s(m->w, "tokenizer.ggml.scores", scores, n);
    gguf_writer_i32s(m->w, "tokenizer.ggml.token_type", types, n);
    gguf_writer_u32(m->w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(m->w, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_u32(m->w, "tokenizer.ggml.unknown_token_id", 0);
    mem_free(scores);
    mem_free(types);
    return ST_OK;
}

static float value_of(struct maker *m, const struct planned *p, uint64_t i)
{
    switch (p->fill) {
    case FILL_MATRIX: return bell(m) * (float)(1.2 / sqrt((double)p->ne[0]));
    case FILL_NORM: return 1.0f + 0.2f * bell(m);
    case FILL_BIAS: return 0.3f * bell(m);
    case FILL_FACTORS: return 1.0f + (float)i * 0.25f;
    }
    return 0.0f;
}

static enum status write_tensor(struct maker *m, const struct planned *p, struct err *e)
{
    uint64_t n = p->ne[0] * p->ne[1], row_bytes = 0;
    dtype_row_bytes(p->dtype, p->ne[0], &row_bytes);
    float *values = mem_array(n, sizeof *values);
    void *bytes = mem_alloc(row_bytes * p->ne[1]);
    enum status status = ST_OK;
    if (!values || !bytes)
        status = err_set(e, ST_NO_MEMORY, "tiny model: %llu values", (unsigned long long)n);
    for (uint64_t i = 0; i < n && status == ST_OK; i++)
        values[i] = value_of(m, p, i);
    if (m->t->poison != 0.0f && values && strcmp(p->name, "blk.1.ffn_norm.weight") == 0)
        values[0] = m->t->poison;
    if (status == ST_OK)
        status = quant_from_f32(p->dtype, values, bytes, n, e);
    if (status == ST_OK)
        status = gguf_writer_data(m->w, bytes, row_bytes * p->ne[1], e);
    mem_free(values);
    mem_free(bytes);
    return status;
}

enum status tiny_write(const struct tiny *t, const char *path, struct err *e)
{
    struct maker m = {.t = t, .state = 12345};
    enum status status = gguf_writer_open(path, &m.w, e);
    if (status != ST_OK)
        return status;
    write_keys(&m);
    status = write_vocabulary(&m, e);
    plan(&m, "token_embd.weight", t->dtype, t->n_embd, t->n_vocab, FILL_MATRIX);
    for (uint32_t i = 0; i < t->n_layer; i++)
        plan_layer(&m, i);
    plan(&m, "output_norm.weight", DT_F32, t->n_embd, 1, FILL_NORM);
    if (!t->tied)
        plan(&m, "output.weight", t->dtype, t->n_embd, t->n_vocab, FILL_MATRIX);
    if (t->rope_factors)
        plan(&m, "rope_freqs.weight", DT_F32, t->head_dim / 2, 1, FILL_FACTORS);
    if (status == ST_OK)
        status = gguf_writer_begin_data(m.w, e);
    for (uint32_t i = 0; i < m.n_tensors && status == ST_OK; i++)
        status = write_tensor(&m, &m.tensors[i], e);
    if (status == ST_OK)
        status = gguf_writer_commit(m.w, e);
    gguf_writer_close(m.w);
    return status;
}
