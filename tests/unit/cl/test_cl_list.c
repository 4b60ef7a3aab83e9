/* The list of devices: what is in it, in which order, and how one is chosen. */
#include "tests/unit/cl/cl_test.h"

#include "engine/cl/cl.h"
#include "engine/cl/list.h"
#include "engine/cl/threads.h"

#define MOST 16

/* S45: every device of every platform is there; `host` is always the last. */
static void test_host_is_last(void **state)
{
    (void)state;
    uint32_t n = device_list_count(test_list);
    assert_true(n >= 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct device_info *info = device_list_at(test_list, i);
        assert_int_equal(info->index, i);
        assert_int_equal(info->kind == DEVICE_HOST, i == n - 1);
        assert_true(info->name[0] != '\0' && info->driver[0] != '\0');
        assert_true(info->base_align_bytes >= 128 && info->base_align_bytes <= 4096);
        assert_true(info->available || info->note[0] != '\0');
    }
    assert_null(device_list_at(test_list, n));
    assert_true(device_list_at(test_list, n - 1)->available);
}

static struct device_info make_info(enum device_kind kind, bool available)
{
    struct device_info info = {.kind = kind, .available = available};
    return info;
}

/* D36: discrete before integrated before accelerator before CPU; equals by strength; what cannot
 * be used (emulators, broken compilers: D7) behind everything. */
static void test_order(void **state)
{
    (void)state;
    struct device_info discrete = make_info(DEVICE_DISCRETE_GPU, true);
    struct device_info integrated = make_info(DEVICE_INTEGRATED_GPU, true);
    struct device_info accelerator = make_info(DEVICE_ACCELERATOR, true);
    struct device_info cpu = make_info(DEVICE_CPU, true);
    struct device_info broken = make_info(DEVICE_DISCRETE_GPU, false);
    assert_true(list__order(&discrete, 1.0, &integrated, 9.0) < 0);
    assert_true(list__order(&accelerator, 9.0, &integrated, 1.0) > 0);
    assert_true(list__order(&accelerator, 1.0, &cpu, 9.0) < 0);
    assert_true(list__order(&broken, 9.0, &cpu, 1.0) > 0);
    assert_true(list__order(&cpu, 2.0, &cpu, 1.0) < 0);
    struct device_info second = cpu;
    second.index = 1;
    assert_true(list__order(&cpu, 1.0, &second, 1.0) < 0);
}

/* D36: by index, by part of the name in any case, by UUID, and by the words. */
static void test_select(void **state)
{
    (void)state;
    uint32_t last = device_list_count(test_list) - 1;
    uint32_t index[MOST], n = MOST;
    assert_ok(device_select(test_list, "", index, &n, NULL));
    assert_int_equal(n, 1);
    assert_int_equal(index[0], 0);
    n = MOST;
    assert_ok(device_select(test_list, "AUTO", index, &n, NULL));
    assert_int_equal(index[0], 0);
    n = MOST;
    assert_ok(device_select(test_list, "HOST", index, &n, NULL));
    assert_int_equal(index[0], last);
    n = MOST;
    assert_ok(device_select(test_list, "0", index, &n, NULL));
    assert_int_equal(index[0], 0);
    for (uint32_t i = 0; i <= last; i++) {
        const struct device_info *info = device_list_at(test_list, i);
        if (!info->available)
            continue;
        n = MOST;
        assert_ok(device_select(test_list, info->name, index, &n, NULL));
        assert_string_equal(device_list_at(test_list, index[0])->name, info->name);
        if (info->uuid[0] == '\0')
            continue;
        n = MOST;
        assert_ok(device_select(test_list, info->uuid, index, &n, NULL));
        assert_int_equal(index[0], i);
    }
}

static void test_select_all(void **state)
{
    (void)state;
    uint32_t index[MOST], n = MOST, usable = 0;
    for (uint32_t i = 0; i + 1 < device_list_count(test_list); i++)
        usable += device_list_at(test_list, i)->available;
    assert_ok(device_select(test_list, "all", index, &n, NULL));
    assert_int_equal(n, usable > 0 ? usable : 1);
    assert_true(usable == 0 || device_list_at(test_list, index[n - 1])->kind != DEVICE_HOST);
}

static void test_select_several(void **state)
{
    (void)state;
    const uint32_t last = device_list_count(test_list) - 1;
    uint32_t index[MOST], n = MOST;
    struct err e = {0};
    assert_ok(device_select(test_list, "host, 0", index, &n, &e));
    assert_int_equal(n, last == 0 ? 1 : 2);
    assert_int_equal(index[0], last);
    assert_int_equal(index[1], 0);
    n = 1;
    assert_int_equal(device_select(test_list, "host,0", index, &n, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "more than 1 device"));
    n = MOST;
    assert_int_equal(device_select(test_list, "0,auto", index, &n, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "twice"));
    static const char *const wrong[] = {"0,", ",0", "host,nothing", "0,99"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        n = MOST;
        assert_int_equal(device_select(test_list, wrong[i], index, &n, &e), ST_NOT_FOUND);
        assert_int_equal(n, 0);
    }
}

