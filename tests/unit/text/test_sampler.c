/* The sampler against a plain reference: who may be drawn (exactly), how often (chi-squared), the
 * penalties' formulas, mirostat's feedback, reproducibility, refusals (S14 S23 S37 S42). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/sample_math.h"
#include "engine/text/sampler.h"

#define N     40
#define DRAWS 40000

/* Logits of a shuffled, uneven distribution with some ties. */
static void fill_logits(float logits[N])
{
    for (int i = 0; i < N; i++)
        logits[i] = (float)((i * 17) % N) / 6.0f - (i % 5 == 0 ? 2.0f : 0.0f);
}

static struct sampler *open_sampler(const struct sampler_params *p, uint32_t n)
{
    struct sampler *s = NULL;
    struct err e = {0};
    if (sampler_open(p, n, &s, &e) != ST_OK)
        fail_msg("%s", e.text);
    return s;
}

static token_id draw(struct sampler *s, const float *logits)
{
    struct sample out;
    struct err e = {0};
    if (sampler_draw(s, logits, NULL, 0, SAMPLER_NO_LOGPROBS, &out, &e) != ST_OK)
        fail_msg("%s", e.text);
    return out.id;
}

/* Softmax of logits / temperature over the ids kept; the others get 0. */
static void softmax(const float *logits, const bool *kept, double temperature, double p[N])
{
    double highest = -INFINITY, sum = 0.0;
    for (int i = 0; i < N; i++)
        if (kept[i] && logits[i] > highest)
            highest = logits[i];
    for (int i = 0; i < N; i++) {
        p[i] = kept[i] ? exp(((double)logits[i] - highest) / temperature) : 0.0;
        sum += p[i];
    }
    for (int i = 0; i < N; i++)
        p[i] /= sum;
}

