/* Buffers and the queue pair, on every device and with CPU devices treated as GPUs: copies, bounds,
 * order, fills, staging, memory account and limits. */
#include "tests/unit/cl/cl_test.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/cl/impl.h"

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

/* The body on every device, and again on each OpenCL one with the paths of a GPU. */
static void each_device_and_as_gpu(void (*body)(struct device *d))
{
    test_each_device(body);
    for (uint32_t i = 0; i < device_list_count(test_list); i++) {
        if (!device_list_at(test_list, i)->available ||
            device_list_at(test_list, i)->kind != DEVICE_CPU)
            continue;
        struct device *d = test_open_device(i);
        d->info.kind = DEVICE_DISCRETE_GPU;
        body(d);
        device_close(d);
    }
}

static void round_trip(struct device *d)
{
    struct buffer *a = open_buffer(d, N_BYTES), *b = open_buffer(d, N_BYTES + 8);
    uint64_t before = device_memory(d).io_bytes;
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
    assert_int_equal(before, 2 * N_BYTES + 8);
    buffer_close(a);
    buffer_close(b);
    assert_int_equal(device_memory(d).io_bytes, 0);
    assert_true(device_memory(d).peak_bytes >= 2 * N_BYTES + 8);
}

static void test_round_trip(void **state)
{
    (void)state;
    each_device_and_as_gpu(round_trip);
}

/* Many times back and forth between the queues: one missing dependency shows as a wrong byte. */
static void order(struct device *d)
{
    struct buffer *a = open_buffer(d, N_BYTES), *b = open_buffer(d, N_BYTES);
    for (unsigned round = 0; round < 50; round++) {
        fill_source(round);
        assert_ok(queue_write(d, QUEUE_TRANSFER, a, 0, source, N_BYTES, "up", NULL));
        assert_ok(queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, NULL));
        assert_ok(queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, NULL));
        assert_ok(queue_copy(d, QUEUE_COMPUTE, a, 0, b, 0, N_BYTES, "copy", NULL));
        assert_ok(queue_order(d, QUEUE_COMPUTE, QUEUE_TRANSFER, NULL));
        assert_ok(queue_read(d, QUEUE_TRANSFER, b, 0, target, N_BYTES, "down", NULL));
        assert_ok(queue_wait(d, QUEUE_TRANSFER, NULL));
        assert_memory_equal(source, target, N_BYTES);
    }
    buffer_close(a);
    buffer_close(b);
}

static void test_order(void **state)
{
    (void)state;
    each_device_and_as_gpu(order);
}

static void bounds(struct device *d)
{
    struct buffer *a = open_buffer(d, 100), *b = open_buffer(d, 100);
    struct err e = {0};
    assert_int_equal(queue_write(d, QUEUE_COMPUTE, a, 90, source, 11, "t", &e), ST_INVALID);
    assert_non_null(strstr(e.text, "90 + 11 of 100"));
    assert_int_equal(queue_read(d, QUEUE_COMPUTE, a, 101, target, 0, "t", &e), ST_INVALID);
    assert_int_equal(queue_read(d, QUEUE_COMPUTE, a, UINT64_MAX, target, 2, "t", &e), ST_INVALID);
    assert_int_equal(queue_fill(d, QUEUE_COMPUTE, a, 1, 100, 0, "t", &e), ST_INVALID);
    assert_int_equal(queue_copy(d, QUEUE_COMPUTE, a, 0, b, 1, 100, "t", &e), ST_INVALID);
    assert_int_equal(queue_copy(d, QUEUE_COMPUTE, a, 1, b, 0, 100, "t", &e), ST_INVALID);
    assert_int_equal(queue_copy(d, QUEUE_COMPUTE, a, 0, a, 10, 11, "t", &e), ST_INVALID);
    assert_ok(queue_copy(d, QUEUE_COMPUTE, a, 0, a, 10, 10, "t", NULL));
    assert_int_equal(staging_upload(d, a, 50, source, 51, "t", &e), ST_INVALID);
    assert_ok(queue_write(d, QUEUE_COMPUTE, a, 100, source, 0, "t", NULL));
    assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
    buffer_close(a);
    buffer_close(b);
}

