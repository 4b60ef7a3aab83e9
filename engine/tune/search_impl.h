/* The inside of searches: what the kinds share, and the one function that each of them has. */
#ifndef OINFER_TUNE_SEARCH_IMPL_H
#define OINFER_TUNE_SEARCH_IMPL_H

#include "engine/tune/gp.h"
#include "engine/tune/search.h"

struct search {
    const struct space *space;
    /* A point not told before; there is one. */
    uint32_t (*choose)(struct search *s);
    uint32_t budget;
    uint64_t state; /* of the generator */
    uint32_t n_told, n_valid, best;
    double *times; /* [n_points] 0: not told; negative: invalid */
    struct gp *gp; /* of bayes */
};

/* Evenly in [0, n). */
uint32_t search__draw(struct search *s, uint32_t n);
/* The i-th point not told before. */
uint32_t search__untold(const struct search *s, uint32_t i);

uint32_t search__choose_grid(struct search *s);
uint32_t search__choose_random(struct search *s);
uint32_t search__choose_bayes(struct search *s);

#endif
