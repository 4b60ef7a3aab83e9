/* The JSON gate and the writer: what the gate lets through is what the parser reads as it is meant,
 * and what the writer writes passes the gate. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/json.h"
#include "server/json_check.h"

static enum status check(const char *text)
{
    struct err e;
    return json_check(text, strlen(text), &e);
}

static void valid_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {"null",
                                        " true\n",
                                        "false",
                                        "0",
                                        "-0",
                                        "-1.5e+10",
                                        "1E-3",
                                        "\"\"",
                                        "\"\\u00e9\\n\\\"\\\\\\/\"",
                                        "\"\\ud83d\\ude42\"",
                                        "\"\xF0\x9F\x99\x82\"",
                                        "[]",
                                        "[ ]",
                                        "{}",
                                        "{ }",
                                        "[1,2,[3]]",
                                        "{\"a\":{\"b\":[1,{\"c\":null}]},\"d\":\"\"}",
                                        "\t[\r\n1 , 2 ]\t"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(check(texts[i]), ST_OK);
}

static void invalid_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        " ",
                                        "nul",
                                        "truee",
                                        "True",
                                        "01",
                                        "-",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "1e+",
                                        "+1",
                                        "0x1",
                                        "NaN",
                                        "\"",
                                        "\"\\\"",
                                        "\"\\x\"",
                                        "\"\\u12g4\"",
                                        "\"\\u0000\"",
                                        "\"\\ud800\"",
                                        "\"\\udc00\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"\x01\"",
                                        "\"\x80\"",
                                        "\"\xC0\x80\"",
                                        "\"\xED\xA0\x80\"",
                                        "\"\xF5\x80\x80\x80\"",
                                        "\"\xE2\x82\"",
                                        "[",
                                        "]",
                                        "[1",
                                        "[1,",
                                        "[1,]",
                                        "[,1]",
                                        "[1 2]",
                                        "[}",
                                        "{",
                                        "}",
                                        "{]",
                                        "{\"a\"",
                                        "{\"a\":",
                                        "{\"a\":1",
                                        "{\"a\":1,",
                                        "{\"a\":1,}",
                                        "{a:1}",
                                        "{1:1}",
                                        "{\"a\" 1}",
                                        "{,}",
                                        "1 2",
                                        "{}{}",
                                        "\xEF\xBB\xBF{}",
                                        "'a'",
                                        "[1]]",
                                        "/**/1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(check(texts[i]), ST_INVALID);
}

static void errors_name_the_byte(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(json_check("{\"a\":01}", 8, &e), ST_INVALID);
    assert_string_equal(e.text, "malformed JSON at byte 6: a comma or closing bracket is missing");
    assert_int_equal(json_check("\"\\u0000\"", 8, &e), ST_INVALID);
    assert_string_equal(e.text, "malformed JSON at byte 2: \\u0000 is not supported");
    assert_int_equal(json_check("a\0b", 3, &e), ST_INVALID);
}

static void every_prefix_is_invalid(void **state)
{
    (void)state;
    static const char text[] = "{\"prompt\":[\"a\\u00e9\xC3\xA9\",-1.5e3,null],\"x\":{\"y\":true}}";
    struct err e;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char exact[sizeof text];
        memcpy(exact, text, n);
        assert_int_equal(json_check(exact, n, &e), ST_INVALID);
    }
    assert_int_equal(json_check(text, sizeof text - 1, &e), ST_OK);
}

/* S17 */
static void depth_is_limited(void **state)
{
    (void)state;
    char text[2 * (JSON_MAX_DEPTH + 1) + 1];
    struct err e;
    for (size_t depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(json_check(text, 2 * depth, &e),
                         depth <= JSON_MAX_DEPTH ? ST_OK : ST_INVALID);
    }
    assert_non_null(strstr(e.text, "deeper than 64"));
}

static void values_are_counted(void **state)
{
    (void)state;
    struct strbuf text;
    struct err e;
    strbuf_init(&text, (size_t)8 << 20);
    strbuf_putc(&text, '[');
    for (int i = 0; i < JSON_MAX_VALUES - 2; i++)
        strbuf_puts(&text, "1,");
    strbuf_puts(&text, "1]");
    assert_int_equal(json_check(strbuf_text(&text), text.length, &e), ST_OK);
    strbuf_truncate(&text, text.length - 1);
    strbuf_puts(&text, ",1]");
    assert_int_equal(json_check(strbuf_text(&text), text.length, &e), ST_INVALID);
    strbuf_free(&text);
}

static void the_writer_writes_json(void **state)
{
    (void)state;
    struct strbuf out;
    struct err e;
    strbuf_init(&out, 4096);
    struct json j = json_begin(&out);
    json_open(&j, '{');
    json_key(&j, "a\"b");
    json_text_n(&j, "x\0\x1F\n\x7F\xC3\xA9\xFF\xE2\x82", 10);
    json_key(&j, "n");
    json_open(&j, '[');
    json_int(&j, INT64_MIN);
    json_uint(&j, UINT64_MAX);
    json_real(&j, 0.1, 9);
    json_real(&j, NAN, 9);
    json_real(&j, -INFINITY, 9);
    json_bool(&j, true);
    json_null(&j);
    json_open(&j, '{');
    json_close(&j, '}');
    json_close(&j, ']');
    json_close(&j, '}');
    assert_string_equal(
        strbuf_text(&out),
        "{\"a\\\"b\":\"x\\u0000\\u001f\\n\\u007f\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\","
        "\"n\":[-9223372036854775808,18446744073709551615,0.1,null,null,true,null,{}]}");
    /* The gate takes all of it but the NUL, which clients may not send. */
    char *nul = strstr(out.data, "\\u0000");
    memcpy(nul, "\\u0001", 6);
    assert_int_equal(json_check(out.data, out.length, &e), ST_OK);
    strbuf_free(&out);
}

static void utf8_of_every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x110000; c += c < 0x900 ? 1 : 61) {
        char bytes[4];
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
        for (size_t i = n; i-- > 1;)
            bytes[i] = (char)(0x80 | ((c >> (6 * (n - 1 - i))) & 0x3F));
        bytes[0] = (char)(marks[n] | (c >> (6 * (n - 1))));
        bool valid = c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
        assert_int_equal(utf8_length(bytes, n), valid ? n : 0);
        if (n > 1)
            assert_int_equal(utf8_length(bytes, n - 1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts),
        cmocka_unit_test(invalid_texts),
        cmocka_unit_test(errors_name_the_byte),
        cmocka_unit_test(every_prefix_is_invalid),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(values_are_counted),
        cmocka_unit_test(the_writer_writes_json),
        cmocka_unit_test(utf8_of_every_code_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
