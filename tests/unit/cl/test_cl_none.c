/* D21: a machine without OpenCL. Everything works on `host`, and the hint says what was searched.
 */
#include "tests/unit/cl/cl_test.h"

#include "engine/cl/hint.h"

static void test_only_host(void **state)
{
    (void)state;
    assert_int_equal(device_list_count(test_list), 1);
    assert_int_equal(device_list_at(test_list, 0)->kind, DEVICE_HOST);
    const char *hint = device_list_hint(test_list);
    assert_non_null(strstr(hint, "/nonexistent"));
    assert_non_null(strstr(hint, "pocl-opencl-icd"));
    uint32_t index = 9, n = 1;
    assert_ok(device_select(test_list, "auto", &index, &n, NULL));
    assert_int_equal(index, 0);
}

static void test_host_works(void **state)
{
    (void)state;
    struct device *d = test_open_device(0);
    struct buffer *b = NULL;
    char text[4] = "";
    assert_true(device_is_host(d));
    assert_int_equal(device_caps(d), 0);
    assert_ok(buffer_open(d, 4, BUFFER_IO, "b", &b, NULL));
    assert_ok(queue_write(d, QUEUE_TRANSFER, b, 0, "abc", 4, "up", NULL));
    assert_ok(queue_read(d, QUEUE_COMPUTE, b, 0, text, 4, "down", NULL));
    assert_string_equal(text, "abc");
    assert_string_equal(buffer_host(b), "abc");
    buffer_close(b);
    struct kernel *k = NULL;
    struct err e = {0};
    assert_int_equal(kernel_open(d, "probe/local.cl", "", "probe", &k, &e), ST_UNSUPPORTED);
    assert_null(k);
    device_close(d);
}

/* The other cases of the hint: platforms without devices (D7, D22), devices that cannot be used. */
static void test_hint_texts(void **state)
{
    (void)state;
    char text[HINT_TEXT_BYTES];
    hint_write(0, 1, 0, text, sizeof text);
    assert_non_null(strstr(text, "1 OpenCL platform(s) without a device"));
    hint_write(0, 1, 2, text, sizeof text);
    assert_non_null(strstr(text, "2 OpenCL device(s), none usable"));
    char small[20];
    hint_write(-1001, 0, 0, small, sizeof small);
    assert_int_equal(strlen(small), sizeof small - 1);
}

int main(void)
{
    setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_host),
        cmocka_unit_test(test_host_works),
        cmocka_unit_test(test_hint_texts),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
