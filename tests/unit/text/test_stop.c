/* The stop filter: nothing it gives out depends on how the text was cut into feeds (S1 S3 S5).
 * Small alphabets are tried exhaustively against a plain reference that sees the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/stop.h"

#define TEXT_BYTES ((size_t)1 << 12)

struct stops {
    uint32_t n;
    const char *strings[STOP_MAX_STRINGS];
};

static struct stop_filter *open_stops(const struct stops *stops)
{
    size_t lengths[STOP_MAX_STRINGS] = {0};
    for (uint32_t i = 0; i < stops->n; i++)
        lengths[i] = strlen(stops->strings[i]);
    struct stop_filter *f = NULL;
    struct err e = {0};
    if (stop_filter_open(stops->strings, lengths, stops->n, &f, &e) != ST_OK)
        fail_msg("%s", e.text);
    return f;
}

/* Feeds text[0..n) in pieces: bit i of `cuts` set means a cut behind byte i. Flushes at the end. */
static bool run(const struct stops *stops, const char *text, size_t n, uint64_t cuts,
                struct strbuf *out)
{
    struct stop_filter *f = open_stops(stops);
    bool hit = false;
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && (cuts >> i & 1) == 0)
            continue;
        assert_int_equal(stop_filter_feed(f, text + start, i + 1 - start, out, &hit, NULL), ST_OK);
        start = i + 1;
    }
    assert_int_equal(stop_filter_flush(f, out, NULL), ST_OK);
    assert_int_equal(stop_filter_held(f), 0);
    stop_filter_close(f);
    return hit;
}

/* What must come out of well-formed text: up to the stop string completed first, the longest of
 * those completed there. */
static size_t reference(const struct stops *stops, const char *text, size_t n, bool *hit)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < stops->n; i++) {
            size_t length = strlen(stops->strings[i]);
            if (length <= end && length > longest &&
                memcmp(text + end - length, stops->strings[i], length) == 0)
                longest = length;
        }
        if (longest > 0) {
            *hit = true;
            return end - longest;
        }
    }
    *hit = false;
    return n;
}

static void check_all_cuts(const struct stops *stops, const char *text, size_t n)
{
    bool expected_hit;
    size_t expected = reference(stops, text, n, &expected_hit);
    uint64_t ways = n > 0 ? (uint64_t)1 << (n - 1) : 1;
    for (uint64_t cuts = 0; cuts < ways; cuts++) {
        struct strbuf out;
        strbuf_init(&out, TEXT_BYTES);
        bool hit = run(stops, text, n, cuts, &out);
        if (hit != expected_hit || out.length != expected ||
            memcmp(strbuf_text(&out), text, expected) != 0)
            fail_msg("\"%.*s\" cut by %llx: \"%s\"", (int)n, text, (unsigned long long)cuts,
                     strbuf_text(&out));
        strbuf_free(&out);
    }
}

static void every_text_of_a_small_alphabet_at_every_cut(void **state)
{
    (void)state;
    static const struct stops sets[] = {
        {0, {NULL}},         {1, {"ab"}},
        {1, {"aab"}},        {1, {"abab"}},
        {2, {"aa", "b"}},    {3, {"abb", "bb", "babb"}},
        {2, {"aaaa", "ba"}}, {4, {"a", "ab", "bab", "bbbb"}},
    };
    for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++)
        for (size_t n = 0; n <= 8; n++)
            for (unsigned int bits = 0; bits < 1u << n; bits++) {
                char text[8];
                for (size_t i = 0; i < n; i++)
                    text[i] = bits >> i & 1 ? 'b' : 'a';
                check_all_cuts(&sets[set], text, n);
            }
}