static void test_bounds(void **state)
{
    (void)state;
    each_device_and_as_gpu(bounds);
}

/* Every offset and length around the fill word, with the bytes beside it untouched. */
static void fills(struct device *d)
{
    enum { N = 160 };
    struct buffer *a = open_buffer(d, N);
    for (uint64_t offset = 0; offset < 20; offset++)
        for (uint64_t n = 0; n < 70; n += 1 + n / 20) {
            unsigned char want[N], got[N];
            memset(want, 0x11, N);
            memset(want + offset, 0xA5, (size_t)n);
            assert_ok(queue_fill(d, QUEUE_COMPUTE, a, 0, N, 0x11, "fill", NULL));
            assert_ok(queue_fill(d, QUEUE_COMPUTE, a, offset, n, 0xA5, "fill", NULL));
            assert_ok(queue_read(d, QUEUE_COMPUTE, a, 0, got, N, "down", NULL));
            assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
            assert_memory_equal(got, want, N);
        }
    buffer_close(a);
}

static void test_fills(void **state)
{
    (void)state;
    each_device_and_as_gpu(fills);
}

/* More than the staging ring holds, from memory that changes as soon as the call is back. */
static void staging(struct device *d)
{
    uint64_t n = (uint64_t)STAGING_SLOTS * STAGING_BYTES + STAGING_BYTES / 2 + 5;
    unsigned char *from = malloc(n), *to = malloc(n);
    assert_non_null(from);
    assert_non_null(to);
    struct buffer *a = open_buffer(d, n + 3);
    for (unsigned round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < n; i++)
            from[i] = (unsigned char)((i * 2654435761u + round) >> 11);
        assert_ok(staging_upload(d, a, 3, from, n, "upload", NULL));
        memset(from, 0, n);
        assert_ok(queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, NULL));
        assert_ok(queue_read(d, QUEUE_COMPUTE, a, 3, to, n, "down", NULL));
        assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        for (uint64_t i = 0; i < n; i++)
            if (to[i] != (unsigned char)((i * 2654435761u + round) >> 11))
                fail_msg("byte %llu of round %u", (unsigned long long)i, round);
    }
    buffer_close(a);
    free(from);
    free(to);
}

/* Copied to and from, also after the queues were made anew; in the account while it is open. */
static void pinned(struct device *d)
{
    struct buffer *a = NULL, *p = NULL;
    void *memory = NULL;
    const uint64_t used = device_memory(d).used_bytes;
    assert_ok(buffer_open_pinned(d, 1000, "p", &p, &memory, NULL));
    assert_non_null(memory);
    assert_ok(buffer_open(d, 1000, BUFFER_IO, "a", &a, NULL));
    for (int round = 0; round < 3; round++) {
        memset(memory, 40 + round, 1000);
        assert_ok(queue_write(d, QUEUE_COMPUTE, a, 0, memory, 1000, "up", NULL));
        assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        memset(memory, 0, 1000);
        assert_ok(prof_enable(d, round % 2 == 0, NULL));
        assert_ok(queue_read(d, QUEUE_COMPUTE, a, 1, (char *)memory + 1, 998, "down", NULL));
        assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        const char *bytes = memory;
        assert_true(bytes[0] == 0 && bytes[1] == 40 + round && bytes[998] == 40 + round &&
                    bytes[999] == 0);
    }
    assert_ok(prof_enable(d, false, NULL));
    buffer_close(a);
    buffer_close(p);
    assert_int_equal(device_memory(d).used_bytes, used);
}

static void test_pinned(void **state)
{
    (void)state;
    each_device_and_as_gpu(pinned);
}

static void test_staging(void **state)
{
    (void)state;
    each_device_and_as_gpu(staging);
}

