/* Indices that pass 4 GiB inside one tensor: of rows, strides, tables and results, on every device
 * found. Only the ends of a tensor exist; where a kernel walks all of it, what lies between is one
 * small window of memory, mapped again and again. (Tensors that begin behind 4 GiB: test_variants
 * --far.)
 *
 * An index cut to 32 bits reads or writes the window or the near end instead of the far one, whose
 * numbers are others.
 */
#include "tests/unit/ops/ops_test.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/ops/ref/ref.h"
#include "engine/tensor/quant.h"
#include "far.h"

#define WINDOW_BYTES ((uint64_t)16 << 20)
#define WIDE         1024u                              /* floats of a row of 4 KiB */
#define NEAR_ROWS    ((uint32_t)(FAR_BYTES / 4 / WIDE)) /* rows before 4 GiB */
#define TAIL_ROWS    8u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

/* A tensor of 4 GiB, window after window, and a tail. */
struct windows {
    struct buffer *buffer;
    char *memory, *tail;
    uint64_t n_bytes;
    int fd;
};

static inline bool windows_open(struct device *d, uint64_t tail_bytes, struct windows *w,
                                struct err *e)
{
    const uint64_t mapped = (tail_bytes + 4095) / 4096 * 4096;
    *w = (struct windows){.fd = -1, .n_bytes = FAR_BYTES + mapped};
    if (!far_in_place(d)) {
        err_set(e, ST_UNSUPPORTED, "its buffers are not the host's memory");
        return false;
    }
    w->memory = far_reserve(w->n_bytes, e);
    if (!w->memory)
        return false;
    char name[32];
    snprintf(name, sizeof name, "/oinfer_window_%ld", (long)getpid());
    w->fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    shm_unlink(name);
    bool ok = w->fd >= 0 && ftruncate(w->fd, (off_t)WINDOW_BYTES) == 0;
    for (uint64_t at = 0; ok && at < FAR_BYTES; at += WINDOW_BYTES)
        ok = mmap(w->memory + at, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                  w->fd, 0) != MAP_FAILED;
    if (!ok)
        err_set(e, ST_NO_MEMORY, "the system maps no windows: %s", strerror(errno));
    w->tail = w->memory + FAR_BYTES;
    return ok && far_map(w->tail, mapped, e) &&
           buffer_wrap_writable(d, w->memory, w->n_bytes, BUFFER_IO, "windows", &w->buffer, e) ==
               ST_OK;
}

static inline void windows_close(struct windows *w)
{
    buffer_close(w->buffer);
    if (w->memory)
        munmap(w->memory, w->n_bytes);
    if (w->fd >= 0)
        close(w->fd);
}

static inline struct tensor windows_tensor(const struct windows *w, enum dtype dtype)
{
    return (struct tensor){.buffer = w->buffer, .bytes = w->n_bytes, .dtype = dtype};
}

/* Numbers that differ between the window and the tail. */
static void fill(float *x, uint64_t n, float first)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = first + (float)(i % 509) * 0x1p-9f;
}

static void run(struct device *d, const struct variant *v, const struct op_call *call)
{
    struct err e = {0};
    const uint64_t start_ns = clock_now_ns();
    if (op_call_once(d, v, call, &e) != ST_OK || queue_wait(d, QUEUE_COMPUTE, &e) != ST_OK)
        fail_msg("%s %s: %s", op_name(call->op), variant_name(v), e.text);
    print_message("  %s %s %s: %.1f s\n", op_name(call->op), variant_name(v),
                  dtype_name(call->tensors[0].dtype), (double)(clock_now_ns() - start_ns) * 1e-9);
}

static const struct variant *named(struct device *d, enum op_id op, int dtype, const char *name)
{
    return variant_choose(
        d, &(struct variant_query){.op = op,
                                   .dtype = dtype,
                                   .act = -1,
                                   .layout = op == OP_LINEAR || op == OP_EMBED ? LAYOUT_FILE : -1,
                                   .name = name});
}

