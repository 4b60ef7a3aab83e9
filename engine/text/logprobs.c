/* Log probabilities of tokens under raw logits. Stateless; any thread. */
#include <math.h>

#include "engine/text/sample_math.h"
#include "engine/text/sampler.h"

/* Puts (id, logit) into the descending list of the best `most`. Ids come in ascending order, so
 * an equal logit goes behind. */
static void insert(struct sample *s, uint32_t most, token_id id, float logit)
{
    if (s->n_top == most && (most == 0 || !(logit > s->top[most - 1].logprob)))
        return;
    uint32_t at = s->n_top < most ? s->n_top++ : most - 1;
    for (; at > 0 && logit > s->top[at - 1].logprob; at--)
        s->top[at] = s->top[at - 1];
    s->top[at] = (struct token_logprob){id, logit};
}

enum status logprobs_of(const float *logits, uint32_t n_vocab, token_id id, uint32_t n_logprobs,
                        struct sample *out, struct err *e)
{
    if (id < 0 || (uint32_t)id >= n_vocab)
        return err_set(e, ST_INVALID, "token id %d, vocabulary has %u tokens", id, n_vocab);
    if (n_logprobs > SAMPLER_MAX_LOGPROBS)
        return err_set(e, ST_INVALID, "%u log probabilities, at most %d", n_logprobs,
                       SAMPLER_MAX_LOGPROBS);
    float highest = -INFINITY;
    *out = (struct sample){.id = id};
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (!(logits[i] < INFINITY))
            return err_set(e, ST_NUMERIC, "logit %u of %u is %g", i, n_vocab, (double)logits[i]);
        if (logits[i] > highest)
            highest = logits[i];
        insert(out, n_logprobs, (token_id)i, logits[i]);
    }
    if (highest == -INFINITY)
        return err_set(e, ST_NUMERIC, "all %u logits are -inf", n_vocab);
    double sum = 0.0, x[SAMPLE_EXP_BLOCK];
    for (uint32_t first = 0; first < n_vocab; first += SAMPLE_EXP_BLOCK) {
        for (uint32_t i = 0; i < SAMPLE_EXP_BLOCK; i++)
            x[i] = first + i < n_vocab ? (double)logits[first + i] - (double)highest : -INFINITY;
        sample_exp_block(x);
        sum += sample_sum_block(x);
    }
    double log_sum = sample_log(sum) + (double)highest;
    out->logprob = (float)((double)logits[id] - log_sum);
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)((double)out->top[i].logprob - log_sum);
    return ST_OK;
}
