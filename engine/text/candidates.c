/* Narrowing the candidates. A vocabulary is large and the set kept is small, so nothing is sorted
 * as a whole: a heap is built in O(n) and only what is kept is taken off it. Each order is total
 * (key, then id), so results do not depend on the machine. */
#include <math.h>
#include <string.h>

#include "engine/text/sample_math.h"
#include "engine/text/sampler_internal.h"

/* Mirostat 1 estimates Zipf's exponent from this many of the best tokens. */
#define MIROSTAT_ESTIMATE_TOKENS 100

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

static void sift_down(struct candidate *heap, uint32_t n, uint32_t at)
{
    struct candidate item = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &item))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = item;
}

/* Puts the first candidates in the order of their keys to the front and drops the rest: at most
 * `most` of them, and no more than are needed for their weights to sum to `mass`. */
static void keep_first(struct candidates *c, uint32_t most, double mass)
{
    struct candidate *items = c->items;
    uint32_t n = c->count, left = n;
    double sum = 0.0, kept = 0.0;
    for (uint32_t at = n / 2; at-- > 0;)
        sift_down(items, n, at);
    while (left > 0 && n - left < most && (left == n || sum < mass)) {
        struct candidate top = items[0];
        items[0] = items[--left];
        items[left] = top;
        sum += top.weight;
        kept += top.weight;
        if (left > 0)
            sift_down(items, left, 0);
    }
    uint32_t count = n - left;
    for (uint32_t i = 0; i < count / 2; i++) {
        struct candidate swap = items[left + i];
        items[left + i] = items[n - 1 - i];
        items[n - 1 - i] = swap;
    }
    memmove(items, items + left, count * sizeof *items);
    c->count = count;
    c->total = kept;
}

static float highest_logit(const struct candidates *c)
{
    if (c->sorted)
        return c->items[0].logit;
    float highest = c->items[0].logit;
    for (uint32_t i = 1; i < c->count; i++)
        if (c->items[i].logit > highest)
            highest = c->items[i].logit;
    return highest;
}

void candidates_weigh(struct candidates *c, float temperature)
{
    const double highest = highest_logit(c);
    double x[SAMPLE_EXP_BLOCK];
    c->total = 0.0;
    for (uint32_t first = 0; first < c->count; first += SAMPLE_EXP_BLOCK) {
        const uint32_t left = c->count - first,
                       n = left < SAMPLE_EXP_BLOCK ? left : SAMPLE_EXP_BLOCK;
        for (uint32_t i = 0; i < SAMPLE_EXP_BLOCK; i++)
            x[i] = i < n ? ((double)c->items[first + i].logit - highest) / temperature : -INFINITY;
        sample_exp_block(x);
        c->total += sample_sum_block(x);
        for (uint32_t i = 0; i < n; i++)
            c->items[first + i].weight = x[i];
    }
}

static bool behind(const struct candidate *a, const struct candidate *b)
{
    return a->logit < b->logit || (a->logit == b->logit && a->id > b->id);
}

/* Puts the last of a heap, whose root is out of place, on top. */
static void lift_last(struct candidate *heap, uint32_t n)
{
    const struct candidate item = heap[0];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && behind(&heap[child + 1], &heap[child]))
            child++;
        if (!behind(&heap[child], &item))
            break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

void candidates_best(struct candidates *c, const float *logits, uint32_t n, uint32_t k)
{
    struct candidate *heap = c->items; /* of the best so far, the last of them first */
    c->count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(logits[i] > (c->count == k ? heap[0].logit : -INFINITY)))
            continue; /* ids ascend: one that equals the last comes behind it */
        const struct candidate item = {.logit = logits[i], .id = (token_id)i};
        uint32_t at = c->count < k ? c->count++ : 0;
        if (at > 0) {
            for (; at > 0 && item.logit <= heap[(at - 1) / 2].logit; at = (at - 1) / 2)
                heap[at] = heap[(at - 1) / 2];
            heap[at] = item;
        } else {
            heap[0] = item;
            lift_last(heap, c->count);
        }
    }
    for (uint32_t left = c->count; left > 1;) { /* the last goes to the end */
        const struct candidate item = heap[0];
        heap[0] = heap[--left];
        heap[left] = item;
        lift_last(heap, left);
    }
    c->sorted = true;
}

static void key_is_logit(struct candidates *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        c->items[i].key = c->items[i].logit;
}

