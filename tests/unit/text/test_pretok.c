/* Pre-tokenisers: every name compiles, what each family cuts, and long runs. Expected pieces follow
 * from the models' published expressions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/text/pretok.h"

static const char *const all_names[] = {
#define PRETOK(...)
#define PRETOK_NAME(name, id) name,
#include "engine/text/pretok.def"
#undef PRETOK
#undef PRETOK_NAME
};
#define N_NAMES (sizeof all_names / sizeof all_names[0])

static struct pretok *open_named(const char *name, bool jit)
{
    struct pretok *p = NULL;
    struct err e = {0};
    if (pretok_open(name, jit, &p, &e) != ST_OK)
        fail_msg("%s: %s", name != NULL ? name : "(none)", e.text);
    return p;
}

/* expected: the pieces joined by '|'. */
static bool cuts(const char *name, const char *text, const char *expected)
{
    struct pretok *p = open_named(name, true);
    struct pretok_pieces pieces = {0};
    assert_int_equal(pretok_split(p, text, strlen(text), &pieces, NULL), ST_OK);
    char joined[512];
    size_t length = 0, start = 0;
    for (uint32_t i = 0; i < pieces.count; i++) {
        if (i > 0)
            joined[length++] = '|';
        memcpy(joined + length, text + start, pieces.ends[i] - start);
        length += pieces.ends[i] - start;
        start = pieces.ends[i];
    }
    joined[length] = '\0';
    bool same = strcmp(joined, expected) == 0;
    if (!same)
        print_error("%s: \"%s\" is cut into\n%s\nexpected\n%s\n", name, text, joined, expected);
    pretok_pieces_free(&pieces);
    pretok_close(p);
    return same;
}

static void families_cut_as_they_were_trained(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *expected;
    } rows[] = {
        {"gpt-2", "Hello  world's 123!?\n\n x", "Hello| | world|'s| 123|!?|\n\n| x"},
        {"gpt-2", "  \n", "  \n"},
        {"gpt-2", "don'T 'S \xC5\xBF's", "don|'|T| '|S| \xC5\xBF|'s"},
        {"gpt-2", "a\xE1\xA0\x8E\xC2\xA0z", "a|\xE1\xA0\x8E|\xC2\xA0|z"}, /* U+180E is no space */
        {"smollm", "a 123", "a| |1|2|3"},
        {"starcoder", "x=10", "x|=|1|0"},
        {"llama-bpe", "I'LL say 12345!\n\n  x", "I|'LL| say| |123|45|!\n\n| | x"},
        {"llama3", "(foo) \xE6\x97\xA5\xE6\x9C\xAC", "(foo|)| \xE6\x97\xA5\xE6\x9C\xAC"},
        {"llama3", "it\xC5\xBF'\xC5\xBF", "it\xC5\xBF|'\xC5\xBF"},
        {"qwen2", "a 123\r\n", "a| |1|2|3|\r\n"},
        {"qwen35", "e\xCC\x81z 12", "e\xCC\x81z| |1|2"},
        {"qwen2", "e\xCC\x81z", "e|\xCC\x81z"},
        {"minicpm5", "a12345", "a|123|45"},
        {"seed-coder", "a!\n", "a|!|\n"},
        {"bailingmoe", "a! \n\n", "a|!| \n\n"},
        {"glm4", "1234 x", "123|4| x"},
        {"tekken",
         "HelloWORLDfoo 12 e\xCC\x81"
         "a/\n",
         "Hello|WORLDfoo| |1|2| e\xCC\x81"
         "a|/\n"},
        {"tekken", "it's", "it|'s"},
        {"gpt-4o", "HelloWORLD's 1234 \xC3\x89t\xC3\xA9",
         "Hello|WORLD's| |123|4| \xC3\x89t\xC3\xA9"},
        {"falcon", "x = 12345; `y`", "x| |=| |123|45|;| |`|y|`"},
        {"default", "a=1234 $5", "a|=|123|4| |$|5"},
        {"deepseek-llm", "Hi \xE4\xBD\xA0\xE5\xA5\xBD 12 x\n",
         "Hi| |\xE4\xBD\xA0\xE5\xA5\xBD| |12| x|\n"},
        {"deepseek-coder", "if (x1)\n", "if| (|x|1|)|\n"},
        {"deepseek-v3", "a.b 12345 \xE4\xBD\xA0!\n", "a|.b| |123|45| |\xE4\xBD\xA0|!\n"},
        {"viking", "Hei, 12!", "Hei|,| |1|2|!"},
        {"bloom", "Hei, 12!", "Hei|,| 12|!"},
        {"command-r", "v2", "v|2"},
        {"wordpiece", "a, \xE4\xB8\x96$b", "a|,| |\xE4\xB8\x96|$|b"},
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        wrong += !cuts(rows[i].name, rows[i].text, rows[i].expected);
    assert_int_equal(wrong, 0);
}

