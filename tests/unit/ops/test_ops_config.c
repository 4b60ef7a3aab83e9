/* Configurations of variants: what may be set, and what setting it changes. */
#include "ops_test.h"

#include "engine/ops/config.h"

static const struct variant tiled = {
    .op = OP_MATMUL,
    .name = "tiled",
    .defines = "-DPACKED=1 -DTILE_K=16",
    .tunables = "ROWS=32,64 TOKENS=64,128 LWS2=64,256 TILE_K=8,16 EXTRA=3,4",
    .stages = {{"pack", GRID_ITEMS, 1, 1, 128}, {"multiply", GRID_GROUPS, 64, 128, 256}},
};

static void tunables_have_values_and_standards(void **state)
{
    (void)state;
    struct tunable list[CONFIG_MAX_TUNABLES];
    assert_int_equal(variant_tunable_list(&tiled, list), 5);
    assert_string_equal(list[0].name, "ROWS");
    assert_int_equal(list[0].n_values, 2);
    assert_int_equal(list[0].values[1], 64);
    assert_int_equal(list[0].standard, 64);
    assert_int_equal(list[1].standard, 128);
    assert_int_equal(list[2].standard, 256);
    assert_int_equal(list[3].standard, 16);
    assert_int_equal(list[4].standard, 3);
}

static void settings_change_a_copy(void **state)
{
    (void)state;
    const struct setting settings[] = {{"ROWS", 32}, {"LWS2", 64}, {"TILE_K", 8}, {"EXTRA", 4}};
    struct config c;
    assert_int_equal(variant_configure(&tiled, settings, 4, &c, NULL), ST_OK);
    assert_int_equal(c.row.stages[1].rows, 32);
    assert_int_equal(c.row.stages[0].rows, 1);
    assert_int_equal(c.row.stages[1].tokens, 128);
    assert_int_equal(c.row.stages[1].lws, 64);
    assert_int_equal(c.row.stages[0].lws, 128);
    assert_string_equal(c.row.defines, "-DPACKED=1 -DTILE_K=8 -DEXTRA=4");
    assert_int_equal(tiled.stages[1].rows, 64);
}

static void values_outside_are_refused(void **state)
{
    (void)state;
    struct err e = {0};
    struct config c;
    const struct setting value = {"TILE_K", 12}, name = {"WIDTH", 4};
    assert_int_equal(variant_configure(&tiled, &value, 1, &c, &e), ST_INVALID);
    assert_string_equal(e.text, "matmul tiled: TILE_K is 12, expected one of 8, 16");
    assert_int_equal(variant_configure(&tiled, &name, 1, &c, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "no tunable WIDTH"));
}

/* Every row's tunables parse, and its own values are among those allowed. */
static void rows_have_sound_tunables(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < variant_row_count; i++) {
        const struct variant *v = &variant_rows[i];
        struct tunable list[CONFIG_MAX_TUNABLES];
        const uint32_t n = variant_tunable_list(v, list);
        for (uint32_t j = 0; j < n; j++) {
            bool found = false;
            for (uint32_t k = 0; k < list[j].n_values; k++)
                found = found || list[j].values[k] == list[j].standard;
            if (!found)
                fail_msg("%s %s: %s is %u, which its tunables do not list", op_name(v->op), v->name,
                         list[j].name, list[j].standard);
        }
    }
}

/* The best of the variants of linear with wgmma for q4_0 on 132 compute units. */
static const char *best_tiles(uint64_t rows, uint64_t tokens)
{
    const struct variant *best = NULL;
    for (uint32_t i = 0; i < variant_row_count; i++) {
        const struct variant *v = &variant_rows[i];
        if (v->op == OP_LINEAR && v->dtype == DT_Q4_0 && (v->needs & CAP_PTX_WGMMA) &&
            (!best || variant_compare(v, best, rows, tokens, 132) < 0))
            best = v;
    }
    assert_non_null(best);
    return best->name;
}