static void read_back(struct device *d, const struct tensor *t, uint64_t offset, void *to,
                      uint64_t n)
{
    assert_int_equal(
        queue_read(d, QUEUE_COMPUTE, t->buffer, t->offset + offset, to, n, "test", NULL), ST_OK);
    assert_int_equal(queue_wait(d, QUEUE_COMPUTE, NULL), ST_OK);
}

static void write_at(struct device *d, const struct tensor *t, uint64_t offset, const void *from,
                     uint64_t n)
{
    assert_int_equal(
        queue_write(d, QUEUE_COMPUTE, t->buffer, t->offset + offset, from, n, "test", NULL), ST_OK);
    assert_int_equal(queue_wait(d, QUEUE_COMPUTE, NULL), ST_OK);
}

/* ---- only the ends are read or written ---- */

/* Two rows of argmax, 4 GiB and 256 bytes apart: every variant. */
static void argmax_rows_on(struct device *d)
{
    enum { LEN = 1031, GAP = 64 };
    struct far_ends ends;
    struct err e = {0};
    float row[LEN];
    if (!far_ends_open(d, 1 << 16, &ends, &e)) {
        print_message("skipped: %s\n", e.text);
        far_ends_close(&ends);
        return;
    }
    struct op_call call = {
        .op = OP_ARGMAX,
        .tensors = {{.buffer = ends.buffer, .bytes = FAR_BYTES + (1 << 16), .dtype = DT_F32},
                    ops_tensor(d, NULL, 8, DT_I32),
                    ops_tensor(d, NULL, 8, DT_F32)},
        .params.argmax = {.n_rows = 2, .len = LEN, .x_stride = (uint32_t)(FAR_BYTES / 4) + GAP}};
    memset(row, 0, sizeof row);
    row[700] = 1;
    write_at(d, &call.tensors[0], 0, row, sizeof row);
    row[700] = 0;
    row[1030] = 2;
    write_at(d, &call.tensors[0], FAR_BYTES + 4 * GAP, row, sizeof row);
    const struct variant *v;
    for (uint32_t i = 0; (v = variant_at(d, OP_ARGMAX, i)) != NULL; i++) {
        int32_t index[2] = {-1, -1};
        float found[2] = {0};
        write_at(d, &call.tensors[1], 0, index, sizeof index);
        run(d, v, &call);
        read_back(d, &call.tensors[1], 0, index, sizeof index);
        read_back(d, &call.tensors[2], 0, found, sizeof found);
        assert_int_equal(index[0], 700);
        assert_int_equal(index[1], 1030);
        assert_true(found[0] == 1 && found[1] == 2);
    }
    call.tensors[0].buffer = NULL;
    ops_close_tensors(&call);
    far_ends_close(&ends);
}

static void rows_of_argmax(void **state)
{
    (void)state;
    ops_on_devices(argmax_rows_on);
}

/* A table of which only the first and the last row exist. */
static void embed_on(struct device *d)
{
    static const enum dtype dtypes[] = {DT_F32, DT_F16, DT_Q8_0};
    struct err e = {0};
    float numbers[WIDE], want[WIDE], got[2 * WIDE];
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const uint64_t row_bytes = layout_bytes(dtypes[i], LAYOUT_FILE, 1, WIDE);
        const uint32_t last = (uint32_t)(FAR_BYTES / row_bytes) + 3;
        const int32_t ids[] = {(int32_t)last, 0};
        unsigned char row[4 * WIDE];
        struct far_ends ends;
        if (!far_ends_open(d, 1 << 16, &ends, &e)) {
            print_message("skipped: %s\n", e.text);
            far_ends_close(&ends);
            return;
        }
        struct op_call call = {
            .op = OP_EMBED,
            .tensors = {{.buffer = ends.buffer, .bytes = FAR_BYTES + (1 << 16), .dtype = dtypes[i]},
                        OPS_I32(d, ids),
                        ops_tensor(d, NULL, sizeof got, DT_F32)},
            .params.embed = {.n_tokens = 2, .k = WIDE, .n_vocab = last + 1, .scale = 1.0f}};
        for (uint32_t end = 0; end < 2; end++) {
            fill(numbers, WIDE, end ? -1.0f : 0.25f);
            assert_int_equal(quant_from_f32(dtypes[i], numbers, row, WIDE, &e), ST_OK);
            write_at(d, &call.tensors[0], end ? last * row_bytes : 0, row, row_bytes);
        }
        run(d, named(d, OP_EMBED, (int)dtypes[i], NULL), &call);
        read_back(d, &call.tensors[2], 0, got, sizeof got);
        for (uint32_t end = 0; end < 2; end++) {
            fill(numbers, WIDE, end ? 0.25f : -1.0f); /* the last row was asked for first */
            assert_int_equal(quant_from_f32(dtypes[i], numbers, row, WIDE, &e), ST_OK);
            assert_int_equal(quant_to_f32(dtypes[i], row, want, WIDE, &e), ST_OK);
            assert_memory_equal(got + end * WIDE, want, sizeof want);
        }
        call.tensors[0].buffer = NULL;
        ops_close_tensors(&call);
        far_ends_close(&ends);
    }
}