static enum status upload_part(struct device *d, struct buffer *a, uint64_t offset,
                               struct readers_source from, uint64_t from_offset, uint64_t n)
{
    const struct upload_part part = {from, from_offset, n};
    return staging_upload_part(d, a, offset, &part, NULL, "upload", NULL);
}

/* What a call begins to read for the next one is what that gets, whether it comes, comes otherwise,
 * is interrupted by an upload from memory, or never. */
static void reading_ahead(struct device *d, struct buffer *a, struct readers_source from,
                          const unsigned char *bytes, unsigned char *to)
{
    static const uint64_t sizes[] = {0, 1, STAGING_BYTES + 7, STAGING_BYTES * STAGING_READS + 3};
    enum { N = sizeof sizes / sizeof *sizes };
    for (unsigned first = 0; first < N; first++)
        for (unsigned next = 0; next < N; next++)
            for (unsigned comes = 0; comes < 4; comes++) {
                const struct upload_part part = {from, 11, sizes[first]};
                const struct upload_part then = {from, 5, sizes[next]};
                /* as announced, elsewhere, shorter, as announced after another upload */
                const struct upload_part came = {from, comes == 1 ? 6 : 5,
                                                 comes == 2 ? sizes[next] / 2 : sizes[next]};
                assert_ok(staging_upload_part(d, a, 0, &part, &then, "upload", NULL));
                if (comes == 3)
                    assert_ok(staging_upload(d, a, part.n, bytes, 9, "upload", NULL));
                assert_ok(staging_upload_part(d, a, part.n, &came, &then, "upload", NULL));
                assert_ok(queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, NULL));
                assert_ok(queue_read(d, QUEUE_COMPUTE, a, 0, to, part.n + came.n, "down", NULL));
                assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
                assert_memory_equal(to, bytes + 11, part.n);
                assert_memory_equal(to + part.n, bytes + came.offset, came.n);
            }
}

/* A file and memory of more than the ring holds; then a file that is too short, after which the
 * ring still works. */
static void staging_of_parts(struct device *d)
{
    const uint64_t n = (uint64_t)2 * STAGING_SLOTS * STAGING_BYTES + STAGING_BYTES / 2 + 5;
    unsigned char *bytes = malloc(n), *to = malloc(n);
    char name[] = "/tmp/oinfer-staging-XXXXXX";
    struct err e = {0};
    if (device_is_host(d)) {
        free(bytes);
        free(to);
        return;
    }
    const int fd = mkstemp(name);
    assert_true(bytes != NULL && to != NULL && fd >= 0);
    unlink(name);
    for (uint64_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((i * 2654435761u) >> 11);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    struct buffer *a = open_buffer(d, n);
    const struct readers_source file = {fd, NULL}, memory = {-1, bytes};
    for (unsigned round = 0; round < 4; round++) {
        assert_ok(upload_part(d, a, 1, round % 2 == 0 ? file : memory, 3, n - 4));
        memset(to, 0, n);
        assert_ok(queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, NULL));
        assert_ok(queue_read(d, QUEUE_COMPUTE, a, 1, to, n - 4, "down", NULL));
        assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        assert_memory_equal(to, bytes + 3, n - 4);
        const struct upload_part too_long = {file, 100, n};
        assert_int_equal(staging_upload_part(d, a, 0, &too_long, NULL, "upload", &e), ST_IO);
        assert_non_null(strstr(e.text, "the file ends"));
    }
    reading_ahead(d, a, file, bytes, to);
    reading_ahead(d, a, memory, bytes, to);
    const struct upload_part whole = {file, 0, n};
    assert_int_equal(staging_upload_part(d, a, 1, &whole, NULL, "upload", &e), ST_INVALID);
    buffer_close(a);
    close(fd);
    free(bytes);
    free(to);
}

static void test_staging_of_parts(void **state)
{
    (void)state;
    each_device_and_as_gpu(staging_of_parts);
}

