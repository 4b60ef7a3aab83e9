/* UTF-8 over all code points and all short byte strings; folding for WordPiece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/text/fold.h"
#include "engine/text/utf8.h"

static void every_code_point_comes_back(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char text[UTF8_MAX_BYTES];
        size_t length = utf8_encode(cp, text);
        uint32_t back = 0;
        int found = utf8_decode(text, length, &back);
        if (cp >= 0xD800 && cp < 0xE000) {
            assert_int_equal(found, 0);
            continue;
        }
        assert_int_equal(found, length);
        assert_int_equal(back, cp);
        assert_int_equal(utf8_announced_length(text[0]), length);
        for (size_t cut = 0; cut < length; cut++)
            assert_int_equal(utf8_decode(text, cut, NULL), -1);
    }
}

static void ill_formed_bytes_are_told_from_cut_ones(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        int result;
    } rows[] = {
        {"\x80", 1, 0},         {"\xC0\x80", 2, 0},     {"\xC1\xBF", 2, 0},
        {"\xE0\x9F\xBF", 3, 0}, {"\xE0\xA0", 2, -1},    {"\xED\xA0\x80", 3, 0},
        {"\xED\x9F", 2, -1},    {"\xF0\x8F", 2, 0},     {"\xF0\x90\x80", 3, -1},
        {"\xF4\x90", 2, 0},     {"\xF5\x80\x80", 3, 0}, {"\xFF", 1, 0},
        {"\xE2\x82z", 3, 0},    {"\xC3", 1, -1},        {"", 0, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(utf8_decode(rows[i].text, rows[i].n, NULL), rows[i].result);
}

static void repair_replaces_each_stray_byte(void **state)
{
    (void)state;
    char out[64];
    size_t n = utf8_repair("a\xFF\xE2\x82z\xC3\xA9\xF0", 8, out);
    assert_int_equal(n, 1 + 3 + 3 + 3 + 1 + 2 + 3);
    assert_memory_equal(out, "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\xC3\xA9\xEF\xBF\xBD", n);
}

static void check_fold(const char *text, const char *expected)
{
    char out[256];
    size_t n = fold_text(text, strlen(text), out);
    out[n] = '\0';
    assert_string_equal(out, expected);
}

static void folding_is_lower_case_without_accents(void **state)
{
    (void)state;
    check_fold("Hello, World 42!\t\n", "hello, world 42!\t\n");
    check_fold("\xC3\x84pfel \xC3\x89t\xC3\xA9", "apfel ete");          /* Äpfel Été */
    check_fold("e\xCC\x81\xCC\x82", "e");                               /* marks alone vanish */
    check_fold("\xC4\xB0", "i");                                        /* dotted capital I */
    check_fold("\xE1\xBB\xAC", "u");                                    /* Ử: two marks */
    check_fold("\xD0\x99", "\xD0\xB8");                                 /* Й -> и */
    check_fold("\xC5\x81\xC5\x93\xC3\x9F", "\xC5\x82\xC5\x93\xC3\x9F"); /* ł œ ß have none */
    check_fold("a\x01\xE2\x80\x8D\xEF\xBF\xBD\xEE\x80\x80z", "az");     /* Cc Cf U+FFFD Co */
    check_fold("\xF0\x90\x90\x80", "\xF0\x90\x90\xA8");                 /* Deseret capital */
    check_fold("a\xFFz", "az");
}

static void hangul_becomes_jamo(void **state)
{
    (void)state;
    check_fold("\xEA\xB0\x80", "\xE1\x84\x80\xE1\x85\xA1");             /* U+AC00: 1100 1161 */
    check_fold("\xED\x9E\xA3", "\xE1\x84\x92\xE1\x85\xB5\xE1\x87\x82"); /* U+D7A3: 1112 1175 11C2 */
}

/* The bound that callers allocate by holds for every character. */
static void folded_text_fits_its_bound(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp < 0xE000)
            continue;
        char text[UTF8_MAX_BYTES], out[FOLD_MAX_BYTES(UTF8_MAX_BYTES)];
        size_t n = utf8_encode(cp, text), length = fold_text(text, n, out);
        assert_true(length <= FOLD_MAX_BYTES(n));
        for (size_t at = 0; at < length;) {
            int size = utf8_decode(out + at, length - at, NULL);
            assert_true(size > 0);
            at += (size_t)size;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_comes_back),
        cmocka_unit_test(ill_formed_bytes_are_told_from_cut_ones),
        cmocka_unit_test(repair_replaces_each_stray_byte),
        cmocka_unit_test(folding_is_lower_case_without_accents),
        cmocka_unit_test(hangul_becomes_jamo),
        cmocka_unit_test(folded_text_fits_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
