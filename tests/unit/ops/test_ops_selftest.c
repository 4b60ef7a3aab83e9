/* Choice of variants, and the self-test that takes bad ones out of it (D4, D5, D6). */
#include "ops_test.h"

#include <stdlib.h>
#include <unistd.h>

#include "engine/ops/trial.h"

/* A folder under /tmp with a copy of the kernels, and an empty cache folder beside it. */
struct folders {
    char root[64], kernels[96], cache[96];
};

static void open_folders(struct folders *f)
{
    char command[512];
    snprintf(f->root, sizeof f->root, "/tmp/oinfer-ops-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    snprintf(f->kernels, sizeof f->kernels, "%s/kernels", f->root);
    snprintf(f->cache, sizeof f->cache, "%s/cache", f->root);
    snprintf(command, sizeof command, "cp -r %s/kernels %s", OINFER_SOURCE_DIR, f->kernels);
    assert_int_equal(system(command), 0);
}

static void close_folders(const struct folders *f)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s", f->root);
    assert_int_equal(system(command), 0);
}

/* Replaces elementwise/add.cl by a kernel whose body is given. */
static void write_add(const struct folders *f, const char *body)
{
    char path[160];
    snprintf(path, sizeof path, "%s/elementwise/add.cl", f->kernels);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "KERNEL(LWS) void add_plain(const __global uchar *a, ulong a_offset,\n"
            "    const __global uchar *b, ulong b_offset, __global uchar *y, ulong y_offset,\n"
            "    struct add_params p)\n"
            "{\n"
            "    const __global float *u = (const __global float *)(a + a_offset);\n"
            "    const __global float *v = (const __global float *)(b + b_offset);\n"
            "    __global float *w = (__global float *)(y + y_offset);\n"
            "    const uint i = get_global_id(0);\n"
            "    %s\n"
            "}\n",
            body);
    fclose(file);
}

static const struct variant *choose_add(struct device *d, const char *name)
{
    return variant_choose(d, &(struct variant_query){
                                 .op = OP_ADD, .dtype = -1, .act = -1, .layout = -1, .name = name});
}

/* Opens the device with the folder's kernels, tests `add`, and closes it. */
static void selftest_add(const struct folders *f, struct selftest_row *row)
{
    const struct device_options options = {.cache_dir = f->cache, .kernel_dir = f->kernels};
    struct device *d = ops_first_device(&options);
    if (!d)
        skip();
    const struct variant *v = choose_add(d, "plain");
    assert_non_null(v);
    struct err e = {0};
    if (variant_selftest(d, v, row, &e) != ST_OK)
        fail_msg("%s", e.text);
    /* a failed one is not chosen again in this process, not even by name */
    assert_true((choose_add(d, "plain") == v) == row->passed);
    device_close(d);
}

/* D4: kernels that are wrong in different ways are caught, and say how. */
static void catches_wrong_kernels(void **state)
{
    (void)state;
    struct folders f;
    struct selftest_row row;
    open_folders(&f);
    write_add(&f, "if (i < p.n) w[i] = u[i] + v[i];");
    selftest_add(&f, &row);
    assert_true(row.passed);
    assert_string_equal(row.op, "add");
    assert_string_equal(row.variant, "plain");
    assert_string_equal(row.reason, "");

    write_add(&f, "if (i < p.n) w[i] = u[i] + v[i] * 1.0001f;");
    selftest_add(&f, &row);
    assert_false(row.passed);
    assert_non_null(strstr(row.reason, "y: NMSE"));

    write_add(&f, "if (i < p.n - 1) w[i] = u[i] + v[i];");
    selftest_add(&f, &row);
    assert_false(row.passed);

    write_add(&f, "if (i < p.n + 1) w[i] = u[i] + v[i];");
    selftest_add(&f, &row);
    assert_false(row.passed);
    assert_non_null(strstr(row.reason, "y: wrote outside of its 4004 bytes"));

    write_add(&f, "if (i < p.n) w[i] = i == 7 ? NAN : u[i] + v[i];");
    selftest_add(&f, &row);
    assert_false(row.passed);
    close_folders(&f);
}

/* D6: a kernel that does not build is a failed self-test with the reason, not an error. */
static void reports_build_failures(void **state)
{
    (void)state;
    struct folders f;
    struct selftest_row row;
    open_folders(&f);
    write_add(&f, "this is not OpenCL;");
    selftest_add(&f, &row);
    assert_false(row.passed);
    assert_non_null(strstr(row.reason, "add.cl"));
    assert_non_null(strstr(row.reason, "error"));
    close_folders(&f);
}

/* The verdict is kept on disk for the same source, and not for another one. */
static void verdicts_are_cached_by_source(void **state)
{
    (void)state;
    struct folders f;
    struct selftest_row row;
    open_folders(&f);
    write_add(&f, "if (i < p.n) w[i] = u[i] - v[i];");
    selftest_add(&f, &row);
    assert_false(row.passed || row.cached);
    const struct selftest_row first = row;
    selftest_add(&f, &row);
    assert_true(row.cached);
    assert_false(row.passed);
    assert_string_equal(row.reason, first.reason);
    write_add(&f, "if (i < p.n) w[i] = v[i] + u[i];");
    selftest_add(&f, &row);
    assert_true(row.passed);
    assert_false(row.cached);
    close_folders(&f);
}

