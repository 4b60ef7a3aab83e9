/* Spaces: conditions, device limits, the order of points, neighbours, settings there and back. */
#include "tune_test.h"

#include <math.h>

#include "engine/tune/condition.h"

static void conditions_are_evaluated(void **state)
{
    (void)state;
    const struct condition_name names[] = {{"A", 4}, {"LONG_NAME2", 3}};
    const struct {
        const char *text;
        bool holds;
    } cases[] = {
        {NULL, true},
        {"", true},
        {"A * 2 + 1 >= 9", true},
        {"1 + A * 2 < 9", false},
        {"(1 + A) * 2 == 10", true},
        {"A - 1 - 1 == 2", true},
        {"17 / A == 4 && 17 % A == 1", true},
        {"A > LONG_NAME2 && A <= 3", false},
        {"A>LONG_NAME2&&A<=4", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool holds;
        assert_int_equal(condition_holds(cases[i].text, names, 2, &holds, NULL), ST_OK);
        assert_int_equal(holds, cases[i].holds);
    }
}

static void bad_conditions_are_refused(void **state)
{
    (void)state;
    const struct condition_name names[] = {{"A", 4}};
    const char *const texts[] = {"A",
                                 "A >=",
                                 "B > 1",
                                 "A > 1 &&",
                                 "A > 1 A",
                                 "(A > 1",
                                 "A / 0 > 1",
                                 "AB > 1",
                                 "A % (A - 4) == 0",
                                 "((((((((((((((((((A)))))))))))))))))) > 1",
                                 "a > 1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err e = {0};
        bool holds;
        assert_int_equal(condition_holds(texts[i], names, 1, &holds, &e), ST_INVALID);
        assert_non_null(strstr(e.text, texts[i]));
        assert_false(holds);
    }
}

static void points_are_the_product_less_what_is_ruled_out(void **state)
{
    (void)state;
    struct space *s = tune_space("ROWS=2,4,8 LWS=32,64,128,256 T=1,2", "ROWS * T <= 8",
                                 (struct space_limits){0, 128});
    assert_int_equal(s->n_points, (3 * 2 - 1) * 3);
    assert_int_equal(s->standard, 0);
    char text[SPACE_TEXT_BYTES];
    assert_string_equal(space_text(s, 0, text), "ROWS=2 LWS=32 T=1");
    assert_string_equal(space_text(s, 1, text), "ROWS=2 LWS=32 T=2");
    assert_string_equal(space_text(s, s->n_points - 1, text), "ROWS=8 LWS=128 T=1");
    for (uint32_t i = 0; i < s->n_points; i++) {
        uint32_t places[CONFIG_MAX_TUNABLES];
        struct setting settings[CONFIG_MAX_TUNABLES];
        space_places(s, i, places);
        assert_int_equal(space_at(s, places), i);
        const uint32_t n = space_settings(s, i, settings);
        assert_int_equal(space_find(s, settings, n), i);
        assert_int_equal(space_find(s, settings, n - 1), SPACE_NONE);
        assert_true(settings[1].value <= 128 && settings[0].value * settings[2].value <= 8);
    }
    const struct setting unknown[] = {{"ROWS", 2}, {"LWS", 48}, {"T", 1}};
    const struct setting ruled_out[] = {{"T", 2}, {"ROWS", 8}, {"LWS", 64}};
    assert_int_equal(space_find(s, unknown, 3), SPACE_NONE);
    assert_int_equal(space_find(s, ruled_out, 3), SPACE_NONE);
    space_close(s);
}

static void steps_are_places_in_lists(void **state)
{
    (void)state;
    struct space *s = tune_space("A=1,2,4 B=1,2,4", "A * B <= 8", (struct space_limits){0, 0});
    const struct setting corner[] = {{"A", 1}, {"B", 4}}, edge[] = {{"A", 4}, {"B", 2}};
    const uint32_t from = space_find(s, corner, 2), to = space_find(s, edge, 2);
    assert_int_equal(space_steps(s, from, to), 3);
    assert_int_equal(space_steps(s, to, from), 3);
    assert_int_equal(space_steps(s, to, to), 0);
    space_close(s);
}

static void outputs_of_an_item_are_a_coordinate(void **state)
{
    (void)state;
    const struct space_limits none = {0, 0};
    struct space *s = tune_space("ROWS=8,16 LWS2=4,8 K=1,2", NULL, none);
    double x[SPACE_MAX_COORDINATES];
    const struct setting settings[] = {{"ROWS", 16}, {"LWS2", 4}, {"K", 1}};
    assert_int_equal(s->n_coordinates, 4);
    space_coordinates(s, space_find(s, settings, 3), x);
    assert_true(fabs(x[3] - 2.0 / 3) < 1e-12); /* 16 / 4: two doublings */
    space_close(s);
    s = tune_space("ROWS=8,16 K=1,2", NULL, none);
    assert_int_equal(s->n_coordinates, 2);
    space_close(s);
}

static void coordinates_are_logarithms(void **state)
{
    (void)state;
    struct space *s = tune_space("A=8,16,64 B=0,1,5 C=7", NULL, (struct space_limits){0, 0});
    double x[SPACE_MAX_COORDINATES];
    const struct setting settings[] = {{"A", 16}, {"B", 1}, {"C", 7}};
    space_coordinates(s, space_find(s, settings, 3), x);
    assert_true(fabs(x[0] - 1.0 / 3) < 1e-12 && x[1] == 0.5 && x[2] == 0);
    space_close(s);
}

static void local_memory_limits_a_space(void **state)
{
    (void)state;
    const char *require = "TILE * TILE * 4 <= LOCAL_BYTES && TILE <= MAX_GROUP";
    struct space *s = tune_space("TILE=8,16,32", require, (struct space_limits){1024, 0});
    assert_int_equal(s->n_points, 2);
    space_close(s);
    s = tune_space("TILE=8,16,32", require, (struct space_limits){0, 0});
    assert_int_equal(s->n_points, 3);
    space_close(s);
    const struct tunable tile = {.name = "TILE", .n_values = 1, .values = {64}};
    struct err e = {0};
    assert_int_equal(space_make(&tile, 1, require, &(struct space_limits){64, 0}, &s, &e),
                     ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "none of 1 "));
    assert_int_equal(space_make(&tile, 1, "HEIGHT > 1", &(struct space_limits){0, 0}, &s, &e),
                     ST_INVALID);
}

