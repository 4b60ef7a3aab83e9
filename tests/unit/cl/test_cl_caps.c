/* Capabilities and peaks: probed by value, cached, and right where the truth is known. */
#include "tests/unit/cl/cl_test.h"

#include "engine/base/mem.h"
#include "engine/cl/cpuflags.h"
#include "engine/cl/impl.h"

static void test_names(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 19; i++) {
        const char *name = device_cap_name((enum device_cap)(1u << i));
        assert_non_null(name);
        for (uint32_t j = 0; j < i; j++)
            assert_string_not_equal(name, device_cap_name((enum device_cap)(1u << j)));
        assert_non_null(caps__macro((enum device_cap)(1u << i)));
    }
    assert_null(device_cap_name((enum device_cap)(1u << 30)));
    assert_string_equal(device_cap_name(CAP_ASM_VNNI512), "vnni512");
    assert_string_equal(caps__macro(CAP_ASM_VNNI512), "CAP_ASM_VNNI512");
}

static struct device *open_cached(uint32_t index, const char *cache)
{
    struct device_options options = {.cache_dir = cache};
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(test_list, index, &options, &d, &e) != ST_OK)
        fail_msg("%s", e.text);
    return d;
}

/* Exactly one of cpu and gpu; nothing that this CPU's flags rule out; a second open, from the disk
 * cache or probed anew, says the same. */
static void test_consistent(void **state)
{
    (void)state;
    uint32_t flags = cpuflags_read();
    for (uint32_t i = 0; i + 1 < device_list_count(test_list); i++) {
        if (!device_list_at(test_list, i)->available)
            continue;
        struct device *d = open_cached(i, NULL);
        uint32_t caps = device_caps(d);
        bool cpu = device_info(d)->kind == DEVICE_CPU;
        bool wide = cpu && device_info(d)->vector_width_f32 > 1;
        assert_int_equal(caps & (CAP_CPU | CAP_GPU), wide ? CAP_CPU : CAP_GPU);
        if ((flags & CPU_FLAG_VNNI512) == 0 || !cpu)
            assert_int_equal(caps & CAP_ASM_VNNI512, 0);
        if ((flags & CPU_FLAG_AVX2) == 0 || !cpu)
            assert_int_equal(caps & CAP_ASM_AVX2, 0);
        if ((flags & CPU_FLAG_BF16) == 0 || !cpu)
            assert_int_equal(caps & CAP_ASM_BF16, 0);
        if (cpu)
            assert_int_equal(caps & (CAP_PTX | CAP_PTX_MMA | CAP_PTX_WGMMA), 0);
        device_close(d);
        for (int round = 0; round < 2; round++) {
            d = open_cached(i, test_cache);
            assert_int_equal(device_caps(d), caps);
            if (round == 1) /* not one program was needed */
                assert_int_equal(kernel_stats(d).built + kernel_stats(d).cached, 0);
            device_close(d);
        }
    }
}

/* D1, D2: half is decided by arithmetic, not by lists. PoCL 3.1 on x86 has none and does not say
 * otherwise; what it does have is found. */
static void test_pocl(void **state)
{
    (void)state;
    uint32_t flags = cpuflags_read();
    for (uint32_t i = 0; i + 1 < device_list_count(test_list); i++) {
        const struct device_info *info = device_list_at(test_list, i);
        if (!info->available || strcmp(info->platform, "Portable Computing Language") != 0 ||
            strncmp(info->driver, "3.1", 3) != 0)
            continue;
        struct device *d = open_cached(i, test_cache);
        uint32_t caps = device_caps(d);
        assert_int_equal(caps & CAP_HALF, 0);
        assert_true((caps & CAP_FP64) != 0 && (caps & CAP_IMAGES) != 0);
        assert_true((caps & CAP_PERSISTENT) != 0 && (caps & CAP_BIG_LOCAL) != 0);
        assert_int_equal((caps & CAP_ASM_X86) != 0, (flags & CPU_FLAG_X86) != 0);
        assert_int_equal((caps & CAP_ASM_AVX2) != 0, (flags & CPU_FLAG_AVX2) != 0);
        assert_int_equal((caps & CAP_ASM_VNNI512) != 0, (flags & CPU_FLAG_VNNI512) != 0);
        assert_int_equal((caps & CAP_ASM_BF16) != 0, (flags & CPU_FLAG_BF16) != 0);
        assert_int_equal((caps & CAP_ASM_F16C512) != 0, (flags & CPU_FLAG_AVX512) != 0);
        device_close(d);
    }
}

/* A probe that runs but computes something wrong clears its capability and nothing else (S46): the
 * kernels come from a folder in which the probe of doubles is spoilt. */
