/* bayes: space-filling draw, then expected improvement over the whole space, then near the best
 * point.
 *
 * What the process learns is the speed relative to the best point's: how slow the slow ones are
 * does not matter. Expected improvement is computed for every valid point that was not told, so it
 * is maximised exactly.
 */
#include <math.h>

#include "engine/tune/search_impl.h"

#define FILL_CANDIDATES 16 /* of a space-filling draw: the farthest of so many is taken */
#define REFINE_SHARE    2  /* one in so many points of the budget is near the best one: */
#define NEAR_STEPS      2  /* no more of space_steps away */
#define FILL_MIN        3  /* valid points before the process is asked */

/* Points of the space-filling draw: as many as there are tunables, and one. */
static uint32_t fill_points(const struct search *s)
{
    const uint32_t n = s->space->n_dims + 1;
    return n > FILL_MIN ? n : FILL_MIN;
}

/* The distance to the nearest point that was told, squared. */
static double nearest(const struct search *s, uint32_t point)
{
    double here[SPACE_MAX_COORDINATES], other[SPACE_MAX_COORDINATES], least = INFINITY;
    space_coordinates(s->space, point, here);
    for (uint32_t i = 0; i < s->space->n_points; i++) {
        if (s->times[i] == 0)
            continue;
        double square = 0;
        space_coordinates(s->space, i, other);
        for (uint32_t k = 0; k < s->space->n_coordinates; k++)
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

/* What the process learns of a time: less is better, the best point's is -1. */
static double value_of(const struct search *s, double time)
{
    return -s->times[s->best] / time;
}

static void learn(struct search *s)
{
    double x[SPACE_MAX_COORDINATES];
    gp_clear(s->gp);
    for (uint32_t i = 0; i < s->space->n_points; i++)
        if (s->times[i] > 0) {
            space_coordinates(s->space, i, x);
            gp_add(s->gp, x, value_of(s, s->times[i]));
        }
    (void)gp_learn(s->gp);
}

/* The point with the most expected improvement, near the best one only or anywhere; SPACE_NONE: all
 * were told. */
static uint32_t choose_improving(const struct search *s, bool near)
{
    uint32_t chosen = SPACE_NONE;
    double most = -1;
    for (uint32_t i = 0; i < s->space->n_points; i++) {
        double x[SPACE_MAX_COORDINATES], mean, deviation;
        if (s->times[i] != 0 || (near && space_steps(s->space, i, s->best) > NEAR_STEPS))
            continue;
        space_coordinates(s->space, i, x);
        gp_predict(s->gp, x, &mean, &deviation);
        const double gain = gp_expected_improvement(mean, deviation, -1);
        if (gain > most) {
            most = gain;
            chosen = i;
        }
    }
    return chosen;
}

uint32_t search__choose_bayes(struct search *s)
{
    if (s->n_valid < fill_points(s))
        return choose_fill(s);
    learn(s);
    uint32_t point = SPACE_NONE;
    if (s->n_valid + s->budget / REFINE_SHARE >= s->budget)
        point = choose_improving(s, true);
    if (point == SPACE_NONE)
        point = choose_improving(s, false);
    return point == SPACE_NONE ? search__choose_random(s) : point;
}