/* D11, D16: a typed error with the need and the limit; the device goes on working. */
static void too_much(struct device *d)
{
    struct buffer *b = NULL;
    struct err e = {0};
    char number[32];
    uint64_t max = buffer_max_bytes(d);
    assert_int_equal(buffer_open(d, max + 1, BUFFER_WEIGHTS, "huge", &b, &e), ST_NO_DEVICE_MEMORY);
    assert_null(b);
    snprintf(number, sizeof number, "%llu", (unsigned long long)(max + 1));
    assert_non_null(strstr(e.text, number));
    snprintf(number, sizeof number, "%llu", (unsigned long long)max);
    assert_non_null(strstr(e.text, number));
    assert_int_equal(buffer_open(d, UINT64_MAX, BUFFER_KV, "huge", &b, &e), ST_NO_DEVICE_MEMORY);
    assert_int_equal(buffer_open(d, 0, BUFFER_KV, "none", &b, &e), ST_INVALID);
    assert_int_equal(device_memory(d).used_bytes, 0);
    round_trip(d);
}

static void test_too_much(void **state)
{
    (void)state;
    test_each_device(too_much);
}

/* D9: an image over one of the device's limits is refused with all of them, and counts no bytes. */
static void too_large_images(struct device *d)
{
    struct buffer *b = NULL;
    struct err e = {0};
    const struct image_size sizes[] = {
        {1u << 30, 1, 1}, {1, 1u << 30, 1}, {1, 1, 1u << 30}, {0, 1, 1}};
    const bool images = (device_caps(d) & CAP_IMAGES) != 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(buffer_open_image(d, sizes[i], "huge", &b, &e),
                         images && i == 3 ? ST_INVALID : ST_UNSUPPORTED);
        assert_non_null(strstr(e.text, !images  ? "the device has no images"
                                       : i == 3 ? "0 bytes"
                                                : "1073741824"));
        assert_null(b);
    }
    assert_int_equal(device_memory(d).used_bytes, 0);
    if (images) {
        assert_ok(buffer_open_image(d, (struct image_size){5, 3, 2}, "small", &b, &e));
        assert_int_equal(device_memory(d).scratch_bytes, 5 * 3 * 2 * 16);
        buffer_close(b);
        assert_int_equal(device_memory(d).used_bytes, 0);
    }
}

static void test_too_large_images(void **state)
{
    (void)state;
    test_each_device(too_large_images);
}

/* Large buffers of CPUs are our own memory: it stays until the last command that uses it. */
static void closed_early(struct device *d)
{
    const uint64_t n = (uint64_t)4 << 20;
    unsigned char last = 0;
    struct buffer *kept = open_buffer(d, n);
    for (unsigned char i = 1; i <= 8; i++) {
        struct buffer *b = open_buffer(d, n);
        assert_ok(queue_fill(d, QUEUE_COMPUTE, b, 0, n, i, "fill", NULL));
        assert_ok(queue_copy(d, QUEUE_COMPUTE, b, 0, kept, 0, n, "copy", NULL));
        buffer_close(b);
    }
    assert_ok(queue_read(d, QUEUE_COMPUTE, kept, n - 1, &last, 1, "last", NULL));
    assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
    assert_int_equal(last, 8);
    assert_int_equal(device_memory(d).used_bytes, n);
    buffer_close(kept);
}

static void test_closed_early(void **state)
{
    (void)state;
    test_each_device(closed_early);
}

/* A mark orders what came before it and nothing later: two buffers take turns, each written again
 * only after it was read, and read only after it was written, while the other is under way. */
