/* vocab_open: the vocabulary row of the loader's checks. Files are built in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/mem.h"
#include "engine/model/vocab.h"
#include "tests/unit/model/gguf_bytes.h"

#define N_TOKENS 6

/* What is written; a test changes one thing. */
struct plan {
    const char *model, *pre;
    uint64_t n_scores, n_types, n_merges; /* 0: the key is left out */
    int32_t type;                         /* of token 5 */
    uint32_t eos;
    enum gguf_type token_type, score_type;
    uint64_t embedding_rows; /* 0: no tensor */
};

static const struct plan good_spm = {.model = "llama",
                                     .n_scores = N_TOKENS,
                                     .n_types = N_TOKENS,
                                     .type = TOKEN_NORMAL,
                                     .eos = 2,
                                     .token_type = GGUF_STRING,
                                     .score_type = GGUF_F32,
                                     .embedding_rows = N_TOKENS};

static void write_vocabulary(struct gguf_bytes *b, const struct plan *p)
{
    static const char *const tokens[N_TOKENS] = {"<unk>", "<s>", "</s>", "a", "b", "ab"};
    static const int32_t types[N_TOKENS] = {TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_CONTROL,
                                            TOKEN_NORMAL,  TOKEN_NORMAL,  TOKEN_NORMAL};
    bytes_init(b);
    bytes_string(b, "general.architecture", "llama");
    if (p->model != NULL)
        bytes_string(b, "tokenizer.ggml.model", p->model);
    if (p->pre != NULL)
        bytes_string(b, "tokenizer.ggml.pre", p->pre);
    bytes_array(b, "tokenizer.ggml.tokens", p->token_type, N_TOKENS);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        if (p->token_type == GGUF_STRING)
            bytes_put_string(&b->values, tokens[i]);
        else
            bytes_put(&b->values, i, 4);
    }
    if (p->n_scores > 0)
        bytes_array(b, "tokenizer.ggml.scores", p->score_type, p->n_scores);
    for (uint64_t i = 0; i < p->n_scores; i++)
        bytes_put(&b->values, 0, 4);
    if (p->n_types > 0)
        bytes_array(b, "tokenizer.ggml.token_type", GGUF_I32, p->n_types);
    for (uint64_t i = 0; i < p->n_types; i++)
        bytes_put(&b->values, (uint32_t)(i == N_TOKENS - 1 ? p->type : types[i % N_TOKENS]), 4);
    if (p->n_merges > 0)
        bytes_array(b, "tokenizer.ggml.merges", GGUF_STRING, p->n_merges);
    for (uint64_t i = 0; i < p->n_merges; i++)
        bytes_put_string(&b->values, "a b");
    bytes_u32(b, "tokenizer.ggml.bos_token_id", 1);
    bytes_u32(b, "tokenizer.ggml.eos_token_id", p->eos);
    bytes_scalar(b, "tokenizer.ggml.add_space_prefix", GGUF_BOOL, 0, 1);
    if (p->embedding_rows > 0) {
        const uint64_t ne[] = {8, p->embedding_rows};
        bytes_tensor(b, "token_embd.weight", 2, ne, 0, 0);
        b->data_bytes = 8 * p->embedding_rows * sizeof(float);
    }
    bytes_finish(b);
}

static enum status open_plan(const struct plan *p, struct tokenizer **t, struct err *e)
{
    struct gguf_bytes b;
    struct gguf *g = NULL;
    write_vocabulary(&b, p);
    enum status status = gguf_open_bytes(b.file.data, b.file.length, &g, e);
    if (status != ST_OK)
        fail_msg("%s", e->text);
    status = vocab_open(g, t, e);
    gguf_close(g);
    bytes_free(&b);
    return status;
}