static void rows_of_tables(void **state)
{
    (void)state;
    struct device *host = ops_host();
    embed_on(host);
    device_close(host);
    ops_on_devices(embed_on);
}

/* Results of linear, rows of y 256 MiB apart: every variant that reads files' layouts and floats.
 */
static void linear_y_on(struct device *d)
{
    enum { M = 40, K = 64, TOKENS = 18, STRIDE = 1 << 26 };
    const uint64_t n = 4ull * STRIDE * (TOKENS - 1) + (1 << 16);
    struct err e = {0};
    struct buffer *y = NULL;
    char *memory = NULL;
    bool ok = true;
    if (far_in_place(d)) {
        memory = far_reserve(n, &e);
        ok = memory != NULL;
        for (uint64_t t = 0; ok && t < TOKENS; t++)
            ok = far_map(memory + 4 * t * STRIDE, 1 << 16, &e);
        ok = ok && buffer_wrap_writable(d, memory, n, BUFFER_IO, "y", &y, &e) == ST_OK;
    } else {
        ok = buffer_open(d, n, BUFFER_IO, "y", &y, &e) == ST_OK;
    }
    float w[M * K], x[TOKENS * K], row[M];
    fill(w, M * K, -0.5f);
    for (uint32_t i = 0; i < TOKENS * K; i++)
        x[i] = (float)(int32_t)(i * 37 % 101) * 0x1p-6f - 0.5f;
    struct op_call call = {
        .op = OP_LINEAR,
        .tensors = {OPS_F32(d, w), OPS_F32(d, x), {0}, {.buffer = y, .bytes = n}},
        .params.linear = {M, K, TOKENS, STRIDE, LINEAR_STORE, 0}};
    const struct variant *v;
    for (uint32_t i = 0; ok && (v = variant_at(d, OP_LINEAR, i)) != NULL; i++) {
        if (variant_dtype(v) != DT_F32 || variant_layout(v) != LAYOUT_FILE ||
            variant_act(v) != ACT_F32 || K > variant_depth_max(d, v) || (v->k_max && K > v->k_max))
            continue;
        for (uint64_t t = 0; t < TOKENS; t++)
            assert_int_equal(
                queue_fill(d, QUEUE_COMPUTE, y, 4 * t * STRIDE, sizeof row, 0xff, "test", &e),
                ST_OK);
        run(d, v, &call);
        for (uint64_t t = 0; t < TOKENS; t++) {
            read_back(d, &call.tensors[3], 4 * t * STRIDE, row, sizeof row);
            for (uint32_t r = 0; r < M; r++) {
                const double want = ref_dot(w + r * K, x + t * K, K);
                assert_true(fabs((double)row[r] - want) <= 1e-4);
            }
        }
    }
    if (!ok)
        print_message("skipped: %s\n", e.text);
    ops_close_tensors(&call);
    if (memory)
        munmap(memory, n);
}

