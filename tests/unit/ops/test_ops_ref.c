/* Known answers of the references, worked out by hand, through the `host` device. */
#include "ops_test.h"

#include <math.h>

/* Runs the reference of the call on host; the results are in the tensors' buffers. */
static void run_host(struct device *d, const struct op_call *call)
{
    const struct variant_query query = {.op = call->op, .dtype = -1, .act = -1, .layout = -1};
    const struct variant *v = variant_choose(d, &query);
    assert_non_null(v);
    assert_string_equal(variant_name(v), "ref");
    struct err e = {0};
    if (op_call_once(d, v, call, &e) != ST_OK)
        fail_msg("%s", e.text);
}

static void expect_floats(const struct op_call *call, uint32_t tensor, const float *want, size_t n)
{
    const float *got = buffer_host(call->tensors[tensor].buffer);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * fmaxf(1.0f, fabsf(want[i]))))
            fail_msg("element %zu is %g, expected %g", i, (double)got[i], (double)want[i]);
}

static void linear_adds_bias_and_residual(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float w[] = {1, 2, 3, /**/ 4, 5, 6}, x[] = {1, 0, -1, /**/ 2, 2, 2}, bias[] = {10, 20};
    const float y[] = {1, 1, 9, /**/ 1, 1, 9};
    struct op_call call = {
        .op = OP_LINEAR,
        .tensors = {OPS_F32(d, w), OPS_F32(d, x), OPS_F32(d, bias), OPS_F32(d, y)},
        .params.linear = {
            .m = 2, .k = 3, .n_tokens = 2, .y_stride = 3, .epilogue = LINEAR_ADD, .has_bias = 1}};
    run_host(d, &call);
    const float want[] = {1 - 2 + 10, 1 - 2 + 20, 9, 1 + 12 + 10, 1 + 30 + 20, 9};
    expect_floats(&call, 3, want, 6);
    ops_close_tensors(&call);
    device_close(d);
}

/* Two rows of Q8_0 whose numbers are known: d * q. */
static void linear_reads_quantised_weights(void **state)
{
    (void)state;
    struct device *d = ops_host();
    unsigned char w[2 * 34];
    float x[32];
    for (int r = 0; r < 2; r++) {
        const uint16_t scale = float_to_half(r == 0 ? 0.5f : 2.0f);
        memcpy(w + r * 34, &scale, 2);
        for (int i = 0; i < 32; i++) {
            w[r * 34 + 2 + i] = (unsigned char)(int8_t)(i - 16);
            x[i] = 1.0f;
        }
    }
    struct op_call call = {.op = OP_LINEAR,
                           .tensors = {ops_tensor(d, w, sizeof w, DT_Q8_0),
                                       OPS_F32(d, x),
                                       {0},
                                       ops_tensor(d, NULL, 8, DT_F32)},
                           .params.linear = {.m = 2, .k = 32, .n_tokens = 1, .y_stride = 2}};
    run_host(d, &call);
    const float want[] = {-16 * 0.5f, -16 * 2.0f};
    expect_floats(&call, 3, want, 2);
    ops_close_tensors(&call);
    device_close(d);
}

static void embed_gives_zeros_for_unknown_ids(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float table[] = {1, 2, /**/ 3, 4};
    const int32_t ids[] = {1, -1, 2, 0};
    struct op_call call = {
        .op = OP_EMBED,
        .tensors = {OPS_F32(d, table), OPS_I32(d, ids), ops_tensor(d, NULL, 32, DT_F32)},
        .params.embed = {.n_tokens = 4, .k = 2, .n_vocab = 2, .scale = 10}};
    run_host(d, &call);
    const float want[] = {30, 40, 0, 0, 0, 0, 10, 20};
    expect_floats(&call, 2, want, 8);
    ops_close_tensors(&call);
    device_close(d);
}

static void norm_is_rms_or_layer(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float x[] = {3, 4, 99, /**/ 0, 5, 99}, w[] = {1, 2}, b[] = {1, 1};
    struct op_call call = {
        .op = OP_NORM,
        .tensors = {OPS_F32(d, x), OPS_F32(d, w), OPS_F32(d, b), ops_tensor(d, NULL, 16, DT_F32)},
        .params.norm = {.n_rows = 2, .len = 2, .x_stride = 3}};
    run_host(d, &call);
    const float r = sqrtf(12.5f);
    const float rms[] = {3 / r, 8 / r, 0, 10 / r};
    expect_floats(&call, 3, rms, 4);
    call.params.norm.kind = 1;
    call.params.norm.has_bias = 1;
    run_host(d, &call);
    const float layer[] = {-1 + 1, 2 + 1, -1 + 1, 2 + 1};
    expect_floats(&call, 3, layer, 4);
    ops_close_tensors(&call);
    device_close(d);
}

