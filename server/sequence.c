/* From steps to text: the logic of one sequence, with no threads and no queues. */
#include "server/sequence.h"

#include <string.h>

#include "engine/base/mem.h"

#define PIECE_BYTES 256 /* a longer token is read through an allocation */

static const struct tokenizer *tokenizer_of(const struct sequence *s)
{
    return s->job->model->tokenizer;
}

static enum status no_memory(struct fault *f)
{
    return fault_set(f, FAULT_MEMORY, NULL, "out of memory while generating");
}

/* Characters that begin in these bytes (all but UTF-8 continuation bytes). */
static uint32_t count_characters(const char *bytes, size_t n)
{
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return count;
}

/* ---- opening ---- */

static struct sampler_params sampler_params_of(const struct request *r, uint64_t seed)
{
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = (float)r->temperature;
    p.top_k = (int32_t)r->top_k;
    p.top_p = (float)r->top_p;
    p.min_p = (float)r->min_p;
    p.typical_p = (float)r->typical_p;
    p.repeat_penalty = (float)r->repeat_penalty;
    p.repeat_last_n = (int32_t)r->repeat_last_n;
    p.presence_penalty = (float)r->presence_penalty;
    p.frequency_penalty = (float)r->frequency_penalty;
    p.mirostat = (int32_t)r->mirostat;
    p.mirostat_tau = (float)r->mirostat_tau;
    p.mirostat_eta = (float)r->mirostat_eta;
    p.seed = seed;
    p.bias = r->logit_bias.items;
    p.n_bias = r->logit_bias.count;
    return p;
}

static enum status open_sampler(struct sequence *s, const struct sampler_params *params,
                                struct fault *f)
{
    struct err e;
    enum status status = sampler_open(params, tokenizer_n_tokens(tokenizer_of(s)), &s->sampler, &e);
    if (status != ST_OK)
        return fault_from_err(f, NULL, &e);
    for (uint32_t i = 0; i < s->n_prompt; i++)
        sampler_accept(s->sampler, s->prompt[i]);
    return ST_OK;
}

/* The tokens that ignore_eos and min_tokens forbid: the model's ends, then the request's stop ids.
 */
static enum status open_banned(struct sequence *s, struct fault *f)
{
    const struct hosted_model *m = s->job->model;
    const struct request_ids *stop_ids = &s->job->request->stop_token_ids;
    s->banned = mem_array(m->n_eog + stop_ids->count + 1, sizeof *s->banned);
    if (s->banned == NULL)
        return no_memory(f);
    memcpy(s->banned, m->eog, m->n_eog * sizeof *s->banned);
    if (stop_ids->count > 0)
        memcpy(s->banned + m->n_eog, stop_ids->ids, stop_ids->count * sizeof *s->banned);
    s->n_banned = m->n_eog + stop_ids->count;
    return ST_OK;
}

static enum status open_stop(struct sequence *s, struct fault *f)
{
    const struct request_texts *stop = &s->job->request->stop;
    const char *strings[STOP_MAX_STRINGS];
    size_t lengths[STOP_MAX_STRINGS];
    for (uint32_t i = 0; i < stop->count; i++) {
        strings[i] = stop->items[i].data;
        lengths[i] = stop->items[i].length;
    }
    struct err e;
    enum status status = stop_filter_open(strings, lengths, stop->count, &s->stop, &e);
    return status == ST_OK ? ST_OK : fault_from_err(f, "stop", &e);
}

enum status sequence_open(struct sequence *s, struct job *job, uint32_t index,
                          const struct token_list *prompt, uint64_t seed, struct fault *f)
{
    const struct request *r = job->request;
    *s = (struct sequence){.job = job,
                           .index = index,
                           .prompt = prompt->ids,
                           .n_prompt = prompt->count,
                           .pending = TOKEN_NONE};
    output_init(&s->output);
    struct sampler_params params = sampler_params_of(r, seed);
    bool bans = r->ignore_eos || r->min_tokens > 0;
    /* The engine stops at the model's ends, so that one which is banned can be drawn again. */
    bool bans_others = r->min_tokens > 0 && r->stop_token_ids.count > 0;
    s->greedy = sampler_is_greedy(&params) && r->logprobs < 0 && r->best_of == r->n && !bans_others;
    s->scoring = r->echo && r->logprobs >= 0;
    enum status status = open_stop(s, f);
    if (status == ST_OK && (!s->greedy || bans))
        status = open_sampler(s, &params, f);
    if (status == ST_OK && bans)
        status = open_banned(s, f);
    if (status != ST_OK)
        sequence_close(s);
    return status;
}

