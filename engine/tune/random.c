/* random: even draws without repetition. */
#include "engine/tune/search_impl.h"

uint32_t search__choose_random(struct search *s)
{
    return search__untold(s, search__draw(s, s->space->n_points - s->n_told));
}