/* A quarter turn in both pairings, and the cells that k and v land in. */
static void rope_turns_and_stores(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float qkv[] = {1, 2, 3, 4, /* k */ 5, 6, 7, 8, /* v */ 9, 10, 11, 12};
    const float table[] = {1, 0, 1, 0, /* position 1: */ 0, 1, 1, 0};
    const int32_t meta[] = {1, 1, 0, 0};
    struct op_call call = {.op = OP_ROPE_KV,
                           .tensors = {OPS_F32(d, qkv), OPS_F32(d, table), OPS_I32(d, meta),
                                       ops_tensor(d, NULL, 2 * 2 * 4 * 4, DT_F32),
                                       ops_tensor(d, NULL, 2 * 2 * 4 * 4, DT_F32)},
                           .params.rope_kv = {.n_tokens = 1,
                                              .stride = 12,
                                              .k_col = 4,
                                              .v_col = 8,
                                              .n_head = 1,
                                              .n_head_kv = 1,
                                              .head_dim = 4,
                                              .n_rot = 4,
                                              .mode = 0,
                                              .n_ctx = 2,
                                              .rotate = 1}};
    run_host(d, &call);
    const float q[] = {-2, 1, 3, 4};
    const float k[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -6, 5, 7, 8}; /* slot 1, cell 1 */
    const float v[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 10, 11, 12};
    expect_floats(&call, 0, q, 4);
    expect_floats(&call, 3, k, 16);
    expect_floats(&call, 4, v, 16);
    memcpy(buffer_host(call.tensors[0].buffer), qkv, sizeof qkv);
    call.params.rope_kv.mode = 1;
    run_host(d, &call);
    const float halves[] = {-3, 2, 1, 4};
    expect_floats(&call, 0, halves, 4);
    ops_close_tensors(&call);
    device_close(d);
}

/* D28: there is no mask to leave out; positions alone say what is seen. Three cells with scores 0,
 * ln 2, ln 3 (the last beyond the position); then a window of one. */
static void attention_weighs_seen_cells(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float q[] = {1, 0}, k[] = {0, 5, logf(2), 5, logf(3), 5}, v[] = {3, 30, 6, 60, 9, 90};
    const int32_t meta[] = {1, 0, 0, 0};
    struct op_call call = {.op = OP_ATTENTION,
                           .tensors = {OPS_F32(d, q),
                                       OPS_F32(d, k),
                                       OPS_F32(d, v),
                                       OPS_I32(d, meta),
                                       {0},
                                       ops_tensor(d, NULL, 8, DT_F32)},
                           .params.attention = {.n_tokens = 1,
                                                .q_stride = 2,
                                                .n_head = 1,
                                                .n_head_kv = 1,
                                                .head_dim = 2,
                                                .n_ctx = 3,
                                                .kv_max = 2,
                                                .n_splits = 1,
                                                .scale = 1}};
    run_host(d, &call);
    const float two[] = {(3 + 2 * 6) / 3.0f, (30 + 2 * 60) / 3.0f};
    expect_floats(&call, 5, two, 2);
    call.params.attention.window = 1;
    run_host(d, &call);
    const float one[] = {6, 60};
    expect_floats(&call, 5, one, 2);
    ops_close_tensors(&call);
    device_close(d);
}

static void argmax_orders_ties_and_nan(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float x[] = {1,
                       3,
                       3,
                       2,
                       /**/ NAN,
                       -INFINITY,
                       NAN,
                       -INFINITY,
                       /**/ NAN,
                       NAN,
                       NAN,
                       NAN,
                       /**/ -INFINITY,
                       -INFINITY,
                       -INFINITY,
                       -INFINITY};
    struct op_call call = {.op = OP_ARGMAX,
                           .tensors = {OPS_F32(d, x), ops_tensor(d, NULL, 16, DT_I32),
                                       ops_tensor(d, NULL, 16, DT_F32)},
                           .params.argmax = {.n_rows = 4, .len = 4, .x_stride = 4}};
    run_host(d, &call);
    const int32_t *index = buffer_host(call.tensors[1].buffer);
    const int32_t want[] = {1, 1, 0, 0};
    assert_memory_equal(index, want, sizeof want);
    ops_close_tensors(&call);
    device_close(d);
}

