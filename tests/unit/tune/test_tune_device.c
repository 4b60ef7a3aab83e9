/* On a device: points are built, checked and timed; what is wrong is recorded; what was found is
 * put to use by the choice of variants. */
#include "tune_test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/ops/rules.h"
#include "engine/tune/job.h"
#include "engine/tune/tuned.h"

#define SLOW_POINTS 4 /* measured of a space: each is a build */

static struct shape shape_from(enum op_id op, const char *text)
{
    struct shape s;
    struct err e = {0};
    if (shape_parse(op, text, &s, &e) != ST_OK)
        fail_msg("%s", e.text);
    return s;
}

static const struct variant *by_name(struct device *d, enum op_id op, const char *name, int dtype)
{
    const struct variant *v;
    for (uint32_t i = 0; (v = variant_at(d, op, i)) != NULL; i++)
        if (strcmp(variant_name(v), name) == 0 && (v->dtype == dtype || v->dtype == DT_ANY))
            return v;
    fail_msg("no %s %s", op_name(op), name);
    return NULL;
}

static void points_are_checked_and_timed(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    const struct tuner_options how = {.search = SEARCH_BAYES, .budget = SLOW_POINTS, .seed = 1};
    const struct shape shape = shape_from(OP_LINEAR, "m=64,k=256");
    struct tuner *t;
    struct err e = {0};
    if (tuner_open(d, by_name(d, OP_LINEAR, "rows", DT_Q4_0), &shape, DT_Q4_0, &how, &t, &e) !=
        ST_OK)
        fail_msg("%s", e.text);
    struct tuner_options small = how;
    struct tuner *none;
    small.max_bytes = 1000;
    assert_int_equal(
        tuner_open(d, by_name(d, OP_LINEAR, "rows", DT_Q4_0), &shape, DT_Q4_0, &small, &none, &e),
        ST_NO_DEVICE_MEMORY);
    assert_non_null(strstr(e.text, "the limit is 1000"));
    struct tune_point point;
    double best, standard, least = INFINITY;
    uint32_t n = 0, done, most;
    for (bool more = true;; n++) {
        assert_int_equal(tuner_step(t, &point, &more, &e), ST_OK);
        if (!more)
            break;
        assert_string_equal(point.reason, "");
        assert_true(point.ns > 100 && point.ns < 1e10);
        if (n == 0)
            assert_int_equal(point.point, tuner_space(t)->standard);
        least = fmin(least, point.ns);
        tuner_progress(t, &done, &most);
        assert_true(done == n + 1 && most == SLOW_POINTS);
    }
    assert_int_equal(n, SLOW_POINTS);
    assert_true(tuner_best(t, &best, &standard) != SPACE_NONE);
    assert_true(best == least && standard >= best);
    tuner_close(t);
    device_close(d);
}

/* Puts `insert` before the first `before` of a file. */
static void edit_file(const char *path, const char *before, const char *insert)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    const char *at = strstr(text, before);
    assert_non_null(at);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, insert, at);
    fclose(f);
}

/* A kernel folder whose softmax is wrong in groups of 64, writes out of bounds in groups of 128 and
 * does not build in groups of 256: those points are invalid, with the reason; the others are not.
 */
