/* bayes: space-filling draw, expected improvement, then the neighbours of the best point.
 *
 * Expected improvement is computed for every point that was not told, so it is maximised exactly,
 * over valid points only. The neighbours are taken in the order of the process's means.
 */
#include <math.h>

#include "engine/tune/search_impl.h"

#define FILL_CANDIDATES 16 /* of a space-filling draw: the farthest of so many is taken */
#define REFINE_SHARE    5  /* one in so many points of the budget goes to neighbours */
#define FILL_MIN        3  /* valid points before the process is asked */

/* Points of the space-filling draw: as many as there are tunables, and one. */
static uint32_t fill_points(const struct search *s)
{
    const uint32_t n = s->space->n_dims + 2;
    return n > FILL_MIN ? n : FILL_MIN;
}

/* The distance to the nearest point that was told, squared. */
static double nearest(const struct search *s, uint32_t point)
{
    double here[CONFIG_MAX_TUNABLES], other[CONFIG_MAX_TUNABLES], least = INFINITY;
    space_coordinates(s->space, point, here);
    for (uint32_t i = 0; i < s->space->n_points; i++) {
        if (s->times[i] == 0)
            continue;
        double square = 0;
        space_coordinates(s->space, i, other);
        for (uint32_t k = 0; k < s->space->n_dims; k++)
            square += (here[k] - other[k]) * (here[k] - other[k]);
        least = fmin(least, square);
    }
    return least;
}

static uint32_t choose_fill(struct search *s)
{
    if (s->n_told == 0 && s->space->standard != SPACE_NONE)
        return s->space->standard;
    uint32_t chosen = SPACE_NONE;
    double farthest = -1;
    for (uint32_t i = 0; i < FILL_CANDIDATES; i++) {
        const uint32_t point = search__choose_random(s);
        const double distance = nearest(s, point);
        if (distance > farthest) {
            farthest = distance;
            chosen = point;
        }
    }
    return chosen;
}

static void learn(struct search *s)
{
    double x[CONFIG_MAX_TUNABLES];
    gp_clear(s->gp);
    for (uint32_t i = 0; i < s->space->n_points; i++)
        if (s->times[i] > 0) {
            space_coordinates(s->space, i, x);
            gp_add(s->gp, x, log(s->times[i]));
        }
    (void)gp_learn(s->gp);
}

/* The neighbour of the best point that promises most; SPACE_NONE: all were told. */
static uint32_t choose_neighbour(const struct search *s)
{
    uint32_t around[2 * CONFIG_MAX_TUNABLES], chosen = SPACE_NONE;
    const uint32_t n = space_neighbours(s->space, s->best, around);
    double least = INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double x[CONFIG_MAX_TUNABLES], mean, deviation;
        if (s->times[around[i]] != 0)
            continue;
        space_coordinates(s->space, around[i], x);
        gp_predict(s->gp, x, &mean, &deviation);
        if (mean < least) {
            least = mean;
            chosen = around[i];
        }
    }
    return chosen;
}

static uint32_t choose_improving(struct search *s)
{
    uint32_t chosen = SPACE_NONE;
    double most = -1;
    const double best = log(s->times[s->best]);
    for (uint32_t i = 0; i < s->space->n_points; i++) {
        double x[CONFIG_MAX_TUNABLES], mean, deviation;
        if (s->times[i] != 0)
            continue;
        space_coordinates(s->space, i, x);
        gp_predict(s->gp, x, &mean, &deviation);
        const double gain = gp_expected_improvement(mean, deviation, best);
        if (gain > most) {
            most = gain;
            chosen = i;
        }
    }
    return chosen == SPACE_NONE ? search__choose_random(s) : chosen;
}

uint32_t search__choose_bayes(struct search *s)
{
    if (s->n_valid < fill_points(s))
        return choose_fill(s);
    learn(s);
    if (s->n_valid + s->budget / REFINE_SHARE >= s->budget) {
        const uint32_t point = choose_neighbour(s);
        if (point != SPACE_NONE)
            return point;
    }
    return choose_improving(s);
}
