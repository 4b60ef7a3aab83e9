/* Tokenizers on small vocabularies: merge order, fallbacks, specials, exact text, refusals, memory
 * failures, and time that grows with the text and not with its square (S1 S6 S15 S19 S39 S40). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/text/utf8.h"
#include "tests/unit/text/small_vocab.h"

static struct small_vocab vocab;

static struct tokenizer *open_with(void (*fill)(struct small_vocab *))
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    fill(&vocab);
    if (tokenizer_open(&vocab.source, &t, &e) != ST_OK)
        fail_msg("%s", e.text);
    return t;
}

static token_id id_of(const struct tokenizer *t, const char *text)
{
    for (uint32_t id = 0; id < tokenizer_n_tokens(t); id++) {
        struct vocab_text own = tokenizer_text(t, (token_id)id);
        if (own.length == strlen(text) && memcmp(own.data, text, own.length) == 0)
            return (token_id)id;
    }
    fail_msg("no token %s", text);
    return TOKEN_NONE;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t n,
                                bool add_special, bool parse_special)
{
    const struct tokenize_options options = {.add_special = add_special,
                                             .parse_special = parse_special};
    struct token_list list = {0};
    struct err e = {0};
    if (tokenizer_encode(t, text, n, &options, &list, &e) != ST_OK)
        fail_msg("%s", e.text);
    return list;
}

/* Checks that text becomes the tokens whose texts are given, NULL at the end. */
static void check(const struct tokenizer *t, const char *text, bool add_special, bool parse_special,
                  const char *const *expected)
{
    struct token_list list = encode(t, text, strlen(text), add_special, parse_special);
    uint32_t n = 0;
    for (; expected[n] != NULL; n++) {
        assert_true(n < list.count);
        assert_int_equal(list.ids[n], id_of(t, expected[n]));
    }
    assert_int_equal(list.count, n);
    token_list_free(&list);
}

#define CHECK(t, text, add, parse, ...) \
    check(t, text, add, parse, (const char *const[]){__VA_ARGS__, NULL})

static void check_round_trip(const struct tokenizer *t, const char *text, size_t n, bool parse)
{
    struct token_list list = encode(t, text, n, false, parse);
    char *back;
    size_t length;
    assert_int_equal(tokenizer_decode(t, list.ids, list.count, true, true, &back, &length, NULL),
                     ST_OK);
    if (length != n || memcmp(back, text, n) != 0) {
        for (size_t i = 0; i < n; i++)
            print_error("%02x ", (unsigned char)text[i]);
        fail_msg("text comes back as \"%s\", %zu bytes", back, length);
    }
    mem_free(back);
    token_list_free(&list);
}

static void spm_merges_by_score(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_spm);
    CHECK(t, "hello", false, false, SPACE_MARK, "hello");
    /* "lw" (-2) wins over "ll" (-4); equal scores: the left one first. */
    CHECK(t, "lllw", false, false, SPACE_MARK, "ll", "lw");
    CHECK(t, "aaaaaaa", false, false, SPACE_MARK, "aaaa", "aa", "a");
    CHECK(t, "w \xC3\xA9", false, false, SPACE_MARK, "w", SPACE_MARK, "\xC3\xA9");
    CHECK(t, "x\xFF", false, false, SPACE_MARK, "<0x78>", "<0xFF>");
    CHECK(t, "  w", false, false, SPACE_MARK SPACE_MARK, SPACE_MARK, "w");
    tokenizer_close(t);
}

static void spm_puts_its_space_before_text(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_spm);
    CHECK(t, "w</s>w", true, true, "<s>", SPACE_MARK, "w", "</s>", SPACE_MARK, "w");
    CHECK(t, "w<tool>w", false, false, SPACE_MARK, "w", "<tool>", SPACE_MARK, "w");
    tokenizer_close(t);
    small_spm(&vocab);
    vocab.source.add_space_prefix = 0;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "w</s>w", true, true, "<s>", "w", "</s>", "w");
    check_round_trip(t, " hello  w", 9, false);
    tokenizer_close(t);
}

/* A mark behind another character in some token means that words cannot be cut at spaces. */
static void spm_merges_across_spaces_where_tokens_do(void **state)
{
    (void)state;
    small_spm(&vocab);
    small_add(&vocab, "o" SPACE_MARK, -0.5f, TOKEN_NORMAL);
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "o w", false, false, SPACE_MARK, "o" SPACE_MARK, "w");
    tokenizer_close(t);
}