static void a_good_vocabulary_opens(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    struct err e = {0};
    assert_int_equal(open_plan(&good_spm, &t, &e), ST_OK);
    assert_string_equal(e.text, "");
    assert_int_equal(tokenizer_kind_of(t), TOKENIZER_SPM);
    assert_int_equal(tokenizer_n_tokens(t), N_TOKENS);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_adds_bos(t));
    struct token_list list = {0};
    const struct tokenize_options options = {.add_special = true};
    assert_int_equal(tokenizer_encode(t, "ab", 2, &options, &list, &e), ST_OK);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.ids[1], 5);
    token_list_free(&list);
    tokenizer_close(t);

    struct plan bpe = good_spm;
    bpe.model = "gpt2";
    bpe.pre = "llama-bpe";
    bpe.n_scores = 0;
    bpe.n_merges = 1;
    bpe.embedding_rows = 0; /* a vocabulary-only file */
    assert_int_equal(open_plan(&bpe, &t, &e), ST_OK);
    assert_string_equal(tokenizer_pre(t), "llama-bpe");
    tokenizer_close(t);
}

static void bad_vocabularies_are_refused_by_name(void **state)
{
    (void)state;
    struct plan rows[16];
    struct {
        enum status status;
        const char *names;
    } expected[16];
    size_t n = 0;
#define ROW(field, value, status_, names_) \
    do {                                   \
        rows[n] = good_spm;                \
        rows[n].field = (value);           \
        expected[n].status = (status_);    \
        expected[n++].names = (names_);    \
    } while (0)
    ROW(model, NULL, ST_FORMAT, "no vocabulary");
    ROW(model, "", ST_FORMAT, "tokenizer.ggml.model");
    ROW(model, "rwkv", ST_UNSUPPORTED, "rwkv");
    ROW(token_type, GGUF_U32, ST_FORMAT, "tokenizer.ggml.tokens");
    ROW(n_scores, N_TOKENS - 1, ST_FORMAT, "scores: 5 entries, vocabulary has 6");
    ROW(n_scores, 0, ST_FORMAT, "scores");
    ROW(score_type, GGUF_U32, ST_FORMAT, "scores");
    ROW(n_types, N_TOKENS + 1, ST_FORMAT, "token_type: 7 entries, vocabulary has 6");
    ROW(type, 0, ST_FORMAT, "token 5 has type 0");
    ROW(type, TOKEN_BYTE, ST_FORMAT, "byte token 5");
    ROW(eos, N_TOKENS, ST_FORMAT, "eos_token_id: 6, vocabulary has 6");
    ROW(eos, UINT32_MAX, ST_FORMAT, "eos_token_id: 4294967295");
    ROW(embedding_rows, N_TOKENS + 1, ST_FORMAT, "token_embd.weight: 7 rows, vocabulary has 6");
#undef ROW
    for (size_t i = 0; i < n; i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        assert_int_equal(open_plan(&rows[i], &t, &e), expected[i].status);
        if (strstr(e.text, expected[i].names) == NULL)
            fail_msg("\"%s\" does not name %s", e.text, expected[i].names);
        assert_null(t);
    }
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    struct gguf_bytes b;
    struct gguf *g = NULL;
    struct plan p = good_spm;
    p.model = "gpt2";
    p.pre = "gpt-2";
    p.n_merges = 1;
    write_vocabulary(&b, &p);
    assert_int_equal(gguf_open_bytes(b.file.data, b.file.length, &g, NULL), ST_OK);
    struct tokenizer *t = NULL;
    enum status status = ST_NO_MEMORY;
    for (uint64_t n = 1; status != ST_OK; n++) {
        assert_true(n < 100);
        mem_fail_at(n, 0);
        status = vocab_open(g, &t, NULL);
        assert_true(status == ST_OK || (status == ST_NO_MEMORY && t == NULL));
    }
    mem_fail_at(0, 0);
    tokenizer_close(t);
    gguf_close(g);
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_vocabulary_opens),
        cmocka_unit_test(bad_vocabularies_are_refused_by_name),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
