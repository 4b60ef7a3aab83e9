/* Hyper-parameters: defaults, every key's range, and the checks between keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "engine/model/hparams.h"
#include "tests/unit/model/gguf_bytes.h"

/* What a llama must say, except the key `without` (NULL: nothing is left out). */
static void make_llama(struct gguf_bytes *b, const char *without)
{
    static const struct {
        const char *key;
        uint32_t value;
    } counts[] = {
        {"llama.block_count", 3},          {"llama.context_length", 4096},
        {"llama.embedding_length", 96},    {"llama.feed_forward_length", 256},
        {"llama.attention.head_count", 6}, {"llama.vocab_size", 300},
    };
    bytes_init(b);
    if (without == NULL || strcmp(without, "general.architecture") != 0)
        bytes_string(b, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (without == NULL || strcmp(without, counts[i].key) != 0)
            bytes_u32(b, counts[i].key, counts[i].value);
    const char *eps = "llama.attention.layer_norm_rms_epsilon";
    if (without == NULL || strcmp(without, eps) != 0)
        bytes_f32(b, eps, 1e-5f);
}

/* Reads b's hyper-parameters and frees b. */
static enum status read_bytes(struct gguf_bytes *b, struct hparams *h, struct err *e)
{
    struct gguf *g = NULL;
    bytes_finish(b);
    assert_int_equal(gguf_open_bytes(b->file.data, b->file.length, &g, e), ST_OK);
    enum status status = hparams_read(g, h, e);
    gguf_close(g);
    bytes_free(b);
    return status;
}

static void test_defaults(void **state)
{
    (void)state;
    struct gguf_bytes b;
    struct hparams h;
    struct err e = {0};
    make_llama(&b, NULL);
    assert_int_equal(read_bytes(&b, &h, &e), ST_OK);
    assert_string_equal(h.arch, "llama");
    assert_int_equal(h.n_layer, 3);
    assert_int_equal(h.n_ctx_train, 4096);
    assert_int_equal(h.n_embd, 96);
    assert_int_equal(h.n_ff, 256);
    assert_int_equal(h.n_head, 6);
    assert_int_equal(h.n_vocab, 300);
    assert_int_equal(h.n_head_kv, 6);
    assert_int_equal(h.head_dim_k, 16);
    assert_int_equal(h.head_dim_v, 16);
    assert_int_equal(h.n_rot, 16);
    assert_true(h.rope_base == 10000.0f && h.rope_base_window == 10000.0f);
    assert_int_equal(h.rope_scaling, ROPE_SCALING_NONE);
    assert_true(h.rope_factor == 1.0f && h.rope_attn_factor == 1.0f);
    assert_int_equal(h.rope_ctx_orig, 4096);
    assert_true(h.yarn_ext_factor == 0.0f && h.yarn_attn_factor == 1.0f);
    assert_true(h.yarn_beta_fast == 32.0f && h.yarn_beta_slow == 1.0f);
    assert_true(h.norm_is_rms && h.norm_eps == 1e-5f);
    assert_true(h.attn_scale == 0.25f);
    assert_true(h.attn_logit_softcap == 0.0f && h.logit_softcap == 0.0f);
    assert_true(h.embedding_scale == 1.0f && h.residual_scale == 1.0f && h.logit_scale == 1.0f);
    assert_int_equal(h.sliding_window, 0);
    assert_int_equal(h.n_expert, 0);
    assert_int_equal(h.n_ff_expert, 0);
}

static void test_given_values(void **state)
{
    (void)state;
    struct gguf_bytes b;
    struct hparams h;
    struct err e = {0};
    make_llama(&b, NULL);
    bytes_u32(&b, "llama.attention.head_count_kv", 2);
    bytes_u32(&b, "llama.attention.key_length", 64);
    bytes_u32(&b, "llama.attention.value_length", 32);
    bytes_u32(&b, "llama.rope.dimension_count", 48);
    bytes_u32(&b, "llama.attention.sliding_window", 1024);
    bytes_scalar(&b, "llama.expert_count", GGUF_U64, 8, 8); /* any integer type will do */
    bytes_scalar(&b, "llama.expert_used_count", GGUF_I8, 2, 1);
    bytes_f32(&b, "llama.rope.freq_base", 500000.0f);
    bytes_string(&b, "llama.rope.scaling.type", "yarn");
    bytes_f32(&b, "llama.rope.scaling.factor", 4.0f);
    bytes_u32(&b, "llama.rope.scaling.original_context_length", 2048);
    bytes_f32(&b, "llama.attention.scale", 0.5f);
    bytes_f32(&b, "llama.final_logit_softcapping", 30.0f);
    bytes_f32(&b, "llama.logit_scale", 8.0f);
    bytes_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 2);
    bytes_put_string(&b.values, "a");
    bytes_put_string(&b.values, "b");
    assert_int_equal(read_bytes(&b, &h, &e), ST_OK);
    assert_int_equal(h.n_head_kv, 2);
    assert_int_equal(h.head_dim_k, 64);
    assert_int_equal(h.head_dim_v, 32);
    assert_int_equal(h.n_rot, 48);
    assert_int_equal(h.sliding_window, 1024);
    assert_int_equal(h.n_expert, 8);
    assert_int_equal(h.n_expert_used, 2);
    assert_int_equal(h.n_ff_expert, 256);
    assert_true(h.rope_base == 500000.0f && h.rope_base_window == 500000.0f);
    assert_int_equal(h.rope_scaling, ROPE_SCALING_YARN);
    assert_string_equal(rope_scaling_name(h.rope_scaling), "yarn");
    assert_true(h.rope_factor == 4.0f && h.yarn_ext_factor == 1.0f);
    assert_int_equal(h.rope_ctx_orig, 2048);
    assert_true(h.attn_scale == 0.5f && h.logit_softcap == 30.0f && h.logit_scale == 8.0f);
    assert_int_equal(h.n_vocab, 2); /* the vocabulary's own length wins */
}

