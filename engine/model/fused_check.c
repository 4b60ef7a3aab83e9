/* The self-test of a one-launch executor: a few tokens both ways, once a load.
 *
 * Drivers miscompile big kernels, and a wrong token looks like any other: so an executor serves
 * only after its first tokens were among the plan's best, and its logits are the plan's but for
 * rounding. Random logits pass neither.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/model.h"

#define CHECK_TOKENS 2    /* so that one is fed back */
#define FIRST_TOKEN  1    /* any will do */
#define SHARE_MAX    0.1f /* of the spread of the logits that a token may be below the best */
#define NMSE_MAX     1e-2 /* ten times what rounding activations to int8 costs */

static enum status step(struct session *s, token_id token, enum step_want want,
                        struct step_item *item, struct err *e)
{
    *item = (struct step_item){
        .session = s, .tokens = &token, .n_tokens = 1, .want = want, .n_greedy = CHECK_TOKENS};
    return model_step(s->model, item, 1, e);
}

/* How far `id` is below the best logit, as a share of the spread. */
static float share_below_best(const float *logits, uint32_t n, token_id id)
{
    float best = logits[0], least = logits[0];
    for (uint32_t i = 1; i < n; i++) {
        best = logits[i] > best ? logits[i] : best;
        least = logits[i] < least ? logits[i] : least;
    }
    return best > least ? (best - logits[id]) / (best - least) : 0.0f;
}

static double nmse(const float *got, const float *want, uint32_t n)
{
    double error = 0, size = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double off = (double)got[i] - (double)want[i];
        error += off * off;
        size += (double)want[i] * (double)want[i];
    }
    return size > 0 ? error / size : error;
}

/* Compares what the executor gave with the plan, which must be the one that runs. left: logits
 * after the first token. */
static enum status compare(struct session *s, const struct step_item *greedy, const float *left,
                           char *why, size_t why_bytes, struct err *e)
{
    const uint32_t n_vocab = s->model->file->hparams.n_vocab;
    token_id token = FIRST_TOKEN;
    session_rewind(s, 0);
    for (uint32_t t = 0; t < greedy->n_out && why[0] == '\0'; t++) {
        struct step_item item;
        enum status status = step(s, token, STEP_LOGITS, &item, e);
        if (status != ST_OK)
            return status;
        token = greedy->greedy[t];
        const float share = token < 0 || (uint32_t)token >= n_vocab
                                ? 1.0f
                                : share_below_best(item.logits, n_vocab, token);
        if (!(share <= SHARE_MAX))
            snprintf(why, why_bytes,
                     "token %" PRIu32 " is %" PRId32 ", %.2f of the logits' spread below the best",
                     t, token, (double)share);
        const double error = t == 0 ? nmse(left, item.logits, n_vocab) : 0;
        if (!(error <= NMSE_MAX))
            snprintf(why, why_bytes, "the logits' NMSE is %.2g, at most %.2g", error, NMSE_MAX);
    }
    return ST_OK;
}

static enum status check(struct session *s, char *why, size_t why_bytes, struct err *e)
{
    struct model *m = s->model;
    const size_t n_bytes = m->file->hparams.n_vocab * sizeof(float);
    const struct fused_executor *executor = m->executor;
    struct step_item greedy, item;
    float *left = NULL;
    enum status status = step(s, FIRST_TOKEN, STEP_GREEDY, &greedy, e);
    if (status == ST_OK) {
        session_rewind(s, 0);
        left = mem_alloc(n_bytes);
        status = left ? step(s, FIRST_TOKEN, STEP_LOGITS, &item, e)
                      : err_set(e, ST_NO_MEMORY, "self-test: %zu bytes of logits", n_bytes);
        if (status == ST_OK)
            memcpy(left, item.logits, n_bytes);
    }
    if (status == ST_OK && m->executor == executor) { /* it has not given up by itself */
        m->executor = NULL;
        status = compare(s, &greedy, left, why, why_bytes, e);
        m->executor = executor;
    }
    mem_free(left);
    return status;
}

enum status model__check_fused(struct model *m, char *why, size_t why_bytes, struct err *e)
{
    struct session *s = NULL;
    struct err numeric;
    why[0] = '\0';
    if (m->n_ctx < CHECK_TOKENS || m->file->hparams.n_vocab <= FIRST_TOKEN)
        return ST_OK;
    enum status status = session_open(m, &s, e);
    if (status != ST_OK)
        return status;
    status = check(s, why, why_bytes, &numeric);
    session_close(s);
    if (status != ST_OK && status != ST_NUMERIC &&
        e) /* weights that are no numbers: each request's error */
        *e = numeric;
    return status == ST_NUMERIC ? ST_OK : status;
}
