/* Timings: rows, busy times and overlap, draining, overflow, and no growth over many launches. */
#include "tests/unit/cl/cl_test.h"

#include "engine/base/mem.h"
#include "engine/cl/impl.h"

static const char work_text[] =
    "__kernel void work(__global uint *x, uint rounds)\n"
    "{ uint v = (uint)get_global_id(0); for (uint i = 0; i < rounds; i++) v = v * 1664525u + 1u;\n"
    "  x[get_global_id(0)] = v; }\n";

static const size_t one[3] = {1, 1, 1};

static struct prof_report report; /* of the test that runs */

static const struct prof_row *find_row(const char *name)
{
    for (uint32_t i = 0; i < report.n_rows; i++)
        if (strcmp(report.rows[i].name, name) == 0)
            return &report.rows[i];
    return NULL;
}

static void start(struct device *d)
{
    memset(&report, 0, sizeof report);
    assert_ok(prof_enable(d, true, NULL));
    assert_true(prof_enabled(d));
}

static struct kernel *open_work(struct device *d, struct buffer *b, uint32_t rounds)
{
    struct kernel *k = NULL;
    assert_ok(kernel_open_source(d, "work.cl", work_text, "", "work", &k, NULL));
    assert_ok(kernel_set_buffer(k, 0, b, NULL));
    assert_ok(kernel_set_bytes(k, 1, &rounds, sizeof rounds, NULL));
    return k;
}

/* Rows by name and variant with calls, bytes and flops; copies have theirs; off costs nothing. */
static void rows(struct device *d)
{
    struct buffer *b = NULL;
    unsigned char bytes[4096] = {0};
    assert_ok(buffer_open(d, sizeof bytes, BUFFER_IO, "x", &b, NULL));
    start(d);
    struct kernel *k = device_is_host(d) ? NULL : open_work(d, b, 100);
    assert_ok(queue_write(d, QUEUE_TRANSFER, b, 0, bytes, sizeof bytes, "upload", NULL));
    for (int i = 0; i < 3 && k != NULL; i++)
        assert_ok(
            kernel_launch(k, (const size_t[]){16, 1, 1}, one, "work", "plain", 64, 3200, NULL));
    if (k != NULL)
        assert_ok(kernel_launch(k, one, one, "work", "other", 4, 200, NULL));
    assert_ok(queue_read(d, QUEUE_COMPUTE, b, 0, bytes, sizeof bytes, "download", NULL));
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(report.n_rows, k != NULL ? 4 : 2);
    assert_int_equal(find_row("upload")->bytes, sizeof bytes);
    assert_int_equal(find_row("download")->calls, 1);
    assert_int_equal(report.launches, k != NULL ? 4 : 0);
    for (uint32_t i = 0; i < report.n_rows; i++) {
        const struct prof_row *row = &report.rows[i];
        assert_true(row->min_ns <= row->max_ns && row->max_ns <= row->total_ns);
        assert_true(i == 0 || report.rows[i - 1].total_ns >= row->total_ns);
        if (strcmp(row->variant, "plain") == 0) {
            assert_int_equal(row->calls, 3);
            assert_int_equal(row->bytes, 3 * 64);
            assert_int_equal(row->flops, 3 * 3200);
        }
    }
    assert_ok(prof_enable(d, false, NULL));
    assert_false(prof_enabled(d));
    assert_ok(queue_write(d, QUEUE_TRANSFER, b, 0, bytes, sizeof bytes, "upload", NULL));
    assert_ok(queue_wait(d, QUEUE_TRANSFER, NULL));
    memset(&report, 0, sizeof report);
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(report.n_rows, 0);
    kernel_close(k);
    buffer_close(b);
}

static void test_rows(void **state)
{
    (void)state;
    test_each_device(rows);
}

/* The rows of one in-order queue sum to its busy time within 2 %. */
static void sums(struct device *d)
{
    if (device_is_host(d))
        return;
    struct buffer *b = NULL;
    assert_ok(buffer_open(d, 4096, BUFFER_IO, "x", &b, NULL));
    start(d);
    struct kernel *k = open_work(d, b, 20000);
    for (int i = 0; i < 200; i++)
        assert_ok(kernel_launch(k, (const size_t[]){8, 1, 1}, one, "work", "", 0, 0, NULL));
    assert_ok(prof_collect(d, &report, NULL));
    double sum = (double)find_row("work")->total_ns, busy = (double)report.compute_busy_ns;
    assert_true(sum <= 1.02 * busy && sum >= 0.98 * busy);
    assert_int_equal(report.transfer_busy_ns, 0);
    assert_int_equal(report.overlap_ns, 0);
    kernel_close(k);
    buffer_close(b);
}

/* Parts get rows, at most the launch's time; the launch keeps the rest. One that was collected
 * stays whole. */
