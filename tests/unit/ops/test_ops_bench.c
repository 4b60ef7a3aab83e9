/* Single operators measured: results, refusals, choice by shape, failing allocations. */
#include "ops_test.h"

#include <math.h>

#include "engine/ops/opbench.h"
#include "engine/ops/rules.h"

static struct opbench_request matmul_request(uint32_t m, uint32_t n, uint32_t k)
{
    struct opbench_request r = {.op = OP_MATMUL, .dtype = DT_F32, .iterations = 3, .verify = true};
    r.params.matmul =
        (struct matmul_params){.m = m, .n = n, .k = k, .batch = 1, .alpha = 1, .beta = 0};
    r.data.seed = 1;
    return r;
}

/* "all" on the first OpenCL device: every row is right and its figures fit together. */
static void all_variants_are_measured(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    struct opbench_request r = matmul_request(40, 33, 50);
    r.variant = "all";
    r.warmup = 1;
    struct opbench_result *out = mem_zalloc(sizeof *out);
    struct err e = {0};
    if (opbench_run(d, &r, out, &e) != ST_OK)
        fail_msg("%s", e.text);
    assert_true(out->n_rows > 5);
    assert_int_equal(out->flops, 2 * 40 * 33 * 50);
    for (uint32_t i = 0; i < out->n_rows; i++) {
        const struct opbench_row *row = &out->rows[i];
        assert_int_equal(row->status, ST_OK);
        assert_true(row->verified && row->pass && row->nmse < 1e-10);
        assert_true(row->kernel.min_ns > 0 && row->kernel.min_ns <= row->kernel.median_ns);
        assert_true(row->kernel.median_ns <= row->kernel.p95_ns);
        assert_true(row->speedup > 0 && row->gflop_s > 0 && row->share_flops > 0);
    }
    assert_int_equal(out->transfers.upload_bytes, 4 * (40 * 50 + 50 * 33));
    assert_int_equal(out->transfers.download_bytes, 4 * 40 * 33);
    assert_null(out->output);
    assert_false(prof_enabled(d));
    opbench_close(out);
    mem_free(out);
    device_close(d);
}

/* The ops of models run through the same interface, with their own conversions. */
static void model_ops_are_measured(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    struct opbench_request requests[] = {
        {.op = OP_LINEAR,
         .dtype = DT_Q4_0,
         .params = {.linear = {.m = 48, .k = 64, .n_tokens = 1, .y_stride = 48}}},
        {.op = OP_ATTENTION,
         .dtype = DT_F16,
         .params = {.attention = {.n_tokens = 2,
                                  .q_stride = 128,
                                  .n_head = 2,
                                  .n_head_kv = 1,
                                  .head_dim = 64,
                                  .n_ctx = 32,
                                  .kv_max = 30,
                                  .n_splits = 1,
                                  .scale = 0.125f}}},
        {.op = OP_NORM,
         .dtype = DT_F32,
         .params = {.norm = {.n_rows = 3, .len = 96, .x_stride = 96, .eps = 1e-5f}}},
        {.op = OP_ROPE_KV,
         .dtype = DT_F32,
         .params = {.rope_kv = {.n_tokens = 2,
                                .stride = 96,
                                .k_col = 32,
                                .v_col = 64,
                                .n_head = 1,
                                .n_head_kv = 1,
                                .head_dim = 32,
                                .n_rot = 32,
                                .n_ctx = 16,
                                .rotate = 1}}},
    };
    struct opbench_result *out = mem_zalloc(sizeof *out);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct err e = {0};
        requests[i].iterations = 2;
        requests[i].verify = true;
        requests[i].data = (struct op_data){.seed = 3, .rope_base = 10000};
        if (opbench_run(d, &requests[i], out, &e) != ST_OK)
            fail_msg("%s: %s", op_name(requests[i].op), e.text);
        assert_int_equal(out->n_rows, 1);
        if (!out->rows[0].pass)
            fail_msg("%s %s: %s", op_name(requests[i].op), out->rows[0].variant,
                     out->rows[0].reason);
        opbench_close(out);
    }
    mem_free(out);
    device_close(d);
}

static void output_is_the_product(void **state)
{
    (void)state;
    struct device *d = ops_host();
    struct opbench_request r = matmul_request(2, 2, 2);
    const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, product[] = {19, 22, 43, 50};
    r.return_output = true;
    r.data.inputs[0] = a;
    r.data.inputs[1] = b;
    struct opbench_result *out = mem_zalloc(sizeof *out);
    assert_int_equal(opbench_run(d, &r, out, NULL), ST_OK);
    assert_int_equal(out->output_bytes, sizeof product);
    assert_memory_equal(out->output, product, sizeof product);
    assert_string_equal(out->rows[0].variant, "ref");
    opbench_close(out);
    mem_free(out);
    device_close(d);
}