static void swiglu_and_add(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float gate_up[] = {0, 1, 7, 2};
    struct op_call call = {.op = OP_SWIGLU,
                           .tensors = {OPS_F32(d, gate_up), ops_tensor(d, NULL, 8, DT_F32)},
                           .params.swiglu = {.n_tokens = 1, .n = 2, .x_stride = 4}};
    run_host(d, &call);
    const float silu[] = {0, 2 / (1 + expf(-1))};
    expect_floats(&call, 1, silu, 2);
    ops_close_tensors(&call);
    const float a[] = {1, 2}, b[] = {10, 20};
    struct op_call sum = {.op = OP_ADD,
                          .tensors = {OPS_F32(d, a), OPS_F32(d, b), ops_tensor(d, NULL, 8, DT_F32)},
                          .params.add = {2}};
    run_host(d, &sum);
    const float want[] = {11, 22};
    expect_floats(&sum, 2, want, 2);
    ops_close_tensors(&sum);
    device_close(d);
}

/* quantize to int8 blocks and back: absmax is exact, the rest within half a step; sums are right.
 */
static void quantize_makes_int8_blocks(void **state)
{
    (void)state;
    struct device *d = ops_host();
    float x[64];
    for (int i = 0; i < 64; i++)
        x[i] = i < 32 ? (float)i - 10.0f : 0.0f;
    struct op_call call = {
        .op = OP_QUANTIZE,
        .tensors = {OPS_F32(d, x), ops_tensor(d, NULL, act_bytes(ACT_Q8, 1, 64), DT_F32)},
        .params.quantize = {.n_rows = 1, .len = 64, .x_stride = 64}};
    call.tensors[1].layout = ACT_Q8;
    run_host(d, &call);
    const char *row = buffer_host(call.tensors[1].buffer);
    const int8_t *q = (const int8_t *)row;
    const float *scale = (const float *)(const void *)(row + 64);
    const int32_t *sums = (const int32_t *)(const void *)(row + 64 + 8);
    int32_t sum = 0;
    for (int i = 0; i < 64; i++) {
        assert_true(fabsf((float)q[i] * scale[i / 32] - x[i]) <= 0.5001f * scale[i / 32]);
        sum += i < 32 ? q[i] : 0;
    }
    assert_int_equal(q[31], 127);
    assert_int_equal(sums[0], sum);
    assert_int_equal(sums[1], 0);
    ops_close_tensors(&call);
    device_close(d);
}

/* Rows 0..3 in groups of 2 to every other pair of rows from row 2 on. */
static void repack_places_rows(void **state)
{
    (void)state;
    struct device *d = ops_host();
    const float src[] = {1, 2, 3, 4};
    struct op_call call = {
        .op = OP_REPACK,
        .tensors = {OPS_F32(d, src), ops_tensor(d, NULL, 8 * 4, DT_F32)},
        .params.repack = {
            .n_rows = 4, .k = 1, .m_total = 8, .row0 = 2, .group = 2, .group_stride = 4}};
    run_host(d, &call);
    const float want[] = {0, 0, 1, 2, 0, 0, 3, 4};
    expect_floats(&call, 1, want, 8);
    ops_close_tensors(&call);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_adds_bias_and_residual),
        cmocka_unit_test(linear_reads_quantised_weights),
        cmocka_unit_test(embed_gives_zeros_for_unknown_ids),
        cmocka_unit_test(norm_is_rms_or_layer),
        cmocka_unit_test(rope_turns_and_stores),
        cmocka_unit_test(attention_weighs_seen_cells),
        cmocka_unit_test(argmax_orders_ties_and_nan),
        cmocka_unit_test(swiglu_and_add),
        cmocka_unit_test(quantize_makes_int8_blocks),
        cmocka_unit_test(repack_places_rows),
    };
    return cmocka_run_group_tests(tests, ops_open_list, ops_close_list);
}