/* Tiles are large where they fill the compute units evenly, and small where there are few. */
static void tiles_follow_the_shape(void **state)
{
    (void)state;
    static const struct {
        uint64_t rows, tokens;
        const char *name;
    } cases[] = {
        {4096, 512, "wgmma_t128_r128"}, {22016, 512, "wgmma_t128_r128"},
        {2048, 512, "wgmma_t128_r64"},  {576, 512, "wgmma_t64_r64"},
        {4096, 64, "wgmma_t64_r64"},    {4096, 4096, "wgmma_t128_r128"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(best_tiles(cases[i].rows, cases[i].tokens), cases[i].name);
    const struct variant plain = {.priority = 1}, better = {.priority = 2, .block_cost = 9};
    assert_true(variant_compare(&better, &plain, 64, 64, 1) < 0);
    assert_true(variant_compare(&plain, &better, 64, 64, 1) > 0);
    assert_int_equal(variant_compare(&plain, &plain, 64, 64, 1), 0);
    const struct variant *row = &variant_rows[0];
    assert_int_equal(variant_compare(row, row, 0, 0, 132), 0);
}

/* Whether a row of the registry takes a shape. */
static bool takes(const char *name, const struct op_call *call)
{
    for (uint32_t i = 0; i < variant_row_count; i++)
        if (variant_rows[i].op == call->op && strcmp(variant_rows[i].name, name) == 0)
            return variant_refuses(&variant_rows[i], call) == NULL;
    fail_msg("no variant %s", name);
    return false;
}

static bool takes_conv2d(const char *name, uint32_t c, uint32_t kh, uint32_t kw, uint32_t side)
{
    const struct op_call call = {.op = OP_CONV2D,
                                 .params.conv2d = {.n = 1,
                                                   .c = c,
                                                   .h = side,
                                                   .w = side,
                                                   .o = 64,
                                                   .kh = kh,
                                                   .kw = kw,
                                                   .stride_h = 1,
                                                   .stride_w = 1,
                                                   .dil_h = 1,
                                                   .dil_w = 1,
                                                   .groups = 1,
                                                   .layout = CONV_NCHW,
                                                   .ho = side,
                                                   .wo = side}};
    return takes(name, &call);
}

/* Rows that hold only for some shapes: the last that each takes, and the first that it does not. */
static void limits_of_shapes_hold(void **state)
{
    (void)state;
    assert_true(takes_conv2d("f32_winograd", 32, 3, 3, 56));
    assert_false(takes_conv2d("f32_winograd", 31, 3, 3, 56));
    assert_false(takes_conv2d("f32_winograd", 32, 3, 1, 56));
    assert_true(takes_conv2d("f32_64x64", 3, 16, 15, 56));
    assert_false(takes_conv2d("f32_64x64", 3, 16, 16, 56));
    assert_true(takes_conv2d("f32_64x64", 1, 3, 3, 46340));
    assert_false(takes_conv2d("f32_64x64", 1, 3, 3, 46341)); /* 2^31 outputs */
    assert_true(takes_conv2d("f32_1x1_64x64", 1, 1, 1, 46340));
    assert_false(takes_conv2d("f32_1x1_64x64", 1, 1, 1, 46341));
    assert_true(takes_conv2d("image", 8192, 3, 3, 8192));
    assert_false(takes_conv2d("image", 8193, 3, 3, 8192)); /* 2049 layers */
    assert_false(takes_conv2d("image", 1, 3, 3, 8193));
    for (uint32_t i = 0; i < variant_row_count; i++)
        if (variant_rows[i].scratch == SCRATCH_IMAGE)
            assert_true((variant_rows[i].needs & CAP_IMAGES) &&
                        variant_rows[i].only == SHAPES_IMAGES);
    static const uint32_t lengths[] = {8192, 8193, 32768, 32769};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const struct op_call row = {.op = OP_SOFTMAX,
                                    .params.softmax = {.rows = 1, .len = lengths[i]}};
        assert_int_equal(takes("kept", &row), i > 0);
        assert_int_equal(takes("ahead", &row), i == 1 || i == 2);
    }
    struct op_call call = {.op = OP_MATMUL, .params.matmul = {.m = 1, .n = (1u << 27) - 1, .k = 1}};
    assert_true(takes("f32_64x64", &call));
    call.params.matmul.n++;
    assert_false(takes("f32_64x64", &call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tunables_have_values_and_standards),
        cmocka_unit_test(settings_change_a_copy),
        cmocka_unit_test(values_outside_are_refused),
        cmocka_unit_test(rows_have_sound_tunables),
        cmocka_unit_test(tiles_follow_the_shape),
        cmocka_unit_test(limits_of_shapes_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
