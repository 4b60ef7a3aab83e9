/* Host conversions of weights against the reference dequantiser (tests/golden/quant.txt, made by
 * tests/golden/make_quant.py), and their behaviour at the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/tensor/quant.h"

#define N_SOURCE 1024
#define N_VALUES 256

/* Errors may exceed the reference quantiser's by this factor. */
#define RMSE_SLACK 1.02

static float source[N_SOURCE];
static int n_dtypes_checked, n_rmse_checked;

static float parse_float(const char *digits)
{
    uint32_t bits = (uint32_t)strtoul(digits, NULL, 16);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Ends the next word of *line, moves *line behind it and returns it; fails at the line's end. */
static char *next_word(char **line)
{
    char *word = *line + strspn(*line, " \n");
    size_t length = strcspn(word, " \n");
    assert_true(length > 0);
    *line = word + length + (word[length] != '\0' ? 1 : 0);
    word[length] = '\0';
    return word;
}

static void read_source(char *rest)
{
    for (size_t i = 0; i < N_SOURCE; i++)
        source[i] = parse_float(next_word(&rest));
    assert_int_equal(*rest, '\0');
}

/* "dtype NAME BYTES VALUE...": values equal bit for bit, from an unaligned source too. */
static void check_values(enum dtype dtype, char *rest)
{
    uint64_t n_bytes;
    assert_true(dtype_row_bytes(dtype, N_VALUES, &n_bytes));
    unsigned char *bytes = mem_alloc(n_bytes + 1);
    assert_non_null(bytes);
    const char *hex = next_word(&rest);
    assert_int_equal(strlen(hex), 2 * n_bytes);
    for (uint64_t i = 0; i < n_bytes; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    float values[N_VALUES], unaligned[N_VALUES];
    struct err e = {0};
    assert_int_equal(quant_to_f32(dtype, bytes, values, N_VALUES, &e), ST_OK);
    memmove(bytes + 1, bytes, n_bytes);
    assert_int_equal(quant_to_f32(dtype, bytes + 1, unaligned, N_VALUES, &e), ST_OK);
    assert_memory_equal(values, unaligned, sizeof values);
    for (int i = 0; i < N_VALUES; i++) {
        float expected = parse_float(next_word(&rest));
        if (memcmp(&expected, &values[i], sizeof expected) != 0)
            fail_msg("%s element %d: %.9g, expected %.9g", dtype_name((uint32_t)dtype), i,
                     (double)values[i], (double)expected);
    }
    mem_free(bytes);
    n_dtypes_checked++;
}

static double round_trip_rmse(enum dtype dtype)
{
    static unsigned char packed[N_SOURCE * sizeof(float)];
    static float back[N_SOURCE];
    struct err e = {0};
    assert_int_equal(quant_from_f32(dtype, source, packed, N_SOURCE, &e), ST_OK);
    assert_int_equal(quant_to_f32(dtype, packed, back, N_SOURCE, &e), ST_OK);
    double sum = 0;
    for (int i = 0; i < N_SOURCE; i++)
        sum += ((double)back[i] - (double)source[i]) * ((double)back[i] - (double)source[i]);
    return sqrt(sum / N_SOURCE);
}

static void test_golden(void **state)
{
    (void)state;
    FILE *f = fopen(OINFER_SOURCE_DIR "/tests/golden/quant.txt", "r");
    assert_non_null(f);
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, f) > 0) {
        char *rest = line;
        const char *kind = next_word(&rest);
        if (strcmp(kind, "source") == 0) {
            read_source(rest);
            continue;
        }
        const char *name = next_word(&rest);
        enum dtype dtype;
        assert_true(dtype_parse(name, &dtype));
        if (strcmp(kind, "dtype") == 0) {
            check_values(dtype, rest);
            continue;
        }
        assert_string_equal(kind, "rmse");
        double ours = round_trip_rmse(dtype), reference = strtod(next_word(&rest), NULL);
        print_message("%s: rmse %.6g, reference %.6g\n", name, ours, reference);
        assert_true(ours <= reference * RMSE_SLACK);
        n_rmse_checked++;
    }
    free(line);
    fclose(f);
    int n_compute = 0;
    for (uint32_t i = 0; i < DT_COUNT; i++)
        n_compute += dtype_info(i) != NULL && dtype_info(i)->compute;
    assert_int_equal(n_dtypes_checked, n_compute);
    assert_int_equal(n_rmse_checked, n_compute);
}

/* Blocks of zeros, of one value, of huge, tiny and non-finite values: no fault, zeros stay zero. */
static void test_edges(void **state)
{
    (void)state;
    const float specials[] = {0.0f, -0.0f, 1.0f,   -1.0f,    1e-42f,    -1e-38f,
                              6e4f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN};
    unsigned char packed[N_VALUES * sizeof(float)];
    float in[N_VALUES], out[N_VALUES];
    for (uint32_t id = 0; id < DT_COUNT; id++) {
        if (dtype_info(id) == NULL || !dtype_info(id)->compute)
            continue;
        for (size_t s = 0; s < sizeof specials / sizeof specials[0]; s++) {
            for (int mixed = 0; mixed < 2; mixed++) {
                for (int i = 0; i < N_VALUES; i++)
                    in[i] = mixed && i % 7 != 0 ? 0.25f * (float)(i % 5) : specials[s];
                assert_int_equal(quant_from_f32((enum dtype)id, in, packed, N_VALUES, NULL), ST_OK);
                assert_int_equal(quant_to_f32((enum dtype)id, packed, out, N_VALUES, NULL), ST_OK);
                bool zero = specials[s] == 0.0f && !mixed;
                bool one = fabsf(specials[s]) == 1.0f && !mixed;
                for (int i = 0; i < N_VALUES && (zero || one); i++)
                    assert_true(fabsf(out[i] - in[i]) <= (zero ? 0.0f : 0.005f));
            }
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    float values[N_VALUES] = {0};
    unsigned char bytes[N_VALUES * sizeof(float)] = {0};
    struct err e = {0};
    assert_int_equal(quant_to_f32(DT_IQ2_XXS, bytes, values, N_VALUES, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "iq2_xxs"));
    assert_int_equal(quant_from_f32((enum dtype)4, values, bytes, 32, &e), ST_UNSUPPORTED);
    assert_int_equal(quant_from_f32((enum dtype)4000, values, bytes, 32, &e), ST_UNSUPPORTED);
    assert_int_equal(quant_to_f32(DT_Q4_K, bytes, values, 128, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "128"));
    assert_non_null(strstr(e.text, "256"));
    assert_int_equal(quant_to_f32(DT_Q4_0, bytes, values, 0, &e), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
