/* Rehearsals on every CPU that is used through OpenCL: compilers stay out of the process that loads
 * the model, and of the next one altogether; a child that cannot work costs nothing but time. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/assert_ok.h"
#include "tests/golden/tiny.h"

#define WAIT_TENTHS 1200 /* for the child that stores, on a busy machine */

static char folder[64], path[96];
static struct device_list *devices;

/* The first device whose compiler is kept in a child; the host where there is none. */
static uint32_t device_index(void)
{
    for (uint32_t i = 0; i < device_list_count(devices); i++) {
        const struct device_info *info = device_list_at(devices, i);
        if (info->available && info->kind == DEVICE_CPU &&
            strcmp(info->platform, "Portable Computing Language") == 0)
            return i;
    }
    skip();
    return 0;
}

static enum status load(const char *cache, const char *command, const struct load_options *options,
                        struct load_report *report, struct err *e)
{
    const struct engine_options engine = {.device = {.cache_dir = cache, .trial_command = command},
                                          .stepwise = true};
    struct engine *g = NULL;
    struct model_file *f = NULL;
    struct model *m = NULL;
    enum status status = engine_open(devices, device_index(), &engine, &g, e);
    if (status == ST_OK)
        status = model_file_open(path, &f, e);
    if (status == ST_OK)
        status = model_load(g, f, options, &m, e);
    if (status == ST_OK)
        *report = *model_load_report(m);
    model_close(m);
    model_file_close(f);
    engine_close(g);
    return status;
}

static uint32_t count_files(const char *cache, const char *name)
{
    char sub[128];
    snprintf(sub, sizeof sub, "%s/%s", cache, name);
    DIR *d = opendir(sub);
    uint32_t n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += strstr(entry->d_name, ".bin") != NULL;
    if (d)
        closedir(d);
    return n;
}

/* The child tests every kernel and the one it leaves behind stores the programs; a later load finds
 * both and compiles nothing. */
static void test_later_loads_compile_nothing(void **state)
{
    (void)state;
    char cache[96];
    struct load_report report = {0};
    const struct load_options options = {.n_ctx = 64};
    snprintf(cache, sizeof cache, "%s/later", folder);
    ASSERT_OK(load(cache, "/proc/self/exe", &options, &report, e));
    assert_int_equal(count_files(cache, "rehearsals"), 1);
    assert_true(count_files(cache, "selftest") > 5);
    for (int i = 0; i < WAIT_TENTHS; i++) {
        ASSERT_OK(load(cache, "/proc/self/exe", &options, &report, e));
        if (report.kernels_built == 0)
            break;
        nanosleep(&(struct timespec){0, 100 * 1000 * 1000}, NULL);
    }
    assert_int_equal(report.kernels_built, 0);
    assert_true(report.kernels_cached > 5);
    assert_int_equal(count_files(cache, "rehearsals"), 1);
    const struct load_options other = {.n_ctx = 48};
    ASSERT_OK(load(cache, "/proc/self/exe", &other, &report, e));
    assert_int_equal(count_files(cache, "rehearsals"), 2);
}

static void remove_programs(const char *cache)
{
    char command[192];
    snprintf(command, sizeof command, "rm -f '%s'/programs/*.bin", cache);
    assert_int_equal(system(command), 0);
    assert_int_equal(count_files(cache, "programs"), 0);
}

/* A cache that lost its programs and not its stamps is filled again. */
static void test_lost_programs_come_back(void **state)
{
    (void)state;
    char cache[96];
    struct load_report report = {0};
    const struct load_options options = {.n_ctx = 64};
    snprintf(cache, sizeof cache, "%s/later", folder); /* full, by the test before */
    remove_programs(cache);
    ASSERT_OK(load(cache, "/proc/self/exe", &options, &report, e));
    assert_true(report.kernels_built > 5);
    for (int i = 0; i < WAIT_TENTHS && report.kernels_built > 0; i++) {
        nanosleep(&(struct timespec){0, 100 * 1000 * 1000}, NULL);
        ASSERT_OK(load(cache, "/proc/self/exe", &options, &report, e));
    }
    assert_int_equal(report.kernels_built, 0);
}

/* Commands that are not this program: the model is loaded all the same. */
static void test_unusable_commands(void **state)
{
    (void)state;
    static const char *const commands[] = {"/nonexistent/program", "/bin/false"};
    const struct load_options options = {.n_ctx = 64};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char cache[96];
        struct load_report report = {0};
        snprintf(cache, sizeof cache, "%s/unusable%zu", folder, i);
        ASSERT_OK(load(cache, commands[i], &options, &report, e));
        assert_int_equal(count_files(cache, "rehearsals"), 0);
        assert_true(report.kernels_built > 5);
    }
}

static bool refuse(void *user, uint64_t done, uint64_t total, uint32_t built)
{
    (void)total;
    assert_int_equal(done, 0);
    assert_int_equal(built, 0);
    ++*(uint32_t *)user;
    return false;
}

static void test_cancelled(void **state)
{
    (void)state;
    char cache[96];
    uint32_t n_calls = 0;
    struct load_report report;
    struct err e = {0};
    const struct load_options options = {.n_ctx = 64, .progress = refuse, .user = &n_calls};
    snprintf(cache, sizeof cache, "%s/cancelled", folder);
    assert_int_equal(load(cache, "/proc/self/exe", &options, &report, &e), ST_CANCELLED);
    assert_int_equal(n_calls, 1);
    assert_int_equal(count_files(cache, "rehearsals"), 0);
}

static int open_all(void **state)
{
    (void)state;
    struct err e;
    snprintf(folder, sizeof folder, "/tmp/oinfer-rehearsal-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    return tiny_write(&tiny_default, path, &e) == ST_OK &&
                   device_list_open(0, &devices, &e) == ST_OK
               ? 0
               : -1;
}

static int close_all(void **state)
{
    (void)state;
    char command[128];
    device_list_close(devices);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    int child = engine_child_main(argc, argv);
    if (child >= 0)
        return child;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_later_loads_compile_nothing),
        cmocka_unit_test(test_lost_programs_come_back),
        cmocka_unit_test(test_unusable_commands),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
