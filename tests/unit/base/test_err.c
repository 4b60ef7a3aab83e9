/* err: the status table, error text (cut at UTF-8 boundaries, one line), prefixes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/base/err.h"

static void statuses_have_distinct_names(void **state)
{
    (void)state;
    assert_int_equal(ST_OK, 0);
    assert_string_equal(status_name(ST_OK), "ok");
    assert_string_equal(status_name(ST_CONTEXT_FULL), "context_full");
    for (int a = 0; a < ST_COUNT; a++) {
        assert_non_null(status_name((enum status)a));
        assert_true(strlen(status_message((enum status)a)) > 0);
        for (int b = 0; b < a; b++)
            assert_string_not_equal(status_name((enum status)a), status_name((enum status)b));
    }
}

static void status_out_of_range_is_named_unknown(void **state)
{
    (void)state;
    assert_string_equal(status_name(ST_COUNT), "unknown");
    assert_string_equal(status_name((enum status) - 1), "unknown");
    assert_string_equal(status_message((enum status)9999), "unknown status");
}

static void set_fills_and_returns_the_status(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_set(&e, ST_FORMAT, "tensor %s: %d rows, expected %d", "a.b", 3, 4),
                     ST_FORMAT);
    assert_int_equal(e.status, ST_FORMAT);
    assert_string_equal(e.text, "tensor a.b: 3 rows, expected 4");
    err_clear(&e);
    assert_int_equal(e.status, ST_OK);
    assert_string_equal(e.text, "");
}

static void null_err_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ST_IO, "x"), ST_IO);
    assert_int_equal(err_prefix(NULL, "x"), ST_INTERNAL);
    err_clear(NULL);
}

static void control_characters_become_spaces(void **state)
{
    (void)state;
    struct err e;
    err_set(&e, ST_BUILD, "line 1\nline 2\r\tend");
    assert_string_equal(e.text, "line 1 line 2  end");
}

static void long_text_is_cut_to_the_buffer(void **state)
{
    (void)state;
    struct err e;
    char text[2 * ERR_TEXT_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    err_set(&e, ST_IO, "%s", text);
    assert_int_equal(strlen(e.text), ERR_TEXT_BYTES - 1);
}

/* For every width of character and every phase, the cut text ends with a whole character. */
static void cut_never_splits_a_character(void **state)
{
    (void)state;
    static const char *const characters[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t c = 0; c < 3; c++) {
        size_t width = strlen(characters[c]);
        for (size_t phase = 0; phase < width; phase++) {
            char text[2 * ERR_TEXT_BYTES] = "";
            memset(text, 'a', phase);
            for (size_t n = phase; n + width < sizeof text; n += width)
                memcpy(text + n, characters[c], width + 1);
            struct err e;
            err_set(&e, ST_IO, "%s", text);
            size_t kept = strlen(e.text);
            assert_true(kept < ERR_TEXT_BYTES && kept + width >= ERR_TEXT_BYTES);
            assert_int_equal((kept - phase) % width, 0);
            assert_memory_equal(e.text, text, kept);
        }
    }
}

static void whole_characters_at_the_end_stay(void **state)
{
    (void)state;
    struct err e;
    err_set(&e, ST_IO, "price \xE2\x82\xAC");
    assert_string_equal(e.text, "price \xE2\x82\xAC");
    err_set(&e, ST_IO, "%s", "");
    assert_string_equal(e.text, "");
}

static void prefix_goes_before_and_keeps_the_status(void **state)
{
    (void)state;
    struct err e;
    err_set(&e, ST_FORMAT, "bad magic");
    assert_int_equal(err_prefix(&e, "%s: ", "m.gguf"), ST_FORMAT);
    assert_string_equal(e.text, "m.gguf: bad magic");
}

static void prefix_longer_than_the_room_cuts_the_text(void **state)
{
    (void)state;
    struct err e;
    char text[ERR_TEXT_BYTES], head[2 * ERR_TEXT_BYTES];
    memset(text, 't', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    err_set(&e, ST_IO, "%s", text);
    err_prefix(&e, "head: ");
    assert_int_equal(strlen(e.text), ERR_TEXT_BYTES - 1);
    assert_memory_equal(e.text, "head: ttt", 9);

    memset(head, 'h', sizeof head - 1);
    head[sizeof head - 1] = '\0';
    err_prefix(&e, "%s", head);
    assert_int_equal(strlen(e.text), ERR_TEXT_BYTES - 1);
    assert_int_equal(e.text[ERR_TEXT_BYTES - 2], 'h');
    assert_int_equal(e.status, ST_IO);
}

static void assert_macro_passes_true_conditions(void **state)
{
    (void)state;
    int evaluated = 0;
    ASSERT(++evaluated == 1);
    assert_int_equal(evaluated, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_distinct_names),
        cmocka_unit_test(status_out_of_range_is_named_unknown),
        cmocka_unit_test(set_fills_and_returns_the_status),
        cmocka_unit_test(null_err_is_allowed),
        cmocka_unit_test(control_characters_become_spaces),
        cmocka_unit_test(long_text_is_cut_to_the_buffer),
        cmocka_unit_test(cut_never_splits_a_character),
        cmocka_unit_test(whole_characters_at_the_end_stay),
        cmocka_unit_test(prefix_goes_before_and_keeps_the_status),
        cmocka_unit_test(prefix_longer_than_the_room_cuts_the_text),
        cmocka_unit_test(assert_macro_passes_true_conditions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