/* Linear scaling is meant where only a factor is given, under its new or its old key. */
static void test_linear_scaling(void **state)
{
    (void)state;
    static const char *const keys[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
    for (size_t i = 0; i < 2; i++) {
        struct gguf_bytes b;
        struct hparams h;
        make_llama(&b, NULL);
        bytes_f32(&b, keys[i], 2.0f);
        assert_int_equal(read_bytes(&b, &h, NULL), ST_OK);
        assert_int_equal(h.rope_scaling, ROPE_SCALING_LINEAR);
        assert_true(h.rope_factor == 2.0f);
    }
}

static void test_missing_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "general.architecture",      "llama.block_count",
        "llama.context_length",      "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count",
        "llama.vocab_size",          "llama.attention.layer_norm_rms_epsilon",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct gguf_bytes b;
        struct hparams h;
        struct err e = {0};
        make_llama(&b, keys[i]);
        assert_int_equal(read_bytes(&b, &h, &e), ST_FORMAT);
        if (strstr(e.text, keys[i]) == NULL || strstr(e.text, "missing") == NULL)
            fail_msg("without %s: \"%s\"", keys[i], e.text);
    }
}

/* A count out of its range: the message has the key, the value and the limit. */
static void test_count_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } cases[] = {
        {"llama.block_count", 0, "0 is not in 1 .. 512"},
        {"llama.block_count", 513, "513 is not in 1 .. 512"},
        {"llama.block_count", UINT32_MAX, "4294967295 is not in 1 .. 512"},
        {"llama.context_length", 0, "0 is not in 1 .. 1073741824"},
        {"llama.embedding_length", 131073, "131073 is not in 1 .. 131072"},
        {"llama.feed_forward_length", 1048577, "1048577 is not in 0 .. 1048576"},
        {"llama.feed_forward_length", 0, "missing or 0"},
        {"llama.attention.head_count", 0, "0 is not in 1 .. 4096"},
        {"llama.attention.head_count", 4097, "4097 is not in 1 .. 4096"},
        {"llama.attention.head_count", 5, "96 over 5 heads"},
        {"llama.attention.head_count_kv", 0, "0 is not in 1 .. 4096"},
        {"llama.attention.head_count_kv", 4, "6 is not a multiple of head_count_kv 4"},
        {"llama.attention.key_length", 0, "0 is not in 1 .. 2048"},
        {"llama.attention.key_length", 2049, "2049 is not in 1 .. 2048"},
        {"llama.attention.key_length", 15, "15 is not even"},
        {"llama.attention.value_length", 2049, "2049 is not in 1 .. 2048"},
        {"llama.rope.dimension_count", 0, "0 is not in 1 .. 2048"},
        {"llama.rope.dimension_count", 18, "18 is not even or is above the head size 16"},
        {"llama.rope.dimension_count", 7, "7 is not even"},
        {"llama.attention.sliding_window", UINT32_MAX, "4294967295 is not in 0 .. 1073741824"},
        {"llama.expert_count", 5000, "5000 is not in 0 .. 4096"},
        {"llama.expert_count", 4, "0 is not in 1 .. 4"},
        {"llama.expert_used_count", 2, "2, but expert_count is 0"},
        {"llama.rope.scaling.original_context_length", 0, "0 is not in 1 .. 1073741824"},
        {"llama.vocab_size", 0, "0 tokens"},
        {"llama.vocab_size", UINT32_MAX, "4294967295 tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_bytes b;
        struct hparams h;
        struct err e = {0};
        make_llama(&b, cases[i].key);
        bytes_u32(&b, cases[i].key, cases[i].value);
        enum status status = read_bytes(&b, &h, &e);
        if (status != ST_FORMAT || strstr(e.text, cases[i].text) == NULL ||
            strstr(e.text, "key llama.") == NULL)
            fail_msg("%s = %u: %s \"%s\"", cases[i].key, cases[i].value, status_name(status),
                     e.text);
    }
}

