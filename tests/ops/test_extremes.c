/* Ops at the edges of size and range, on every device found: loops longer than some drivers run,
 * rows as many as a vocabulary has, activations beyond the range of halves.
 *
 * A device without CAP_LONG_LOOPS (llvmpipe) must be given variants that stay below its limit, and
 * refuse the others by name; wrong numbers without a word are what is tested against.
 */
#include "tests/unit/ops/ops_test.h"

#include <math.h>

#include "engine/ops/trial.h"

static void expect_right(struct device *d, const struct variant *v, const union op_params *params,
                         enum dtype dtype)
{
    struct trial_result result = {0};
    struct err e = {0};
    assert_non_null(v);
    if (trial_run(d, v, params, dtype, 11, &result, &e) != ST_OK || !result.passed)
        fail_msg("%s %s %s: %s", op_name(variant_op(v)), variant_name(v), dtype_name(dtype),
                 e.text[0] ? e.text : result.reason);
}

/* The variant that a model of plain layouts gets. */
static const struct variant *chosen(struct device *d, enum op_id op, enum dtype dtype,
                                    uint32_t n_tokens, uint32_t k)
{
    return variant_choose(d, &(struct variant_query){.op = op,
                                                     .dtype = (int)dtype,
                                                     .act = ACT_F32,
                                                     .layout = LAYOUT_FILE,
                                                     .n_tokens = n_tokens,
                                                     .k = k});
}

static void try_attention(struct device *d, uint32_t n_tokens, uint32_t head_dim, uint32_t kv_max)
{
    union op_params params = {.attention = {.n_tokens = n_tokens,
                                            .q_stride = 2 * head_dim,
                                            .n_head = 2,
                                            .n_head_kv = 1,
                                            .head_dim = head_dim,
                                            .n_ctx = kv_max,
                                            .kv_max = kv_max,
                                            .scale = 0.25f}};
    params.attention.n_splits = attention_splits(d, &params.attention);
    expect_right(d, chosen(d, OP_ATTENTION, DT_F32, n_tokens, head_dim), &params, DT_F32);
}

static void long_loops_on(struct device *d)
{
    try_attention(d, 2, 128, 1031);
    try_attention(d, 13, 64, 251);
    try_attention(d, 12, 128, 2100);
    try_attention(d, 1, 256, 20000);
    static const uint32_t columns[] = {2048, 28672};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (uint32_t n_tokens = 1; n_tokens <= 10; n_tokens += 9) {
            const union op_params params = {
                .linear = {.m = 5, .k = columns[i], .n_tokens = n_tokens, .y_stride = 5}};
            expect_right(d, chosen(d, OP_LINEAR, DT_F32, n_tokens, columns[i]), &params, DT_F32);
        }
}

static void long_loops(void **state)
{
    (void)state;
    ops_on_devices(long_loops_on);
}

/* Forced by name, a variant that loops too long is refused; nowhere does it give wrong numbers. */
static void refused_on(struct device *d)
{
    const struct variant *naive = variant_choose(
        d, &(struct variant_query){
               .op = OP_LINEAR, .dtype = DT_F32, .act = -1, .layout = -1, .name = "naive"});
    const union op_params params = {.linear = {.m = 1, .k = 70000, .n_tokens = 1, .y_stride = 1}};
    if (device_caps(d) & CAP_LONG_LOOPS) {
        expect_right(d, naive, &params, DT_F32);
        return;
    }
    struct trial_result result;
    struct err e = {0};
    assert_int_equal(trial_run(d, naive, &params, DT_F32, 1, &result, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "linear naive: depth 70000, at most"));
}

static void too_long_loops_are_refused(void **state)
{
    (void)state;
    ops_on_devices(refused_on);
}