static void stops_of_chat_and_characters_at_every_cut(void **state)
{
    (void)state;
    static const struct {
        struct stops stops;
        const char *text;
    } rows[] = {
        {{1, {"\n\nUser:"}}, "Hi\n\n\nUser: x"},
        {{2, {"\nUser:", "\n\nUse"}}, "a\n\nUser: b"},
        {{1, {"\xE2\x82\xAC"}}, "1\xE2\x82\xA1 2\xE2\x82\xAC 3"}, /* prefix of another sign */
        {{2, {"\xF0\x9F\x99\x82", "z"}}, "a\xF0\x9F\x99\x83\xF0\x9F\x99\x82z"},
        {{1, {"</s>"}}, "x<</s></s>"},
        {{1, {"aabaaac"}}, "aabaaabaaac"}, /* the prefix itself repeats */
        {{1, {"never"}}, "\xE6\x97\xA5\xE6\x9C\xAC n\xC3\xA9ver"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_all_cuts(&rows[i].stops, rows[i].text, strlen(rows[i].text));
}

/* Ill-formed bytes come out as U+FFFD, one for each longest beginning of a character. */
static void broken_bytes_are_replaced_at_every_cut(void **state)
{
    (void)state;
#define R "\xEF\xBF\xBD"
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"a\xFFz", "a" R "z"},
        {"\xE2\x82z", R "z"},
        {"\xE2\x82\xE2\x82\xAC", R "\xE2\x82\xAC"},
        {"\xF0\x9F\x99", R},
        {"\xF0\x9F\x99\xF0\x9F", R R},
        {"\xC0\x80x", R R "x"},
        {"\xED\xA0\x80", R R R},
        {"\xE2\xE2\xE2\x82\xAC\x80", R R "\xE2\x82\xAC" R},
        {"\xF4\x90\x80\x80", R R R R},
        {"ab\xC3", "ab" R},
    };
#undef R
    static const struct stops stops = {2, {"stop", "\xE2\x82\xAD"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = strlen(rows[i].text);
        for (uint64_t cuts = 0; cuts < (uint64_t)1 << (n - 1); cuts++) {
            struct strbuf out;
            strbuf_init(&out, TEXT_BYTES);
            assert_false(run(&stops, rows[i].text, n, cuts, &out));
            assert_string_equal(strbuf_text(&out), rows[i].expected);
            strbuf_free(&out);
        }
    }
}

static void only_what_may_begin_a_stop_is_held(void **state)
{
    (void)state;
    static const struct stops stops = {1, {"STOP"}};
    struct stop_filter *f = open_stops(&stops);
    struct strbuf out;
    strbuf_init(&out, TEXT_BYTES);
    bool hit = false;
    const struct {
        const char *feed, *joined;
        size_t held;
    } steps[] = {
        {"abc", "abc", 0},
        {"S", "abc", 1},
        {"T", "abc", 2},
        {"S", "abcST", 1},
        {"x\xE2", "abcSTSx", 1},
        {"\x82", "abcSTSx", 2},
        {"\xAC", "abcSTSx\xE2\x82\xAC", 0},
        {"STO", "abcSTSx\xE2\x82\xAC", 3},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_int_equal(
            stop_filter_feed(f, steps[i].feed, strlen(steps[i].feed), &out, &hit, NULL), ST_OK);
        assert_string_equal(strbuf_text(&out), steps[i].joined);
        assert_int_equal(stop_filter_held(f), steps[i].held);
        assert_false(hit);
    }
    assert_int_equal(stop_filter_feed(f, "Pmore", 5, &out, &hit, NULL), ST_OK);
    assert_true(hit);
    assert_string_equal(strbuf_text(&out), "abcSTSx\xE2\x82\xAC");
    hit = false;
    assert_int_equal(stop_filter_feed(f, "more", 4, &out, &hit, NULL), ST_OK);
    assert_true(hit);
    assert_int_equal(stop_filter_flush(f, &out, NULL), ST_OK);
    assert_string_equal(strbuf_text(&out), "abcSTSx\xE2\x82\xAC");
    strbuf_free(&out);
    stop_filter_close(f);
}

/* NUL is a character like any other. */
static void nul_bytes_pass(void **state)
{
    (void)state;
    const char *strings[] = {"\0b"};
    const size_t lengths[] = {2};
    struct stop_filter *f = NULL;
    assert_int_equal(stop_filter_open(strings, lengths, 1, &f, NULL), ST_OK);
    struct strbuf out;
    strbuf_init(&out, TEXT_BYTES);
    bool hit = false;
    assert_int_equal(stop_filter_feed(f, "a\0a\0bx", 6, &out, &hit, NULL), ST_OK);
    assert_true(hit);
    assert_int_equal(out.length, 3);
    assert_memory_equal(out.data, "a\0a", 3);
    strbuf_free(&out);
    stop_filter_close(f);
}

static void bad_stop_strings_are_refused(void **state)
{
    (void)state;
    static char long_text[STOP_MAX_BYTES + 1];
    memset(long_text, 'x', sizeof long_text);
    const char *strings[STOP_MAX_STRINGS + 1];
    size_t lengths[STOP_MAX_STRINGS + 1];
    for (size_t i = 0; i <= STOP_MAX_STRINGS; i++) {
        strings[i] = long_text;
        lengths[i] = STOP_MAX_BYTES;
    }
    struct stop_filter *f = NULL;
    struct err e = {0};
    assert_int_equal(stop_filter_open(strings, lengths, STOP_MAX_STRINGS + 1, &f, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "17"));
    assert_int_equal(stop_filter_open(strings, lengths, STOP_MAX_STRINGS, &f, &e), ST_OK);
    stop_filter_close(f);
    lengths[2] = STOP_MAX_BYTES + 1;
    assert_int_equal(stop_filter_open(strings, lengths, 3, &f, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "stop string 2: 4097"));
    lengths[2] = 0;
    assert_int_equal(stop_filter_open(strings, lengths, 3, &f, &e), ST_INVALID);
    strings[1] = "ab\xC3";
    lengths[1] = 3;
    assert_int_equal(stop_filter_open(strings, lengths, 2, &f, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "byte 2"));
    assert_null(f);
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    const char *strings[] = {"stop"};
    const size_t lengths[] = {4};
    struct stop_filter *f = NULL;
    enum status status = ST_NO_MEMORY;
    for (uint64_t n = 1; status != ST_OK; n++) {
        assert_true(n < 10);
        mem_fail_at(n, 0);
        status = stop_filter_open(strings, lengths, 1, &f, NULL);
        assert_true(status == ST_OK || (status == ST_NO_MEMORY && f == NULL));
    }
    struct strbuf out;
    strbuf_init(&out, 4);
    bool hit;
    mem_fail_at(1, 0);
    assert_int_equal(stop_filter_feed(f, "abc", 3, &out, &hit, NULL), ST_NO_MEMORY);
    mem_fail_at(0, 0);
    strbuf_free(&out);
    struct err e = {0};
    assert_int_equal(stop_filter_feed(f, "abcdefg", 7, &out, &hit, &e), ST_NO_MEMORY);
    assert_true(out.length <= 4);
    strbuf_free(&out);
    stop_filter_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_of_a_small_alphabet_at_every_cut),
        cmocka_unit_test(stops_of_chat_and_characters_at_every_cut),
        cmocka_unit_test(broken_bytes_are_replaced_at_every_cut),
        cmocka_unit_test(only_what_may_begin_a_stop_is_held),
        cmocka_unit_test(nul_bytes_pass),
        cmocka_unit_test(bad_stop_strings_are_refused),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
