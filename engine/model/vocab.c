/* Reads the tokenizer.ggml.* keys of a GGUF into a struct vocab_source. The arrays built here live
 * for one call; the tokenizer copies what it needs. */
#include "engine/model/vocab.h"

#include <string.h>

#include "engine/base/mem.h"

#define MAX_VOCAB_ENTRIES (1u << 24)
#define MAX_NAME_BYTES    63

/* A source with the arrays it points to. */
struct reading {
    struct vocab_source source;
    struct vocab_text *tokens, *merges;
    float *scores;
    int32_t *types;
    char model[MAX_NAME_BYTES + 1], pre[MAX_NAME_BYTES + 1];
};

static enum status read_name(const struct gguf *g, const char *key, char *out, struct err *e)
{
    struct gguf_string text = {0};
    enum status status = gguf_get_string(g, key, &text, e);
    if (status != ST_OK)
        return status;
    if (text.length == 0 || text.length > MAX_NAME_BYTES ||
        memchr(text.data, '\0', text.length) != NULL)
        return err_set(e, ST_FORMAT, "%s: a name of %zu bytes, expected 1..%d without NUL", key,
                       text.length, MAX_NAME_BYTES);
    memcpy(out, text.data, text.length);
    out[text.length] = '\0';
    return ST_OK;
}

/* Length of an array of the wanted type, at most MAX_VOCAB_ENTRIES. */
static enum status array_length(const struct gguf *g, const char *key, enum gguf_type want,
                                uint32_t *n, struct err *e)
{
    uint64_t count = 0;
    enum status status = gguf_array(g, key, want, &count, e);
    if (status != ST_OK)
        return status;
    if (count > MAX_VOCAB_ENTRIES)
        return err_set(e, ST_FORMAT, "%s: %llu entries, at most %u", key, (unsigned long long)count,
                       MAX_VOCAB_ENTRIES);
    *n = (uint32_t)count;
    return ST_OK;
}

static enum status read_texts(const struct gguf *g, const char *key, struct vocab_text **out,
                              uint32_t *n, struct err *e)
{
    enum status status = array_length(g, key, GGUF_STRING, n, e);
    if (status != ST_OK)
        return status;
    struct vocab_text *texts = mem_array(*n, sizeof *texts);
    if (texts == NULL)
        return err_set(e, ST_NO_MEMORY, "%s: %u entries: out of memory", key, *n);
    *out = texts;
    for (uint32_t i = 0; i < *n; i++) {
        struct gguf_string text = gguf_array_string(g, key, i);
        if (text.length > UINT32_MAX)
            return err_set(e, ST_FORMAT, "%s: entry %u has %zu bytes", key, i, text.length);
        texts[i] = (struct vocab_text){text.data, (uint32_t)text.length};
    }
    return ST_OK;
}

/* Checks that an array beside the tokens has one entry for each. */
static enum status same_length(const struct gguf *g, const char *key, enum gguf_type want,
                               uint32_t n_tokens, struct err *e)
{
    uint32_t n = 0;
    enum status status = array_length(g, key, want, &n, e);
    if (status == ST_OK && n != n_tokens)
        status =
            err_set(e, ST_FORMAT, "%s: %u entries, vocabulary has %u tokens", key, n, n_tokens);
    return status;
}

static enum status read_scores(const struct gguf *g, struct reading *r, struct err *e)
{
    const char *key = "tokenizer.ggml.scores";
    uint32_t n = r->source.n_tokens;
    if (!gguf_has(g, key))
        return ST_OK;
    enum status status = same_length(g, key, GGUF_F32, n, e);
    if (status != ST_OK)
        return status;
    r->scores = mem_array(n, sizeof *r->scores);
    if (r->scores == NULL)
        return err_set(e, ST_NO_MEMORY, "%s: %u entries: out of memory", key, n);
    for (uint32_t i = 0; i < n; i++)
        r->scores[i] = gguf_array_f32(g, key, i);
    r->source.scores = r->scores;
    return ST_OK;
}

static enum status read_types(const struct gguf *g, struct reading *r, struct err *e)
{
    const char *key = "tokenizer.ggml.token_type";
    uint32_t n = r->source.n_tokens;
    if (!gguf_has(g, key))
        return ST_OK;
    enum status status = same_length(g, key, GGUF_I32, n, e);
    if (status != ST_OK)
        return status;
    r->types = mem_array(n, sizeof *r->types);
    if (r->types == NULL)
        return err_set(e, ST_NO_MEMORY, "%s: %u entries: out of memory", key, n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t type = gguf_array_int(g, key, i);
        r->types[i] = type < INT32_MIN || type > INT32_MAX ? 0 : (int32_t)type;
    }
    r->source.types = r->types;
    return ST_OK;
}