static void broken_points_are_recorded(void **state)
{
    (void)state;
    char folder[] = "/tmp/oinfer-tune-XXXXXX", command[512], path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp -R '%s/kernels/.' '%s'", OINFER_SOURCE_DIR, folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/softmax/row.cl", folder);
    edit_file(path, "static void softmax_write(",
              "#if LWS == 64\n#define real_store(p, i, v) real_store(p, i, (v) * 1.5f)\n"
              "#elif LWS == 128\n#define real_store(p, i, v) real_store(p, (i) + 1, v)\n"
              "#elif LWS == 256\n#error broken\n#endif\n");
    const struct device_options options = {.kernel_dir = folder};
    struct device *d = ops_first_device(&options);
    if (d) {
        const struct tuner_options how = {.search = SEARCH_GRID};
        const struct shape shape = shape_from(OP_SOFTMAX, "rows=3,len=40");
        struct tuner *t;
        struct err e = {0};
        if (tuner_open(d, by_name(d, OP_SOFTMAX, "three_pass", DT_F32), &shape, DT_F32, &how, &t,
                       &e) != ST_OK)
            fail_msg("%s", e.text);
        struct tune_point point;
        bool more = true;
        for (uint32_t n = 0;; n++) {
            assert_int_equal(tuner_step(t, &point, &more, &e), ST_OK);
            if (!more)
                break;
            print_message("%s: %.0f ns %s\n", point.settings, point.ns, point.reason);
            if (strcmp(point.settings, "LWS=32") == 0)
                assert_true(point.ns > 0);
            else
                assert_true(point.ns == 0 && point.reason[0] != '\0');
            if (strcmp(point.settings, "LWS=64") == 0)
                assert_non_null(strstr(point.reason, "wrong"));
            if (strcmp(point.settings, "LWS=128") == 0)
                assert_non_null(strstr(point.reason, "outside"));
        }
        double best, standard;
        char text[SPACE_TEXT_BYTES];
        const uint32_t point_best = tuner_best(t, &best, &standard);
        assert_string_equal(space_text(tuner_space(t), point_best, text), "LWS=32");
        tuner_close(t);
        device_close(d);
    }
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* A record for this device with made-up times. */
static struct tune_record record_for(struct device *d, const struct variant *v, enum dtype dtype,
                                     struct shape shape, const char *settings, double ns)
{
    struct tune_record r = {
        .shape = shape, .dtype = dtype, .version = TUNER_VERSION, .ns = ns, .work = 1e6};
    snprintf(r.variant, sizeof r.variant, "%s", variant_name(v));
    snprintf(r.device, sizeof r.device, "%s", device_info(d)->name);
    snprintf(r.driver, sizeof r.driver, "%s", device_info(d)->driver);
    snprintf(r.settings, sizeof r.settings, "%s", settings);
    assert_int_equal(variant_source_hash(d, v, &r.source, NULL), ST_OK);
    return r;
}

