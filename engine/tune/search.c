/* Searches: the bookkeeping of told points, the budget, and the table of kinds. */
#include <math.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/tune/search_impl.h"

static const struct kind {
    const char *name;
    uint32_t (*choose)(struct search *s);
} kinds[SEARCH_KINDS] = {
    [SEARCH_GRID] = {"grid", search__choose_grid},
    [SEARCH_RANDOM] = {"random", search__choose_random},
    [SEARCH_BAYES] = {"bayes", search__choose_bayes},
};

const char *search_kind_name(enum search_kind kind)
{
    return (unsigned)kind < SEARCH_KINDS ? kinds[kind].name : "unknown";
}

bool search_kind_parse(const char *word, enum search_kind *out)
{
    for (int i = 0; i < SEARCH_KINDS; i++)
        if (strcmp(word, kinds[i].name) == 0) {
            *out = (enum search_kind)i;
            return true;
        }
    return false;
}

enum status search_open(enum search_kind kind, const struct space *space, uint32_t budget,
                        uint64_t seed, struct search **out, struct err *e)
{
    *out = NULL;
    if (kind == SEARCH_GRID)
        budget = space->n_points;
    else if (budget < 1 || budget > SEARCH_MAX_BUDGET)
        return err_set(e, ST_INVALID, "budget is %u, expected 1 to %d", budget, SEARCH_MAX_BUDGET);
    struct search *s = mem_zalloc(sizeof *s);
    if (!s)
        return err_set(e, ST_NO_MEMORY, "a search of %u points", space->n_points);
    *s = (struct search){.space = space,
                         .choose = kinds[kind].choose,
                         .budget = budget < space->n_points ? budget : space->n_points,
                         .state = seed,
                         .best = SPACE_NONE,
                         .times = mem_array(space->n_points, sizeof *s->times)};
    enum status st = ST_OK;
    if (!s->times)
        st = err_set(e, ST_NO_MEMORY, "a search of %u points", space->n_points);
    if (st == ST_OK && kind == SEARCH_BAYES)
        st = gp_open(space->n_coordinates, s->budget, &s->gp, e);
    if (st != ST_OK) {
        search_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void search_close(struct search *s)
{
    if (!s)
        return;
    gp_close(s->gp);
    mem_free(s->times);
    mem_free(s);
}

static uint32_t most_points(const struct search *s)
{
    const uint64_t twice = 2 * (uint64_t)s->budget;
    return twice < s->space->n_points ? (uint32_t)twice : s->space->n_points;
}

bool search_next(struct search *s, uint32_t *point)
{
    if (s->n_valid >= s->budget || s->n_told >= most_points(s))
        return false;
    *point = s->choose(s);
    return true;
}

void search_tell(struct search *s, uint32_t point, double time)
{
    ASSERT(point < s->space->n_points && s->times[point] == 0);
    const bool valid = time > 0 && isfinite(time);
    s->times[point] = valid ? time : -1;
    s->n_told++;
    if (!valid)
        return;
    s->n_valid++;
    if (s->best == SPACE_NONE || time < s->times[s->best])
        s->best = point;
}

uint32_t search_best(const struct search *s, double *time)
{
    if (time)
        *time = s->best == SPACE_NONE ? 0 : s->times[s->best];
    return s->best;
}

void search_progress(const struct search *s, uint32_t *told, uint32_t *most)
{
    const uint32_t invalid = s->n_told - s->n_valid;
    *told = s->n_told;
    *most = s->budget + invalid < most_points(s) ? s->budget + invalid : most_points(s);
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
uint32_t search__draw(struct search *s, uint32_t n)
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (uint32_t)(((z >> 32) * n) >> 32);
}

uint32_t search__untold(const struct search *s, uint32_t i)
{
    uint32_t point = 0;
    while (s->times[point] != 0 || i-- > 0)
        point++;
    return point;
}
