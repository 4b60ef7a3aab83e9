/* Shapes of the answers to completions, /tokenize and /detokenize. No state. */
#include "server/reply.h"

#include <stdio.h>
#include <string.h>

#include "server/json.h"
#include "server/sequence.h"

#define PIECE_BYTES 512

void reply_fault(struct strbuf *out, const struct fault *f)
{
    struct json j = json_begin(out);
    json_open(&j, '{');
    json_key(&j, "error");
    json_open(&j, '{');
    json_key(&j, "message");
    json_text(&j, f->message);
    json_key(&j, "type");
    json_text(&j, fault_type(f->kind));
    json_key(&j, "param");
    if (f->param[0] != '\0')
        json_text(&j, f->param);
    else
        json_null(&j);
    json_key(&j, "code");
    if (fault_code(f->kind)[0] != '\0')
        json_text(&j, fault_code(f->kind));
    else
        json_null(&j);
    if (f->kind == FAULT_CONTEXT) {
        json_key(&j, "n_prompt_tokens");
        json_uint(&j, f->n_prompt_tokens);
        json_key(&j, "n_ctx");
        json_uint(&j, f->n_ctx);
    }
    json_close(&j, '}');
    json_close(&j, '}');
}

/* ---- parts of a completion ---- */

/* A token as a JSON string; bytes that are no text as "bytes:\xE2\x80", as OpenAI writes them. */
static void put_token(struct json *j, const struct tokenizer *t, token_id id)
{
    char piece[PIECE_BYTES], spelled[6 + 4 * PIECE_BYTES + 1];
    size_t n = tokenizer_piece(t, id, true, piece, sizeof piece);
    if (n > sizeof piece)
        n = sizeof piece;
    if (utf8_valid(piece, n)) {
        json_text_n(j, piece, n);
        return;
    }
    size_t at = (size_t)snprintf(spelled, sizeof spelled, "bytes:");
    for (size_t i = 0; i < n; i++)
        at +=
            (size_t)snprintf(spelled + at, sizeof spelled - at, "\\x%02x", (unsigned char)piece[i]);
    json_text_n(j, spelled, at);
}

/* The most likely tokens of one place; the same text twice would be a duplicate key, and the first
 * is the likelier one. */
static void put_top(struct json *j, const struct tokenizer *t, const struct sample *sample)
{
    char seen[SAMPLER_MAX_LOGPROBS][64];
    size_t lengths[SAMPLER_MAX_LOGPROBS];
    json_open(j, '{');
    for (uint32_t i = 0; i < sample->n_top; i++) {
        lengths[i] = tokenizer_piece(t, sample->top[i].id, true, seen[i], sizeof seen[i]);
        bool twice = false;
        for (uint32_t k = 0; k < i && !twice; k++)
            twice = lengths[k] == lengths[i] && lengths[i] <= sizeof seen[i] &&
                    memcmp(seen[k], seen[i], lengths[i]) == 0;
        if (twice)
            continue;
        put_token(j, t, sample->top[i].id);
        json_colon(j);
        json_real(j, (double)sample->top[i].logprob, 9);
    }
    json_close(j, '}');
}

static void put_logprobs(struct json *j, const struct tokenizer *t,
                         const struct token_records *records)
{
    json_open(j, '{');
    json_key(j, "tokens");
    json_open(j, '[');
    for (uint32_t i = 0; i < records->count; i++)
        put_token(j, t, records->items[i].sample.id);
    json_close(j, ']');
    json_key(j, "token_logprobs");
    json_open(j, '[');
    for (uint32_t i = 0; i < records->count; i++) {
        if (records->items[i].has_logprob)
            json_real(j, (double)records->items[i].sample.logprob, 9);
        else
            json_null(j);
    }
    json_close(j, ']');
    json_key(j, "top_logprobs");
    json_open(j, '[');
    for (uint32_t i = 0; i < records->count; i++) {
        if (records->items[i].has_logprob)
            put_top(j, t, &records->items[i].sample);
        else
            json_null(j);
    }
    json_close(j, ']');
    json_key(j, "text_offset");
    json_open(j, '[');
    for (uint32_t i = 0; i < records->count; i++)
        json_uint(j, records->items[i].text_offset);
    json_close(j, ']');
    json_close(j, '}');
}

static void put_choice(struct json *j, const struct job *job, uint32_t index,
                       const struct output *output)
{
    json_open(j, '{');
    json_key(j, "text");
    json_text_n(j, strbuf_text(&output->text), output->text.length);
    json_key(j, "index");
    json_uint(j, index);
    json_key(j, "logprobs");
    if (job->request->logprobs >= 0)
        put_logprobs(j, job->model->tokenizer, &output->records);
    else
        json_null(j);
    json_key(j, "finish_reason");
    if (output->finish != FINISH_NONE)
        json_text(j, finish_name(output->finish));
    else
        json_null(j);
    json_close(j, '}');
}