static void marks(struct device *d)
{
    enum { ROUNDS = 40 };
    static unsigned char values[ROUNDS], results[ROUNDS], pieces[ROUNDS][N_BYTES];
    struct buffer *b[2] = {open_buffer(d, N_BYTES), open_buffer(d, N_BYTES)};
    struct buffer *out = open_buffer(d, ROUNDS);
    struct queue_mark written[2] = {{0}}, used[2] = {{0}};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        values[i] = (unsigned char)(3 * i + 1);
        memset(pieces[i], values[i], N_BYTES);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const uint32_t s = i % 2;
        assert_ok(queue_follow(d, QUEUE_TRANSFER, &used[s], NULL));
        assert_ok(queue_write(d, QUEUE_TRANSFER, b[s], 0, pieces[i], N_BYTES, "up", NULL));
        assert_ok(queue_mark(d, QUEUE_TRANSFER, &written[s], NULL));
        assert_ok(queue_follow(d, QUEUE_COMPUTE, &written[s], NULL));
        assert_ok(queue_copy(d, QUEUE_COMPUTE, b[s], N_BYTES - 1, out, i, 1, "use", NULL));
        assert_ok(queue_mark(d, QUEUE_COMPUTE, &used[s], NULL));
    }
    assert_ok(queue_read(d, QUEUE_COMPUTE, out, 0, results, ROUNDS, "down", NULL));
    assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
    assert_ok(queue_wait(d, QUEUE_TRANSFER, NULL));
    assert_memory_equal(results, values, ROUNDS);
    /* marks of a pair of queues that is gone are not waited for */
    assert_ok(prof_enable(d, true, NULL));
    for (uint32_t s = 0; s < 2; s++) {
        assert_ok(queue_follow(d, QUEUE_TRANSFER, &used[s], NULL));
        assert_ok(queue_follow(d, QUEUE_COMPUTE, &written[s], NULL));
        queue_unmark(&used[s]);
        queue_unmark(&written[s]);
        queue_unmark(&written[s]); /* of none */
        buffer_close(b[s]);
    }
    assert_int_equal(d->queues[QUEUE_COMPUTE].enqueued, 0);
    assert_ok(prof_enable(d, false, NULL));
    buffer_close(out);
}

static void test_marks(void **state)
{
    (void)state;
    each_device_and_as_gpu(marks);
}

/* D15: the account's limit holds over several buffers, and what is freed can be had again. */
static void test_limit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < device_list_count(test_list); i++) {
        struct device_options options = {.cache_dir = test_cache, .memory_limit_bytes = 1 << 20};
        struct device *d = NULL;
        if (!device_list_at(test_list, i)->available)
            continue;
        assert_ok(device_open(test_list, i, &options, &d, NULL));
        struct buffer *b[3] = {NULL, NULL, NULL};
        struct err e = {0};
        assert_int_equal(device_memory(d).limit_bytes, 1 << 20);
        assert_ok(buffer_open(d, 400000, BUFFER_WEIGHTS, "first", &b[0], NULL));
        assert_ok(buffer_open(d, 400000, BUFFER_KV, "second", &b[1], NULL));
        assert_int_equal(buffer_open(d, 400000, BUFFER_SCRATCH, "third", &b[2], &e),
                         ST_NO_DEVICE_MEMORY);
        assert_non_null(strstr(e.text, "800000 of 1048576"));
        assert_int_equal(device_memory(d).weights_bytes, 400000);
        assert_int_equal(device_memory(d).kv_bytes, 400000);
        struct buffer *pinned = NULL; /* the host's memory: not within the device's limit */
        assert_ok(buffer_open(d, 400000, BUFFER_STAGING, "pinned", &pinned, NULL));
        assert_int_equal(device_memory(d).staging_bytes, 400000);
        assert_int_equal(device_memory(d).used_bytes, 800000);
        buffer_close(pinned);
        buffer_close(b[0]);
        assert_ok(buffer_open(d, 400000, BUFFER_SCRATCH, "third", &b[2], NULL));
        assert_int_equal(device_memory(d).scratch_bytes, 400000);
        buffer_close(b[1]);
        buffer_close(b[2]);
        assert_int_equal(device_memory(d).used_bytes, 0);
        device_close(d);
    }
}