static void divided(struct device *d)
{
    struct buffer *b = NULL;
    if (device_is_host(d))
        return;
    assert_ok(buffer_open(d, 4096, BUFFER_IO, "x", &b, NULL));
    start(d);
    struct kernel *k = open_work(d, b, 100);
    for (uint64_t part_ns = 1; part_ns <= 1000000000; part_ns *= 1000) {
        const struct prof_row parts[2] = {
            {.name = "a",
             .variant = "p",
             .calls = 4,
             .total_ns = 4,
             .min_ns = 1,
             .max_ns = 1,
             .bytes = 48},
            {.name = "b", .variant = "p", .calls = 1, .total_ns = part_ns, .bytes = 8}};
        memset(&report, 0, sizeof report);
        assert_ok(kernel_launch(k, one, one, "first", "plain", 64, 0, NULL));
        assert_ok(kernel_launch(k, one, one, "work", "plain", 64, 32, NULL));
        assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        prof_divide(d, parts, 2);
        assert_ok(prof_collect(d, &report, NULL));
        assert_int_equal(report.n_rows, 4);
        assert_int_equal(report.launches, 2);
        assert_int_equal(find_row("first")->bytes, 64);
        assert_int_equal(find_row("a")->calls, 4);
        assert_int_equal(find_row("a")->bytes, 48);
        assert_int_equal(find_row("work")->bytes, 8);
        assert_int_equal(find_row("work")->flops, 32);
        uint64_t sum_ns = 0;
        for (uint32_t i = 0; i < report.n_rows; i++)
            sum_ns += report.rows[i].total_ns;
        assert_in_range(sum_ns + 2, report.compute_busy_ns, report.compute_busy_ns + 4);
        if (part_ns == 1)
            assert_in_range(find_row("b")->total_ns, 0,
                            1); /* 0 where the driver's clock is coarse */
        else if (part_ns >= 1000000000)
            assert_in_range(find_row("work")->total_ns, 0, 2);
        prof_divide(d, parts, 2);
        memset(&report, 0, sizeof report);
        assert_ok(prof_collect(d, &report, NULL));
        assert_int_equal(report.n_rows, 0);
    }
    assert_ok(prof_enable(d, false, NULL));
    kernel_close(k);
    buffer_close(b);
}

/* More launches than events or parts are held: each is divided. */
static void all_divided(struct device *d)
{
    struct buffer *b = NULL;
    struct prof_row parts[6];
    if (device_is_host(d))
        return;
    assert_ok(buffer_open(d, 4096, BUFFER_IO, "x", &b, NULL));
    start(d);
    struct kernel *k = open_work(d, b, 1);
    for (int i = 0; i < 6; i++)
        parts[i] = (struct prof_row){.name = "a", .variant = "p", .calls = 2, .bytes = 3};
    const uint32_t n = PROF_EVENTS + PROF_PARTS / 6;
    for (uint32_t i = 0; i < n; i++) {
        unsigned char bytes[64];
        assert_ok(kernel_launch(k, one, one, "work", "plain", 20, 0, NULL));
        assert_ok(queue_read(d, QUEUE_COMPUTE, b, 0, bytes, sizeof bytes, "down", NULL));
        assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        prof_divide(d, parts, 6);
    }
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(find_row("a")->calls, 12 * n);
    assert_int_equal(find_row("a")->bytes, 18 * n);
    assert_int_equal(find_row("work")->calls, n);
    assert_int_equal(find_row("work")->bytes, 2 * n);
    assert_int_equal(find_row("down")->calls, n);
    assert_ok(prof_enable(d, false, NULL));
    kernel_close(k);
    buffer_close(b);
}

static void test_divided(void **state)
{
    (void)state;
    test_each_device(divided);
    test_each_device(all_divided);
}

static void test_sums(void **state)
{
    (void)state;
    test_each_device(sums);
}

/* A slot with given times, as on a device that reports both queues. */
static void add(struct device *d, enum queue_id q, const char *name, uint64_t from, uint64_t to)
{
    prof__add(d, &(struct prof_slot){
                     .queue = q, .name = name, .variant = "", .start_ns = from, .end_ns = to});
}

/* Busy is the union of intervals, overlap what the two unions share. */
static void test_overlap(void **state)
{
    (void)state;
    struct device *d = test_open_device(device_list_count(test_list) - 1);
    start(d);
    add(d, QUEUE_COMPUTE, "a", 500, 600);
    add(d, QUEUE_COMPUTE, "a", 100, 300);
    add(d, QUEUE_COMPUTE, "b", 250, 400);
    add(d, QUEUE_COMPUTE, "b", 400, 410);
    add(d, QUEUE_TRANSFER, "up", 0, 150);
    add(d, QUEUE_TRANSFER, "up", 390, 550);
    add(d, QUEUE_TRANSFER, "up", 600, 700);
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(report.compute_busy_ns, 310 + 100);
    assert_int_equal(report.transfer_busy_ns, 150 + 160 + 100);
    assert_int_equal(report.overlap_ns, 50 + 20 + 50);
    assert_int_equal(find_row("a")->total_ns, 300);
    assert_int_equal(find_row("a")->min_ns, 100);
    assert_int_equal(find_row("a")->max_ns, 200);
    memset(&report, 0, sizeof report);
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(report.n_rows, 0);
    assert_int_equal(report.compute_busy_ns, 0);
    device_close(d);
}