/* Keeps the ids of highest `value` until `count` are kept or their p sums to mass. */
static void keep_best(const double *value, const double *p, int count, double mass, bool *kept)
{
    bool chosen[N] = {false};
    double sum = 0.0;
    for (int taken = 0; taken < count && (taken == 0 || sum < mass); taken++) {
        int best = -1;
        for (int i = 0; i < N; i++)
            if (kept[i] && !chosen[i] && (best < 0 || value[i] > value[best]))
                best = i;
        if (best < 0)
            break;
        chosen[best] = true;
        sum += p[best];
    }
    memcpy(kept, chosen, sizeof chosen);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* The chain as the papers write it, one full pass after another. */
static void reference(const struct sampler_params *q, const float *logits, bool *kept, double *p)
{
    double value[N], entropy = 0.0;
    for (int i = 0; i < N; i++) {
        kept[i] = true;
        value[i] = logits[i];
    }
    softmax(logits, kept, 1.0, p);
    if (q->top_k > 0)
        keep_best(value, p, q->top_k, HUGE_VAL, kept);
    if (q->typical_p < 1.0f) {
        softmax(logits, kept, 1.0, p);
        for (int i = 0; i < N; i++)
            entropy -= kept[i] ? p[i] * log(p[i]) : 0.0;
        double typical[N];
        for (int i = 0; i < N; i++)
            typical[i] = kept[i] ? (double)(float)-fabs(-log(p[i]) - entropy) : -HUGE_VAL;
        keep_best(typical, p, N, q->typical_p, kept);
    }
    if (q->top_p < 1.0f) {
        softmax(logits, kept, 1.0, p);
        keep_best(value, p, N, q->top_p, kept);
    }
    if (q->min_p > 0.0f) {
        double highest = 0.0;
        softmax(logits, kept, 1.0, p);
        for (int i = 0; i < N; i++)
            highest = fmax(highest, p[i]);
        for (int i = 0; i < N; i++)
            kept[i] = kept[i] && p[i] >= q->min_p * highest;
    }
    softmax(logits, kept, q->temperature, p);
}

/* Draws DRAWS times: nobody outside the kept set, and counts within chi-squared's 1e-6 tail. */
static void check_distribution(const struct sampler_params *q)
{
    float logits[N];
    bool kept[N];
    double p[N], chi = 0.0, rest = 0.0, rest_count = 0.0;
    int counts[N] = {0}, cells = 0;
    fill_logits(logits);
    reference(q, logits, kept, p);
    struct sampler *s = open_sampler(q, N);
    for (int i = 0; i < DRAWS; i++)
        counts[draw(s, logits)]++;
    sampler_close(s);
    for (int i = 0; i < N; i++) {
        if (!kept[i] && counts[i] > 0)
            fail_msg("token %d was drawn %d times and must not be", i, counts[i]);
        double expected = p[i] * DRAWS;
        if (expected < 10.0) {
            rest += expected;
            rest_count += counts[i];
            continue;
        }
        if (counts[i] == 0)
            fail_msg("token %d was never drawn, expected %g times", i, expected);
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    if (rest >= 10.0)
        chi += (rest_count - rest) * (rest_count - rest) / rest;
    double freedom = cells, limit = freedom + 5.0 * sqrt(2.0 * freedom) + 24.0;
    if (chi > limit)
        fail_msg("chi-squared %g over %g with %d cells", chi, limit, cells);
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    static const struct {
        float temperature;
        int32_t top_k;
        float top_p, min_p, typical_p;
    } rows[] = {
        {1.0f, 0, 1.0f, 0.0f, 1.0f},   {0.5f, 0, 1.0f, 0.0f, 1.0f},   {3.0f, 0, 1.0f, 0.0f, 1.0f},
        {1.0f, 1, 1.0f, 0.0f, 1.0f},   {1.0f, 7, 1.0f, 0.0f, 1.0f},   {1.0f, 39, 1.0f, 0.0f, 1.0f},
        {1.0f, 99, 1.0f, 0.0f, 1.0f},  {1.0f, 0, 0.9f, 0.0f, 1.0f},   {1.0f, 0, 0.5f, 0.0f, 1.0f},
        {1.0f, 0, 0.0f, 0.0f, 1.0f},   {1.0f, 0, 1.0f, 0.1f, 1.0f},   {1.0f, 0, 1.0f, 1.0f, 1.0f},
        {1.0f, 0, 1.0f, 0.0f, 0.7f},   {1.0f, 0, 1.0f, 0.0f, 0.2f},   {1.0f, 0, 1.0f, 0.0f, 0.0f},
        {0.8f, 20, 0.9f, 0.05f, 0.9f}, {1.5f, 10, 0.95f, 0.0f, 1.0f}, {1e-6f, 0, 1.0f, 0.0f, 1.0f},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_params q;
        sampler_params_default(&q);
        q.temperature = rows[i].temperature;
        q.top_k = rows[i].top_k;
        q.top_p = rows[i].top_p;
        q.min_p = rows[i].min_p;
        q.typical_p = rows[i].typical_p;
        q.seed = 1234 + i;
        check_distribution(&q);
    }
}

/* The set that top_p keeps, for many p: each member is drawn, nobody else. */
/* Of a vocabulary of several blocks, whose last is not full. */
static void draws_reach_every_block(void **state)
{
    (void)state;
    static float logits[1000];
    static const int wanted[] = {0, 255, 256, 700, 999};
    for (int i = 0; i < 1000; i++)
        logits[i] = i % 3 ? -100.0f : -INFINITY;
    for (int i = 0; i < 5; i++)
        logits[wanted[i]] = 2.0f;
    for (int k = 0; k <= 4; k++) {
        struct sampler_params p;
        int counts[5] = {0}, n = k > 0 ? k : 5;
        sampler_params_default(&p);
        p.top_k = k;
        p.seed = 3;
        struct sampler *s = open_sampler(&p, 1000);
        for (int d = 0; d < 4000; d++) {
            const token_id id = draw(s, logits);
            int at = 0;
            while (at < n && wanted[at] != id)
                at++;
            assert_in_range(at, 0, n - 1);
            counts[at]++;
        }
        for (int i = 0; i < n; i++) /* 5 standard deviations */
            assert_true(fabs(counts[i] - 4000.0 / n) < 5.0 * sqrt(4000.0 / n));
        sampler_close(s);
    }
}

static void top_p_keeps_the_smallest_set(void **state)
{
    (void)state;
    float logits[8] = {0};
    const double p[8] = {0.05, 0.3, 0.15, 0.25, 0.1, 0.08, 0.04, 0.03};
    const int order[8] = {1, 3, 2, 4, 5, 0, 6, 7};
    for (int i = 0; i < 8; i++)
        logits[i] = (float)log(p[i]);
    for (int percent = 1; percent < 100; percent += 7) {
        bool kept[8] = {false};
        double sum = 0.0;
        for (int i = 0; i < 8 && sum < percent / 100.0; i++) {
            kept[order[i]] = true;
            sum += p[order[i]];
        }
        struct sampler_params q;
        sampler_params_default(&q);
        q.top_p = (float)percent / 100.0f;
        struct sampler *s = open_sampler(&q, 8);
        bool drawn[8] = {false};
        for (int i = 0; i < 3000; i++)
            drawn[draw(s, logits)] = true;
        assert_memory_equal(drawn, kept, sizeof kept);
        sampler_close(s);
    }
}

static void ties_go_to_the_lower_id(void **state)
{
    (void)state;
    const float logits[6] = {1.0f, 3.0f, 3.0f, 3.0f, 2.0f, 3.0f};
    struct sampler_params q;
    sampler_params_default(&q);
    q.temperature = 0.0f;
    struct sampler *s = open_sampler(&q, 6);
    assert_int_equal(draw(s, logits), 1);
    sampler_close(s);
    q.temperature = 1.0f;
    q.top_k = 2;
    s = open_sampler(&q, 6);
    for (int i = 0; i < 200; i++) {
        token_id id = draw(s, logits);
        assert_true(id == 1 || id == 2);
    }
    sampler_close(s);
}

static void the_seed_alone_decides(void **state)
{
    (void)state;
    /* Drawn once and written down: the same on every machine. */
    static const token_id expected[12] = {7, 21, 9, 18, 13, 16, 9, 37, 16, 2, 9, 14};
    float logits[N];
    fill_logits(logits);
    struct sampler_params q;
    sampler_params_default(&q);
    q.seed = 42;
    q.top_p = 0.95f;
    struct sampler *a = open_sampler(&q, N), *b = open_sampler(&q, N);
    q.seed = 43;
    struct sampler *c = open_sampler(&q, N);
    int differ = 0;
    for (int i = 0; i < 100; i++) {
        token_id id = draw(a, logits);
        assert_int_equal(id, draw(b, logits));
        differ += id != draw(c, logits);
        if (i < 12)
            assert_int_equal(id, expected[i]);
    }
    assert_true(differ > 30);
    sampler_close(a);
    sampler_close(b);
    sampler_close(c);
}

/* Greedy over penalised logits shows the formulas: the winner changes where they say. */
static void penalties_follow_their_formulas(void **state)
{
    (void)state;
    static const struct {
        float repeat, presence, frequency;
        int32_t last_n;
        float logits[3]; /* tokens 0 (seen 3 times), 1 (seen once, long ago), 2 (never) */
        token_id winner;
    } rows[] = {
        {2.0f, 0, 0, -1, {4.0f, 1.0f, 2.1f}, 2},    /* 4 / 2 < 2.1 */
        {2.0f, 0, 0, -1, {4.0f, 1.0f, 1.9f}, 0},    /* 4 / 2 > 1.9 */
        {2.0f, 0, 0, -1, {-1.0f, -9.0f, -1.9f}, 2}, /* -1 * 2 < -1.9 */
        {2.0f, 0, 0, -1, {-1.0f, -9.0f, -2.1f}, 0}, /* -1 * 2 > -2.1 */
        {1.0f, 0.5f, 0, -1, {1.0f, 0.0f, 0.6f}, 2}, /* 1 - 0.5 */
        {1.0f, 0.5f, 0, -1, {1.0f, 0.0f, 0.4f}, 0},
        {1.0f, 0, 0.5f, -1, {2.0f, 0.0f, 0.6f}, 2}, /* 2 - 3 * 0.5 */
        {1.0f, 0, 0.5f, -1, {2.0f, 0.0f, 0.4f}, 0},
        {2.0f, 0.25f, 0.25f, -1, {4.0f, 0.0f, 1.1f}, 2}, /* 4 / 2 - 0.75 - 0.25 = 1 */
        {2.0f, 0.25f, 0.25f, -1, {4.0f, 0.0f, 0.9f}, 0},
        {1.0f, -2.0f, 0, -1, {0.0f, -9.0f, 1.9f}, 0}, /* a negative one is a bonus */
        {2.0f, 0, 0, 3, {0.0f, 3.0f, 2.0f}, 1},       /* token 1 is out of the window of 3 */
        {2.0f, 0, 0, 4, {0.0f, 3.0f, 2.0f}, 2},       /* and in that of 4 */
        {2.0f, 9.0f, 9.0f, 0, {4.0f, 1.0f, 3.9f}, 0}, /* window 0: off */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_params q;
        sampler_params_default(&q);
        q.temperature = 0.0f;
        q.repeat_penalty = rows[i].repeat;
        q.presence_penalty = rows[i].presence;
        q.frequency_penalty = rows[i].frequency;
        q.repeat_last_n = rows[i].last_n;
        struct sampler *s = open_sampler(&q, 3);
        static const token_id seen[] = {1, 0, 0, 0};
        for (size_t j = 0; j < 4; j++)
            sampler_accept(s, seen[j]);
        if (draw(s, rows[i].logits) != rows[i].winner)
            fail_msg("row %zu: not token %d", i, rows[i].winner);
        sampler_close(s);
    }
}

static void bias_moves_and_bans(void **state)
{
    (void)state;
    const float logits[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    const struct logit_bias bias[] = {{3, -100.0f}, {0, 1.5f}, {2, -1.0f}};
    struct sampler_params q;
    sampler_params_default(&q);
    q.temperature = 0.0f;
    assert_true(sampler_is_greedy(&q));
    q.bias = bias;
    q.n_bias = 3;
    assert_false(sampler_is_greedy(&q));
    struct sampler *s = open_sampler(&q, 4);
    assert_int_equal(draw(s, logits), 0);
    const token_id banned[] = {0, 1};
    struct sample out;
    assert_int_equal(sampler_draw(s, logits, banned, 2, SAMPLER_NO_LOGPROBS, &out, NULL), ST_OK);
    assert_int_equal(out.id, 2);
    const token_id all[] = {0, 1, 2};
    assert_int_equal(sampler_draw(s, logits, all, 3, SAMPLER_NO_LOGPROBS, &out, NULL), ST_INVALID);
    sampler_close(s);
    q.temperature = 5.0f;
    s = open_sampler(&q, 4);
    for (int i = 0; i < 500; i++)
        assert_int_not_equal(draw(s, logits), 3);
    sampler_close(s);
}

/* Mirostat 2, step by step against its algorithm: the set it may draw from, given mu. */
static void mirostat_2_truncates_at_mu(void **state)
{
    (void)state;
    float logits[N];
    bool all[N];
    double p[N];
    fill_logits(logits);
    memset(all, true, sizeof all);
    softmax(logits, all, 0.9, p);
    struct sampler_params q;
    sampler_params_default(&q);
    q.temperature = 0.9f;
    q.mirostat = 2;
    q.mirostat_tau = 2.0f;
    q.mirostat_eta = 0.2f;
    struct sampler *s = open_sampler(&q, N);
    double mu = 4.0;
    for (int step = 0; step < 500; step++) {
        double kept = 0.0, highest = 0.0;
        for (int i = 0; i < N; i++) {
            kept += -log2(p[i]) <= mu + 1e-9 ? p[i] : 0.0;
            highest = fmax(highest, p[i]);
        }
        token_id id = draw(s, logits);
        assert_true(-log2(p[id]) <= mu + 1e-6 || p[id] >= highest);
        mu -= 0.2 * (-log2(p[id] / fmax(kept, p[id])) - 2.0);
    }
    sampler_close(s);
}

/* Mirostat 1 with its target held (eta 0) draws exactly the k best of its formula. */
static void mirostat_1_keeps_k(void **state)
{
    (void)state;
    static const float taus[] = {0.1f, 0.5f, 1.0f, 1.3f, 1.8f};
    float logits[N];
    fill_logits(logits);
    for (size_t row = 0; row < sizeof taus / sizeof taus[0]; row++) {
        double value[N], p[N], products = 0.0, squares = 0.0;
        bool kept[N], drawn[N] = {false};
        for (int i = 0; i < N; i++) {
            value[i] = logits[i];
            kept[i] = true;
        }
        softmax(logits, kept, 1.0, p);
        double sorted[N];
        memcpy(sorted, p, sizeof sorted);
        qsort(sorted, N, sizeof *sorted, descending);
        for (int i = 0; i + 1 < N; i++) {
            double t = log((i + 2.0) / (i + 1.0));
            products += t * log(sorted[i] / sorted[i + 1]);
            squares += t * t;
        }
        double s_hat = products / squares, epsilon = s_hat - 1.0;
        double k = pow(epsilon * pow(2.0, 2.0 * (double)taus[row]) / (1.0 - pow(N, -epsilon)),
                       1.0 / s_hat);
        assert_true(k < N - 1);
        keep_best(value, p, k < 1.0 ? 1 : (int)k, HUGE_VAL, kept);
        struct sampler_params q;
        sampler_params_default(&q);
        q.mirostat = 1;
        q.mirostat_tau = taus[row];
        q.mirostat_eta = 0.0f;
        struct sampler *s = open_sampler(&q, N);
        for (int i = 0; i < DRAWS; i++)
            drawn[draw(s, logits)] = true;
        sampler_close(s);
        assert_memory_equal(drawn, kept, sizeof kept);
    }
}

/* Both versions hold the average surprise near tau on a long-tailed distribution. */
static void mirostat_holds_the_surprise(void **state)
{
    (void)state;
    enum { VOCABULARY = 2000 };
    static float logits[VOCABULARY];
    double total = 0.0;
    for (int i = 0; i < VOCABULARY; i++) {
        logits[i] = -1.1f * logf((float)(i + 1));
        total += exp(logits[i]);
    }
    for (int32_t version = 1; version <= 2; version++) {
        struct sampler_params q;
        sampler_params_default(&q);
        q.mirostat = version;
        q.mirostat_tau = 3.0f;
        q.seed = 7;
        struct sampler *s = open_sampler(&q, VOCABULARY);
        double distinct = 0.0, surprise = 0.0;
        for (int i = 0; i < 4000; i++) {
            token_id id = draw(s, logits);
            surprise += -log2(exp(logits[id]) / total);
            distinct = fmax(distinct, id);
        }
        sampler_close(s);
        surprise /= 4000;
        /* Under the whole distribution; the controlled one is of the truncated, so a bit less. */
        if (surprise < 2.5 || surprise > 4.5)
            fail_msg("mirostat %d: average surprise %g bits, tau is 3", version, surprise);
        assert_true(distinct < VOCABULARY / 2);
    }
}

static void log_probabilities_are_of_the_raw_logits(void **state)
{
    (void)state;
    float logits[N];
    bool all[N];
    double p[N], sum = 0.0;
    fill_logits(logits);
    logits[11] = -INFINITY;
    memset(all, true, sizeof all);
    softmax(logits, all, 1.0, p);
    struct sampler_params q;
    sampler_params_default(&q);
    q.temperature = 0.3f;
    q.top_k = 3;
    struct sampler *s = open_sampler(&q, N);
    struct sample out;
    assert_int_equal(sampler_draw(s, logits, NULL, 0, 20, &out, NULL), ST_OK);
    assert_int_equal(out.n_top, 20);
    assert_true(fabs((double)out.logprob - log(p[out.id])) < 1e-5);
    for (uint32_t i = 0; i < out.n_top; i++) {
        assert_true(fabs((double)out.top[i].logprob - log(p[out.top[i].id])) < 1e-5);
        if (i > 0)
            assert_true(out.top[i - 1].logprob > out.top[i].logprob ||
                        (out.top[i - 1].logprob == out.top[i].logprob &&
                         out.top[i - 1].id < out.top[i].id));
    }
    for (token_id id = 0; id < N; id++) {
        assert_int_equal(logprobs_of(logits, N, id, 0, &out, NULL), ST_OK);
        assert_int_equal(out.n_top, 0);
        sum += exp((double)out.logprob);
    }
    assert_true(fabs(sum - 1.0) < 1e-5);
    assert_int_equal(logprobs_of(logits, 3, 0, 20, &out, NULL), ST_OK);
    assert_int_equal(out.n_top, 3);
    assert_int_equal(logprobs_of(logits, N, N, 0, &out, NULL), ST_INVALID);
    assert_int_equal(logprobs_of(logits, N, -1, 0, &out, NULL), ST_INVALID);
    assert_int_equal(logprobs_of(logits, N, 0, 21, &out, NULL), ST_INVALID);
    sampler_close(s);
}

static void numbers_that_are_none_are_named(void **state)
{
    (void)state;
    struct sampler_params q;
    sampler_params_default(&q);
    struct sampler *s = open_sampler(&q, N);
    struct sample out;
    struct err e = {0};
    const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < 2; i++) {
        float logits[N];
        fill_logits(logits);
        logits[29] = bad[i];
        assert_int_equal(sampler_draw(s, logits, NULL, 0, 0, &out, &e), ST_NUMERIC);
        assert_non_null(strstr(e.text, "logit 29 of 40"));
        assert_int_equal(logprobs_of(logits, N, 0, 5, &out, &e), ST_NUMERIC);
        assert_non_null(strstr(e.text, "logit 29 of 40"));
    }
    float none[N];
    for (int i = 0; i < N; i++)
        none[i] = -INFINITY;
    assert_int_equal(logprobs_of(none, N, 0, 0, &out, &e), ST_NUMERIC);
    float extreme[N] = {FLT_MAX, -FLT_MAX, 0};
    assert_int_equal(draw(s, extreme), 0);
    sampler_close(s);
}

static void parameters_out_of_range_are_named(void **state)
{
    (void)state;
    static const struct logit_bias far[] = {{N, 1.0f}}, endless[] = {{1, INFINITY}};
    struct sampler_params base, rows[16];
    const char *names[16];
    size_t n = 0;
    sampler_params_default(&base);
#define ROW(field, value)        \
    do {                         \
        rows[n] = base;          \
        rows[n].field = (value); \
        names[n++] = #field;     \
    } while (0)
    ROW(temperature, -0.1f);
    ROW(temperature, NAN);
    ROW(temperature, 101.0f);
    ROW(top_k, -1);
    ROW(top_p, 1.01f);
    ROW(min_p, -1.0f);
    ROW(typical_p, NAN);
    ROW(repeat_penalty, 0.0f);
    ROW(repeat_last_n, -2);
    ROW(presence_penalty, 1e9f);
    ROW(frequency_penalty, -INFINITY);
    ROW(mirostat, 3);
    ROW(mirostat_tau, -1.0f);
    ROW(mirostat_eta, 2.0f);
#undef ROW
    for (size_t i = 0; i < 2; i++) {
        rows[n] = base;
        rows[n].n_bias = 1;
        rows[n].bias = i == 0 ? far : endless;
        names[n++] = i == 0 ? "token id 40" : "token 1";
    }
    for (size_t i = 0; i < n; i++) {
        struct sampler *s = NULL;
        struct err e = {0};
        assert_int_equal(sampler_open(&rows[i], N, &s, &e), ST_INVALID);
        if (strstr(e.text, names[i]) == NULL)
            fail_msg("\"%s\" does not name %s", e.text, names[i]);
        assert_null(s);
    }
    struct sampler *least; /* the bound of the API, as a float */
    base.repeat_penalty = 0.01f;
    assert_int_equal(sampler_open(&base, N, &least, NULL), ST_OK);
    sampler_close(least);
}

static void own_functions_are_exact(void **state)
{
    (void)state;
    for (double x = -699.5; x < 700.0; x += 0.37)
        assert_true(fabs(sample_exp(x) / exp(x) - 1.0) < 1e-14);
    assert_true(sample_exp(0.0) == 1.0);
    assert_true(sample_exp(-701.0) == 0.0);
    assert_true(sample_exp(-HUGE_VAL) == 0.0);
    for (double from = -800.0; from < 80.0; from += 1.7) {
        double x[SAMPLE_EXP_BLOCK], sum = 0.0;
        float y[SAMPLE_EXP_BLOCK];
        for (int i = 0; i < SAMPLE_EXP_BLOCK; i++)
            x[i] = y[i] = (float)(from + i * 0.007);
        x[3] = y[3] = -INFINITY;
        sample_exp_block(x);
        sample_expf_block(y);
        for (int i = 0; i < SAMPLE_EXP_BLOCK; i++) {
            const double at = i == 3 ? -HUGE_VAL : (double)(float)(from + i * 0.007);
            assert_true(x[i] == sample_exp(at)); /* the same bits */
            assert_true(at < -87.0 ? y[i] == 0.0f : fabs((double)y[i] / exp(at) - 1.0) < 3e-7);
            sum += x[i];
        }
        assert_true(sum == 0.0 || fabs(sample_sum_block(x) / sum - 1.0) < 1e-13);
        for (int i = 0; i < SAMPLE_EXP_BLOCK; i++)
            y[i] = (float)i;
        assert_true(sample_sumf_block(y) == 255.0 * 128.0);
    }
    assert_true(sample_log(1.0) == 0.0);
    for (double x = 1e-300; x < 1e300; x *= 1.7)
        assert_true(fabs(sample_log(x) - log(x)) <= 1e-14 * fabs(log(x)) + 1e-15);
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    const struct logit_bias bias[] = {{1, 1.0f}};
    struct sampler_params q;
    sampler_params_default(&q);
    q.repeat_penalty = 1.1f;
    q.bias = bias;
    q.n_bias = 1;
    struct sampler *s = NULL;
    enum status status = ST_NO_MEMORY;
    for (uint64_t n = 1; status != ST_OK; n++) {
        assert_true(n < 20);
        mem_fail_at(n, 0);
        status = sampler_open(&q, N, &s, NULL);
        assert_true(status == ST_OK || (status == ST_NO_MEMORY && s == NULL));
    }
    mem_fail_at(1, 1); /* a draw allocates nothing */
    float logits[N];
    fill_logits(logits);
    draw(s, logits);
    mem_fail_at(0, 0);
    sampler_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(draws_reach_every_block),
        cmocka_unit_test(top_p_keeps_the_smallest_set),
        cmocka_unit_test(ties_go_to_the_lower_id),
        cmocka_unit_test(the_seed_alone_decides),
        cmocka_unit_test(penalties_follow_their_formulas),
        cmocka_unit_test(bias_moves_and_bans),
        cmocka_unit_test(mirostat_2_truncates_at_mu),
        cmocka_unit_test(mirostat_1_keeps_k),
        cmocka_unit_test(mirostat_holds_the_surprise),
        cmocka_unit_test(log_probabilities_are_of_the_raw_logits),
        cmocka_unit_test(numbers_that_are_none_are_named),
        cmocka_unit_test(parameters_out_of_range_are_named),
        cmocka_unit_test(own_functions_are_exact),
        cmocka_unit_test(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