/* Every row of kernels.def: its condition parses, and its own values satisfy it. */
static void all_rows_have_sound_spaces(void **state)
{
    (void)state;
    uint32_t n_conditions = 0, n_large = 0;
    for (uint32_t i = 0; i < variant_row_count; i++) {
        const struct variant *v = &variant_rows[i];
        struct tunable dims[CONFIG_MAX_TUNABLES];
        const uint32_t n = variant_tunable_list(v, dims);
        struct space *s;
        struct err e = {0};
        if (space_make(dims, n, v->require, &(struct space_limits){32768, 1024}, &s, &e) != ST_OK)
            fail_msg("%s %s: %s", op_name(v->op), v->name, e.text);
        assert_true(s->standard != SPACE_NONE);
        n_conditions += v->require != NULL;
        n_large += s->n_points >= 96;
        space_close(s);
    }
    assert_true(n_conditions > 0 && n_large >= 2);
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    const struct tunable dims[] = {{.name = "A", .n_values = 2, .values = {1, 2}}};
    for (uint64_t n = 1; n <= 2; n++) {
        struct space *s;
        mem_fail_at(n, 0);
        assert_int_equal(space_make(dims, 1, NULL, &(struct space_limits){0, 0}, &s, NULL),
                         ST_NO_MEMORY);
        mem_fail_at(0, 0);
        assert_null(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conditions_are_evaluated),
        cmocka_unit_test(bad_conditions_are_refused),
        cmocka_unit_test(points_are_the_product_less_what_is_ruled_out),
        cmocka_unit_test(steps_are_places_in_lists),
        cmocka_unit_test(outputs_of_an_item_are_a_coordinate),
        cmocka_unit_test(coordinates_are_logarithms),
        cmocka_unit_test(local_memory_limits_a_space),
        cmocka_unit_test(all_rows_have_sound_spaces),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