void sequence_close(struct sequence *s)
{
    sampler_close(s->sampler);
    stop_filter_close(s->stop);
    mem_free(s->banned);
    mem_free(s->echo_owned);
    output_free(&s->output);
    token_records_free(&s->held);
    s->sampler = NULL;
    s->stop = NULL;
    s->banned = NULL;
    s->echo_text = s->echo_owned = NULL;
}

/* ---- taking a slot ---- */

uint32_t sequence_reusable(const struct sequence *s, const struct session *session)
{
    const token_id *tokens = session_tokens(session);
    uint32_t n = session_length(session);
    uint32_t most = s->n_prompt - 1; /* the last token must give logits */
    uint32_t same = 0;
    if (s->scoring || !s->job->request->cache_prompt)
        return 0;
    while (same < n && same < most && tokens[same] == s->prompt[same])
        same++;
    return same;
}

enum status sequence_start(struct sequence *s, struct session *session, bool may_reuse,
                           struct fault *f)
{
    s->session = session;
    s->n_cached = may_reuse ? sequence_reusable(s, session) : 0;
    s->n_evaluated = s->n_cached;
    session_rewind(session, s->n_cached);
    s->job->timings.cached_tokens += s->n_cached;
    if (s->echo_text != NULL) {
        if (!strbuf_append(&s->output.text, s->echo_text, s->echo_length))
            return no_memory(f);
        if (!s->scoring)
            s->n_characters = count_characters(s->echo_text, s->echo_length);
    }
    return ST_OK;
}

/* ---- asking for a step ---- */