/* An op that works in place gives the output of its first run, and a norm the format asked for. */
static void output_is_of_the_first_run(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *devices[] = {ops_host(), ops_first_device(&options)};
    for (size_t k = 0; k < 2 && devices[k]; k++) {
        const float x[] = {1, 0, 0, 0};
        struct opbench_request r = {.op = OP_ROPE_KV,
                                    .dtype = DT_F32,
                                    .iterations = 3,
                                    .warmup = 2,
                                    .return_output = true,
                                    .params = {.rope_kv = {.n_tokens = 1,
                                                           .stride = 12,
                                                           .k_col = 4,
                                                           .v_col = 8,
                                                           .n_head = 1,
                                                           .n_head_kv = 1,
                                                           .head_dim = 4,
                                                           .n_rot = 4,
                                                           .n_ctx = 2,
                                                           .rotate = 1}}};
        r.data = (struct op_data){.rope_base = 10000, .inputs = {x}};
        struct opbench_result *out = mem_zalloc(sizeof *out);
        struct err e = {0};
        if (opbench_run(devices[k], &r, out, &e) != ST_OK)
            fail_msg("%s", e.text);
        const float *y = out->output; /* at position 1 */
        assert_true(fabsf(y[0] - cosf(1)) < 1e-6f && fabsf(y[1] - sinf(1)) < 1e-6f);
        opbench_close(out);

        const float ones[32] = {2, 2, 2, 2};
        r = (struct opbench_request){
            .op = OP_NORM,
            .dtype = DT_F32,
            .variant = k ? "plain" : "auto",
            .iterations = 1,
            .return_output = true,
            .f32_output = true,
            .params = {.norm = {.n_rows = 1, .len = 32, .x_stride = 32, .eps = 0}}};
        r.data.inputs[0] = r.data.inputs[1] = ones;
        if (opbench_run(devices[k], &r, out, &e) != ST_OK)
            fail_msg("%s", e.text);
        assert_int_equal(out->n_rows, 1);
        assert_int_equal(out->output_row, 0);
        assert_int_equal(out->output_bytes, 128);
        y = out->output;
        assert_true(fabsf(y[0] - 2 * 2 / sqrtf(0.5f)) < 1e-4f && y[31] == 0);
        opbench_close(out);
        mem_free(out);
        device_close(devices[k]);
    }
}

static bool after_some(void *user, double next_ns)
{
    uint32_t *left = user;
    assert_true(next_ns > 0);
    return (*left)-- > 0;
}

/* It ends where the caller says so, at every place where it asks. */
static void it_can_be_cancelled(void **state)
{
    (void)state;
    struct device *d = ops_host();
    struct opbench_request r = matmul_request(3, 3, 3);
    struct opbench_result *out = mem_zalloc(sizeof *out);
    enum status st = ST_CANCELLED;
    uint32_t n = 0;
    for (; st != ST_OK; n++) {
        uint32_t left = n;
        r.proceed = after_some;
        r.user = &left;
        st = opbench_run(d, &r, out, NULL);
        opbench_close(out);
        assert_true(st == ST_OK || st == ST_CANCELLED);
    }
    assert_true(n > 5);
    mem_free(out);
    device_close(d);
}