static void spm_without_byte_tokens_says_unknown_or_refuses(void **state)
{
    (void)state;
    small_spm(&vocab);
    for (uint32_t id = 3; id < 259; id++)
        vocab.types[id] = TOKEN_UNUSED;
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "x", false, false, SPACE_MARK, "<unk>");
    tokenizer_close(t);
    vocab.source.unk = TOKEN_NONE;
    vocab.tokens[0] = (struct vocab_text){"?", 1};
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    const struct tokenize_options options = {0};
    struct token_list list = {0};
    struct err e = {0};
    assert_int_equal(tokenizer_encode(t, "wx", 2, &options, &list, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "0x78"));
    assert_int_equal(list.count, 0);
    token_list_free(&list);
    tokenizer_close(t);
}

static void bpe_merges_by_rank(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_bpe);
    CHECK(t, "hello", false, false, "hello");
    CHECK(t, "hello w", false, false, "hello", "\xC4\xA0w");
    /* "ll" comes before "lo" in the list, so "llo" is not "l", "lo". */
    CHECK(t, "llo", false, false, "ll", "o");
    CHECK(t, "aaaaaaa", false, false, "aaaa", "aa", "a");
    CHECK(t, "whole", false, false, "w", "h", "o", "l", "e");
    CHECK(t, "low", false, false, "lo", "w");
    tokenizer_close(t);
    small_bpe(&vocab);
    vocab.source.ignore_merges = 1;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "whole", false, false, "whole");
    tokenizer_close(t);
}

/* The same pair twice in the list: the first rank counts. */
static void bpe_keeps_the_first_of_equal_merges(void **state)
{
    (void)state;
    small_bpe(&vocab);
    small_merge(&vocab, "l l");
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "llo", false, false, "ll", "o");
    tokenizer_close(t);
}

static void bpe_takes_broken_bytes_as_replacements(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_bpe);
    struct token_list broken = encode(t, "a\xFFz\xC3", 4, false, false);
    struct token_list meant = encode(t, "a\xEF\xBF\xBDz\xEF\xBF\xBD", 8, false, false);
    assert_int_equal(broken.count, meant.count);
    assert_memory_equal(broken.ids, meant.ids, meant.count * sizeof *meant.ids);
    token_list_free(&broken);
    token_list_free(&meant);
    tokenizer_close(t);
}

static void wpm_folds_cuts_and_covers(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_wpm);
    CHECK(t, "Hello, HELLOS", true, false, "[CLS]", SPACE_MARK "hello", SPACE_MARK ",",
          SPACE_MARK "hello", "s", "[SEP]");
    CHECK(t, "Caf\xC3\xA9 cafe\xCC\x81s", false, false, SPACE_MARK "cafe", SPACE_MARK "cafe", "s");
    CHECK(t,
          "a\xE4\xB8\x96"
          "a",
          false, false, SPACE_MARK "a", SPACE_MARK "\xE4\xB8\x96", SPACE_MARK "a");
    CHECK(t, "hellox a", false, false, "[UNK]", SPACE_MARK "a");
    CHECK(t, "he\x01llo", false, false, SPACE_MARK "hello");
    CHECK(t, " \t\n", true, false, "[CLS]", "[SEP]");
    char *text;
    size_t length;
    token_id ids[] = {2, id_of(t, SPACE_MARK "he"), id_of(t, "llo"), id_of(t, SPACE_MARK "a"), 3};
    assert_int_equal(tokenizer_decode(t, ids, 5, false, true, &text, &length, NULL), ST_OK);
    assert_string_equal(text, "hello a");
    mem_free(text);
    tokenizer_close(t);
}

static void specials_are_cut_out_longest_first(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_bpe);
    CHECK(t, "<|im_start|>a<|im_end|>", false, true, "<|im_start|>", "a", "<|im_end|>");
    CHECK(t, "<<|im|>>", false, true, "<", "<|im|>", ">");
    CHECK(t, "<|im_<|im|>", false, true, "<", "|", "i", "m", "_", "<|im|>");
    CHECK(t, "<|im_start|", false, true, "<", "|", "i", "m", "_", "s", "t", "a", "r", "t", "|");
    CHECK(t, "<tool>s<tool><tool", false, false, "<tool>s", "<tool>", "<", "t", "o", "o", "l");
    /* S39: text of a user never becomes a control token; user-defined tokens always match. */
    CHECK(t, "<|im|><tool>", false, false, "<", "|", "i", "m", "|", ">", "<tool>");
    tokenizer_close(t);
}