static void test_real_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        float bad;
    } cases[] = {
        {"llama.attention.layer_norm_rms_epsilon", 0.0f},
        {"llama.attention.layer_norm_rms_epsilon", -1e-5f},
        {"llama.attention.layer_norm_rms_epsilon", 1.5f},
        {"llama.attention.layer_norm_rms_epsilon", NAN},
        {"llama.rope.freq_base", 0.0f},
        {"llama.rope.freq_base", INFINITY},
        {"llama.rope.freq_base", NAN},
        {"llama.rope.freq_base_swa", -1.0f},
        {"llama.rope.scaling.factor", -2.0f},
        {"llama.rope.scaling.factor", NAN},
        {"llama.rope.scale_linear", -2.0f},
        {"llama.rope.scaling.yarn_beta_fast", 0.0f},
        {"llama.rope.scaling.yarn_beta_slow", INFINITY},
        {"llama.rope.scaling.yarn_ext_factor", -2.0f},
        {"llama.rope.scaling.yarn_attn_factor", NAN},
        {"llama.rope.scaling.attn_factor", -1.0f},
        {"llama.attention.scale", NAN},
        {"llama.attn_logit_softcapping", -50.0f},
        {"llama.final_logit_softcapping", INFINITY},
        {"llama.embedding_scale", NAN},
        {"llama.residual_scale", INFINITY},
        {"llama.logit_scale", -INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_bytes b;
        struct hparams h;
        struct err e = {0};
        make_llama(&b, cases[i].key);
        bytes_f32(&b, cases[i].key, cases[i].bad);
        enum status status = read_bytes(&b, &h, &e);
        if (status != ST_FORMAT || strstr(e.text, cases[i].key) == NULL)
            fail_msg("%s = %g: %s \"%s\"", cases[i].key, (double)cases[i].bad, status_name(status),
                     e.text);
    }
}

static void test_wrong_types(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "general.architecture",
        "llama.block_count",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.rope.freq_base",
        "llama.vocab_size",
        "llama.rope.scaling.type",
        "llama.rope.scale_linear",
        "tokenizer.ggml.tokens",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct gguf_bytes b;
        struct hparams h;
        struct err e = {0};
        make_llama(&b, keys[i]);
        bytes_scalar(&b, keys[i], GGUF_BOOL, 1, 1);
        assert_int_equal(read_bytes(&b, &h, &e), ST_FORMAT);
        assert_non_null(strstr(e.text, keys[i]));
    }
}

static void test_architecture_names(void **state)
{
    (void)state;
    static const char *const names[] = {"",     "LLaMA", "a b",
                                        "../x", "%s",    "abcdefghijabcdefghijabcdefghijab"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct gguf_bytes b;
        struct hparams h;
        struct err e = {0};
        make_llama(&b, "general.architecture");
        bytes_string(&b, "general.architecture", names[i]);
        assert_int_equal(read_bytes(&b, &h, &e), ST_FORMAT);
        assert_non_null(strstr(e.text, "general.architecture"));
    }
}

static void test_unknown_scaling(void **state)
{
    (void)state;
    struct gguf_bytes b;
    struct hparams h;
    struct err e = {0};
    make_llama(&b, NULL);
    bytes_string(&b, "llama.rope.scaling.type", "dynamic");
    assert_int_equal(read_bytes(&b, &h, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "\"dynamic\", known: none linear yarn longrope"));
}

/* One number per layer is fine as long as they are the same. */
static void test_numbers_per_layer(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, last;
        enum status status;
        const char *text;
    } cases[] = {
        {3, 2, ST_OK, ""},
        {4, 2, ST_OK, ""},
        {2, 2, ST_FORMAT, "2 numbers for 3 layers"},
        {3, 6, ST_UNSUPPORTED, "layer 2 has 6, layer 0 has 2"},
        {0, 0, ST_FORMAT, "0 numbers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_bytes b;
        struct hparams h = {0};
        struct err e = {0};
        make_llama(&b, NULL);
        bytes_array(&b, "llama.attention.head_count_kv", GGUF_I32, cases[i].n);
        for (uint32_t k = 0; k < cases[i].n; k++)
            bytes_put(&b.values, k + 1 == cases[i].n ? cases[i].last : 2, 4);
        assert_int_equal(read_bytes(&b, &h, &e), cases[i].status);
        assert_non_null(strstr(e.text, cases[i].text));
        assert_int_equal(h.n_head_kv, cases[i].status == ST_OK ? 2 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),        cmocka_unit_test(test_given_values),
        cmocka_unit_test(test_linear_scaling),  cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_count_ranges),    cmocka_unit_test(test_real_ranges),
        cmocka_unit_test(test_wrong_types),     cmocka_unit_test(test_architecture_names),
        cmocka_unit_test(test_unknown_scaling), cmocka_unit_test(test_numbers_per_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