static void refused(struct device *d, const struct opbench_request *r, enum status status,
                    const char *text)
{
    struct err e = {0};
    struct opbench_result *out = mem_zalloc(sizeof *out);
    const enum status st = opbench_run(d, r, out, &e);
    opbench_close(out);
    mem_free(out);
    if (st != status || !strstr(e.text, text))
        fail_msg("%s: %s, expected %s", status_name(st), e.text, text);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    struct device *d = ops_host();
    struct opbench_request r = matmul_request(8, 8, 8);
    r.iterations = 0;
    refused(d, &r, ST_INVALID, "iterations is 0, expected 1 to 1000");
    r = matmul_request(8, 8, 8);
    r.variant = "fast";
    refused(d, &r, ST_NOT_FOUND, "no variant \"fast\"");
    r.variant = "naive";
    refused(d, &r, ST_UNSUPPORTED, "matmul naive: host runs the reference only (ref)");
    r = matmul_request(8, 0, 8);
    refused(d, &r, ST_INVALID, "n is 0, expected 1 to");
    r = matmul_request(8, 8, 0xfffffffeu);
    refused(d, &r, ST_INVALID, "k is 4294967294");
    r = matmul_request(1u << 20, 1u << 20, 1u << 20);
    refused(d, &r, ST_INVALID, "matmul: tensors of 13194139533312 bytes");
    r = matmul_request(512, 512, 512);
    r.deadline_ns = 1000;
    refused(d, &r, ST_TIMEOUT, "the deadline is");
    r = matmul_request(8, 8, 8);
    r.settings = &(const struct setting){"ROWS", 4};
    r.n_settings = 1;
    refused(d, &r, ST_INVALID, "params need a variant by name");
    r = (struct opbench_request){.op = OP_CONV2D, .dtype = DT_F32, .iterations = 1};
    r.params.conv2d = (struct conv2d_params){.n = 1,
                                             .c = 4,
                                             .h = 5,
                                             .w = 5,
                                             .o = 4,
                                             .kh = 3,
                                             .kw = 3,
                                             .stride_h = 1,
                                             .stride_w = 1,
                                             .dil_h = 1,
                                             .dil_w = 1,
                                             .groups = 3,
                                             .ho = 3,
                                             .wo = 3};
    refused(d, &r, ST_INVALID, "c is 4, expected a multiple of 3");
    r.params.conv2d.groups = 1;
    r.params.conv2d.ho = 4;
    refused(d, &r, ST_INVALID, "output is 4 x 3, expected 3 x 3");
    device_close(d);
}

/* Shapes and the variant that a CPU and a GPU take without being told. */
static void choice_follows_the_shape(void **state)
{
    (void)state;
    const struct device_options options = {0};
    struct device *d = ops_first_device(&options);
    if (!d)
        return;
    const struct {
        union op_params params;
        const char *cpu, *gpu;
    } rows[] = {
        {{.matmul = {1024, 1024, 1024, 1, 0, 0, 1, 0}}, "cpu_panel", "register_packed"},
        {{.matmul = {256, 256, 256, 1, 0, 0, 1, 0}}, "cpu_panel", "register_direct"},
        {{.matmul = {16, 4096, 512, 1, 0, 0, 1, 0}}, "cpu_panel", "small"},
    };
    const bool cpu = (device_caps(d) & CAP_CPU) != 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct op_call call = {.op = OP_MATMUL, .params = rows[i].params};
        const struct variant *v = variant_for_call(d, &call, DT_F32, NULL);
        assert_non_null(v);
        assert_string_equal(variant_name(v), cpu ? rows[i].cpu : rows[i].gpu);
    }
    struct op_call conv = {.op = OP_CONV2D};
    conv.params.conv2d = (struct conv2d_params){1, 64, 56, 56, 64, 3, 3,         1,  1, 1,
                                                1, 1,  1,  1,  0,  0, CONV_NCHW, 56, 56};
    assert_string_equal(variant_name(variant_for_call(d, &conv, DT_F32, NULL)),
                        cpu ? "cpu_panel" : "winograd_4x4");
    conv.params.conv2d.stride_h = conv.params.conv2d.stride_w = 2;
    assert_string_equal(variant_name(variant_for_call(d, &conv, DT_F32, NULL)),
                        cpu ? "cpu_panel" : "implicit_gemm");
    assert_null(variant_for_call(d, &conv, DT_F32, "winograd_4x4"));
    conv.params.conv2d.groups = 64;
    assert_string_equal(variant_name(variant_for_call(d, &conv, DT_F32, NULL)),
                        cpu ? "cpu_depthwise" : "depthwise");
    device_close(d);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const struct opbench_request r = matmul_request(3, 3, 3);
    struct opbench_result *out = mem_zalloc(sizeof *out);
    mem_fail_at(0, 0);
    enum status st = ST_NO_MEMORY;
    for (uint64_t n = 1; st != ST_OK && n < 100; n++) {
        mem_fail_at(n, 0);
        st = opbench_run(d, &r, out, NULL);
        mem_fail_at(0, 0);
        opbench_close(out);
        assert_true(st == ST_OK || st == ST_NO_MEMORY || st == ST_NO_DEVICE_MEMORY);
    }
    assert_int_equal(st, ST_OK);
    mem_free(out);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_variants_are_measured),  cmocka_unit_test(model_ops_are_measured),
        cmocka_unit_test(output_is_of_the_first_run), cmocka_unit_test(it_can_be_cancelled),
        cmocka_unit_test(output_is_the_product),      cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(choice_follows_the_shape),   cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, ops_open_list, ops_close_list);
}