static enum status read_ids(const struct gguf *g, struct vocab_source *s, struct err *e)
{
    const struct {
        const char *key;
        token_id *id;
    } rows[] = {
        {"tokenizer.ggml.bos_token_id", &s->bos},
        {"tokenizer.ggml.eos_token_id", &s->eos},
        {"tokenizer.ggml.unknown_token_id", &s->unk},
        {"tokenizer.ggml.seperator_token_id", &s->sep}, /* spelt so in files */
        {"tokenizer.ggml.padding_token_id", &s->pad},
        {"tokenizer.ggml.cls_token_id", &s->cls},
        {"tokenizer.ggml.mask_token_id", &s->mask},
        {"tokenizer.ggml.eot_token_id", &s->eot},
        {"tokenizer.ggml.eom_token_id", &s->eom},
        {"tokenizer.ggml.prefix_token_id", &s->fim_prefix}, /* older name: the next row wins */
        {"tokenizer.ggml.fim_pre_token_id", &s->fim_prefix},
        {"tokenizer.ggml.suffix_token_id", &s->fim_suffix},
        {"tokenizer.ggml.fim_suf_token_id", &s->fim_suffix},
        {"tokenizer.ggml.middle_token_id", &s->fim_middle},
        {"tokenizer.ggml.fim_mid_token_id", &s->fim_middle},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t id;
        enum status status = gguf_get_i64(g, rows[i].key, &id, e);
        if (status == ST_NOT_FOUND)
            continue;
        if (status != ST_OK)
            return status;
        if (id < 0 || id >= s->n_tokens)
            return err_set(e, ST_FORMAT, "%s: %lld, vocabulary has %u tokens", rows[i].key,
                           (long long)id, s->n_tokens);
        *rows[i].id = (token_id)id;
    }
    return ST_OK;
}

static enum status read_flags(const struct gguf *g, struct vocab_source *s, struct err *e)
{
    const struct {
        const char *key;
        int *flag;
    } rows[] = {
        {"tokenizer.ggml.add_bos_token", &s->add_bos},
        {"tokenizer.ggml.add_eos_token", &s->add_eos},
        {"tokenizer.ggml.add_space_prefix", &s->add_space_prefix},
        {"tokenizer.ggml.remove_extra_whitespaces", &s->remove_extra_whitespaces},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool flag;
        enum status status = gguf_get_bool(g, rows[i].key, &flag, e);
        if (status != ST_OK && status != ST_NOT_FOUND)
            return status;
        *rows[i].flag = status == ST_OK ? flag : -1;
    }
    return ST_OK;
}

static enum status check_embedding(const struct gguf *g, uint32_t n_tokens, struct err *e)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(g, "token_embd.weight");
    if (tensor != NULL && tensor->ne[1] != n_tokens)
        return err_set(e, ST_FORMAT, "tensor %s: %llu rows, vocabulary has %u tokens", tensor->name,
                       (unsigned long long)tensor->ne[1], n_tokens);
    return ST_OK;
}

static enum status read_source(const struct gguf *g, struct reading *r, struct err *e)
{
    struct vocab_source *s = &r->source;
    *s = (struct vocab_source){.bos = TOKEN_NONE,
                               .eos = TOKEN_NONE,
                               .unk = TOKEN_NONE,
                               .sep = TOKEN_NONE,
                               .pad = TOKEN_NONE,
                               .cls = TOKEN_NONE,
                               .mask = TOKEN_NONE,
                               .eot = TOKEN_NONE,
                               .eom = TOKEN_NONE,
                               .fim_prefix = TOKEN_NONE,
                               .fim_suffix = TOKEN_NONE,
                               .fim_middle = TOKEN_NONE,
                               .ignore_merges = -1};
    enum status status = read_name(g, "tokenizer.ggml.model", r->model, e);
    if (status != ST_OK)
        return status;
    s->model = r->model;
    status = read_name(g, "tokenizer.ggml.pre", r->pre, e);
    if (status != ST_OK && status != ST_NOT_FOUND)
        return status;
    s->pre = status == ST_OK ? r->pre : NULL;
    status = read_texts(g, "tokenizer.ggml.tokens", &r->tokens, &s->n_tokens, e);
    s->tokens = r->tokens;
    if (status == ST_OK)
        status = read_scores(g, r, e);
    if (status == ST_OK)
        status = read_types(g, r, e);
    if (status == ST_OK && gguf_has(g, "tokenizer.ggml.merges"))
        status = read_texts(g, "tokenizer.ggml.merges", &r->merges, &s->n_merges, e);
    s->merges = r->merges;
    if (status == ST_OK)
        status = read_ids(g, s, e);
    if (status == ST_OK)
        status = read_flags(g, s, e);
    if (status == ST_OK)
        status = check_embedding(g, s->n_tokens, e);
    return status;
}

enum status vocab_open(const struct gguf *g, struct tokenizer **out, struct err *e)
{
    struct reading r = {0};
    *out = NULL;
    enum status status = read_source(g, &r, e);
    if (status == ST_NOT_FOUND)
        status =
            err_set(e, ST_FORMAT, "the file has no vocabulary (tokenizer.ggml.model, .tokens)");
    if (status == ST_OK) {
        err_clear(e); /* of keys that may be missing */
        status = tokenizer_open(&r.source, out, e);
    }
    mem_free(r.tokens);
    mem_free(r.merges);
    mem_free(r.scores);
    mem_free(r.types);
    return status;
}
