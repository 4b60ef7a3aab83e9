/* Generated and given inputs of single operators. */
#include "ops_test.h"

#include <math.h>

#include "engine/ops/data.h"

/* The finaliser of MurmurHash3 maps 0 to 0 and 1 to 0x514e28b7 (published test values). */
static void values_are_the_documented_ones(void **state)
{
    (void)state;
    assert_true(data_value(0, 0, 0) == -1.0f);
    assert_true(data_value(0, 0, 1) == (float)(0x514e28b7u >> 8) * 0x1p-23f - 1.0f);
    /* seed, input and element only enter by their weighted sum */
    assert_true(data_value(1, 0, 0) == data_value(0, 0, 0x9E3779B9u));
    assert_true(data_value(0, 1, 5) == data_value(0, 0, 0x85EBCA6Bu + 5u));
    double sum = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        const float v = data_value(7, 1, i);
        assert_true(v >= -1.0f && v < 1.0f);
        sum += (double)v;
    }
    assert_true(fabs(sum / 10000) < 0.02);
}

static void density_is_kept(void **state)
{
    (void)state;
    const uint64_t n = data_count_kept(3, 100, 1000, 0.25);
    assert_true(n > 24000 && n < 26000);
    assert_int_equal(data_count_kept(3, 4, 4, 1.0), 16);
    assert_int_equal(data_count_kept(3, 1, 1, 1e-9), 1);
}

static void half_inputs_are_rounded(void **state)
{
    (void)state;
    struct op_call call = {.op = OP_SOFTMAX,
                           .tensors = {{.dtype = DT_F16}, {.dtype = DT_F16}, {.dtype = DT_F16}}};
    call.params.softmax = (struct softmax_params){.rows = 3, .len = 101, .scale = 1};
    const struct op_data data = {.seed = 5};
    uint16_t x[303];
    void *host[OP_MAX_TENSORS] = {x};
    assert_int_equal(data_make(&call, &data, host, NULL), ST_OK);
    for (uint32_t i = 0; i < 303; i++)
        assert_int_equal(x[i], float_to_half(data_value(5, 0, i)));
}

static void csr_has_the_kept_elements(void **state)
{
    (void)state;
    enum { M = 5, K = 20 };
    const struct op_data data = {.seed = 2, .density = 0.4};
    struct op_call call = {.op = OP_SPARSE_GEMV};
    const uint32_t nnz = (uint32_t)data_count_kept(2, M, K, 0.4);
    call.params.sparse_gemv = (struct sparse_gemv_params){.m = M, .k = K, .nnz = nnz};
    float values[M * K], x[K], y[M];
    int32_t columns[M * K], row_ptr[M + 1];
    void *host[OP_MAX_TENSORS] = {values, columns, row_ptr, x, y};
    assert_int_equal(data_make(&call, &data, host, NULL), ST_OK);
    assert_int_equal(row_ptr[0], 0);
    assert_int_equal(row_ptr[M], nnz);
    for (uint32_t r = 0, n = 0; r < M; r++)
        for (uint32_t c = 0; c < K; c++)
            if (data_kept(2, r * K + c, 0.4)) {
                assert_int_equal(columns[n], c);
                assert_true(values[n++] == data_value(2, 0, r * K + c));
            }
    assert_true(x[3] == data_value(2, 3, 3));
}

static void two_of_four_are_the_largest(void **state)
{
    (void)state;
    enum { M = 3, K = 36, WORDS = 2 };
    const struct op_data data = {.seed = 9};
    struct op_call call = {.op = OP_SPARSE_GEMV};
    call.params.sparse_gemv = (struct sparse_gemv_params){.m = M, .k = K, .format = SPARSE_2_4};
    float values[M * K / 2], x[K], y[M];
    int32_t words[M * WORDS];
    void *host[OP_MAX_TENSORS] = {values, words, NULL, x, y};
    assert_int_equal(data_make(&call, &data, host, NULL), ST_OK);
    for (uint32_t r = 0; r < M; r++)
        for (uint32_t g = 0; g < K / 4; g++) {
            const uint32_t bits = (uint32_t)words[r * WORDS + g / 8] >> (4 * (g % 8));
            const uint32_t low = bits & 3, high = bits >> 2 & 3;
            assert_true(low < high);
            for (uint32_t j = 0; j < 4; j++) {
                const float other = fabsf(data_value(9, 0, r * K + 4 * g + j));
                if (j != low && j != high)
                    assert_true(other <= fabsf(data_value(9, 0, r * K + 4 * g + low)) &&
                                other <= fabsf(data_value(9, 0, r * K + 4 * g + high)));
            }
            assert_true(values[r * K / 2 + 2 * g] == data_value(9, 0, r * K + 4 * g + low));
        }
}

/* x is compact in the numbering, whatever the stride; positions and what queries see can be told.
 */