bool sequence_is_prefill(const struct sequence *s)
{
    return s->n_evaluated < s->n_prompt;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t want_prefill(struct sequence *s, uint32_t n_tokens, uint32_t n_rows,
                             struct step_item *item)
{
    uint32_t left = s->n_prompt - s->n_evaluated;
    item->tokens = s->prompt + s->n_evaluated;
    item->n_tokens = least(left, n_tokens);
    if (s->scoring) {
        item->n_tokens = least(item->n_tokens, least(n_rows, STEP_MAX_LOGITS));
        item->want = STEP_ALL_LOGITS;
        return item->n_tokens;
    }
    bool generates = item->n_tokens == left && s->job->request->max_tokens > 0;
    item->want = !generates ? STEP_NOTHING : s->greedy ? STEP_GREEDY : STEP_LOGITS;
    item->n_greedy = 1;
    return item->want == STEP_LOGITS;
}

static uint32_t want_decode(struct sequence *s, struct step_item *item)
{
    uint32_t left = (uint32_t)s->job->request->max_tokens - s->n_predicted;
    uint32_t room = s->job->model->n_ctx - session_length(s->session);
    item->tokens = &s->pending;
    item->n_tokens = 1;
    item->want = s->greedy && !s->redraws ? STEP_GREEDY : STEP_LOGITS;
    item->n_greedy = least(SEQUENCE_GREEDY_AHEAD, least(left, room));
    return item->want == STEP_LOGITS;
}

uint32_t sequence_want(struct sequence *s, uint32_t n_tokens, uint32_t n_rows,
                       struct step_item *item)
{
    *item = (struct step_item){.session = s->session};
    return sequence_is_prefill(s) ? want_prefill(s, n_tokens, n_rows, item) : want_decode(s, item);
}

/* ---- taking what a step gave ---- */

/* Moves the records whose text has begun to come out, all of them at the end, to the output. */
static bool release_records(struct sequence *s, bool all)
{
    uint32_t n = 0;
    while (n < s->held.count && (all || s->held.items[n].start_bytes < s->n_emitted)) {
        if (!token_records_push(&s->output.records, &s->held.items[n]))
            return false;
        n++;
    }
    token_records_drop(&s->held, n);
    return true;
}

enum status sequence_finish(struct sequence *s, enum finish finish, struct fault *f)
{
    struct err e;
    enum status status = stop_filter_flush(s->stop, &s->output.text, &e);
    if (status != ST_OK)
        return fault_from_err(f, NULL, &e);
    s->output.finish = finish;
    s->finished = true;
    if (!release_records(s, true) || !outbox_put(&s->job->outbox, s->index, &s->output))
        return no_memory(f);
    return ST_OK;
}

/* Ends at a stop string: what belongs to it stays back. */
static bool finish_at_stop_string(struct sequence *s)
{
    s->output.finish = FINISH_STOP;
    s->finished = true;
    return release_records(s, false);
}

static bool is_end(const struct sequence *s, token_id id)
{
    const struct request_ids *stop_ids = &s->job->request->stop_token_ids;
    for (uint32_t i = 0; i < stop_ids->count; i++)
        if (stop_ids->ids[i] == id)
            return true;
    return tokenizer_is_eog(tokenizer_of(s), id);
}

/* Feeds a token's bytes to the stop filter. */
static enum status feed_piece(struct sequence *s, const char *piece, size_t n, bool *hit,
                              struct fault *f)
{
    struct err e;
    size_t before = s->output.text.length;
    uint32_t characters = stop_filter_characters(s->stop);
    enum status status = stop_filter_feed(s->stop, piece, n, &s->output.text, hit, &e);
    if (status != ST_OK)
        return fault_from_err(f, NULL, &e);
    s->n_text += (uint32_t)n;
    s->n_emitted += (uint32_t)(s->output.text.length - before);
    s->n_characters += stop_filter_characters(s->stop) - characters;
    return ST_OK;
}

static enum status emit_piece(struct sequence *s, token_id id, bool *hit, struct fault *f)
{
    char fixed[PIECE_BYTES];
    size_t n = tokenizer_piece(tokenizer_of(s), id, false, fixed, sizeof fixed);
    if (n <= sizeof fixed)
        return feed_piece(s, fixed, n, hit, f);
    char *piece = mem_alloc(n);
    if (piece == NULL)
        return no_memory(f);
    tokenizer_piece(tokenizer_of(s), id, false, piece, n);
    enum status status = feed_piece(s, piece, n, hit, f);
    mem_free(piece);
    return status;
}

/* One generated token. */
static enum status take_token(struct sequence *s, const struct sample *sample, struct fault *f)
{
    const struct request *r = s->job->request;
    s->n_predicted++;
    s->job->timings.predicted_tokens++;
    s->sum_logprob += sample->logprob;
    s->pending = sample->id;
    if (s->sampler != NULL)
        sampler_accept(s->sampler, sample->id);
    if (is_end(s, sample->id))
        return sequence_finish(s, FINISH_STOP, f);
    if (r->logprobs >= 0) {
        struct token_record record = {.sample = *sample,
                                      .text_offset = s->n_characters,
                                      .start_bytes = s->n_text,
                                      .has_logprob = true};
        if (!token_records_push(&s->held, &record))
            return no_memory(f);
    }
    bool hit = false;
    enum status status = emit_piece(s, sample->id, &hit, f);
    if (status != ST_OK)
        return status;
    if (hit)
        return finish_at_stop_string(s) ? ST_OK : no_memory(f);
    if (s->n_predicted >= (uint32_t)r->max_tokens)
        return sequence_finish(s, FINISH_LENGTH, f);
    return release_records(s, false) ? ST_OK : no_memory(f);
}

/* How many of s->banned may not come next. */
static uint32_t count_banned(const struct sequence *s)
{
    const struct request *r = s->job->request;
    if (s->n_predicted < (uint64_t)r->min_tokens)
        return s->n_banned;
    return r->ignore_eos ? s->job->model->n_eog : 0;
}

static enum status draw(struct sequence *s, const float *logits, struct fault *f)
{
    const struct request *r = s->job->request;
    const uint32_t n_banned = count_banned(s);
    const bool unread = r->logprobs < 0 && r->best_of == r->n; /* by the reply or the choice */
    const uint32_t n_logprobs = unread            ? SAMPLER_NO_LOGPROBS
                                : r->logprobs > 0 ? (uint32_t)r->logprobs
                                                  : 0;
    struct sample sample;
    struct err e;
    enum status status =
        sampler_draw(s->sampler, logits, s->banned, n_banned, n_logprobs, &sample, &e);
    if (status == ST_OK)
        return take_token(s, &sample, f);
    /* Of what a request may say, only its biases can leave no token to draw. */
    const bool biased = status == ST_INVALID && s->job->request->logit_bias.count > 0;
    return fault_from_err(f, biased ? "logit_bias" : NULL, &e);
}

/* Characters that prompt token p takes in the echoed text: none for a BOS that we put in front. */
static uint32_t echo_width(const struct sequence *s, uint32_t p)
{
    const struct request *r = s->job->request;
    bool is_text = r->prompt.items[s->index / (uint32_t)r->best_of].text.data != NULL;
    if (p == 0 && is_text && s->prompt[0] == tokenizer_bos(tokenizer_of(s)) &&
        tokenizer_adds_bos(tokenizer_of(s)))
        return 0;
    char piece[PIECE_BYTES];
    size_t n = tokenizer_piece(tokenizer_of(s), s->prompt[p], true, piece, sizeof piece);
    return count_characters(piece, n < sizeof piece ? n : sizeof piece);
}

/* Records prompt token p; logits: what the model expected in its place, NULL for the first one. */
static enum status score_token(struct sequence *s, uint32_t p, const float *logits, struct fault *f)
{
    struct token_record record = {.sample.id = s->prompt[p], .text_offset = s->n_characters};
    if (logits != NULL) {
        struct err e;
        enum status status = logprobs_of(logits, tokenizer_n_tokens(tokenizer_of(s)), s->prompt[p],
                                         (uint32_t)s->job->request->logprobs, &record.sample, &e);
        if (status != ST_OK)
            return fault_from_err(f, NULL, &e);
        record.has_logprob = true;
    }
    s->n_characters += echo_width(s, p);
    return token_records_push(&s->output.records, &record) ? ST_OK : no_memory(f);
}

/* logits[n][n_vocab]: row i is what the model expects after prompt token first + i. */
static enum status score_prompt(struct sequence *s, uint32_t first, uint32_t n, const float *logits,
                                struct fault *f)
{
    size_t n_vocab = tokenizer_n_tokens(tokenizer_of(s));
    enum status status = first == 0 ? score_token(s, 0, NULL, f) : ST_OK;
    for (uint32_t i = 0; i < n && first + i + 1 < s->n_prompt && status == ST_OK; i++)
        status = score_token(s, first + i + 1, logits + i * n_vocab, f);
    return status;
}

/* Takes the greedy tokens of a step, the first of which followed `before`. A banned one, which is
 * always the last, is drawn from logits in the next step: the session forgets the token before it.
 */
static enum status take_greedy(struct sequence *s, const struct step_item *item, token_id before,
                               struct fault *f)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < item->n_out && !s->finished && status == ST_OK; i++) {
        const token_id id = item->greedy[i];
        if (count_banned(s) > 0 && tokenizer_is_eog(tokenizer_of(s), id)) {
            session_rewind(s->session, session_length(s->session) - 1);
            s->pending = i > 0 ? item->greedy[i - 1] : before;
            s->redraws = true;
            return ST_OK;
        }
        status = take_token(s, &(struct sample){.id = id}, f);
    }
    return status;
}