static uint32_t apply(struct device *d, const struct tune_record *r, uint32_t n, bool fill)
{
    struct tune_store *s;
    uint32_t taken;
    assert_int_equal(store_open(&s, NULL), ST_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(store_add(s, &r[i], NULL), ST_OK);
    assert_int_equal(tuned_apply(d, s, fill, &taken, NULL), ST_OK);
    store_close(s);
    return taken;
}

static const struct variant *ask(struct device *d, const char *shape)
{
    struct op_call call = {.op = OP_SOFTMAX};
    const struct shape s = shape_from(OP_SOFTMAX, shape);
    shape_params(&s, &call.params);
    return variant_for_call(d, &call, DT_F32, NULL);
}

static void tuned_values_decide_the_choice(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    const char *here = "rows=100,len=1000", *away = "rows=800,len=100000";
    const struct shape shape = shape_from(OP_SOFTMAX, here);
    const struct variant *heuristic = ask(d, here), *far_away = ask(d, away);
    const struct variant *online = by_name(d, OP_SOFTMAX, "online", DT_F32);
    assert_ptr_not_equal(heuristic, online);
    struct tune_record r = record_for(d, online, DT_F32, shape, "LWS=32", 100);
    assert_int_equal(apply(d, &r, 1, false), 1);
    assert_ptr_equal(ask(d, here), heuristic); /* which was not measured itself */

    char text[SPACE_TEXT_BYTES];
    struct space *space;
    assert_int_equal(space_open(d, heuristic, &space, NULL), ST_OK);
    space_text(space, space->standard, text);
    space_close(space);
    struct tune_record both[] = {record_for(d, heuristic, DT_F32, shape, text, 104), r};
    assert_int_equal(apply(d, both, 2, false), 2);
    assert_ptr_equal(ask(d, here), heuristic); /* the other is no faster than noise */
    both[0].ns = 300;
    assert_int_equal(apply(d, both, 2, false), 2);
    const struct variant *tuned = ask(d, here);
    assert_string_equal(variant_name(tuned), "online");
    assert_int_equal(tuned->stages[0].lws, 32);
    assert_ptr_equal(ask(d, "rows=110,len=900"), tuned); /* of the same class */
    assert_ptr_equal(ask(d, away), far_away);

    variant_mark_set(d, tuned, VARIANT_FAILED); /* a failed self-test takes it out again */
    assert_int_equal(variant_mark_get(d, online), VARIANT_UNTESTED);
    assert_ptr_equal(ask(d, here), heuristic);
    tuned_clear(d);
    assert_ptr_equal(ask(d, here), heuristic);
    device_close(d);
}

static void nearest_classes_and_newer_records(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    const struct variant *v = by_name(d, OP_LINEAR, "rows", DT_Q4_0);
    struct variant_query query = {.op = OP_LINEAR,
                                  .dtype = DT_Q4_0,
                                  .act = -1,
                                  .layout = -1,
                                  .n_tokens = 1,
                                  .m = 1000,
                                  .k = 1024,
                                  .name = "rows"};
    struct tune_record records[] = {
        record_for(d, v, DT_Q4_0, shape_from(OP_LINEAR, "m=1024,k=1024"),
                   "ROWS=4 LWS=16 RUN=2 UNROLL=1", 100),
        record_for(d, v, DT_Q4_0, shape_from(OP_LINEAR, "m=8192,k=1024"),
                   "ROWS=8 LWS=16 RUN=1 UNROLL=1", 100)};
    assert_int_equal(apply(d, records, 2, false), 2);
    assert_int_equal(variant_choose(d, &query)->stages[0].rows, 4);
    query.m = 3000; /* nearer to the second */
    assert_int_equal(variant_choose(d, &query)->stages[0].rows, 8);
    query.m = 4000000;
    assert_ptr_equal(variant_choose(d, &query), v);
    query.m = 1024;
    query.dtype = DT_Q8_0;
    assert_int_equal(variant_choose(d, &query)->stages[0].rows, v->stages[0].rows);
    query.dtype = DT_Q4_0;
    const struct variant *before = variant_choose(d, &query);
    snprintf(records[0].settings, sizeof records[0].settings, "ROWS=1 LWS=16 RUN=2 UNROLL=1");
    assert_int_equal(apply(d, records, 1, true), 0); /* only what is missing */
    assert_ptr_equal(variant_choose(d, &query), before);
    assert_int_equal(apply(d, records, 1, false), 1);
    assert_int_equal(variant_choose(d, &query)->stages[0].rows, 1);
    assert_int_equal(before->stages[0].rows, 4); /* what was handed out stays */
    struct tune_record entry;
    assert_true(tuned_entry(d, v, DT_Q4_0, 1, &entry));
    assert_false(tuned_entry(d, v, DT_Q4_0, 2, &entry));
    struct selftest_row row;
    assert_int_equal(variant_selftest(d, variant_choose(d, &query), &row, NULL), ST_OK);
    assert_true(row.passed);
    assert_int_equal(variant_mark_get(d, variant_choose(d, &query)), VARIANT_PASSED);
    device_close(d);
}

static void foreign_records_are_passed_over(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    const struct variant *v = by_name(d, OP_LINEAR, "rows", DT_Q4_0);
    struct tune_record records[7];
    for (size_t i = 0; i < 7; i++)
        records[i] = record_for(d, v, DT_Q4_0, shape_from(OP_LINEAR, "m=1024,k=1024"),
                                "ROWS=4 LWS=16 RUN=2 UNROLL=1", 100);
    snprintf(records[0].device, sizeof records[0].device, "another device");
    snprintf(records[1].driver, sizeof records[1].driver, "another driver");
    records[2].source++;
    records[3].version++;
    snprintf(records[4].variant, sizeof records[4].variant, "columns");
    snprintf(records[5].settings, sizeof records[5].settings, "ROWS=3 LWS=16 RUN=2 UNROLL=1");
    snprintf(records[6].settings, sizeof records[6].settings, "ROWS=4");
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(apply(d, &records[i], 1, false), 0);
    device_close(d);
}

static void jobs_try_the_best_variants(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    const struct tuner_options how = {.search = SEARCH_BAYES, .budget = 2, .seed = 1};
    struct tune_call calls[] = {
        {.shape = shape_from(OP_SOFTMAX, "rows=64,len=256"), .dtype = DT_F32},
        {.shape = shape_from(OP_ARGMAX, "rows=4,len=300"), .dtype = DT_F32, .variant = "tree"}};
    struct tune_job *j;
    struct err e = {0};
    if (tune_job_open(d, calls, 2, &how, &j, &e) != ST_OK)
        fail_msg("%s", e.text);
    const struct tune_progress *p = tune_job_progress(j);
    bool more = true;
    uint32_t n = 0;
    for (;; n++) {
        if (tune_job_step(j, &more, &e) != ST_OK)
            fail_msg("%s", e.text);
        if (!more)
            break;
        assert_true(p->points == n + 1 && p->points <= p->most_points && p->left_s >= 0);
        assert_true(p->last.ns > 0 && p->best_ns > 0 && p->call < 2);
    }
    assert_int_equal(p->points, p->most_points);
    uint32_t n_softmax = 0, n_tree = 0;
    const struct tune_record *r;
    for (uint32_t i = 0; (r = store_at(tune_job_results(j), i)) != NULL; i++) {
        n_softmax += r->shape.op == OP_SOFTMAX;
        n_tree += r->shape.op == OP_ARGMAX && strcmp(r->variant, "tree") == 0;
        assert_true(r->ns > 0 && r->standard_ns >= r->ns);
    }
    assert_true(n_softmax >= 2 && n_softmax <= JOB_VARIANTS && n_tree == 1);
    uint32_t taken;
    assert_int_equal(tuned_apply(d, tune_job_results(j), false, &taken, NULL), ST_OK);
    assert_int_equal(taken, n_softmax + n_tree);
    tune_job_close(j);

    snprintf(calls[0].variant, sizeof calls[0].variant, "columns");
    assert_int_equal(tune_job_open(d, calls, 2, &how, &j, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.text, "columns"));
    calls[0].shape.dims[0] = 0;
    assert_int_equal(tune_job_open(d, calls, 1, &how, &j, &e), ST_INVALID);
    const struct tuner_options none = {.search = SEARCH_BAYES};
    assert_int_equal(tune_job_open(d, calls + 1, 1, &none, &j, &e), ST_INVALID);
    assert_int_equal(tune_job_open(d, calls, 0, &how, &j, &e), ST_INVALID);
    device_close(d);
}

/* The references of `host` have one point, and nothing to keep. */
static void the_host_can_be_measured(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const struct tuner_options how = {.search = SEARCH_GRID};
    const struct tune_call call = {.shape = shape_from(OP_MATMUL, "m=8,n=8,k=8"), .dtype = DT_F32};
    struct tune_job *j;
    struct err e = {0};
    bool more;
    if (tune_job_open(d, &call, 1, &how, &j, &e) != ST_OK)
        fail_msg("%s", e.text);
    assert_int_equal(tune_job_step(j, &more, &e), ST_OK);
    assert_true(more && tune_job_progress(j)->last.ns > 0);
    assert_int_equal(tune_job_step(j, &more, &e), ST_OK);
    assert_false(more);
    assert_null(store_at(tune_job_results(j), 0));
    tune_job_close(j);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_are_checked_and_timed),
        cmocka_unit_test(broken_points_are_recorded),
        cmocka_unit_test(tuned_values_decide_the_choice),
        cmocka_unit_test(nearest_classes_and_newer_records),
        cmocka_unit_test(foreign_records_are_passed_over),
        cmocka_unit_test(jobs_try_the_best_variants),
        cmocka_unit_test(the_host_can_be_measured),
    };
    return cmocka_run_group_tests(tests, ops_open_list, ops_close_list);
}