static void test_select_unknown(void **state)
{
    (void)state;
    static const char *const wrong[] = {"no such device", "99", "-1", "0x", "4294967296"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint32_t index[MOST], n = MOST;
        struct err e = {0};
        assert_int_equal(device_select(test_list, wrong[i], index, &n, &e), ST_NOT_FOUND);
        assert_non_null(strstr(e.text, wrong[i]));
        assert_non_null(strstr(e.text, "host"));
    }
}

static void test_open_unknown(void **state)
{
    (void)state;
    struct device *d = NULL;
    struct err e = {0};
    struct device_options options = {0};
    assert_int_equal(device_open(test_list, device_list_count(test_list), &options, &d, &e),
                     ST_INVALID);
    assert_null(d);
}

static void test_quota(void **state)
{
    (void)state;
    assert_int_equal(threads_quota("max 100000\n"), 0);
    assert_int_equal(threads_quota("200000 100000\n"), 2);
    assert_int_equal(threads_quota("250000 100000\n"), 2);
    assert_int_equal(threads_quota("50000 100000\n"), 1);
    assert_int_equal(threads_quota("100000 0\n"), 0);
    assert_int_equal(threads_quota(""), 0);
    assert_true(threads_usable(0) >= 1);
    assert_int_equal(threads_usable(1), 1);
}

/* PoCL's environment is set before its first call: pinned threads only when there are several. */
static void test_pocl_environment(void **state)
{
    (void)state;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads_usable(0) > 1)
        assert_string_equal(getenv("POCL_AFFINITY"), "1");
    else if (online > 1)
        assert_string_equal(getenv("POCL_MAX_PTHREAD_COUNT"), "1");
    unsetenv("POCL_AFFINITY");
    unsetenv("POCL_MAX_PTHREAD_COUNT");
    assert_ok(threads_tell_pocl(1, NULL));
    assert_null(getenv("POCL_AFFINITY"));
    if (online > 1)
        assert_string_equal(getenv("POCL_MAX_PTHREAD_COUNT"), "1");
    setenv("POCL_MAX_PTHREAD_COUNT", "7", 1);
    assert_ok(threads_tell_pocl(1, NULL));
    assert_string_equal(getenv("POCL_MAX_PTHREAD_COUNT"), "7");
}

static void test_cache_dir(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/deep/cache", test_cache);
    unsetenv("POCL_CACHE_DIR");
    assert_ok(device_list_cache_dir(NULL, NULL));
    assert_null(getenv("POCL_CACHE_DIR"));
    assert_ok(device_list_cache_dir(path, NULL));
    assert_non_null(strstr(getenv("POCL_CACHE_DIR"), "/deep/cache/pocl"));
    assert_int_equal(access(getenv("POCL_CACHE_DIR"), W_OK), 0);
    assert_ok(device_list_cache_dir("/tmp", NULL)); /* what is set stays */
    assert_non_null(strstr(getenv("POCL_CACHE_DIR"), "/deep/cache/pocl"));
    assert_int_equal(device_list_cache_dir("/proc/nowhere", NULL), ST_IO);
}

/* Error names are those of the specification, and what they mean to callers is fixed. */
static void test_error_names(void **state)
{
    (void)state;
    assert_string_equal(cl_error_name(0), "CL_SUCCESS");
    assert_string_equal(cl_error_name(-5), "CL_OUT_OF_RESOURCES");
    assert_string_equal(cl_error_name(-61), "CL_INVALID_BUFFER_SIZE");
    assert_string_equal(cl_error_name(-1001), "CL_PLATFORM_NOT_FOUND_KHR");
    assert_string_equal(cl_error_name(12345), "unknown OpenCL error");
    assert_int_equal(cl_status(0), ST_OK);
    assert_int_equal(cl_status(-61), ST_NO_DEVICE_MEMORY);
    assert_int_equal(cl_status(-4), ST_NO_DEVICE_MEMORY);
    assert_int_equal(cl_status(-6), ST_NO_MEMORY);
    assert_int_equal(cl_status(-11), ST_BUILD);
    assert_int_equal(cl_status(-36), ST_DEVICE_LOST);
    assert_int_equal(cl_status(-5), ST_DEVICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_is_last),     cmocka_unit_test(test_order),
        cmocka_unit_test(test_select),           cmocka_unit_test(test_select_all),
        cmocka_unit_test(test_select_several),   cmocka_unit_test(test_select_unknown),
        cmocka_unit_test(test_open_unknown),     cmocka_unit_test(test_quota),
        cmocka_unit_test(test_pocl_environment), cmocka_unit_test(test_cache_dir),
        cmocka_unit_test(test_error_names),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