/* S39 again: merging and whole words cannot make a control token either, however it is spelt. */
static void control_tokens_are_no_words(void **state)
{
    (void)state;
    small_spm(&vocab);
    small_add(&vocab, "wa", 0, TOKEN_CONTROL);
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "wa", false, false, SPACE_MARK, "w", "a");
    CHECK(t, "wa", false, true, "wa");
    tokenizer_close(t);
    small_bpe(&vocab);
    small_add(&vocab, "wz", 0, TOKEN_CONTROL);
    vocab.source.ignore_merges = 1;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "wz", false, false, "w", "z");
    tokenizer_close(t);
}

static void bos_and_eos_come_once(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_spm);
    assert_true(tokenizer_adds_bos(t));
    assert_false(tokenizer_adds_eos(t));
    CHECK(t, "", true, false, "<s>"); /* S19 */
    CHECK(t, "<s>w", true, true, "<s>", SPACE_MARK, "w");
    CHECK(t, "<s><s>", true, true, "<s>", "<s>");
    tokenizer_close(t);
    small_spm(&vocab);
    vocab.source.add_eos = 1;
    vocab.source.add_bos = 0;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    CHECK(t, "w", true, false, SPACE_MARK, "w", "</s>");
    CHECK(t, "w</s>", true, true, SPACE_MARK, "w", "</s>");
    CHECK(t, "w", false, false, SPACE_MARK, "w");
    tokenizer_close(t);
}

static void ends_of_generation_are_known(void **state)
{
    (void)state;
    small_bpe(&vocab);
    token_id given = small_add(&vocab, "<stop>", 0, TOKEN_CONTROL);
    token_id known = small_add(&vocab, "<end_of_turn>", 0, TOKEN_NORMAL);
    vocab.source.eot = given;
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    assert_true(tokenizer_is_eog(t, given));
    assert_true(tokenizer_is_eog(t, known));
    assert_true(tokenizer_is_control(t, known));
    assert_true(tokenizer_is_eog(t, tokenizer_eos(t)));
    assert_false(tokenizer_is_eog(t, tokenizer_bos(t)));
    assert_false(tokenizer_is_eog(t, -1));
    assert_false(tokenizer_is_eog(t, 100000));
    assert_false(tokenizer_has_infill(t));
    tokenizer_close(t);
    small_add(&vocab, "<fim_prefix>", 0, TOKEN_CONTROL);
    small_add(&vocab, "<fim_suffix>", 0, TOKEN_CONTROL);
    small_add(&vocab, "<fim_middle>", 0, TOKEN_CONTROL);
    assert_int_equal(tokenizer_open(&vocab.source, &t, NULL), ST_OK);
    assert_true(tokenizer_has_infill(t));
    tokenizer_close(t);
}

static void too_many_tokens_are_refused_with_both_counts(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_bpe);
    struct token_list list = {0};
    struct err e = {0};
    assert_true(token_list_push(&list, 7));
    struct tokenize_options options = {.max_tokens = 5};
    assert_int_equal(tokenizer_encode(t, "zzzzz", 5, &options, &list, &e), ST_OK);
    assert_int_equal(list.count, 6);
    assert_int_equal(tokenizer_encode(t, "zzzzzz", 6, &options, &list, &e), ST_CONTEXT_FULL);
    assert_non_null(strstr(e.text, "6 tokens"));
    assert_non_null(strstr(e.text, "5"));
    assert_int_equal(list.count, 6);
    token_list_free(&list);
    tokenizer_close(t);
}

static void text_comes_back(void **state)
{
    (void)state;
    struct tokenizer *spm = open_with(small_spm), *bpe = open_with(small_bpe);
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 3000; round++) {
        char bytes[64], text[256];
        size_t n = 0, length = 0;
        for (size_t limit = (size_t)round % 40; n < limit; n++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[n] = round % 3 == 0 ? (char)(random >> 20) : "he lo wa1<s>"[(random >> 20) % 12];
            uint32_t cp = (uint32_t)(random >> 30) % 0x10FFFF;
            length += utf8_encode(cp >= 0xD800 && cp < 0xE000 ? 'h' : cp, text + length);
        }
        check_round_trip(spm, bytes, n, false);
        check_round_trip(spm, bytes, n, true);
        check_round_trip(bpe, text, length, true);
        if (round % 3 != 0)
            check_round_trip(bpe, bytes, n, false);
    }
    tokenizer_close(spm);
    tokenizer_close(bpe);
}

