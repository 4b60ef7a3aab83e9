/* Sampling: logits of one position to one token id, seeded and reproducible.
 *
 * A sampler belongs to one sequence and one thread. The chain: logit_bias, penalties (repeat,
 * frequency, presence over the last repeat_last_n tokens), then either arg-max (temperature 0),
 * temperature and mirostat 1 / 2, or top_k, typical_p, top_p, min_p, temperature, draw. The same
 * seed, parameters and logits give the same token on every machine (own generator, exponential and
 * logarithm, sums in double, ties broken by the lower id). Sources: Holtzman 2019 (top_p), Meister
 * 2022 (typical_p), Basu 2020 (mirostat).
 */
#ifndef OINFER_TEXT_SAMPLER_H
#define OINFER_TEXT_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/text/tokenizer.h"

struct logit_bias {
    token_id id;
    float bias; /* added to the logit; <= -100 bans the token */
};

#define SAMPLER_MAX_BIAS     1024
#define SAMPLER_MAX_LOGPROBS 20
#define SAMPLER_NO_LOGPROBS  UINT32_MAX /* as n_logprobs: `logprob` is not computed and 0 */

struct sampler_params {
    float temperature;             /* 0: greedy; 0..100 */
    int32_t top_k;                 /* 0: off */
    float top_p, min_p, typical_p; /* 1, 0, 1: off */
    float repeat_penalty;          /* 1: off */
    int32_t repeat_last_n;         /* tokens looked back at; 0 off, -1 the whole context */
    float presence_penalty, frequency_penalty; /* 0: off */
    int32_t mirostat;                          /* 0 off, 1, 2 */
    float mirostat_tau, mirostat_eta;          /* 5.0, 0.1 */
    uint64_t seed;
    const struct logit_bias *bias; /* copied */
    uint32_t n_bias;
};
/* The defaults of the API: temperature 1, everything else off, seed 0. */
void sampler_params_default(struct sampler_params *p);
/* True when arg-max over raw logits gives the same token (so the device can do it). */
bool sampler_is_greedy(const struct sampler_params *p);

struct sampler;
/* ST_INVALID names the parameter that is out of range. n_vocab: 1 .. 2^24. */
enum status sampler_open(const struct sampler_params *p, uint32_t n_vocab, struct sampler **out,
                         struct err *e);
void sampler_close(struct sampler *s);
/* Remembers a token (prompt or generated) for the penalties. */
void sampler_accept(struct sampler *s, token_id id);

struct token_logprob {
    token_id id;
    float logprob; /* natural logarithm of the softmax over the raw logits */
};
struct sample {
    token_id id;
    float logprob;
    uint32_t n_top;
    struct token_logprob top[SAMPLER_MAX_LOGPROBS]; /* descending, ties by lower id */
};
/* Draws a token from logits[n_vocab] (not changed). `banned` ids (n_banned; may be NULL) cannot be
 * drawn: EOG under ignore_eos or min_tokens. n_logprobs: how many of `top` to fill; log
 * probabilities are of the raw logits. ST_NUMERIC when logits hold NaN or +inf: names the index;
 * ST_INVALID when bias and bans leave no token. Allocates nothing. */
enum status sampler_draw(struct sampler *s, const float *logits, const token_id *banned,
                         uint32_t n_banned, uint32_t n_logprobs, struct sample *out, struct err *e);
/* Log probability of `id` and the n best under raw logits, no draw: scoring a prompt. */
enum status logprobs_of(const float *logits, uint32_t n_vocab, token_id id, uint32_t n_logprobs,
                        struct sample *out, struct err *e);

#endif
