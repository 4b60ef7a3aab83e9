/* The sampler: parameters, history for the penalties, generator, and the chain of one draw. All
 * memory is taken at open; a draw allocates nothing. */
#include "engine/text/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/sample_math.h"
#include "engine/text/sampler_internal.h"

#define MAX_VOCAB (1u << 24)
#define LANES     8 /* numbers that are compared at once */

struct sampler {
    struct sampler_params params; /* bias points to ours */
    uint32_t n_vocab;
    struct logit_bias *bias;
    uint32_t *counts; /* [n_vocab] of the tokens in the window; NULL: no penalties */
    token_id *window; /* [repeat_last_n] ring; NULL when the window is everything */
    uint32_t n_window, window_at;
    float *adjusted;              /* [n_vocab] logits after bias, penalties and bans */
    struct candidate *candidates; /* [n_vocab] */
    double *sums;                 /* [n_vocab / SAMPLE_EXP_BLOCK, rounded up] of weights */
    uint64_t state[4];            /* xoshiro256** */
    double mirostat_mu;
};

void sampler_params_default(struct sampler_params *p)
{
    *p = (struct sampler_params){.temperature = 1.0f,
                                 .top_p = 1.0f,
                                 .typical_p = 1.0f,
                                 .repeat_penalty = 1.0f,
                                 .repeat_last_n = 64,
                                 .mirostat_tau = 5.0f,
                                 .mirostat_eta = 0.1f};
}

static bool has_penalties(const struct sampler_params *p)
{
    return p->repeat_last_n != 0 && (p->repeat_penalty != 1.0f || p->presence_penalty != 0.0f ||
                                     p->frequency_penalty != 0.0f);
}

bool sampler_is_greedy(const struct sampler_params *p)
{
    return p->temperature == 0.0f && p->n_bias == 0 && !has_penalties(p);
}

static enum status check_params(const struct sampler_params *p, uint32_t n_vocab, struct err *e)
{
    const struct {
        const char *name;
        double value, least, most;
    } ranges[] = {
        {"temperature", p->temperature, 0, 100},
        {"top_k", p->top_k, 0, INT32_MAX},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"typical_p", p->typical_p, 0, 1},
        {"repeat_penalty", p->repeat_penalty, 0.01f, 100},
        {"repeat_last_n", p->repeat_last_n, -1, 1 << 24},
        {"presence_penalty", p->presence_penalty, -100, 100},
        {"frequency_penalty", p->frequency_penalty, -100, 100},
        {"mirostat", p->mirostat, 0, 2},
        {"mirostat_tau", p->mirostat_tau, 0, 100},
        {"mirostat_eta", p->mirostat_eta, 0, 1},
        {"vocabulary size", n_vocab, 1, MAX_VOCAB},
        {"number of logit biases", p->n_bias, 0, SAMPLER_MAX_BIAS},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most))
            return err_set(e, ST_INVALID, "%s: %g, expected %g..%g", ranges[i].name,
                           ranges[i].value, ranges[i].least, ranges[i].most);
    for (uint32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= n_vocab)
            return err_set(e, ST_INVALID, "logit_bias: token id %d, vocabulary has %u tokens",
                           p->bias[i].id, n_vocab);
        if (!isfinite(p->bias[i].bias))
            return err_set(e, ST_INVALID, "logit_bias: bias of token %d is not a finite number",
                           p->bias[i].id);
    }
    return ST_OK;
}

/* Fills the generator's state from the seed by SplitMix64. */
static void seed(uint64_t state[4], uint64_t x)
{
    for (int i = 0; i < 4; i++) {
        x += 0x9E3779B97F4A7C15u;
        uint64_t z = x;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        state[i] = z ^ (z >> 31);
    }
}

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

