/* Buffers and the queue pair, on every device: copies, bounds, order, fills, staging, account. */
#include "tests/unit/cl/cl_test.h"

#define N_BYTES 100003u /* odd on purpose */

static unsigned char source[N_BYTES], target[N_BYTES];

static void fill_source(unsigned seed)
{
    for (uint32_t i = 0; i < N_BYTES; i++)
        source[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
}

static struct buffer *open_buffer(struct device *d, uint64_t n)
{
    struct buffer *b = NULL;
    struct err e = {0};
    if (buffer_open(d, n, BUFFER_IO, "test", &b, &e) != ST_OK)
        fail_msg("%s", e.text);
    return b;
}

static void round_trip(struct device *d)
{
    struct buffer *a = open_buffer(d, N_BYTES), *b = open_buffer(d, N_BYTES + 8);
    fill_source(1);
    memset(target, 0, sizeof target);
    assert_ok(queue_write(d, QUEUE_TRANSFER, a, 0, source, N_BYTES, "up", NULL));
    assert_ok(queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, NULL));
    assert_ok(queue_copy(d, QUEUE_COMPUTE, a, 0, b, 8, N_BYTES, "copy", NULL));
    assert_ok(queue_order(d, QUEUE_COMPUTE, QUEUE_TRANSFER, NULL));
    assert_ok(queue_read(d, QUEUE_TRANSFER, b, 8, target, N_BYTES, "down", NULL));
    assert_ok(queue_flush(d, QUEUE_TRANSFER, NULL));
    assert_ok(queue_wait(d, QUEUE_TRANSFER, NULL));
    assert_memory_equal(source, target, N_BYTES);
    assert_int_equal(device_memory(d).io_bytes, 2 * N_BYTES + 8);
    buffer_close(a);
    buffer_close(b);
    assert_int_equal(device_memory(d).io_bytes, 0);
    assert_true(device_memory(d).peak_bytes >= 2 * N_BYTES + 8);
}

static void test_round_trip(void **state)
{
    (void)state;
    test_each_device(round_trip);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
