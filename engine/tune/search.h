/* Searches: which point of a space to measure next.
 *
 * A search is asked for a point, the caller measures it and tells the result; so it can be driven
 * by a device, one point at a time between other work, or by a function in a test. The same seed
 * and the same results give the same points. One thread at a time.
 *
 *   grid    every point, in order; the budget does not count
 *   random  points drawn evenly, each once
 *   bayes   the row's own values, a space-filling draw, then the point of the largest expected
 *           improvement under a Gaussian process of the logarithm of the times (gp.h); the last
 *           fifth of the budget goes to the neighbours of the best point
 */
#ifndef OINFER_TUNE_SEARCH_H
#define OINFER_TUNE_SEARCH_H

#include "engine/tune/space.h"

enum search_kind { SEARCH_GRID, SEARCH_RANDOM, SEARCH_BAYES, SEARCH_KINDS };
const char *search_kind_name(enum search_kind kind); /* "grid", ... */
/* False for another word. */
bool search_kind_parse(const char *word, enum search_kind *out);

#define SEARCH_MAX_BUDGET 256

struct search;
/* budget: valid results to collect, 1 to SEARCH_MAX_BUDGET (grid: not looked at); the space has to
 * outlive the search. ST_INVALID names value and limit. */
enum status search_open(enum search_kind kind, const struct space *space, uint32_t budget,
                        uint64_t seed, struct search **out, struct err *e);
void search_close(struct search *s); /* accepts NULL */
/* The point to measure next, not told before. False: the search is over: the budget is used up,
 * twice as many points were tried, or the space is exhausted. */
bool search_next(struct search *s, uint32_t *point);
/* The result of a point, once: a time above 0 in any unit, or 0: the point is invalid. */
void search_tell(struct search *s, uint32_t point, double time);
/* The fastest point told; SPACE_NONE: none was valid. */
uint32_t search_best(const struct search *s, double *time);
/* Points told so far, valid or not, and how many there will be at most. */
void search_progress(const struct search *s, uint32_t *told, uint32_t *most);

#endif