static void put_usage(struct json *j, const struct job *job)
{
    uint64_t cached = 0;
    for (uint32_t i = 0; i < job->n_sequences; i += (uint32_t)job->request->best_of)
        cached += job->sequences[i].n_cached;
    json_key(j, "usage");
    json_open(j, '{');
    json_key(j, "prompt_tokens");
    json_uint(j, job->usage_prompt_tokens);
    json_key(j, "completion_tokens");
    json_uint(j, job->timings.predicted_tokens);
    json_key(j, "total_tokens");
    json_uint(j, job->usage_prompt_tokens + job->timings.predicted_tokens);
    json_key(j, "prompt_tokens_details");
    json_open(j, '{');
    json_key(j, "cached_tokens");
    json_uint(j, cached);
    json_close(j, '}');
    json_close(j, '}');
}

/* ---- timings ---- */

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double per_second(uint64_t count, uint64_t ns)
{
    return ns > 0 ? (double)count * 1e9 / (double)ns : 0;
}

static void put_kernels(struct json *j, const struct prof_report *report)
{
    json_key(j, "kernels");
    json_open(j, '[');
    for (uint32_t i = 0; i < report->n_rows; i++) {
        const struct prof_row *row = &report->rows[i];
        json_open(j, '{');
        json_key(j, "name");
        json_text(j, row->name);
        json_key(j, "variant");
        json_text(j, row->variant);
        json_key(j, "calls");
        json_uint(j, row->calls);
        json_key(j, "total_ms");
        json_real(j, ms(row->total_ns), 9);
        json_key(j, "min_us");
        json_real(j, (double)row->min_ns / 1e3, 6);
        json_key(j, "max_us");
        json_real(j, (double)row->max_ns / 1e3, 6);
        json_key(j, "gb_s"); /* bytes in a nanosecond */
        json_real(j, row->total_ns > 0 ? (double)row->bytes / (double)row->total_ns : 0, 5);
        json_key(j, "gflop_s");
        json_real(j, row->total_ns > 0 ? (double)row->flops / (double)row->total_ns : 0, 5);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_key(j, "queues");
    json_open(j, '{');
    json_key(j, "compute_busy_ms");
    json_real(j, ms(report->compute_busy_ns), 9);
    json_key(j, "transfer_busy_ms");
    json_real(j, ms(report->transfer_busy_ns), 9);
    json_key(j, "overlap_ms");
    json_real(j, ms(report->overlap_ns), 9);
    json_close(j, '}');
}

static void put_timings(struct json *j, const struct job *job)
{
    const struct job_timings *t = &job->timings;
    if (job->request->timings == TIMINGS_NONE)
        return;
    json_key(j, "timings");
    json_open(j, '{');
    json_key(j, "queue_ms");
    json_real(j, ms(t->started_ns - t->arrived_ns), 6);
    json_key(j, "cache_n");
    json_uint(j, t->cached_tokens);
    json_key(j, "prompt_n");
    json_uint(j, t->prompt_tokens);
    json_key(j, "prompt_ms");
    json_real(j, ms(t->prompt_ns), 6);
    json_key(j, "prompt_per_second");
    json_real(j, per_second(t->prompt_tokens, t->prompt_ns), 6);
    json_key(j, "predicted_n");
    json_uint(j, t->predicted_tokens);
    json_key(j, "predicted_ms");
    json_real(j, ms(t->predicted_ns), 6);
    json_key(j, "predicted_per_second");
    json_real(j, per_second(t->predicted_tokens, t->predicted_ns), 6);
    json_key(j, "device");
    json_text(j, t->device);
    if (t->deadline_passed) {
        json_key(j, "deadline_passed");
        json_bool(j, true);
    }
    if (t->report != NULL)
        put_kernels(j, t->report);
    json_close(j, '}');
}

/* ---- whole answers ---- */

static void put_head(struct json *j, const struct job *job)
{
    char fingerprint[32];
    json_key(j, "id");
    json_text(j, job->public_id);
    json_key(j, "object");
    json_text(j, "text_completion");
    json_key(j, "created");
    json_int(j, job->created_s);
    json_key(j, "model");
    json_text(j, job->model->id);
    json_key(j, "system_fingerprint");
    snprintf(fingerprint, sizeof fingerprint, "fp_%016llx",
             (unsigned long long)job->model->info->identity);
    json_text(j, fingerprint);
}

static double mean_logprob(const struct sequence *s)
{
    return s->n_predicted > 0 ? s->sum_logprob / s->n_predicted : 0;
}

/* The place of sequence i among the candidates of its prompt: by mean log probability, ties by
 * order. */
static uint32_t rank_of(const struct job *job, uint32_t i)
{
    uint32_t best_of = (uint32_t)job->request->best_of;
    uint32_t first = i - i % best_of, rank = 0;
    if (job->request->best_of == job->request->n)
        return i - first;
    for (uint32_t k = first; k < first + best_of; k++) {
        double other = mean_logprob(&job->sequences[k]), own = mean_logprob(&job->sequences[i]);
        rank += other > own || (other == own && k < i);
    }
    return rank;
}

/* Sequence of choice c of prompt p. */
static uint32_t choice_at(const struct job *job, uint32_t p, uint32_t c)
{
    uint32_t best_of = (uint32_t)job->request->best_of;
    uint32_t i = p * best_of;
    while (rank_of(job, i) != c)
        i++;
    return i;
}

void reply_completion(struct strbuf *out, const struct job *job, const struct output *results)
{
    uint32_t n = (uint32_t)job->request->n;
    struct json j = json_begin(out);
    json_open(&j, '{');
    put_head(&j, job);
    json_key(&j, "choices");
    json_open(&j, '[');
    for (uint32_t p = 0; p < job->request->prompt.count; p++)
        for (uint32_t c = 0; c < n; c++)
            put_choice(&j, job, p * n + c, &results[choice_at(job, p, c)]);
    json_close(&j, ']');
    put_usage(&j, job);
    json_key(&j, "seed");
    json_uint(&j, job->seed);
    put_timings(&j, job);
    json_close(&j, '}');
}

void reply_chunk(struct strbuf *out, const struct job *job, uint32_t index,
                 const struct output *part, bool last)
{
    struct json j = json_begin(out);
    json_open(&j, '{');
    put_head(&j, job);
    json_key(&j, "choices");
    json_open(&j, '[');
    put_choice(&j, job, index, part);
    json_close(&j, ']');
    if (job->request->stream_options.include_usage) {
        json_key(&j, "usage");
        json_null(&j);
    }
    if (last) {
        json_key(&j, "seed");
        json_uint(&j, job->seed);
        put_timings(&j, job);
    }
    json_close(&j, '}');
}

void reply_usage_chunk(struct strbuf *out, const struct job *job)
{
    struct json j = json_begin(out);
    json_open(&j, '{');
    put_head(&j, job);
    json_key(&j, "choices");
    json_open(&j, '[');
    json_close(&j, ']');
    put_usage(&j, job);
    put_timings(&j, job);
    json_close(&j, '}');
}

/* ---- /tokenize and /detokenize ---- */

/* A piece as text, or as a list of its bytes when it is none. */
static void put_piece(struct json *j, const struct tokenizer *t, token_id id)
{
    char piece[PIECE_BYTES];
    size_t n = tokenizer_piece(t, id, true, piece, sizeof piece);
    if (n > sizeof piece)
        n = sizeof piece;
    if (utf8_valid(piece, n)) {
        json_text_n(j, piece, n);
        return;
    }
    json_open(j, '[');
    for (size_t i = 0; i < n; i++)
        json_uint(j, (unsigned char)piece[i]);
    json_close(j, ']');
}

void reply_tokens(struct strbuf *out, const struct job *job)
{
    const struct token_list *tokens = &job->prompts[0];
    struct json j = json_begin(out);
    json_open(&j, '{');
    json_key(&j, "tokens");
    json_open(&j, '[');
    for (uint32_t i = 0; i < tokens->count; i++) {
        if (!job->request->with_pieces) {
            json_int(&j, tokens->ids[i]);
            continue;
        }
        json_open(&j, '{');
        json_key(&j, "id");
        json_int(&j, tokens->ids[i]);
        json_key(&j, "piece");
        put_piece(&j, job->model->tokenizer, tokens->ids[i]);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_key(&j, "count");
    json_uint(&j, tokens->count);
    json_key(&j, "model");
    json_text(&j, job->model->id);
    json_close(&j, '}');
}

void reply_text(struct strbuf *out, const struct job *job)
{
    struct json j = json_begin(out);
    json_open(&j, '{');
    json_key(&j, "content");
    json_text_n(&j, strbuf_text(&job->text), job->text.length);
    json_key(&j, "model");
    json_text(&j, job->model->id);
    json_close(&j, '}');
}
