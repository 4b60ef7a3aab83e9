/* span: little-endian reads, and failure that sticks without overrunning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/base/span.h"

static void numbers_are_little_endian(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0x81, 0x02, 0x83, 0x04, 0x05, 0x06, 0x87, 0x01, 0x02,
                                          0x03, 0x04, 0x05, 0x06, 0x07, 0x88, 0x00, 0x00, 0xC0,
                                          0xBF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x40};
    struct span s = span_make(bytes, sizeof bytes);
    assert_int_equal(span_u8(&s), 0x81);
    assert_int_equal(span_u16(&s), 0x8302);
    assert_int_equal(span_u32(&s), 0x87060504);
    assert_true(span_u64(&s) == 0x8807060504030201u);
    assert_true(span_f32(&s) == -1.5f);
    assert_true(span_f64(&s) == 2.5);
    assert_false(s.failed);
    assert_int_equal(span_left(&s), 0);
    assert_int_equal(span_offset(&s), sizeof bytes);
}

static void take_borrows_the_bytes(void **state)
{
    (void)state;
    static const char bytes[] = "abcdef";
    struct span s = span_make(bytes, 6);
    assert_ptr_equal(span_take(&s, 2), bytes);
    assert_ptr_equal(span_take(&s, 0), bytes + 2);
    assert_ptr_equal(span_take(&s, 4), bytes + 2);
    assert_non_null(span_take(&s, 0));
    assert_false(s.failed);
    assert_int_equal(span_offset(&s), 6);
}

static void failure_sticks_and_gives_zeros(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {1, 2, 3};
    struct span s = span_make(bytes, sizeof bytes);
    assert_int_equal(span_u8(&s), 1);
    assert_int_equal(span_u32(&s), 0);
    assert_true(s.failed);
    assert_int_equal(span_offset(&s), 1);
    /* Two bytes are left, but nothing is read after a failure. */
    assert_int_equal(span_u8(&s), 0);
    assert_int_equal(span_u16(&s), 0);
    assert_true(span_u64(&s) == 0);
    assert_true(span_f32(&s) == 0.0f);
    assert_true(span_f64(&s) == 0.0);
    assert_null(span_take(&s, 0));
}

/* Each reader, on a span one byte too short for it. */
static void every_reader_checks_its_length(void **state)
{
    (void)state;
    static const unsigned char bytes[8] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    struct span s = span_make(bytes, 0);
    assert_int_equal(span_u8(&s), 0);
    assert_true(s.failed);
    s = span_make(bytes, 1);
    assert_int_equal(span_u16(&s), 0);
    assert_true(s.failed);
    s = span_make(bytes, 3);
    assert_int_equal(span_u32(&s), 0);
    assert_true(s.failed);
    s = span_make(bytes, 7);
    assert_true(span_u64(&s) == 0);
    assert_true(s.failed);
    s = span_make(bytes, 3);
    assert_true(span_f32(&s) == 0.0f);
    assert_true(s.failed);
    s = span_make(bytes, 7);
    assert_true(span_f64(&s) == 0.0);
    assert_true(s.failed);
}

static void huge_lengths_do_not_wrap(void **state)
{
    (void)state;
    static const unsigned char bytes[16];
    static const uint64_t lengths[] = {17, (uint64_t)1 << 32, INT64_MAX, UINT64_MAX - 15,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct span s = span_make(bytes, sizeof bytes);
        assert_null(span_take(&s, lengths[i]));
        assert_true(s.failed);
        assert_int_equal(span_left(&s), sizeof bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_little_endian),
        cmocka_unit_test(take_borrows_the_bytes),
        cmocka_unit_test(failure_sticks_and_gives_zeros),
        cmocka_unit_test(every_reader_checks_its_length),
        cmocka_unit_test(huge_lengths_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