/* Names beyond the table's size share the last row; nothing is lost from the sums. */
static void test_overflow(void **state)
{
    (void)state;
    static char names[PROF_MAX_ROWS + 20][8];
    struct device *d = test_open_device(device_list_count(test_list) - 1);
    start(d);
    uint64_t total = 0;
    for (uint32_t i = 0; i < PROF_MAX_ROWS + 20; i++) {
        snprintf(names[i], sizeof names[i], "k%u", i);
        prof_add(d, names[i], "", 1000 * i, 1000 * i + i, 1, 2);
        total += i;
    }
    prof_add(d, "k3", "", 900000, 900007, 1, 2);
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(report.n_rows, PROF_MAX_ROWS);
    assert_string_equal(report.rows[PROF_MAX_ROWS - 1].name, "other");
    assert_int_equal(report.rows[PROF_MAX_ROWS - 1].calls, 21);
    assert_int_equal(find_row("k3")->total_ns, 3 + 7);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < report.n_rows; i++)
        sum += report.rows[i].total_ns;
    assert_int_equal(sum, total + 7);
    assert_int_equal(report.launches, PROF_MAX_ROWS + 21);
    struct prof_report both = report;
    prof_merge(&both, &report);
    assert_int_equal(both.n_rows, PROF_MAX_ROWS);
    assert_int_equal(both.compute_busy_ns, 2 * report.compute_busy_ns);
    assert_string_equal(both.rows[PROF_MAX_ROWS - 1].name, "other");
    assert_int_equal(both.rows[PROF_MAX_ROWS - 1].calls, 42);
    device_close(d);
}

/* An end before its start (clocks of drivers) counts as nothing. */
static void test_backwards(void **state)
{
    (void)state;
    struct device *d = test_open_device(device_list_count(test_list) - 1);
    start(d);
    prof_add(d, "back", "", 500, 400, 0, 0);
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(report.rows[0].total_ns, 0);
    assert_int_equal(report.compute_busy_ns, 0);
    device_close(d);
}

/* D34: very many launches with timings on: events are released, memory stays flat. (A sanitizer
 * keeps what was freed, and simulators are slow: there only the slots are looked at.) */
static void test_many_launches(void **state)
{
    (void)state;
    struct device *d = test_open_device(0);
    if (device_is_host(d)) {
        device_close(d);
        skip();
    }
    bool whole = strcmp(device_info(d)->platform, "Portable Computing Language") == 0;
#if defined(__SANITIZE_ADDRESS__)
    whole = false;
#endif
    uint32_t n = whole ? 100000 : 3 * PROF_EVENTS;
    struct buffer *b = NULL;
    assert_ok(buffer_open(d, 64, BUFFER_IO, "x", &b, NULL));
    start(d);
    struct kernel *k = open_work(d, b, 1);
    uint64_t before = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i == 20000)
            before = mem_resident_bytes();
        assert_ok(kernel_launch(k, one, one, "work", "", 0, 0, NULL));
        assert_true(d->prof.n_slots <= PROF_EVENTS);
    }
    assert_ok(prof_collect(d, &report, NULL));
    assert_int_equal(find_row("work")->calls, n);
    if (whole)
        assert_true(mem_resident_bytes() < before + (4u << 20));
    kernel_close(k);
    buffer_close(b);
    device_close(d);
}

/* A device opened with timings on, and switched while copies are under way. */
static void test_switching(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_list_count(test_list); i++) {
        struct device_options options = {.cache_dir = test_cache, .profiling = true};
        struct device *d = NULL;
        if (!device_list_at(test_list, i)->available)
            continue;
        assert_ok(device_open(test_list, i, &options, &d, NULL));
        assert_true(prof_enabled(d));
        struct buffer *b = NULL;
        unsigned char bytes[64];
        assert_ok(buffer_open(d, 64, BUFFER_IO, "x", &b, NULL));
        for (int round = 0; round < 6; round++) {
            memset(bytes, round, sizeof bytes);
            assert_ok(queue_write(d, QUEUE_TRANSFER, b, 0, bytes, 64, "up", NULL));
            assert_ok(prof_enable(d, round % 2 == 1, NULL));
            memset(bytes, 0xEE, sizeof bytes);
            assert_ok(queue_read(d, QUEUE_COMPUTE, b, 0, bytes, 64, "down", NULL));
            assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
            assert_int_equal(bytes[63], round);
        }
        buffer_close(b);
        device_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_sums),
        cmocka_unit_test(test_overlap),   cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_backwards), cmocka_unit_test(test_many_launches),
        cmocka_unit_test(test_switching), cmocka_unit_test(test_divided),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
