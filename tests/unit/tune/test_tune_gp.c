/* Gaussian processes against numbers that numpy computed (tests/golden/make_gp.py). */
#include "tune_test.h"

#include <math.h>
#include <stdlib.h>

#include "engine/tune/gp.h"

#define MAX_LINE (1 << 16)

/* The numbers of the next line, which begins with `word`; n of them. False: another line, or the
 * end. */
static bool read_line(FILE *f, const char *word, double *out, uint32_t n)
{
    static char line[MAX_LINE];
    const long here = ftell(f);
    if (!fgets(line, sizeof line, f) || strncmp(line, word, strlen(word)) != 0 ||
        line[strlen(word)] != ' ') {
        assert_int_equal(fseek(f, here, SEEK_SET), 0);
        return false;
    }
    char *at = line + strlen(word), *end;
    for (uint32_t i = 0; i < n; i++, at = end) {
        out[i] = strtod(at, &end);
        assert_true(end > at);
    }
    return true;
}

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("got %.17g, expected %.17g", got, want);
}

static void predictions_are_those_of_numpy(void **state)
{
    (void)state;
    FILE *f = fopen(OINFER_SOURCE_DIR "/tests/golden/gp.txt", "r");
    assert_non_null(f);
    char comment[256];
    assert_non_null(fgets(comment, sizeof comment, f));
    double head[3], lengths[GP_MAX_DIMS], x[GP_MAX_DIMS * 64], y[64], likelihood;
    uint32_t n_cases = 0, n_queries = 0;
    for (; read_line(f, "case", head, 3); n_cases++) {
        const uint32_t dims = (uint32_t)head[0], n = (uint32_t)head[1];
        struct gp *g;
        assert_int_equal(gp_open(dims, n, &g, NULL), ST_OK);
        assert_true(read_line(f, "lengths", lengths, dims) && read_line(f, "x", x, n * dims) &&
                    read_line(f, "y", y, n) && read_line(f, "likelihood", &likelihood, 1));
        double least = INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            gp_add(g, x + i * dims, y[i]);
            least = fmin(least, y[i]);
        }
        const double fitted = gp_fit(g, lengths, head[2]);
        assert_near(fitted, likelihood, 1e-8);
        double query[GP_MAX_DIMS + 3];
        for (; read_line(f, "query", query, dims + 3); n_queries++) {
            double mean, deviation;
            gp_predict(g, query, &mean, &deviation);
            assert_near(mean, query[dims], 1e-8);
            assert_near(deviation, query[dims + 1], 1e-7);
            assert_near(gp_expected_improvement(mean, deviation, least), query[dims + 2], 1e-7);
        }
        assert_true(gp_learn(g) >= fitted - 5); /* the set has something about as likely */
        gp_close(g);
    }
    assert_true(feof(f) || fgetc(f) == EOF);
    fclose(f);
    assert_int_equal(n_cases, 4);
    assert_int_equal(n_queries, 12);
}

static void improvement_without_doubt_is_the_gain(void **state)
{
    (void)state;
    assert_true(gp_expected_improvement(3, 0, 5) == 2);
    assert_true(gp_expected_improvement(7, 0, 5) == 0);
    assert_near(gp_expected_improvement(0, 1, 0), 0.39894228040143268, 1e-15);
}

/* A dimension that does not matter gets a longer scale than one that does. */
static void learning_tells_what_matters(void **state)
{
    (void)state;
    struct gp *g;
    assert_int_equal(gp_open(2, 25, &g, NULL), ST_OK);
    for (uint32_t i = 0; i < 25; i++) {
        const double x[] = {(i % 5) / 4.0, (i / 5) / 4.0};
        gp_add(g, x, sin(6 * x[0]));
    }
    const double wrong[] = {3.2, 0.4}, right[] = {0.4, 3.2};
    const double likely = gp_fit(g, right, 1e-4);
    assert_true(likely > gp_fit(g, wrong, 1e-4));
    assert_true(gp_learn(g) >= likely);
    const double at[] = {0.25, 0.3};
    double mean, deviation;
    gp_predict(g, at, &mean, &deviation);
    assert_true(fabs(mean - sin(1.5)) < 0.02 && deviation < 0.1);
    gp_close(g);
}

static void equal_observations_are_no_fault(void **state)
{
    (void)state;
    struct gp *g;
    const double x[] = {0.5};
    double mean, deviation;
    assert_int_equal(gp_open(1, 3, &g, NULL), ST_OK);
    for (int i = 0; i < 4; i++) /* one more than it holds */
        gp_add(g, x, 2);
    assert_true(isfinite(gp_learn(g)));
    gp_predict(g, x, &mean, &deviation);
    assert_true(fabs(mean - 2) < 1e-9 && isfinite(deviation));
    gp_close(g);
}

static void limits_and_failing_allocations(void **state)
{
    (void)state;
    struct gp *g;
    struct err e = {0};
    assert_int_equal(gp_open(GP_MAX_DIMS + 1, 1, &g, &e), ST_INVALID);
    assert_int_equal(gp_open(1, GP_MAX_POINTS + 1, &g, &e), ST_INVALID);
    for (uint64_t n = 1; n <= 6; n++) {
        mem_fail_at(n, 0);
        assert_int_equal(gp_open(2, 8, &g, &e), ST_NO_MEMORY);
        mem_fail_at(0, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_are_those_of_numpy),
        cmocka_unit_test(improvement_without_doubt_is_the_gain),
        cmocka_unit_test(learning_tells_what_matters),
        cmocka_unit_test(equal_observations_are_no_fault),
        cmocka_unit_test(limits_and_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