static void a_missing_name_is_the_default_an_unknown_one_an_error(void **state)
{
    (void)state;
    struct pretok *p = open_named(NULL, true);
    pretok_close(p);
    struct err e = {0};
    p = NULL;
    assert_int_equal(pretok_open("gpt-5x", true, &p, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "gpt-5x"));
    assert_null(p);
    pretok_close(NULL);
    p = open_named("llama-bpe", true);
    assert_true(pretok_ignores_merges(p) && pretok_adds_bos(p));
    pretok_close(p);
    p = open_named("qwen2", true);
    assert_false(pretok_ignores_merges(p) || pretok_adds_bos(p));
    pretok_close(p);
}

/* n bytes of one thing and a digit under every family: pieces cover the text, in linear time. */
static void check_runs(size_t n, bool jit)
{
    static const char *const units[] = {
        "a", "A", " ", "1", "\n", "!", "\xE6\x97\xA5", "\xCC\x81", "\xC2\xA0", "'", " \n", "Aa"};
    static const char *const families[] = {
        "default",      "gpt-2",          "smollm",      "llama3",   "qwen2",      "qwen35",
        "tekken",       "gpt-4o",         "falcon",      "bloom",    "viking",     "wordpiece",
        "deepseek-llm", "deepseek-coder", "deepseek-v3", "minicpm5", "bailingmoe", "seed-coder"};
    char *text = malloc(n + 1);
    assert_non_null(text);
    for (size_t family = 0; family < sizeof families / sizeof families[0]; family++) {
        struct pretok *p = open_named(families[family], jit);
        for (size_t unit = 0; unit < sizeof units / sizeof units[0]; unit++) {
            size_t size = strlen(units[unit]), length = n / size * size;
            for (size_t at = 0; at < length; at++)
                text[at] = units[unit][at % size];
            text[length++] = '5';
            struct pretok_pieces pieces = {0};
            struct err e = {0};
            uint64_t start = clock_now_ns();
            if (pretok_split(p, text, length, &pieces, &e) != ST_OK)
                fail_msg("%s, \"%s\": %s", families[family], units[unit], e.text);
            double seconds = (double)(clock_now_ns() - start) / 1e9;
            if (seconds > 10.0)
                fail_msg("%s, \"%s\": %.1f s", families[family], units[unit], seconds);
            assert_int_equal(pieces.ends[pieces.count - 1], length);
            pretok_pieces_free(&pieces);
        }
        pretok_close(p);
    }
    free(text);
}

static void long_runs_take_linear_time(void **state)
{
    (void)state;
    check_runs((size_t)1 << 20, true);
}

static void long_runs_take_linear_time_without_jit(void **state)
{
    (void)state;
    check_runs((size_t)1 << 18, false);
}

static void every_name_opens_and_covers_the_text(void **state)
{
    (void)state;
    const char *text = "Hello, w\xC3\xB6rld!  123\t\n \xE6\x97\xA5\xF0\x9F\x99\x82 'll";
    for (size_t i = 0; i < N_NAMES; i++) {
        struct pretok *p = open_named(all_names[i], true);
        struct pretok_pieces pieces = {0};
        assert_int_equal(pretok_split(p, text, strlen(text), &pieces, NULL), ST_OK);
        uint32_t before = 0;
        for (uint32_t j = 0; j < pieces.count; j++) {
            assert_true(pieces.ends[j] > before);
            before = pieces.ends[j];
        }
        assert_int_equal(before, strlen(text));
        assert_true(pieces.count > 3);
        assert_int_equal(pretok_split(p, "", 0, &pieces, NULL), ST_OK);
        assert_int_equal(pieces.count, 0);
        pretok_pieces_free(&pieces);
        pretok_close(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_cut_as_they_were_trained),
        cmocka_unit_test(a_missing_name_is_the_default_an_unknown_one_an_error),
        cmocka_unit_test(every_name_opens_and_covers_the_text),
        cmocka_unit_test(long_runs_take_linear_time),
        cmocka_unit_test(long_runs_take_linear_time_without_jit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
