/* Prepares jobs. No state of its own. */
#include "server/prepare.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "server/sequence.h"

static enum status fail(struct job *j, const struct fault *f, enum status status)
{
    job_fail(j, f);
    return status;
}

static enum status no_memory(struct fault *f)
{
    return fault_set(f, FAULT_MEMORY, NULL, "out of memory while preparing the request");
}

/* ---- tokens of prompts ---- */

static enum status check_id(const struct job *j, token_id id, const char *field, struct fault *f)
{
    uint32_t n_vocab = tokenizer_n_tokens(j->model->tokenizer);
    if ((uint32_t)id < n_vocab)
        return ST_OK;
    return fault_set(f, FAULT_BAD_REQUEST, field, "%s: token id %d, the vocabulary has %" PRIu32,
                     field, (int)id, n_vocab);
}

static enum status push(struct token_list *list, token_id id, struct fault *f)
{
    return token_list_push(list, id) ? ST_OK : no_memory(f);
}

static enum status encode(const struct job *j, const struct request_text *text, bool add_special,
                          bool parse_special, struct token_list *out, struct fault *f)
{
    struct tokenize_options options = {.add_special = add_special, .parse_special = parse_special};
    struct err e;
    enum status status =
        tokenizer_encode(j->model->tokenizer, text->data, text->length, &options, out, &e);
    return status == ST_OK ? ST_OK : fault_from_err(f, NULL, &e);
}

/* Prefix token, prompt, suffix token, suffix, middle token: the order that infill models learn. */
static enum status encode_infill(const struct job *j, const struct request_text *prompt,
                                 struct token_list *out, struct fault *f)
{
    const struct tokenizer *t = j->model->tokenizer;
    if (!tokenizer_has_infill(t))
        return fault_set(f, FAULT_UNSUPPORTED, "suffix", "suffix: model %s has no infill tokens",
                         j->model->id);
    token_id prefix, suffix, middle;
    tokenizer_infill(t, &prefix, &suffix, &middle);
    enum status status = ST_OK;
    if (tokenizer_adds_bos(t))
        status = push(out, tokenizer_bos(t), f);
    if (status == ST_OK)
        status = push(out, prefix, f);
    if (status == ST_OK)
        status = encode(j, prompt, false, true, out, f);
    if (status == ST_OK)
        status = push(out, suffix, f);
    if (status == ST_OK)
        status = encode(j, &j->request->suffix, false, true, out, f);
    return status == ST_OK ? push(out, middle, f) : status;
}

static enum status copy_ids(const struct job *j, const struct request_ids *ids, const char *field,
                            struct token_list *out, struct fault *f)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < ids->count && status == ST_OK; i++) {
        status = check_id(j, ids->ids[i], field, f);
        if (status == ST_OK)
            status = push(out, ids->ids[i], f);
    }
    return status;
}

/* Tokens of one prompt: at least one, at most what the context holds. */
static enum status encode_prompt(const struct job *j, const struct request_prompt *prompt,
                                 struct token_list *out, struct fault *f)
{
    enum status status;
    if (j->request->suffix.data != NULL && prompt->text.data != NULL)
        status = encode_infill(j, &prompt->text, out, f);
    else if (j->request->suffix.data != NULL)
        status =
            fault_set(f, FAULT_BAD_REQUEST, "suffix", "suffix needs a prompt that is a string");
    else if (prompt->text.data != NULL)
        status = encode(j, &prompt->text, true, true, out, f);
    else
        status = copy_ids(j, &prompt->ids, "prompt", out, f);
    if (status != ST_OK)
        return status;
    if (out->count == 0) {
        token_id bos = tokenizer_bos(j->model->tokenizer);
        if (bos == TOKEN_NONE)
            return fault_set(f, FAULT_BAD_REQUEST, "prompt",
                             "the prompt is empty and model %s has no token to begin with",
                             j->model->id);
        status = push(out, bos, f);
    }
    if (out->count > j->model->n_ctx) {
        status = fault_set(f, FAULT_CONTEXT, "prompt",
                           "the prompt has %" PRIu32 " tokens, the context holds %" PRIu32,
                           out->count, j->model->n_ctx);
        f->n_prompt_tokens = out->count;
        f->n_ctx = j->model->n_ctx;
    }
    return status;
}

/* ---- completions ---- */

static enum status check_vocabulary(const struct job *j, struct fault *f)
{
    const struct request *r = j->request;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < r->logit_bias.count && status == ST_OK; i++)
        status = check_id(j, r->logit_bias.items[i].id, "logit_bias", f);
    for (uint32_t i = 0; i < r->stop_token_ids.count && status == ST_OK; i++)
        status = check_id(j, r->stop_token_ids.ids[i], "stop_token_ids", f);
    return status;
}

/* The text that `echo` gives for prompt p: as sent, or its ids decoded. */
static enum status set_echo(struct job *j, struct sequence *s, uint32_t p, struct fault *f)
{
    const struct request_prompt *prompt = &j->request->prompt.items[p];
    if (prompt->text.data != NULL) {
        s->echo_text = prompt->text.data;
        s->echo_length = prompt->text.length;
        return ST_OK;
    }
    struct err e;
    enum status status = tokenizer_decode(j->model->tokenizer, s->prompt, s->n_prompt, true, true,
                                          &s->echo_owned, &s->echo_length, &e);
    if (status != ST_OK)
        return fault_from_err(f, "prompt", &e);
    s->echo_text = s->echo_owned;
    return ST_OK;
}