void candidates_top_k(struct candidates *c, uint32_t k)
{
    if (!c->sorted) {
        key_is_logit(c);
        keep_first(c, k, HUGE_VAL);
        c->sorted = true;
    } else if (k < c->count) {
        c->count = k;
    }
}

/* Drops what weighs less. */
static void keep_weights(struct candidates *c, double least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->items[i].weight >= least)
            c->items[kept++] = c->items[i];
    c->count = kept;
}

void candidates_top_p(struct candidates *c, float p)
{
    candidates_weigh(c, 1.0f);
    const double mass = p * c->total;
    /* All that weigh less than this are half of what may be left out, at most. */
    keep_weights(c, (c->total - mass) / (2.0 * c->count));
    key_is_logit(c);
    keep_first(c, c->count, mass);
    c->sorted = true;
}

void candidates_typical_p(struct candidates *c, float p)
{
    candidates_weigh(c, 1.0f);
    double log_total = sample_log(c->total), highest = highest_logit(c), entropy = 0.0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct candidate *item = &c->items[i];
        double information = log_total - ((double)item->logit - highest);
        entropy += item->weight / c->total * information;
    }
    for (uint32_t i = 0; i < c->count; i++) {
        struct candidate *item = &c->items[i];
        double information = log_total - ((double)item->logit - highest);
        item->key = (float)-fabs(information - entropy);
    }
    keep_first(c, c->count, p * c->total);
    c->sorted = false;
}

void candidates_min_p(struct candidates *c, float p)
{
    candidates_weigh(c, 1.0f); /* the highest weight is 1 */
    keep_weights(c, p);
}

const struct candidate *candidates_pick(const struct candidates *c, double uniform)
{
    double target = uniform * c->total, sum = 0.0;
    const struct candidate *last = &c->items[0];
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->items[i].weight == 0.0)
            continue;
        last = &c->items[i];
        sum += last->weight;
        if (sum > target)
            break;
    }
    return last;
}

/* The highest logits, descending; returns how many. */
static uint32_t highest_logits(const struct candidates *c, float best[MIROSTAT_ESTIMATE_TOKENS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        float logit = c->items[i].logit;
        if (n == MIROSTAT_ESTIMATE_TOKENS && !(logit > best[n - 1]))
            continue;
        uint32_t at = n < MIROSTAT_ESTIMATE_TOKENS ? n++ : n - 1;
        for (; at > 0 && logit > best[at - 1]; at--)
            best[at] = best[at - 1];
        best[at] = logit;
    }
    return n;
}

/* How many tokens give the surprise mu under Zipf's law: Basu 2020, equation 30 and algorithm 1. */
static double mirostat_k(const struct candidates *c, float temperature, double mu, uint32_t n_vocab)
{
    float best[MIROSTAT_ESTIMATE_TOKENS];
    uint32_t n = highest_logits(c, best);
    double products = 0.0, squares = 0.0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        double t = sample_log((double)(i + 2) / (double)(i + 1));
        double b = ((double)best[i] - (double)best[i + 1]) / (double)temperature;
        products += t * b;
        squares += t * t;
    }
    double s = squares > 0.0 ? products / squares : 0.0, epsilon = s - 1.0;
    if (s <= 0.0 || fabs(epsilon * sample_log((double)n_vocab)) > 600.0)
        return s <= 0.0 ? (double)c->count : 1.0;
    double base = 1.0 - sample_exp(-epsilon * sample_log((double)n_vocab));
    if (!(epsilon / base > 0.0))
        return (double)c->count;
    double log_k = (sample_log(epsilon / base) + mu * sample_log(2.0)) / s;
    return log_k < 60.0 ? sample_exp(log_k) : (double)c->count;
}

void mirostat_truncate(struct candidates *c, int version, float temperature, double mu,
                       uint32_t n_vocab)
{
    if (version == 1) {
        double k = mirostat_k(c, temperature, mu, n_vocab);
        if (k < (double)c->count)
            candidates_top_k(c, k < 1.0 ? 1 : (uint32_t)k);
        candidates_weigh(c, temperature);
        return;
    }
    candidates_weigh(c, temperature); /* the highest weight is 1 */
    double least = c->total * sample_exp(-mu * sample_log(2.0));
    keep_weights(c, least < 1.0 ? least : 1.0);
    candidates_weigh(c, temperature);
}

double mirostat_surprise(const struct candidates *c, const struct candidate *picked)
{
    return -sample_log(picked->weight / c->total) / sample_log(2.0);
}