/* D14: over 4 GiB an Intel GPU computes nonsense in silence, so buffers stay below. */
static void test_intel_limit(void **state)
{
    (void)state;
    struct device d = {.info = {.kind = DEVICE_DISCRETE_GPU,
                                .vendor = "Intel(R) Corporation",
                                .max_alloc_bytes = (uint64_t)16 << 30}};
    assert_true(buffer_max_bytes(&d) < (uint64_t)4 << 30);
    snprintf(d.info.vendor, sizeof d.info.vendor, "NVIDIA Corporation");
    assert_int_equal(buffer_max_bytes(&d), (uint64_t)16 << 30);
}

/* D13: the addresses that kernels see are aligned to 64 bytes at least, whatever the size. */
static void alignment(struct device *d)
{
    static const char text[] = "__kernel void where(__global uchar *x, __global ulong *out)\n"
                               "{ out[0] = (ulong)x; }\n";
    struct kernel *k = NULL;
    struct buffer *out = open_buffer(d, 8);
    if (!device_is_host(d))
        assert_ok(kernel_open_source(d, "where.cl", text, "", "where", &k, NULL));
    for (uint64_t n = 1; n < 5000; n = 3 * n + 1) {
        struct buffer *a = open_buffer(d, n);
        cl_ulong address = (uintptr_t)buffer_host(a);
        if (k != NULL) {
            assert_ok(kernel_set_buffer(k, 0, a, NULL));
            assert_ok(kernel_set_buffer(k, 1, out, NULL));
            assert_ok(kernel_launch(k, (const size_t[]){1, 1, 1}, (const size_t[]){1, 1, 1},
                                    "where", "", 0, 0, NULL));
            assert_ok(queue_read(d, QUEUE_COMPUTE, out, 0, &address, 8, "down", NULL));
            assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        }
        assert_int_equal(address % 64, 0);
        buffer_close(a);
    }
    kernel_close(k);
    buffer_close(out);
}

static void test_alignment(void **state)
{
    (void)state;
    test_each_device(alignment);
}

/* Host memory in place: read-only, page-aligned, not in the account. */
static void wrap(struct device *d)
{
    enum { N = 8192 };
    struct err e = {0};
    if (!device_is_host(d) && device_info(d)->kind != DEVICE_CPU)
        return;
    struct buffer *b = NULL, *to = open_buffer(d, N);
    void *memory = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(memory, 0x5C, N);
    assert_int_equal(mprotect(memory, N, PROT_READ), 0);
    uint64_t used = device_memory(d).used_bytes;
    assert_ok(buffer_wrap(d, memory, N, BUFFER_WEIGHTS, "file", &b, NULL));
    assert_int_equal(device_memory(d).used_bytes, used);
    assert_ptr_equal(buffer_host(b), memory);
    assert_int_equal(queue_write(d, QUEUE_COMPUTE, b, 0, source, 1, "up", &e), ST_INVALID);
    assert_non_null(strstr(e.text, "read-only"));
    assert_int_equal(queue_fill(d, QUEUE_COMPUTE, b, 0, 16, 0, "fill", &e), ST_INVALID);
    assert_ok(queue_copy(d, QUEUE_COMPUTE, b, 0, to, 0, N, "copy", NULL));
    assert_ok(queue_read(d, QUEUE_COMPUTE, to, 0, target, N, "down", NULL));
    assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
    assert_memory_equal(target, memory, N);
    buffer_close(b);
    assert_int_equal(buffer_wrap(d, (char *)memory + 1, 100, BUFFER_WEIGHTS, "odd", &b, &e),
                     ST_INVALID);
    assert_int_equal(buffer_wrap(d, memory, 0, BUFFER_WEIGHTS, "none", &b, &e), ST_INVALID);
    buffer_close(to);
    munmap(memory, N);
}