static enum status take_prefill(struct sequence *s, const struct step_item *item, struct fault *f)
{
    enum status status = ST_OK;
    if (s->scoring)
        status = score_prompt(s, s->n_evaluated, item->n_tokens, item->logits, f);
    s->n_evaluated += item->n_tokens;
    s->job->timings.prompt_tokens += item->n_tokens;
    if (status != ST_OK || sequence_is_prefill(s))
        return status;
    if (s->job->request->max_tokens == 0)
        return sequence_finish(s, FINISH_LENGTH, f);
    if (item->want == STEP_GREEDY)
        return take_greedy(s, item, s->prompt[s->n_prompt - 1], f);
    size_t n_vocab = tokenizer_n_tokens(tokenizer_of(s));
    return draw(s, item->logits + (item->n_out - 1) * n_vocab, f);
}

static enum status take_decode(struct sequence *s, const struct step_item *item, struct fault *f)
{
    if (item->want == STEP_GREEDY)
        return take_greedy(s, item, s->pending, f);
    s->redraws = false;
    return draw(s, item->logits, f);
}

enum status sequence_take(struct sequence *s, const struct step_item *item, struct fault *f)
{
    enum status status =
        sequence_is_prefill(s) ? take_prefill(s, item, f) : take_decode(s, item, f);
    if (status != ST_OK)
        return status;
    bool full = session_length(s->session) >= s->job->model->n_ctx;
    if (!s->finished && full && !sequence_is_prefill(s))
        return sequence_finish(s, FINISH_LENGTH, f);
    return outbox_put(&s->job->outbox, s->index, &s->output) ? ST_OK : no_memory(f);
}
