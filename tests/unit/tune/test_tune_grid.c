/* Searches on recorded grids: in 20 points bayes comes within 5 % of the grid's best in nine seeds
 * of ten. */
#include "tune_test.h"

#include "grid.h"

#define SEEDS  10
#define BUDGET 20

static const char *const names[] = {"gemv_q4_0", "matmul_f32"};

/* The share of the best speed that a search reaches. */
static double run(const struct grid *g, enum search_kind kind, uint64_t seed)
{
    struct search *s;
    uint32_t point;
    double best;
    assert_int_equal(search_open(kind, g->space, BUDGET, seed, &s, NULL), ST_OK);
    while (search_next(s, &point))
        search_tell(s, point, g->times[point]);
    assert_true(search_best(s, &best) != SPACE_NONE);
    search_close(s);
    return g->best / best;
}

static void bayes_reaches_the_best_of_recorded_grids(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        struct grid g;
        uint32_t n_bayes = 0, n_random = 0;
        snprintf(path, sizeof path, OINFER_SOURCE_DIR "/tests/bench/tune/%s.tsv", names[i]);
        if (!grid_read(path, &g))
            fail_msg("%s does not hold the variant's space: record it again", path);
        assert_true(g.n_valid >= 96);
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            n_bayes += run(&g, SEARCH_BAYES, seed) >= 0.95;
            n_random += run(&g, SEARCH_RANDOM, seed) >= 0.95;
        }
        print_message("%s, %u points: within 5 %% in %d points: bayes %u, random %u of %d seeds\n",
                      names[i], g.n_valid, BUDGET, n_bayes, n_random, SEEDS);
        assert_true(n_bayes >= 9);
        grid_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bayes_reaches_the_best_of_recorded_grids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
