/* grid: all points of the space in order. */
#include "engine/tune/search_impl.h"

uint32_t search__choose_grid(struct search *s)
{
    return search__untold(s, 0);
}
