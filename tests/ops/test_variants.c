/* Every variant of every op, of every dtype, on every shape of cases.h, on every device found.
 *
 * D10: how far a result may be off follows from the types that round (engine/ops/trial_compare.c).
 *
 *   test_variants [--small | --medium] [--far] [--device TEXT] [--variant OP/NAME or OP/]
 *
 * --small, --medium: only shapes up to that size. --far: two small shapes of each, all tensors
 * behind 4 GiB of a buffer of which only the ends exist; nothing may be written at the near one.
 * --device: only devices whose name or platform contains TEXT; if there is none, the program says
 * so and exits with 77 (skipped).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "engine/base/clock.h"
#include "engine/ops/trial.h"
#include "engine/ops/variant.h"
#include "far.h"

#define EXIT_SKIPPED 77
#define FAR_SHAPES   2
#define END_BYTES    ((uint64_t)8 << 20) /* at both ends of --far: all tensors of a small shape */

static struct {
    struct device_list *list;
    struct device *device;
    int size; /* the largest shapes */
    bool far;
    const char *wanted, *variant;
    uint32_t n_trials; /* of all ops */
    struct far_ends ends;
} test = {.size = MANY_BLOCKS};

/* Can the variant be asked for this shape at all (what op_check would refuse otherwise)? */
static bool suits(const struct variant *v, enum dtype dtype, const struct op_case *c)
{
    const struct op_call call = {.op = c->op, .params = c->params};
    const uint32_t columns = op_columns(&call);
    uint64_t row_bytes;
    if ((v->k_multiple > 0 && columns % v->k_multiple != 0) ||
        (v->k_max > 0 && columns > v->k_max) || op_depth(&call) > variant_depth_max(test.device, v))
        return false;
    if (variant_refuses(v, &call) || (c->size == MANY_BLOCKS && v->block_cost == 0))
        return false;
    if (c->op == OP_ROPE_KV || c->op == OP_ATTENTION)
        return dtype_row_bytes(dtype, columns, &row_bytes);
    if ((c->op == OP_LINEAR || c->op == OP_EMBED || c->op == OP_REPACK) &&
        (!dtype_row_bytes(dtype, columns, &row_bytes) ||
         layout_bytes(dtype, (enum weight_layout)v->layout, 16, columns) == 0))
        return false;
    if (c->op == OP_LINEAR && v->act != ACT_F32 && columns % 32 != 0)
        return false;
    if (c->op == OP_LINEAR && c->params.linear.epilogue == LINEAR_SWIGLU)
        return v->layout != LAYOUT_FILE;
    return true;
}

static bool is_wanted(const struct variant *v)
{
    char name[96];
    snprintf(name, sizeof name, "%s/%s", op_name(v->op), v->name);
    const size_t length = test.variant ? strlen(test.variant) : 0;
    return length == 0 || strcmp(test.variant, name) == 0 ||
           (test.variant[length - 1] == '/' && strncmp(test.variant, name, length) == 0);
}

/* All variants and shapes of one op; every failure is printed before the test fails. */
static void try_op(enum op_id op)
{
    uint32_t n_trials = 0, n_failed = 0;
    double worst = 0;
    const uint64_t start_ns = clock_now_ns();
    const struct variant *v;
    for (uint32_t i = 0; (v = variant_at(test.device, op, i)) != NULL; i++) {
        const enum dtype dtype = v->dtype == DT_ANY ? DT_F32 : (enum dtype)v->dtype;
        uint32_t n_shapes = 0;
        for (size_t j = 0; is_wanted(v) && j < OP_CASES; j++) {
            const struct op_case *c = &op_cases[j];
            if (c->op != op || c->size > test.size || !suits(v, dtype, c))
                continue;
            if (test.far && n_shapes++ >= FAR_SHAPES)
                break;
            struct trial_result result = {.passed = false};
            struct err e = {0};
            enum status st = trial_run_in(test.device, v, &c->params, dtype, 1000 + j,
                                          test.ends.buffer, test.far ? FAR_BYTES : 0, &result, &e);
            n_trials++;
            if (st != ST_OK || !result.passed) {
                n_failed++;
                print_error("%s %s %s act %u layout %u, case %zu: %s\n", op_name(op), v->name,
                            dtype_name(dtype), v->act, v->layout, j,
                            st != ST_OK ? e.text : result.reason);
            } else if (result.error / result.bound > worst) {
                worst = result.error / result.bound;
            }
        }
    }
    print_message("%s: %u trials, worst error %.2g of its bound, %.1f s\n", op_name(op), n_trials,
                  worst, (double)(clock_now_ns() - start_ns) * 1e-9);
    test.n_trials += n_trials;
    assert_int_equal(n_failed, 0);
    if (test.far)
        far_ends_untouched(test.device, &test.ends);
    assert_true(n_trials > 0 || test.variant || !variant_at(test.device, op, 0));
}

#define X(id, name, params, n, ...)        \
    static void try_##params(void **state) \
    {                                      \
        (void)state;                       \
        try_op(id);                        \
    }
#include "engine/ops/ops.def"
#undef X

static int run_device(const struct device_info *info)
{
    const struct CMUnitTest tests[] = {
#define X(id, name, params, n, ...) cmocka_unit_test(try_##params),
#include "engine/ops/ops.def"
#undef X
    };
    const struct device_options options = {0};
    struct err e = {0};
    print_message("device %u: %s, %s\n", info->index, info->name, info->platform);
    if (device_open(test.list, info->index, &options, &test.device, &e) != ST_OK) {
        print_error("device %u: %s\n", info->index, e.text);
        return 1;
    }
    int failed = 0;
    if (test.far && !far_ends_open(test.device, END_BYTES, &test.ends, &e))
        print_message("device %u: %s skipped: %s\n", info->index, info->name, e.text);
    else
        failed = cmocka_run_group_tests_name(info->name, tests, NULL, NULL);
    far_ends_close(&test.ends);
    device_close(test.device);
    return failed;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--small") == 0)
            test.size = SMALL;
        else if (strcmp(argv[i], "--medium") == 0)
            test.size = MEDIUM;
        else if (strcmp(argv[i], "--far") == 0)
            test.size = SMALL, test.far = true;
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            test.wanted = argv[++i];
        else if (strcmp(argv[i], "--variant") == 0 && i + 1 < argc)
            test.variant = argv[++i];
    }
    struct err e = {0};
    if (device_list_open(0, &test.list, &e) != ST_OK) {
        print_error("%s\n", e.text);
        return 1;
    }
    int failed = 0, n_run = 0;
    for (uint32_t i = 0; i < device_list_count(test.list); i++) {
        const struct device_info *info = device_list_at(test.list, i);
        if (info->kind == DEVICE_HOST)
            continue;
        if (test.wanted && !strstr(info->name, test.wanted) && !strstr(info->platform, test.wanted))
            continue;
        if (!info->available) {
            print_message("device %u: %s skipped: %s\n", i, info->name, info->note);
            continue;
        }
        failed += run_device(info);
        n_run++;
    }
    if (n_run == 0)
        print_message("skipped: no OpenCL device%s%s. %s\n", test.wanted ? " called " : "",
                      test.wanted ? test.wanted : "", device_list_hint(test.list));
    device_list_close(test.list);
    if (n_run > 0 && test.n_trials == 0 && !test.far) {
        print_error("nothing was tried: no variant is called %s\n", test.variant);
        return 1;
    }
    return n_run == 0 || (test.n_trials == 0 && !failed) ? EXIT_SKIPPED : failed != 0;
}