static void test_wrap(void **state)
{
    (void)state;
    test_each_device(wrap);
    struct device gpu = {.info = {.kind = DEVICE_DISCRETE_GPU, .max_alloc_bytes = 1 << 20}};
    struct buffer *b = NULL;
    assert_int_equal(buffer_wrap(&gpu, NULL, 4096, BUFFER_WEIGHTS, "file", &b, NULL),
                     ST_UNSUPPORTED);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* D35: the waiting thread sleeps while the device works; a kernel of some tenths of a second. */
static void sleeping(struct device *d)
{
    static const char text[] =
        "__kernel void slow(__global uint *x, uint rounds)\n"
        "{ uint v = x[0]; for (uint i = 0; i < rounds; i++) v = v * 1664525u + 1013904223u;\n"
        "  x[0] = v; }\n";
    if (device_is_host(d))
        return;
    struct kernel *k = NULL;
    struct buffer *b = open_buffer(d, 4);
    assert_ok(kernel_open_source(d, "slow.cl", text, "", "slow", &k, NULL));
    assert_ok(kernel_set_buffer(k, 0, b, NULL));
    assert_ok(queue_fill(d, QUEUE_COMPUTE, b, 0, 4, 1, "fill", NULL));
    uint64_t wall_ns = 0;
    double used = 0;
    for (uint32_t rounds = 1u << 22; wall_ns < 200u * 1000 * 1000 && rounds != 0; rounds *= 2) {
        assert_ok(kernel_set_bytes(k, 1, &rounds, 4, NULL));
        assert_ok(kernel_launch(k, (const size_t[]){1, 1, 1}, (const size_t[]){1, 1, 1}, "slow", "",
                                0, 0, NULL));
        double before = cpu_seconds();
        uint64_t start = clock_now_ns();
        assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
        wall_ns = clock_now_ns() - start;
        used = cpu_seconds() - before;
    }
    assert_true(used < 0.2 * (double)wall_ns * 1e-9);
    kernel_close(k);
    buffer_close(b);
}

static void test_sleeping(void **state)
{
    (void)state;
    each_device_and_as_gpu(sleeping);
}

/* A lost device answers every call with ST_DEVICE_LOST and can still be closed. */
static void lost(struct device *d)
{
    if (device_is_host(d))
        return;
    struct buffer *a = open_buffer(d, 64), *b = NULL;
    struct err e = {0};
    d->lost = true;
    assert_true(device_is_lost(d));
    assert_int_equal(queue_write(d, QUEUE_COMPUTE, a, 0, source, 64, "up", &e), ST_DEVICE_LOST);
    assert_non_null(strstr(e.text, device_info(d)->name));
    assert_int_equal(queue_read(d, QUEUE_COMPUTE, a, 0, target, 64, "down", &e), ST_DEVICE_LOST);
    assert_int_equal(queue_fill(d, QUEUE_COMPUTE, a, 0, 64, 0, "fill", &e), ST_DEVICE_LOST);
    assert_int_equal(queue_copy(d, QUEUE_COMPUTE, a, 0, a, 32, 32, "c", &e), ST_DEVICE_LOST);
    assert_int_equal(queue_order(d, QUEUE_COMPUTE, QUEUE_TRANSFER, &e), ST_DEVICE_LOST);
    assert_int_equal(queue_flush(d, QUEUE_COMPUTE, &e), ST_DEVICE_LOST);
    assert_int_equal(queue_wait(d, QUEUE_COMPUTE, &e), ST_DEVICE_LOST);
    assert_int_equal(staging_upload(d, a, 0, source, 64, "up", &e), ST_DEVICE_LOST);
    assert_int_equal(buffer_open(d, 64, BUFFER_IO, "b", &b, &e), ST_DEVICE_LOST);
    struct kernel *k = NULL;
    assert_int_equal(kernel_open(d, "probe/local.cl", "", "probe", &k, &e), ST_DEVICE_LOST);
    buffer_close(a);
}

static void test_lost(void **state)
{
    (void)state;
    test_each_device(lost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_fills),
        cmocka_unit_test(test_staging),
        cmocka_unit_test(test_staging_of_parts),
        cmocka_unit_test(test_pinned),
        cmocka_unit_test(test_too_large_images),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_intel_limit),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_sleeping),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_closed_early),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
