/* strbuf: appends, the ceiling, out of memory (content stays, failure sticks), hand-over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

static int fail_off(void **state)
{
    (void)state;
    mem_fail_at(0, 0);
    return 0;
}

static void empty_is_an_empty_text(void **state)
{
    (void)state;
    struct strbuf s;
    strbuf_init(&s, 100);
    assert_string_equal(strbuf_text(&s), "");
    assert_int_equal(s.length, 0);
    strbuf_clear(&s);
    strbuf_consume(&s, 0);
    strbuf_truncate(&s, 0);
    assert_true(strbuf_append(&s, NULL, 0));
    assert_string_equal(strbuf_text(&s), "");
    strbuf_free(&s);
}

static void appends_concatenate(void **state)
{
    (void)state;
    struct strbuf s;
    strbuf_init(&s, 1000);
    assert_true(strbuf_puts(&s, "one"));
    assert_true(strbuf_putc(&s, ' '));
    assert_true(strbuf_append(&s, "t\0wo", 4));
    assert_true(strbuf_printf(&s, " %d-%s", 3, "x"));
    assert_int_equal(s.length, 12);
    assert_memory_equal(s.data, "one t\0wo 3-x", 13);
    strbuf_free(&s);
    assert_int_equal(s.ceiling, 1000);
    assert_true(strbuf_puts(&s, "again"));
    assert_string_equal(strbuf_text(&s), "again");
    strbuf_free(&s);
}

static void consume_and_truncate_cut_the_ends(void **state)
{
    (void)state;
    struct strbuf s;
    strbuf_init(&s, 100);
    strbuf_puts(&s, "abcdef");
    strbuf_consume(&s, 2);
    assert_string_equal(strbuf_text(&s), "cdef");
    strbuf_truncate(&s, 3);
    assert_string_equal(strbuf_text(&s), "cde");
    strbuf_consume(&s, 3);
    assert_string_equal(strbuf_text(&s), "");
    assert_true(strbuf_puts(&s, "g"));
    assert_string_equal(strbuf_text(&s), "g");
    strbuf_free(&s);
}

/* For many ceilings: exactly that many bytes fit, one more does not, and the content stays. */
static void ceiling_is_exact(void **state)
{
    (void)state;
    for (size_t ceiling = 0; ceiling < 300; ceiling++) {
        struct strbuf s;
        strbuf_init(&s, ceiling);
        for (size_t i = 0; i < ceiling; i++)
            assert_true(strbuf_putc(&s, (char)('a' + i % 26)));
        assert_false(strbuf_putc(&s, 'X'));
        assert_true(s.failed);
        assert_int_equal(s.length, ceiling);
        assert_true(s.capacity <= ceiling + 1 || s.capacity <= 64);
        assert_int_equal(strlen(strbuf_text(&s)), ceiling);
        strbuf_free(&s);
    }
}

static void failure_sticks_until_cleared(void **state)
{
    (void)state;
    struct strbuf s;
    strbuf_init(&s, 5);
    strbuf_puts(&s, "abc");
    assert_false(strbuf_puts(&s, "def"));
    assert_string_equal(strbuf_text(&s), "abc");
    assert_false(strbuf_putc(&s, 'd'));
    assert_false(strbuf_printf(&s, "d"));
    assert_null(strbuf_take(&s));
    assert_string_equal(strbuf_text(&s), "abc");
    strbuf_clear(&s);
    assert_true(strbuf_puts(&s, "defgh"));
    assert_false(strbuf_printf(&s, "%d", 1));
    assert_string_equal(strbuf_text(&s), "defgh");
    strbuf_free(&s);
    assert_false(s.failed);
}

static void huge_lengths_do_not_wrap(void **state)
{
    (void)state;
    struct strbuf s;
    strbuf_init(&s, 100);
    strbuf_puts(&s, "abc");
    assert_false(strbuf_append(&s, "x", SIZE_MAX));
    strbuf_clear(&s);
    assert_false(strbuf_append(&s, "x", SIZE_MAX - 3));
    strbuf_free(&s);
}

static void out_of_memory_keeps_the_content(void **state)
{
    (void)state;
    char long_text[500];
    memset(long_text, 'y', sizeof long_text);
    struct strbuf s;
    strbuf_init(&s, 1000);
    mem_fail_at(1, 0);
    assert_false(strbuf_puts(&s, "abc"));
    assert_string_equal(strbuf_text(&s), "");
    strbuf_clear(&s);
    assert_true(strbuf_puts(&s, "abc"));
    mem_fail_at(1, 0);
    assert_false(strbuf_append(&s, long_text, sizeof long_text));
    assert_string_equal(strbuf_text(&s), "abc");
    strbuf_free(&s);
    mem_fail_at(1, 0);
    assert_null(strbuf_take(&s));
    strbuf_free(&s);
}

static void take_hands_over_the_block(void **state)
{
    (void)state;
    struct strbuf s;
    strbuf_init(&s, 100);
    char *empty = strbuf_take(&s);
    assert_string_equal(empty, "");
    mem_free(empty);
    strbuf_puts(&s, "mine");
    char *text = strbuf_take(&s);
    assert_string_equal(text, "mine");
    assert_int_equal(s.length, 0);
    assert_int_equal(s.ceiling, 100);
    assert_true(strbuf_puts(&s, "new"));
    assert_string_equal(text, "mine");
    mem_free(text);
    strbuf_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_is_an_empty_text),
        cmocka_unit_test(appends_concatenate),
        cmocka_unit_test(consume_and_truncate_cut_the_ends),
        cmocka_unit_test(ceiling_is_exact),
        cmocka_unit_test(failure_sticks_until_cleared),
        cmocka_unit_test(huge_lengths_do_not_wrap),
        cmocka_unit_test_teardown(out_of_memory_keeps_the_content, fail_off),
        cmocka_unit_test(take_hands_over_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