static enum status open_sequences(struct job *j, struct fault *f)
{
    const struct request *r = j->request;
    uint32_t n = r->prompt.count * (uint32_t)r->best_of;
    j->sequences = mem_array(n, sizeof *j->sequences);
    if (j->sequences == NULL || job_open_outbox(j, n) != ST_OK)
        return no_memory(f);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t p = i / (uint32_t)r->best_of;
        struct sequence *s = &j->sequences[i];
        /* Choices differ by their place, so that the same seed gives the same list of choices. */
        enum status status =
            sequence_open(s, j, i, &j->prompts[p], j->seed + i % (uint32_t)r->best_of, f);
        if (status != ST_OK)
            return status;
        j->n_sequences++;
        if (r->echo)
            status = set_echo(j, s, p, f);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

static enum status choose_seed(struct job *j, struct fault *f)
{
    j->seed = (uint64_t)j->request->seed;
    if (j->request->seed >= 0)
        return ST_OK;
    uint32_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return fault_set(f, FAULT_ENGINE, NULL, "the system gives no random numbers");
    j->seed = random;
    return ST_OK;
}

static enum status prepare_completion(struct job *j, const struct request_limits *limits,
                                      struct fault *f)
{
    const struct request *r = j->request;
    uint64_t allowed_ms = r->deadline_ms > 0 ? (uint64_t)r->deadline_ms : limits->deadline_ms;
    j->deadline_ns = j->timings.arrived_ns + allowed_ms * 1000000u;
    enum status status = check_vocabulary(j, f);
    if (status == ST_OK)
        status = choose_seed(j, f);
    if (status != ST_OK)
        return status;
    j->prompts = mem_array(r->prompt.count, sizeof *j->prompts);
    if (j->prompts == NULL)
        return no_memory(f);
    for (uint32_t p = 0; p < r->prompt.count && !job_is_cancelled(j); p++) {
        status = encode_prompt(j, &r->prompt.items[p], &j->prompts[p], f);
        if (status != ST_OK)
            return status;
        j->usage_prompt_tokens += j->prompts[p].count;
    }
    if (job_is_cancelled(j))
        return fault_set(f, FAULT_DRAINING, NULL, "the request was cancelled");
    if (r->timings == TIMINGS_KERNELS) {
        j->timings.report = mem_zalloc(sizeof *j->timings.report);
        if (j->timings.report == NULL)
            return no_memory(f);
    }
    return open_sequences(j, f);
}

/* ---- /tokenize and /detokenize ---- */

static enum status prepare_tokens(struct job *j, struct fault *f)
{
    j->prompts = mem_array(1, sizeof *j->prompts);
    if (j->prompts == NULL)
        return no_memory(f);
    return encode(j, &j->request->content, j->request->add_special, j->request->parse_special,
                  &j->prompts[0], f);
}

static enum status prepare_text(struct job *j, struct fault *f)
{
    const struct request_ids *ids = &j->request->tokens;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < ids->count && status == ST_OK; i++)
        status = check_id(j, ids->ids[i], "tokens", f);
    if (status != ST_OK)
        return status;
    char *text;
    size_t length;
    struct err e;
    status =
        tokenizer_decode(j->model->tokenizer, ids->ids, ids->count, true, true, &text, &length, &e);
    if (status != ST_OK)
        return fault_from_err(f, "tokens", &e);
    bool ok = strbuf_append(&j->text, text, length);
    mem_free(text);
    return ok ? ST_OK : no_memory(f);
}

static enum request_route route_of(enum job_kind kind)
{
    switch (kind) {
    case JOB_TOKENIZE: return REQUEST_TOKENIZE;
    case JOB_DETOKENIZE: return REQUEST_DETOKENIZE;
    case JOB_COMPLETION:
    case JOB_OPERATOR: break; /* prepared by op_job.c */
    }
    return REQUEST_COMPLETION;
}

enum status prepare_job(struct job *j, const char *body, size_t n,
                        const struct hosted_models *models, const struct request_limits *limits)
{
    struct fault f;
    enum status status = request_parse(route_of(j->kind), body, n, limits, &j->request, &f);
    if (status != ST_OK)
        return fail(j, &f, status);
    j->model = hosted_find(models, j->request->model.data);
    if (j->model == NULL) {
        status = fault_set(&f, FAULT_MODEL, "model", "there is no model \"%s\" here",
                           j->request->model.data != NULL ? j->request->model.data : "");
        return fail(j, &f, status);
    }
    switch (j->kind) {
    case JOB_COMPLETION: status = prepare_completion(j, limits, &f); break;
    case JOB_TOKENIZE: status = prepare_tokens(j, &f); break;
    case JOB_DETOKENIZE: status = prepare_text(j, &f); break;
    case JOB_OPERATOR: break;
    }
    return status == ST_OK ? ST_OK : fail(j, &f, status);
}