static void pieces_are_bounded_and_controls_silent(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_spm);
    char buffer[8] = "xxxxxxx";
    assert_int_equal(tokenizer_piece(t, id_of(t, "hello"), false, NULL, 0), 5);
    assert_int_equal(tokenizer_piece(t, id_of(t, "hello"), false, buffer, 2), 5);
    assert_memory_equal(buffer, "hex", 3);
    assert_int_equal(tokenizer_piece(t, id_of(t, SPACE_MARK "h"), false, buffer, 8), 2);
    assert_memory_equal(buffer, " h", 2);
    assert_int_equal(tokenizer_piece(t, 3 + 0xE2, false, buffer, 8), 1);
    assert_int_equal((unsigned char)buffer[0], 0xE2);
    assert_int_equal(tokenizer_piece(t, 1, false, buffer, 8), 0);
    assert_int_equal(tokenizer_piece(t, 1, true, buffer, 8), 3);
    assert_int_equal(tokenizer_piece(t, -1, true, buffer, 8), 0);
    assert_int_equal(tokenizer_piece(t, 100000, true, buffer, 8), 0);
    const token_id bad[] = {1, 100000};
    char *text;
    size_t length;
    struct err e = {0};
    assert_int_equal(tokenizer_decode(t, bad, 2, true, true, &text, &length, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "100000"));
    assert_null(text);
    assert_null(tokenizer_text(t, 100000).data);
    tokenizer_close(t);
}

/* One refusal: the change made to a good vocabulary, and what the error must name. */
struct refusal {
    void (*fill)(struct small_vocab *);
    void (*spoil)(struct small_vocab *);
    enum status status;
    const char *names;
};

static void bad_model(struct small_vocab *v)
{
    v->source.model = "t5x";
}
static void bad_pre(struct small_vocab *v)
{
    v->source.pre = "no-such-pre";
}
static void no_tokens(struct small_vocab *v)
{
    v->source.n_tokens = 0;
}
static void no_scores(struct small_vocab *v)
{
    v->source.scores = NULL;
}
static void nan_score(struct small_vocab *v)
{
    v->scores[260] = NAN;
}
static void bad_type(struct small_vocab *v)
{
    v->types[9] = 7;
}
static void bad_byte(struct small_vocab *v)
{
    v->tokens[11].data = "<0x0G>";
}
static void short_byte(struct small_vocab *v)
{
    v->tokens[11] = (struct vocab_text){"<0x8>", 5};
}
static void no_merges(struct small_vocab *v)
{
    v->source.n_merges = 0;
}
static void whole_merge(struct small_vocab *v)
{
    v->merges[3] = (struct vocab_text){"hello", 5};
}
static void half_merge(struct small_vocab *v)
{
    v->merges[3] = (struct vocab_text){"h ", 2};
}
static void far_bos(struct small_vocab *v)
{
    v->source.bos = (token_id)v->source.n_tokens;
}
static void far_middle(struct small_vocab *v)
{
    v->source.fim_middle = 1 << 30;
}
static void negative_pad(struct small_vocab *v)
{
    v->source.pad = -2;
}

static void bad_vocabularies_are_refused_by_name(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {small_spm, bad_model, ST_UNSUPPORTED, "t5x"},
        {small_bpe, bad_pre, ST_UNSUPPORTED, "no-such-pre"},
        {small_bpe, no_tokens, ST_FORMAT, "0 tokens"},
        {small_spm, no_scores, ST_FORMAT, "scores"},
        {small_spm, nan_score, ST_FORMAT, "token 260"},
        {small_bpe, bad_type, ST_FORMAT, "token 9 has type 7"},
        {small_spm, bad_byte, ST_FORMAT, "byte token 11"},
        {small_spm, short_byte, ST_FORMAT, "<0x8>"},
        {small_bpe, no_merges, ST_FORMAT, "merges"},
        {small_bpe, whole_merge, ST_FORMAT, "merge 3"},
        {small_bpe, half_merge, ST_FORMAT, "merge 3"},
        {small_spm, far_bos, ST_FORMAT, "bos"},
        {small_bpe, far_middle, ST_FORMAT, "fim_middle token id 1073741824"},
        {small_wpm, negative_pad, ST_FORMAT, "padding token id -2"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        refusals[i].fill(&vocab);
        refusals[i].spoil(&vocab);
        assert_int_equal(tokenizer_open(&vocab.source, &t, &e), refusals[i].status);
        if (strstr(e.text, refusals[i].names) == NULL)
            fail_msg("\"%s\" does not name %s", e.text, refusals[i].names);
        assert_null(t);
    }
}