/* A failing allocation is an error of the trial, never a verdict, and leaks nothing. */
static void every_allocation_of_a_trial_may_fail(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        skip();
    const struct variant *v = choose_add(d, "plain");
    const union op_params params = {.add = {100}};
    struct trial_result result;
    struct err e = {0};
    assert_int_equal(trial_run(d, v, &params, DT_F32, 1, &result, &e), ST_OK);
    const uint64_t used = device_memory(d).used_bytes;
    for (uint64_t n = 1;; n++) {
        (void)mem_fail_at(n, 0);
        enum status st = trial_run(d, v, &params, DT_F32, 1, &result, &e);
        if (mem_fail_at(0, 0) < n) {
            assert_int_equal(st, ST_OK);
            assert_true(result.passed && n > 4);
            break;
        }
        assert_true(st == ST_OK || st == ST_NO_MEMORY);
        assert_int_equal(device_memory(d).used_bytes, used);
    }
    device_close(d);
}

struct choice {
    struct variant_query query;
    const char *want; /* NULL: there is none */
};

static void assert_choices(struct device *d, const struct choice *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct variant *v = variant_choose(d, &rows[i].query);
        if (!rows[i].want) {
            assert_null(v);
        } else {
            assert_non_null(v);
            assert_string_equal(variant_name(v), rows[i].want);
        }
    }
}

/* Shapes -> variant, on a device that has none of the special ones: forced by layout and format. */
static void heuristic_by_shape(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_device_of(DEVICE_CPU, &options);
    if (!d)
        skip();
    static const struct choice rows[] = {
        {{OP_LINEAR, DT_Q4_0, ACT_F32, LAYOUT_FILE, 1, 64, 64, NULL}, "rows"},
        {{OP_LINEAR, DT_F32, ACT_F32, LAYOUT_FILE, 8, 64, 64, NULL}, "rows_t4"},
        {{OP_LINEAR, DT_Q6_K, ACT_F32, LAYOUT_FILE, 9, 64, 256, NULL}, "tile"},
        {{OP_LINEAR, DT_BF16, ACT_F32, LAYOUT_FILE, 512, 64, 64, NULL}, "tile"},
        {{OP_LINEAR, DT_Q4_0, ACT_F32, LAYOUT_FILE, 512, 64, 64, "rows"}, "rows"},
        {{OP_LINEAR, DT_Q4_0, ACT_F32, LAYOUT_FILE, 1, 64, 64, "naive"}, "naive"},
        {{OP_LINEAR, DT_Q4_0, ACT_F32, LAYOUT_FILE, 1, 64, 64, "nonsense"}, NULL},
        {{OP_LINEAR, DT_Q2_K, ACT_F32, LAYOUT_FILE, 1, 64, 256, NULL}, NULL},
        {{OP_ATTENTION, DT_F16, -1, KV_PLAIN, 1, 0, 64, "split"}, "split"},
        {{OP_ATTENTION, DT_F16, -1, KV_PLAIN, 1, 0, 512, "split"}, NULL}, /* head_dim over 256 */
        {{OP_QUANTIZE, -1, ACT_Q8, -1, 1, 0, 48, "plain"}, NULL},         /* not a multiple of 32 */
    };
    assert_choices(d, rows, sizeof rows / sizeof *rows);
    /* D5: the next one takes the place of one that failed */
    const struct variant *best = variant_choose(d, &rows[0].query);
    variant_mark_set(d, best, VARIANT_FAILED);
    assert_string_equal(variant_name(variant_choose(d, &rows[0].query)), "naive");
    variant_mark_set(d, best, VARIANT_PASSED);
    assert_ptr_equal(variant_choose(d, &rows[0].query), best);
    device_close(d);
}

/* Shapes -> variant, on an NVIDIA GPU with wgmma and what goes with it. */
static void heuristic_by_shape_on_hopper(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_device_of(DEVICE_DISCRETE_GPU, &options);
    if (!d)
        skip();
    static const struct choice rows[] = {
        {{OP_LINEAR, DT_F32, ACT_F32, LAYOUT_FILE, 8, 64, 64, NULL}, "floats_t8"},
        {{OP_LINEAR, DT_Q4_0, ACT_F32, LAYOUT_FILE, 512, 64, 64, "rows"}, "rows"},
        {{OP_LINEAR, DT_Q4_0, ACT_F32, LAYOUT_FILE, 1, 64, 64, "naive"}, "naive"},
        {{OP_LINEAR, DT_Q2_K, ACT_F32, LAYOUT_FILE, 1, 64, 256, NULL}, NULL},
        {{OP_ATTENTION, DT_F16, -1, KV_PLAIN, 1, 0, 64, "split"}, "split"},
    };
    if (device_caps(d) & CAP_PTX_WGMMA)
        assert_choices(d, rows, sizeof rows / sizeof *rows);
    device_close(d);
}

static void host_has_only_references(void **state)
{
    (void)state;
    struct device *d = ops_host();
    struct variant_query query = {.op = OP_LINEAR, .dtype = DT_Q4_0, .act = ACT_F32, .n_tokens = 1};
    assert_string_equal(variant_name(variant_choose(d, &query)), "ref");
    query.layout = LAYOUT_R16;
    assert_null(variant_choose(d, &query));
    query.layout = LAYOUT_FILE;
    query.name = "rows";
    assert_null(variant_choose(d, &query));
    assert_non_null(variant_at(d, OP_ADD, 0));
    assert_null(variant_at(d, OP_ADD, 1));
    struct selftest_row row;
    assert_int_equal(variant_selftest(d, variant_at(d, OP_ADD, 0), &row, NULL), ST_OK);
    assert_true(row.passed);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catches_wrong_kernels),
        cmocka_unit_test(reports_build_failures),
        cmocka_unit_test(verdicts_are_cached_by_source),
        cmocka_unit_test(every_allocation_of_a_trial_may_fail),
        cmocka_unit_test(heuristic_by_shape),
        cmocka_unit_test(heuristic_by_shape_on_hopper),
        cmocka_unit_test(host_has_only_references),
    };
    return cmocka_run_group_tests(tests, ops_open_list, ops_close_list);
}