static void strides_of_results(void **state)
{
    (void)state;
    ops_on_devices(linear_y_on);
}

/* ---- all of the tensor is walked: by the variants that take seconds for it on two cores ---- */

/* A weight of linear, more than 4 GiB of rows: those at its end are right. */
static inline void linear_w_on(struct device *d)
{
    struct windows w;
    struct err e = {0};
    const uint32_t m = NEAR_ROWS + TAIL_ROWS;
    if (!windows_open(d, TAIL_ROWS * WIDE * 4, &w, &e)) {
        print_message("skipped: %s\n", e.text);
        windows_close(&w);
        return;
    }
    static float x[WIDE];
    fill((float *)(void *)w.memory, WINDOW_BYTES / 4, 0.5f);
    for (uint32_t r = 0; r < TAIL_ROWS; r++)
        fill((float *)(void *)w.tail + r * WIDE, WIDE, -1.0f - (float)r);
    fill(x, WIDE, 0.0f);
    struct op_call call = {.op = OP_LINEAR,
                           .tensors = {windows_tensor(&w, DT_F32),
                                       OPS_F32(d, x),
                                       {0},
                                       ops_tensor(d, NULL, 4ull * m, DT_F32)},
                           .params.linear = {m, WIDE, 1, m, LINEAR_STORE, 0}};
    static const char *const names[] = {"rows"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct variant *v = named(d, OP_LINEAR, DT_F32, names[i]);
        float y[TAIL_ROWS], first;
        if (!v || WIDE > variant_depth_max(d, v))
            continue;
        run(d, v, &call);
        read_back(d, &call.tensors[3], 0, &first, sizeof first);
        read_back(d, &call.tensors[3], 4ull * NEAR_ROWS, y, sizeof y);
        assert_true(fabs((double)first - ref_dot((float *)(void *)w.memory, x, WIDE)) <= 1e-2);
        for (uint32_t r = 0; r < TAIL_ROWS; r++)
            assert_true(fabs((double)y[r] - ref_dot((float *)(void *)w.tail + r * WIDE, x, WIDE)) <=
                        1e-2);
    }
    call.tensors[0].buffer = NULL;
    ops_close_tensors(&call);
    windows_close(&w);
}

/* matmul with a of more than 4 GiB and one column, then with y of more than 4 GiB and k of 1. */
static inline void matmul_on(struct device *d)
{
    static const char *const readers[] = {"private_sum"};
    static const char *const writers[] = {"cpu_panel"};
    const uint32_t m = NEAR_ROWS + TAIL_ROWS;
    struct windows w;
    struct err e = {0};
    if (!windows_open(d, TAIL_ROWS * WIDE * 4, &w, &e)) {
        print_message("skipped: %s\n", e.text);
        windows_close(&w);
        return;
    }
    static float b[WIDE];
    float *tail = (float *)(void *)w.tail, *column = mem_array(m, sizeof *column);
    assert_non_null(column);
    fill((float *)(void *)w.memory, WINDOW_BYTES / 4, 0.5f);
    for (uint32_t r = 0; r < TAIL_ROWS; r++)
        fill(tail + r * WIDE, WIDE, -1.0f - (float)r);
    fill(b, WIDE, 0.0f);
    for (uint32_t r = 0; r < m; r++)
        column[r] = (float)(r % 4096) - (r >= NEAR_ROWS ? 10000.0f : 0);
    const struct tensor big = windows_tensor(&w, DT_F32);
    struct tensor thin = ops_tensor(d, column, 4ull * m, DT_F32), row = OPS_F32(d, b);
    struct op_call call = {.op = OP_MATMUL, .tensors = {big, row, {.dtype = DT_F32}, thin}};
    call.params.matmul = (struct matmul_params){.m = m, .n = 1, .k = WIDE, .batch = 1, .alpha = 1};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        const struct variant *v = named(d, OP_MATMUL, DT_F32, readers[i]);
        float y[TAIL_ROWS];
        if (!v || WIDE > variant_depth_max(d, v))
            continue;
        run(d, v, &call);
        read_back(d, &thin, 4ull * NEAR_ROWS, y, sizeof y);
        for (uint32_t r = 0; r < TAIL_ROWS; r++)
            assert_true(fabs((double)y[r] - ref_dot(tail + r * WIDE, b, WIDE)) <= 1e-2);
    }
    write_at(d, &thin, 0, column, 4ull * m);
    call.tensors[0] = thin;
    call.tensors[3] = big;
    call.params.matmul = (struct matmul_params){.m = m, .n = WIDE, .k = 1, .batch = 1, .alpha = 1};
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        const struct variant *v = named(d, OP_MATMUL, DT_F32, writers[i]);
        if (!v)
            continue;
        memset(w.tail, 0xff, TAIL_ROWS * WIDE * 4);
        run(d, v, &call);
        for (uint32_t r = 0; r < TAIL_ROWS; r++)
            for (uint32_t c = 0; c < WIDE; c++)
                assert_true(tail[r * WIDE + c] == column[NEAR_ROWS + r] * b[c]);
    }
    mem_free(column);
    buffer_close(thin.buffer);
    buffer_close(row.buffer);
    windows_close(&w);
}