/* Uniform in [0, 1), 53 bits: xoshiro256** (Blackman, Vigna 2018). */
static double uniform(uint64_t state[4])
{
    uint64_t result = rotate(state[1] * 5, 7) * 9, shifted = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate(state[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

enum status sampler_open(const struct sampler_params *p, uint32_t n_vocab, struct sampler **out,
                         struct err *e)
{
    *out = NULL;
    enum status status = check_params(p, n_vocab, e);
    if (status != ST_OK)
        return status;
    struct sampler *s = mem_zalloc(sizeof *s);
    if (s == NULL)
        return err_set(e, ST_NO_MEMORY, "sampler: out of memory");
    s->params = *p;
    s->n_vocab = n_vocab;
    s->bias = mem_array(p->n_bias, sizeof *s->bias);
    s->adjusted = mem_array(n_vocab, sizeof *s->adjusted);
    s->candidates = mem_array(n_vocab, sizeof *s->candidates);
    s->sums = mem_array(n_vocab / SAMPLE_EXP_BLOCK + 1, sizeof *s->sums);
    bool complete =
        s->bias != NULL && s->adjusted != NULL && s->candidates != NULL && s->sums != NULL;
    if (has_penalties(p)) {
        s->counts = mem_array(n_vocab, sizeof *s->counts);
        complete &= s->counts != NULL;
        if (p->repeat_last_n > 0) {
            s->window = mem_array((size_t)p->repeat_last_n, sizeof *s->window);
            complete &= s->window != NULL;
        }
    }
    if (!complete) {
        sampler_close(s);
        return err_set(e, ST_NO_MEMORY, "sampler for %u tokens: out of memory", n_vocab);
    }
    if (p->n_bias > 0)
        memcpy(s->bias, p->bias, p->n_bias * sizeof *s->bias);
    s->params.bias = s->bias;
    s->mirostat_mu = 2.0 * (double)p->mirostat_tau;
    seed(s->state, p->seed);
    *out = s;
    return ST_OK;
}

void sampler_close(struct sampler *s)
{
    if (s == NULL)
        return;
    mem_free(s->candidates);
    mem_free(s->sums);
    mem_free(s->adjusted);
    mem_free(s->window);
    mem_free(s->counts);
    mem_free(s->bias);
    mem_free(s);
}

void sampler_accept(struct sampler *s, token_id id)
{
    if (s->counts == NULL || id < 0 || (uint32_t)id >= s->n_vocab)
        return;
    if (s->window != NULL) {
        uint32_t size = (uint32_t)s->params.repeat_last_n;
        if (s->n_window == size)
            s->counts[s->window[s->window_at]]--;
        else
            s->n_window++;
        s->window[s->window_at] = id;
        s->window_at = (s->window_at + 1) % size;
    }
    s->counts[id]++;
}

/* Keskar 2019 for the repeat penalty; the others as OpenAI's API defines them. */
static float penalised(const struct sampler_params *p, float logit, uint32_t count)
{
    if (p->repeat_penalty != 1.0f)
        logit = logit > 0.0f ? logit / p->repeat_penalty : logit * p->repeat_penalty;
    return logit - (float)count * p->frequency_penalty - p->presence_penalty;
}

/* Fills s->adjusted: bias, penalties, bans. Banned is -inf. */
static void adjust(struct sampler *s, const float *logits, const token_id *banned,
                   uint32_t n_banned)
{
    const struct sampler_params *p = &s->params;
    float *adjusted = s->adjusted;
    memcpy(adjusted, logits, s->n_vocab * sizeof *adjusted);
    for (uint32_t i = 0; i < p->n_bias; i++)
        adjusted[p->bias[i].id] += p->bias[i].bias > -100.0f ? p->bias[i].bias : -INFINITY;
    if (s->counts != NULL)
        for (uint32_t i = 0; i < s->n_vocab; i++)
            if (s->counts[i] > 0)
                adjusted[i] = penalised(p, adjusted[i], s->counts[i]);
    for (uint32_t i = 0; i < n_banned; i++)
        if (banned[i] >= 0 && (uint32_t)banned[i] < s->n_vocab)
            adjusted[banned[i]] = -INFINITY;
    if (p->n_bias > 0 || s->counts != NULL)
        for (uint32_t i = 0; i < s->n_vocab; i++)
            adjusted[i] = adjusted[i] > FLT_MAX ? FLT_MAX : adjusted[i];
}

/* In lanes, of which compilers make vectors; the index in a second pass. */
static token_id arg_max(const float *logits, uint32_t n)
{
    float lanes[LANES], highest = -INFINITY;
    uint32_t i = 0, best = 0;
    for (uint32_t j = 0; j < LANES; j++)
        lanes[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
    for (; i < n; i++)
        highest = logits[i] > highest ? logits[i] : highest;
    for (uint32_t j = 0; j < LANES; j++)
        highest = lanes[j] > highest ? lanes[j] : highest;
    while (best + 1 < n && logits[best] < highest)
        best++;
    return (token_id)best;
}

/* Is some logit NaN or +inf? */
static bool any_bad(const float *logits, uint32_t n)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++)
        bad |= !(logits[i] < INFINITY);
    return bad != 0;
}

/* Is no token left out? */
static bool takes_all(const struct sampler_params *p)
{
    return p->top_k == 0 && p->typical_p >= 1.0f && p->top_p >= 1.0f && p->min_p <= 0.0f;
}

/* All tokens that are not banned. */
static void list_candidates(const struct sampler *s, struct candidates *c)
{
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (s->adjusted[i] > -INFINITY)
            c->items[c->count++] = (struct candidate){.logit = s->adjusted[i], .id = (token_id)i};
}

static token_id draw_mirostat(struct sampler *s, struct candidates *c)
{
    const struct sampler_params *p = &s->params;
    list_candidates(s, c);
    mirostat_truncate(c, p->mirostat, p->temperature, s->mirostat_mu, s->n_vocab);
    const struct candidate *picked = candidates_pick(c, uniform(s->state));
    double surprise = mirostat_surprise(c, picked);
    s->mirostat_mu -= (double)p->mirostat_eta * (surprise - (double)p->mirostat_tau);
    return picked->id;
}

/* Weights of SAMPLE_EXP_BLOCK tokens from `first` on; banned ones, and those past the end, have
 * none.
 */
static void weigh_block(const struct sampler *s, uint32_t first, float highest,
                        float x[SAMPLE_EXP_BLOCK])
{
    const float *logits = s->adjusted + first, inverse = 1.0f / s->params.temperature;
    const uint32_t left = s->n_vocab - first, n = left < SAMPLE_EXP_BLOCK ? left : SAMPLE_EXP_BLOCK;
    for (uint32_t i = 0; i < n; i++)
        x[i] = (logits[i] - highest) * inverse;
    for (uint32_t i = n; i < SAMPLE_EXP_BLOCK; i++)
        x[i] = -INFINITY;
    sample_expf_block(x);
}

/* From all tokens by their weights, which are summed by blocks and not kept. */
static token_id draw_any(struct sampler *s, token_id best)
{
    const float highest = s->adjusted[best];
    float x[SAMPLE_EXP_BLOCK];
    double total = 0.0, sum = 0.0;
    uint32_t n = 0, block = 0;
    for (uint32_t first = 0; first < s->n_vocab; first += SAMPLE_EXP_BLOCK) {
        weigh_block(s, first, highest, x);
        s->sums[n] = sample_sumf_block(x);
        total += s->sums[n++];
    }
    const double target = uniform(s->state) * total;
    while (block + 1 < n && sum + s->sums[block] <= target)
        sum += s->sums[block++];
    weigh_block(s, block * SAMPLE_EXP_BLOCK, highest, x);
    token_id last = best; /* where rounding leaves none */
    for (uint32_t i = 0; i < SAMPLE_EXP_BLOCK; i++) {
        if (x[i] == 0.0f)
            continue;
        last = (token_id)(block * SAMPLE_EXP_BLOCK + i);
        sum += (double)x[i];
        if (sum > target)
            break;
    }
    return last;
}

static token_id draw_chain(struct sampler *s, struct candidates *c)
{
    const struct sampler_params *p = &s->params;
    if (p->top_k > 0 && (uint32_t)p->top_k < s->n_vocab)
        candidates_best(c, s->adjusted, s->n_vocab, (uint32_t)p->top_k);
    else
        list_candidates(s, c);
    if (p->typical_p < 1.0f)
        candidates_typical_p(c, p->typical_p);
    if (p->top_p < 1.0f)
        candidates_top_p(c, p->top_p);
    if (p->min_p > 0.0f)
        candidates_min_p(c, p->min_p);
    candidates_weigh(c, p->temperature);
    return candidates_pick(c, uniform(s->state))->id;
}

enum status sampler_draw(struct sampler *s, const float *logits, const token_id *banned,
                         uint32_t n_banned, uint32_t n_logprobs, struct sample *out, struct err *e)
{
    enum status status = ST_OK;
    const bool bad = any_bad(logits, s->n_vocab);
    for (uint32_t i = 0; bad && i < s->n_vocab; i++)
        if (!(logits[i] < INFINITY))
            return err_set(e, ST_NUMERIC, "logit %u of %u is %g", i, s->n_vocab, (double)logits[i]);
    adjust(s, logits, banned, n_banned);
    token_id id = arg_max(s->adjusted, s->n_vocab);
    if (s->adjusted[id] == -INFINITY)
        return err_set(e, ST_INVALID, "all %u tokens are banned", s->n_vocab);
    if (s->params.temperature > 0.0f) {
        struct candidates c = {.items = s->candidates};
        id = s->params.mirostat > 0  ? draw_mirostat(s, &c)
             : takes_all(&s->params) ? draw_any(s, id)
                                     : draw_chain(s, &c);
    }
    if (n_logprobs != SAMPLER_NO_LOGPROBS)
        status = logprobs_of(logits, s->n_vocab, id, n_logprobs, out, e);
    else
        *out = (struct sample){.id = id};
    return status;
}
