/* Candidates of one draw, and the steps that narrow them. Shared by the sampler's files; one
 * sampler, one thread.
 */
#ifndef OINFER_TEXT_SAMPLER_INTERNAL_H
#define OINFER_TEXT_SAMPLER_INTERNAL_H

#include "engine/text/sampler.h"

struct candidate {
    double weight; /* proportional to the probability, after candidates_weigh */
    float logit;
    float key; /* what order is by: higher first */
    token_id id;
};

struct candidates {
    struct candidate *items;
    uint32_t count; /* at least 1 */
    double total;   /* sum of the weights */
    bool sorted;    /* by logit, descending, ties by lower id */
};

/* weight = exp((logit - highest) / temperature), and their sum. */
void candidates_weigh(struct candidates *c, float temperature);
/* Those of the k highest (k >= 1) of logits[n], room for k; -inf is none. Sorted. */
void candidates_best(struct candidates *c, const float *logits, uint32_t n, uint32_t k);
/* The k best (k >= 1), sorted. */
void candidates_top_k(struct candidates *c, uint32_t k);
/* The fewest of highest probability whose probabilities sum to at least p, sorted. */
void candidates_top_p(struct candidates *c, float p);
/* The fewest of most typical information content whose probabilities sum to at least p. */
void candidates_typical_p(struct candidates *c, float p);
/* Those of at least p times the highest probability. */
void candidates_min_p(struct candidates *c, float p);
/* The candidate at `uniform` (0 <= uniform < 1) of the weights' sum. */
const struct candidate *candidates_pick(const struct candidates *c, double uniform);

/* Mirostat (version 1 or 2): keeps the candidates that lead to the surprise mu, weighed at
 * `temperature`; at least one. n_vocab: size of the vocabulary. */
void mirostat_truncate(struct candidates *c, int version, float temperature, double mu,
                       uint32_t n_vocab);
/* -log2 of the picked candidate's share of the weights. */
double mirostat_surprise(const struct candidates *c, const struct candidate *picked);

#endif