/* Every allocation of open, encode and decode fails once: no leak, no crash, one clear status. */
static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    void (*const fills[])(struct small_vocab *) = {small_spm, small_bpe, small_wpm};
    const char *text = "hello \xE4\xB8\x96 <tool> <|im_end|></s>[SEP]aaaa 11";
    for (size_t kind = 0; kind < 3; kind++) {
        fills[kind](&vocab);
        struct tokenizer *t = NULL;
        enum status status = ST_NO_MEMORY;
        for (uint64_t n = 1; status == ST_NO_MEMORY; n++) {
            assert_true(n < 100);
            mem_fail_at(n, 0);
            status = tokenizer_open(&vocab.source, &t, NULL);
            assert_true(status == ST_OK || (status == ST_NO_MEMORY && t == NULL));
        }
        mem_fail_at(0, 0);
        assert_int_equal(status, ST_OK);
        struct token_list list = {0};
        assert_true(token_list_push(&list, 3));
        status = ST_NO_MEMORY;
        for (uint64_t n = 1; status == ST_NO_MEMORY; n++) {
            assert_true(n < 100);
            const struct tokenize_options options = {.add_special = true, .parse_special = true};
            mem_fail_at(n, 0);
            status = tokenizer_encode(t, text, strlen(text), &options, &list, NULL);
            assert_true(status == ST_OK || (status == ST_NO_MEMORY && list.count == 1));
        }
        char *back;
        size_t length;
        mem_fail_at(1, 0);
        assert_int_equal(
            tokenizer_decode(t, list.ids, list.count, true, true, &back, &length, NULL),
            ST_NO_MEMORY);
        mem_fail_at(0, 0);
        assert_null(back);
        token_list_free(&list);
        tokenizer_close(t);
    }
}

/* A megabyte of one thing. Anything quadratic would take hours. */
static void long_runs_take_linear_time(void **state)
{
    (void)state;
    static const char *const units[] = {
        "a",    " ",  "1",      "\n",   "<", "<|im_end|>", "\xF0\x9F\x99\x82",
        "\xFF", "a ", "hello ", "<tool"};
    void (*const fills[])(struct small_vocab *) = {small_spm, small_bpe, small_wpm};
    const size_t n = 1 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t kind = 0; kind < 3; kind++) {
        struct tokenizer *t = open_with(fills[kind]);
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            for (size_t at = 0; at < n; at++)
                text[at] = units[i][at % strlen(units[i])];
            uint64_t start = clock_now_ns();
            struct token_list list = encode(t, text, n, false, true);
            double seconds = (double)(clock_now_ns() - start) / 1e9;
            if (seconds > 20.0)
                fail_msg("1 MiB of \"%s\": %.1f s", units[i], seconds);
            token_list_free(&list);
        }
        tokenizer_close(t);
    }
    free(text);
}

static void *encode_many(void *argument)
{
    const struct tokenizer *t = argument;
    for (int i = 0; i < 200; i++) {
        struct token_list list = encode(t, "hello <tool> world 11", 21, true, false);
        token_list_free(&list);
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct tokenizer *t = open_with(small_bpe);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_merges_by_score),
        cmocka_unit_test(spm_puts_its_space_before_text),
        cmocka_unit_test(spm_merges_across_spaces_where_tokens_do),
        cmocka_unit_test(spm_without_byte_tokens_says_unknown_or_refuses),
        cmocka_unit_test(bpe_merges_by_rank),
        cmocka_unit_test(bpe_keeps_the_first_of_equal_merges),
        cmocka_unit_test(bpe_takes_broken_bytes_as_replacements),
        cmocka_unit_test(wpm_folds_cuts_and_covers),
        cmocka_unit_test(specials_are_cut_out_longest_first),
        cmocka_unit_test(control_tokens_are_no_words),
        cmocka_unit_test(bos_and_eos_come_once),
        cmocka_unit_test(ends_of_generation_are_known),
        cmocka_unit_test(too_many_tokens_are_refused_with_both_counts),
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(pieces_are_bounded_and_controls_silent),
        cmocka_unit_test(bad_vocabularies_are_refused_by_name),
        cmocka_unit_test(memory_may_fail_anywhere),
        cmocka_unit_test(long_runs_take_linear_time),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