/* matmul adds to y itself where c is y, also where the sums are made in several parts of k. */
static void in_place_on(struct device *d)
{
    enum { M = 29, N = 37, K = 1500 };
    static float a[M * K], b[K * N], before[M * N], got[M * N];
    for (uint32_t i = 0; i < M * K; i++)
        a[i] = (float)(i * 31 % 17) - 8;
    for (uint32_t i = 0; i < K * N; i++)
        b[i] = (float)(i * 29 % 13) - 6;
    for (uint32_t i = 0; i < M * N; i++)
        before[i] = (float)(i % 1001);
    struct op_call call = {.op = OP_MATMUL,
                           .tensors = {OPS_F32(d, a), OPS_F32(d, b), {0}, OPS_F32(d, before)},
                           .params.matmul = {M, N, K, 1, 0, 0, 0.5f, -2}};
    call.tensors[2] = call.tensors[3];
    const struct variant *v;
    for (uint32_t i = 0; (v = variant_at(d, OP_MATMUL, i)) != NULL; i++) {
        struct err e = {0};
        if (variant_dtype(v) != DT_F32 || variant_refuses(v, &call) || K > variant_depth_max(d, v))
            continue;
        assert_int_equal(queue_write(d, QUEUE_COMPUTE, call.tensors[3].buffer, 0, before,
                                     sizeof before, "test", NULL),
                         ST_OK);
        if (op_call_once(d, v, &call, &e) != ST_OK)
            fail_msg("%s: %s", variant_name(v), e.text);
        assert_int_equal(
            queue_read(d, QUEUE_COMPUTE, call.tensors[3].buffer, 0, got, sizeof got, "test", NULL),
            ST_OK);
        assert_int_equal(queue_wait(d, QUEUE_COMPUTE, NULL), ST_OK);
        for (uint32_t r = 0; r < M; r++)
            for (uint32_t c = 0; c < N; c++) { /* small integers: exact in any order */
                float want = 0;
                for (uint32_t k = 0; k < K; k++)
                    want += a[r * K + k] * b[k * N + c];
                want = 0.5f * want - 2 * before[r * N + c];
                if (got[r * N + c] != want)
                    fail_msg("%s: y[%u][%u] is %g, expected %g", variant_name(v), r, c,
                             (double)got[r * N + c], (double)want);
            }
    }
    call.tensors[2].buffer = NULL;
    ops_close_tensors(&call);
}

static void matmul_adds_in_place(void **state)
{
    (void)state;
    ops_on_devices(in_place_on);
}

/* D29: rows as many as vocabularies have, an odd number among them. */
static void vocabulary_on(struct device *d)
{
    static const uint32_t sizes[] = {49155, 151936, 262144};
    static const enum dtype dtypes[] = {DT_F32, DT_Q4_0, DT_Q8_0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint32_t m = sizes[i];
        const enum dtype dtype = dtypes[i];
        const union op_params linear = {.linear = {.m = m, .k = 32, .n_tokens = 1, .y_stride = m}};
        const union op_params argmax = {.argmax = {.n_rows = 6, .len = m, .x_stride = m}};
        expect_right(d, chosen(d, OP_LINEAR, dtype, 1, 32), &linear, dtype);
        const struct variant_query query = {
            .op = OP_ARGMAX, .dtype = -1, .act = -1, .layout = -1, .n_tokens = 6};
        expect_right(d, variant_choose(d, &query), &argmax, DT_F32);
    }
}

static void vocabulary_sized_rows(void **state)
{
    (void)state;
    ops_on_devices(vocabulary_on);
}

/* D8: activations of 1e5 and more become the largest half, not infinity; NaN stays NaN. */
static void halves_on(struct device *d)
{
    static const float x[] = {1e5f, -1e5f, 65504.0f, 65519.0f, 65520.0f, 1.0f, 3e38f, NAN};
    enum { N = sizeof x / sizeof *x };
    static const uint16_t want[N] = {0x7bff, 0xfbff, 0x7bff, 0x7bff, 0x7bff, 0x3c00, 0x7bff};
    struct op_call call = {.op = OP_QUANTIZE,
                           .tensors = {OPS_F32(d, x), ops_tensor(d, NULL, 2 * N, DT_F16)},
                           .params.quantize = {1, N, N}};
    call.tensors[1].layout = ACT_F16;
    const struct variant_query query = {
        .op = OP_QUANTIZE, .dtype = -1, .act = device_is_host(d) ? -1 : ACT_F16, .layout = -1};
    struct err e = {0};
    uint16_t got[N];
    if (op_call_once(d, variant_choose(d, &query), &call, &e) != ST_OK)
        fail_msg("%s", e.text);
    assert_int_equal(
        queue_read(d, QUEUE_COMPUTE, call.tensors[1].buffer, 0, got, sizeof got, "test", NULL),
        ST_OK);
    assert_int_equal(queue_wait(d, QUEUE_COMPUTE, NULL), ST_OK);
    assert_memory_equal(got, want, (N - 1) * sizeof *got);
    assert_true((got[N - 1] & 0x7fff) > 0x7c00);
    ops_close_tensors(&call);
}

static void halves_saturate(void **state)
{
    (void)state;
    struct device *host = ops_host();
    halves_on(host);
    device_close(host);
    ops_on_devices(halves_on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_loops),           cmocka_unit_test(too_long_loops_are_refused),
        cmocka_unit_test(matmul_adds_in_place), cmocka_unit_test(vocabulary_sized_rows),
        cmocka_unit_test(halves_saturate),
    };
    return cmocka_run_group_tests(tests, ops_open_list, ops_close_list);
}
