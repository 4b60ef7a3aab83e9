/* Replays searches on a recorded grid, for plots: tune_replay GRID.tsv SEEDS BUDGET prints a line
 * "search seed points share" for every point: the share of the grid's best speed reached so far. */
#include <math.h>

#include "../unit/tune/grid.h"

static int replay(const struct grid *g, enum search_kind kind, uint64_t seed, uint32_t budget)
{
    struct search *s;
    struct err e;
    uint32_t point;
    if (search_open(kind, g->space, budget, seed, &s, &e) != ST_OK) {
        fprintf(stderr, "tune_replay: %s\n", e.text);
        return 1;
    }
    for (uint32_t n = 1; search_next(s, &point); n++) {
        double best;
        search_tell(s, point, g->times[point]);
        search_best(s, &best);
        printf("%s\t%u\t%u\t%.6f\n", search_kind_name(kind), (unsigned)seed, n,
               best > 0 ? g->best / best : 0.0);
    }
    search_close(s);
    return 0;
}

int main(int argc, char **argv)
{
    struct grid g = {0};
    if (argc != 4 || !grid_read(argv[1], &g)) {
        fprintf(stderr,
                "usage: tune_replay GRID.tsv SEEDS BUDGET; the grid must be of the variant's "
                "present space\n");
        return 2;
    }
    const uint64_t seeds = strtoul(argv[2], NULL, 10);
    const uint32_t budget = (uint32_t)strtoul(argv[3], NULL, 10);
    int status = 0;
    for (uint64_t seed = 1; seed <= seeds && status == 0; seed++) {
        status = replay(&g, SEARCH_BAYES, seed, budget);
        if (status == 0)
            status = replay(&g, SEARCH_RANDOM, seed, budget);
    }
    grid_close(&g);
    return status;
}