static void rope_and_attention_have_their_own_order(void **state)
{
    (void)state;
    struct op_call call = {.op = OP_ROPE_KV};
    call.params.rope_kv = (struct rope_kv_params){.n_tokens = 2,
                                                  .stride = 12,
                                                  .k_col = 4,
                                                  .v_col = 8,
                                                  .n_head = 1,
                                                  .n_head_kv = 1,
                                                  .head_dim = 4,
                                                  .n_rot = 4,
                                                  .n_ctx = 9,
                                                  .rotate = 1};
    const int32_t positions[] = {8, 3};
    float qkv[24], table[9 * 4];
    int32_t meta[8];
    void *host[OP_MAX_TENSORS] = {qkv, table, meta};
    struct op_data data = {.seed = 4, .rope_base = 10000, .positions = positions};
    assert_int_equal(data_make(&call, &data, host, NULL), ST_OK);
    assert_true(qkv[3] == data_value(4, 0, 3) && qkv[12] == data_value(4, 0, 4));
    assert_true(qkv[4] == data_value(4, 0, 8) && qkv[23] == data_value(4, 0, 8 + 15));
    assert_int_equal(meta[0], 8);
    assert_int_equal(meta[4], 3);
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    data = (struct op_data){.rope_base = 10000, .inputs = {x}};
    assert_int_equal(data_make(&call, &data, host, NULL), ST_OK);
    assert_true(qkv[0] == 1 && qkv[15] == 8 && qkv[4] == 0 && qkv[23] == 0);
    assert_true(meta[0] == 7 && meta[4] == 8);

    struct op_call attention = {.op = OP_ATTENTION};
    attention.params.attention = (struct attention_params){.n_tokens = 2,
                                                           .q_stride = 4,
                                                           .n_head = 1,
                                                           .n_head_kv = 1,
                                                           .head_dim = 4,
                                                           .n_ctx = 5,
                                                           .kv_max = 5,
                                                           .n_splits = 1};
    float q[8], k[20], v[20];
    void *tensors[OP_MAX_TENSORS] = {q, k, v, meta};
    data = (struct op_data){.seed = 1, .see_all = true};
    assert_int_equal(data_make(&attention, &data, tensors, NULL), ST_OK);
    assert_true(meta[0] == 4 && meta[4] == 4);
    data.see_all = false;
    assert_int_equal(data_make(&attention, &data, tensors, NULL), ST_OK);
    assert_true(meta[0] == 3 && meta[4] == 4);
}

static void bad_given_numbers_are_refused(void **state)
{
    (void)state;
    struct err e = {0};
    struct op_call call = {.op = OP_ADD,
                           .tensors = {{.dtype = DT_F32}, {.dtype = DT_F32}, {.dtype = DT_F32}}};
    call.params.add.n = 3;
    const float bad[] = {1, 2, NAN};
    float a[3], b[3];
    void *host[OP_MAX_TENSORS] = {a, b};
    struct op_data data = {.inputs = {NULL, bad}};
    assert_int_equal(data_make(&call, &data, host, &e), ST_INVALID);
    assert_string_equal(e.text, "add: b: element 2 is NaN");

    const float values[] = {1, 2}, x[] = {1, 1, 1};
    const int32_t good_ptr[] = {0, 1, 2}, bad_ptr[] = {0, 2, 1}, bad_columns[] = {0, 3};
    const int32_t columns[] = {0, 2};
    struct op_call sparse = {.op = OP_SPARSE_GEMV};
    sparse.params.sparse_gemv = (struct sparse_gemv_params){.m = 2, .k = 3, .nnz = 2};
    float v[2], xs[3], y[2];
    int32_t c[2], p[3];
    void *memory[OP_MAX_TENSORS] = {v, c, p, xs, y};
    data = (struct op_data){.inputs = {values, bad_columns, good_ptr, x}};
    assert_int_equal(data_make(&sparse, &data, memory, &e), ST_INVALID);
    assert_string_equal(e.text, "sparse_gemv: col_indices: element 1 is 3, expected 0 to 2");
    data.inputs[1] = columns;
    data.inputs[2] = bad_ptr;
    assert_int_equal(data_make(&sparse, &data, memory, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "row_ptr: element 2 is 1"));
    data.inputs[2] = NULL;
    assert_int_equal(data_make(&sparse, &data, memory, &e), ST_INVALID);
    assert_string_equal(e.text, "sparse_gemv: row_ptr is missing, values are given");
    data.inputs[2] = good_ptr;
    assert_int_equal(data_make(&sparse, &data, memory, &e), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_documented_ones),
        cmocka_unit_test(density_is_kept),
        cmocka_unit_test(half_inputs_are_rounded),
        cmocka_unit_test(csr_has_the_kept_elements),
        cmocka_unit_test(two_of_four_are_the_largest),
        cmocka_unit_test(rope_and_attention_have_their_own_order),
        cmocka_unit_test(bad_given_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
