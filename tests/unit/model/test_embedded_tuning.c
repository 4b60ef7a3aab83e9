/* Tuned values in a model's file: put to use on load where they are of this device, and only there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/ops/variant.h"
#include "engine/tune/store.h"
#include "tests/assert_ok.h"
#include "tests/golden/tiny.h"

#define M          256u
#define K          256u
#define TUNED_ROWS 8

static char plain[64], tuned[80];
static struct device_list *devices;

static struct variant_query query(void)
{
    return (struct variant_query){.op = OP_LINEAR,
                                  .dtype = (int)tiny_default.dtype,
                                  .act = ACT_F32,
                                  .layout = LAYOUT_FILE,
                                  .n_tokens = 1,
                                  .m = M,
                                  .k = K,
                                  .name = "rows"};
}

/* Rows of a block of the variant that is chosen before and after a model is loaded. */
struct chosen {
    uint32_t before, after;
};

static struct chosen chosen_rows(const char *path)
{
    const struct engine_options options = {0};
    const struct load_options load = {.n_ctx = 64};
    struct engine *engine;
    struct model_file *file;
    struct model *model;
    const struct variant_query q = query();
    ASSERT_OK(engine_open(devices, 0, &options, &engine, e));
    ASSERT_OK(model_file_open(path, &file, e));
    struct chosen rows;
    rows.before = variant_rows_of(variant_choose(engine_device(engine), &q));
    ASSERT_OK(model_load(engine, file, &load, &model, e));
    rows.after = variant_rows_of(variant_choose(engine_device(engine), &q));
    model_close(model);
    model_file_close(file);
    engine_close(engine);
    return rows;
}

/* A record of this device, or of another driver; what the file of the model becomes. */
static void embed(const char *driver, uint64_t change_source)
{
    const struct engine_options options = {0};
    struct engine *engine;
    struct model_file *file;
    struct tune_store *store;
    const struct variant_query q = query();
    ASSERT_OK(engine_open(devices, 0, &options, &engine, e));
    struct device *d = engine_device(engine);
    struct tune_record r = {.shape = {.op = OP_LINEAR, .n_dims = 3, .dims = {M, K, 1}},
                            .variant = "rows",
                            .dtype = tiny_default.dtype,
                            .version = TUNER_VERSION,
                            .settings = "ROWS=8 LWS=64 RUN=1 UNROLL=1",
                            .ns = 1000,
                            .standard_ns = 2000,
                            .work = 2.0 * M * K};
    snprintf(r.device, sizeof r.device, "%s", device_info(d)->name);
    snprintf(r.driver, sizeof r.driver, "%s", driver ? driver : device_info(d)->driver);
    ASSERT_OK(variant_source_hash(d, variant_choose(d, &q), &r.source, e));
    r.source ^= change_source;
    uint32_t n = 0;
    ASSERT_OK(store_open(&store, e));
    ASSERT_OK(store_add(store, &r, e));
    ASSERT_OK(model_file_open(plain, &file, e));
    ASSERT_OK(model_file_embed(file, store, tuned, &n, e));
    assert_int_equal(n, 1);
    model_file_close(file);
    store_close(store);
    engine_close(engine);
}

static void values_of_the_file_are_used_where_they_hold(void **state)
{
    (void)state;
    if (device_list_count(devices) == 1) { /* host */
        print_message("skipped: no OpenCL device. %s\n", device_list_hint(devices));
        skip();
    }
    ASSERT_OK(tiny_write(&tiny_default, plain, e));
    const struct chosen none = chosen_rows(plain);
    assert_int_equal(none.after, none.before);
    assert_int_not_equal(none.before, TUNED_ROWS);
    embed(NULL, 0);
    struct chosen rows = chosen_rows(tuned);
    assert_int_equal(rows.before, none.before);
    assert_int_equal(rows.after, TUNED_ROWS);
    embed("another driver", 0);
    assert_int_equal(chosen_rows(tuned).after, none.before);
    embed(NULL, 1); /* of other kernel sources */
    assert_int_equal(chosen_rows(tuned).after, none.before);
}

static int open_list(void **state)
{
    (void)state;
    snprintf(plain, sizeof plain, "/tmp/oinfer_embedded_%d.gguf", (int)getpid());
    snprintf(tuned, sizeof tuned, "%s.tuned", plain);
    return device_list_open(0, &devices, NULL) == ST_OK ? 0 : -1;
}

static int close_list(void **state)
{
    (void)state;
    remove(plain);
    remove(tuned);
    device_list_close(devices);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_the_file_are_used_where_they_hold),
    };
    return cmocka_run_group_tests(tests, open_list, close_list);
}