static void test_wrong_result(void **state)
{
    (void)state;
    char command[512], folder[96];
    struct device *d = test_open_device(0);
    uint32_t good = device_caps(d);
    bool host = device_is_host(d);
    device_close(d);
    if (host || (good & CAP_FP64) == 0)
        skip();
    snprintf(folder, sizeof folder, "%s/kernels", test_cache);
    snprintf(command, sizeof command,
             "cp -r '%s/kernels' '%s' && sed -i 's/16777217ul/16777218ul/' '%s/probe/fp64.cl'",
             OINFER_SOURCE_DIR, folder, folder);
    assert_int_equal(system(command), 0);
    struct device_options options = {.kernel_dir = folder};
    assert_ok(device_open(test_list, 0, &options, &d, NULL));
    assert_int_equal(device_caps(d), good & ~(uint32_t)CAP_FP64);
    device_close(d);
}

/* Kernels see each proven capability as a macro, and no other. */
static void test_macros(void **state)
{
    (void)state;
    static const char text[] = "#ifdef CAP_CPU\n__kernel void cpu(void) {}\n#endif\n"
                               "#ifdef CAP_GPU\n__kernel void gpu(void) {}\n#endif\n"
                               "#ifdef CAP_PTX\n__kernel void ptx(void) {}\n#endif\n";
    struct device *d = test_open_device(0);
    if (device_is_host(d)) {
        device_close(d);
        skip();
    }
    struct kernel *k = NULL;
    uint32_t caps = device_caps(d);
    assert_ok(
        kernel_open_source(d, "macros.cl", text, "", (caps & CAP_CPU) ? "cpu" : "gpu", &k, NULL));
    kernel_close(k);
    assert_int_equal(
        kernel_open_source(d, "macros.cl", text, "", (caps & CAP_CPU) ? "gpu" : "cpu", &k, NULL),
        ST_BUILD);
    device_close(d);
}

/* S46: the measured speed of every device is positive, and is measured once: without a cache it is
 * kept with the device. With one it never falls, and stays as it is from some opening on. */
static void test_peaks(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_list_count(test_list); i++) {
        const struct device_info *info = device_list_at(test_list, i);
        if (!info->available || strcmp(info->platform, "rusticl") == 0 ||
            strcmp(info->platform, "Oclgrind") == 0)
            continue; /* those take very long */
        struct device_peaks first, second;
        struct device *d = open_cached(i, NULL);
        assert_ok(device_measure_peaks(d, &first, NULL));
        assert_ok(device_measure_peaks(d, &second, NULL));
        assert_memory_equal(&first, &second, sizeof first);
        device_close(d);
        d = open_cached(i, test_cache);
        assert_ok(device_measure_peaks(d, &first, NULL));
        assert_true(first.read_gb_s > 0.01 && first.copy_gb_s > 0.01 && first.f32_gflop_s > 0.01);
        assert_int_equal(device_memory(d).used_bytes, 0);
        device_close(d);
        for (int n = 1; n <= PEAKS_MEASURED && info->kind != DEVICE_HOST; n++) {
            d = open_cached(i, test_cache);
            assert_ok(device_measure_peaks(d, &second, NULL));
            assert_true(second.read_gb_s >= first.read_gb_s);
            assert_true(second.copy_gb_s >= first.copy_gb_s);
            assert_true(second.f32_gflop_s >= first.f32_gflop_s);
            if (n == PEAKS_MEASURED)
                assert_memory_equal(&first, &second, sizeof first);
            first = second;
            device_close(d);
        }
    }
}

/* Every allocation of opening, using and closing a device fails once: a clean error each time. */
static enum status use_everything(struct err *e)
{
    struct device_list *list = NULL;
    struct device *d = NULL;
    struct buffer *b = NULL;
    struct kernel *k = NULL;
    struct device_options options = {.cache_dir = test_cache};
    enum status status = device_list_open(0, &list, e);
    if (status == ST_OK)
        status = device_open(list, 0, &options, &d, e);
    if (status == ST_OK)
        status = buffer_open(d, 4096, BUFFER_IO, "b", &b, e);
    if (status == ST_OK && !device_is_host(d))
        status = kernel_open(d, "probe/local.cl", "-DBYTES=512", "probe", &k, e);
    kernel_close(k);
    buffer_close(b);
    device_close(d);
    device_list_close(list);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct err e = {0};
    assert_ok(use_everything(&e)); /* fills the cache */
    mem_fail_at(0, 0);
    assert_ok(use_everything(&e));
    uint64_t n = mem_fail_at(0, 0), failures = 0;
    assert_true(n > 5);
    for (uint64_t i = 1; i <= n; i++)
        for (int sticky = 0; sticky < 2; sticky++) {
            err_clear(&e);
            mem_fail_at(i, sticky);
            enum status status = use_everything(&e);
            mem_fail_at(0, 0);
            if (status != ST_OK && status != ST_NO_MEMORY && status != ST_NO_DEVICE_MEMORY)
                fail_msg("allocation %llu: %s", (unsigned long long)i, e.text);
            assert_int_equal(status, e.status);
            failures += status != ST_OK;
        }
    assert_true(failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_consistent),
        cmocka_unit_test(test_pocl),      cmocka_unit_test(test_wrong_result),
        cmocka_unit_test(test_macros),    cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