/* softmax of more than 4 GiB of rows. */
static inline void softmax_on(struct device *d)
{
    static const char *const names[] = {"cpu_rows"};
    struct windows x, y = {.fd = -1};
    struct err e = {0};
    if (!windows_open(d, TAIL_ROWS * WIDE * 4, &x, &e) ||
        !windows_open(d, TAIL_ROWS * WIDE * 4, &y, &e)) {
        print_message("skipped: %s\n", e.text);
        windows_close(&x);
        windows_close(&y);
        return;
    }
    static float want[TAIL_ROWS * WIDE];
    struct op_call call = {
        .op = OP_SOFTMAX,
        .tensors = {windows_tensor(&x, DT_F32), {.dtype = DT_F32}, windows_tensor(&y, DT_F32)}};
    struct op_call few = {.op = OP_SOFTMAX,
                          .tensors = {{.dtype = DT_F32}, {.dtype = DT_F32}, {.dtype = DT_F32}}};
    void *data[OP_MAX_TENSORS] = {x.tail, NULL, want};
    few.params.softmax = (struct softmax_params){TAIL_ROWS, WIDE, 0, 0, 3.0f};
    call.params.softmax = (struct softmax_params){NEAR_ROWS + TAIL_ROWS, WIDE, 0, 0, 3.0f};
    fill((float *)(void *)x.memory, WINDOW_BYTES / 4, 0.0f);
    for (uint32_t r = 0; r < TAIL_ROWS * WIDE; r++)
        ((float *)(void *)x.tail)[r] = (float)(r * 7 % 31) * 0.125f;
    assert_int_equal(variant_reference(OP_SOFTMAX)->ref(&few, data, &e), ST_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct variant *v = named(d, OP_SOFTMAX, DT_F32, names[i]);
        if (!v || WIDE > variant_depth_max(d, v))
            continue;
        memset(y.tail, 0xff, TAIL_ROWS * WIDE * 4);
        run(d, v, &call);
        assert_true(ref_nmse((float *)(void *)y.tail, want, TAIL_ROWS * WIDE) <= 1e-10);
    }
    windows_close(&x);
    windows_close(&y);
}

#ifndef SANITIZED
static void whole_tensors_on(struct device *d)
{
    linear_w_on(d);
    matmul_on(d);
    softmax_on(d);
}
#endif

static void whole_tensors(void **state)
{
    (void)state;
#ifdef SANITIZED
    print_message("skipped: the kernels are the same as without a sanitizer\n");
#else
    ops_on_devices(whole_tensors_on);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_argmax),
        cmocka_unit_test(rows_of_tables),
        cmocka_unit_test(strides_of_results),
        cmocka_unit_test(whole_tensors),
    };
    return cmocka_run_group_tests(tests, ops_open_list, ops_close_list);
}
