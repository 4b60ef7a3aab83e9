/* The life of a job on the loop: arrive, prepare on a pool thread, queue, run, reply.
 *
 * A job outlives its client: when the exchange goes, the job is cancelled, and it is freed where it
 * comes back to the loop. Only the loop frees jobs.
 */
#include "server/completion.h"

#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "server/op_job.h"
#include "server/prepare.h"
#include "server/reply.h"
#include "server/route.h"
#include "server/service.h"
#include "server/stream.h"

static void close_job(struct service *s, struct job *j)
{
    if (j->exchange != NULL)
        exchange_set_data(j->exchange, NULL);
    service_drop_job(s, j);
    stream_close(j->stream);
    job_close(j);
}

/* ---- replies ---- */

static void reply_json(struct service *s, struct job *j,
                       void (*write)(struct strbuf *out, const struct job *j))
{
    struct strbuf body;
    struct http_header ignored = {"X-OInfer-Ignored", j->request->ignored};
    strbuf_init(&body, REPLY_CEILING_BYTES);
    write(&body, j);
    route_reply(s, j->exchange, 200, ROUTE_JSON, &ignored, j->request->ignored[0] != '\0', &body);
}

static void write_completion(struct strbuf *out, const struct job *j)
{
    reply_completion(out, j, j->results);
}

static void reply_operator(struct service *s, struct job *j)
{
    struct strbuf body;
    const struct op_request *request = j->op->request;
    struct http_header ignored = {"X-OInfer-Ignored", request->ignored};
    strbuf_init(&body, REPLY_CEILING_BYTES);
    const char *type = op_job_reply(j, &body);
    route_reply(s, j->exchange, 200, type, &ignored, request->ignored[0] != '\0', &body);
}

/* Moves what the outbox holds to the results. The job's fault is the worker's until it is done, so
 * that memory was short is only noted here. */
static void gather_results(struct job *j)
{
    for (uint32_t i = 0; i < j->n_sequences; i++) {
        if (!outbox_take(&j->outbox, i, &j->results[i])) {
            j->results_lost = true;
            job_cancel(j);
        }
    }
}

/* The reply of a job that is over, if its client is still there. */
static void reply_done(struct service *s, struct job *j)
{
    if (j->stream != NULL && (stream_started(j->stream) || !j->failed))
        stream_finish(s, j);
    else if (j->failed)
        route_fault(s, j->exchange, &j->fault);
    else if (j->kind == JOB_OPERATOR)
        reply_operator(s, j);
    else
        reply_json(s, j, write_completion);
}

static void log_done(const struct job *j)
{
    const struct job_timings *t = &j->timings;
    char quoted[2 * ERR_TEXT_BYTES];
    const bool left = j->exchange == NULL && j->fault.kind == FAULT_DRAINING;
    if (j->failed)
        log_info("job failed job=%llu code=%s reason=%s", (unsigned long long)j->id,
                 left ? "client_left" : fault_code(j->fault.kind),
                 log_quote(quoted, sizeof quoted, left ? "the client left" : j->fault.message));
    else if (j->kind == JOB_OPERATOR)
        log_info("job done job=%llu op=%s queue_ms=%.1f run_ms=%.1f", (unsigned long long)j->id,
                 api_op_name(j->op->op), (double)(t->started_ns - t->arrived_ns) / 1e6,
                 (double)j->op->run_ns / 1e6);
    else
        log_info("job done job=%llu model=%s queue_ms=%.1f cached=%llu prompt=%llu prompt_ms=%.1f "
                 "predicted=%llu predicted_ms=%.1f",
                 (unsigned long long)j->id, j->model->id,
                 (double)(t->started_ns - t->arrived_ns) / 1e6,
                 (unsigned long long)t->cached_tokens, (unsigned long long)t->prompt_tokens,
                 (double)t->prompt_ns / 1e6, (unsigned long long)t->predicted_tokens,
                 (double)t->predicted_ns / 1e6);
}

void completion_fail(struct service *s, struct job *j, const struct fault *f)
{
    job_fail(j, f);
    log_done(j);
    if (j->exchange != NULL)
        reply_done(s, j);
    close_job(s, j);
}

/* ---- preparing ---- */

static void prepare(uv_work_t *work)
{
    struct job *j = work->data;
    if (j->kind == JOB_OPERATOR)
        op_job_prepare(j, strbuf_text(&j->body), j->body.length);
    else
        prepare_job(j, strbuf_text(&j->body), j->body.length, j->service->models, &j->limits);
    strbuf_free(&j->body);
}

/* Makes what the reply is gathered in; false when out of memory. */
static bool open_reply(struct job *j)
{
    if (j->kind == JOB_OPERATOR)
        return true;
    if (j->request->stream) {
        j->stream = stream_open(j);
        return j->stream != NULL;
    }
    j->results = mem_array(j->n_sequences, sizeof *j->results);
    for (uint32_t i = 0; i < j->n_sequences && j->results != NULL; i++)
        output_init(&j->results[i]);
    return j->results != NULL;
}

static void enqueue(struct service *s, struct job *j)
{
    struct fault f;
    if (open_reply(j)) {
        scheduler_enqueue(s->scheduler, j);
        return;
    }
    scheduler_release(s->scheduler);
    fault_set(&f, FAULT_MEMORY, NULL, "out of memory");
    completion_fail(s, j, &f);
}

/* Does it go through the queue to a worker? */
static bool is_queued(enum job_kind kind)
{
    return kind == JOB_COMPLETION || kind == JOB_OPERATOR;
}

static void after_prepare(uv_work_t *work, int status)
{
    struct job *j = work->data;
    struct service *s = j->service;
    (void)status; /* the work is never cancelled */
    s->n_preparing--;
    if (is_queued(j->kind) && !j->failed && j->exchange != NULL) {
        enqueue(s, j);
        return;
    }
    if (is_queued(j->kind))
        scheduler_release(s->scheduler);
    if (j->exchange != NULL) {
        if (j->failed)
            route_fault(s, j->exchange, &j->fault);
        else
            reply_json(s, j, j->kind == JOB_TOKENIZE ? reply_tokens : reply_text);
    }
    close_job(s, j);
}

/* A job of that kind with what an operator needs of the headers; NULL when out of memory. */
static struct job *open_job(struct exchange *x, enum job_kind kind)
{
    struct job *j = job_open(kind);
    if (j == NULL || kind != JOB_OPERATOR)
        return j;
    j->op = op_job_open(api_op_find(strrchr(exchange_path(x), '/') + 1),
                        exchange_header(x, "Content-Type"), exchange_header(x, "Accept"));
    if (j->op != NULL)
        return j;
    job_close(j);
    return NULL;
}

/* Makes the job of an exchange and has it prepared; the scheduler has a place for a queued one. */
static void start_job(struct service *s, struct exchange *x, enum job_kind kind)
{
    struct job *j = open_job(x, kind);
    struct fault f;
    if (j == NULL) {
        if (is_queued(kind))
            scheduler_release(s->scheduler);
        fault_set(&f, FAULT_MEMORY, NULL, "out of memory");
        route_fault(s, x, &f);
        return;
    }
    j->service = s;
    j->exchange = x;
    j->state = JOB_PREPARING;
    j->timings.arrived_ns = exchange_arrived_ns(x);
    j->key = route_key(s, x);
    j->limits = s->limits;
    exchange_take_body(x, &j->body);
    exchange_set_data(x, j);
    service_add_job(s, j);
    j->work.data = j;
    s->n_preparing++;
    uv_queue_work(&s->loop, &j->work, prepare, after_prepare);
}

/* ---- handlers ---- */

/* Why no completion can be taken now; false when it can. */
static bool find_obstacle(struct service *s, struct fault *f)
{
    switch (s->state) {
    case SERVICE_LOADING:
        fault_set(f, FAULT_LOADING, NULL, "the model is being loaded");
        return true;
    case SERVICE_DRAINING:
        fault_set(f, FAULT_DRAINING, NULL, "the server is stopping");
        return true;
    case SERVICE_READY:
    case SERVICE_DEGRADED: break;
    }
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct worker_status status;
        worker_status(s->workers[i], &status);
        if (status.state == WORKER_READY)
            return false;
    }
    service_no_device(s, f);
    return true;
}

static void start_queued(struct service *s, struct exchange *x, enum job_kind kind)
{
    struct fault f;
    if (find_obstacle(s, &f)) {
        route_fault(s, x, &f);
        return;
    }
    if (scheduler_reserve(s->scheduler) != ST_OK) {
        struct scheduler_counts counts = scheduler_counts(s->scheduler);
        fault_set(&f, FAULT_QUEUE, NULL, "the queue is full: %u requests wait",
                  counts.queued + counts.preparing);
        route_fault(s, x, &f);
        return;
    }
    start_job(s, x, kind);
}

void completion_start(struct service *s, struct exchange *x)
{
    start_queued(s, x, JOB_COMPLETION);
}

void completion_operator(struct service *s, struct exchange *x)
{
    struct fault f;
    const char *name = strrchr(exchange_path(x), '/') + 1;
    if (api_op_find(name) == API_COUNT) {
        fault_set(&f, FAULT_OPERATOR, NULL,
                  "there is no operator \"%.60s\"; GET /v1/ops lists them", name);
        route_fault(s, x, &f);
        return;
    }
    start_queued(s, x, JOB_OPERATOR);
}

void completion_tokenize(struct service *s, struct exchange *x)
{
    start_job(s, x, JOB_TOKENIZE);
}

void completion_detokenize(struct service *s, struct exchange *x)
{
    start_job(s, x, JOB_DETOKENIZE);
}

/* ---- running ---- */

/* Takes what the job has given so far; a worker that paused because of a full outbox is woken. */
static void take_output(struct service *s, struct job *j)
{
    bool was_full = outbox_is_full(&j->outbox);
    if (j->stream == NULL)
        gather_results(j);
    else
        stream_feed(s, j, false);
    if (was_full && !outbox_is_full(&j->outbox))
        worker_wake(s->workers[j->worker]);
}

void completion_news(struct service *s, struct job *j, bool done)
{
    if (!done) {
        if (j->exchange != NULL)
            take_output(s, j);
        return;
    }
    scheduler_returned(s->scheduler, j);
    if (j->kind == JOB_COMPLETION)
        metrics_count_job(&s->metrics, j);
    if (j->exchange != NULL) {
        if (j->stream == NULL)
            gather_results(j);
        if (j->results_lost) {
            j->failed = true;
            fault_set(&j->fault, FAULT_MEMORY, NULL, "out of memory while collecting the answer");
        }
        reply_done(s, j);
    }
    log_done(j);
    close_job(s, j);
}

void completion_writable(struct service *s, struct job *j)
{
    if (j->state == JOB_RUNNING)
        take_output(s, j);
}

void completion_gone(struct service *s, struct job *j)
{
    j->exchange = NULL;
    job_cancel(j);
    if (j->state == JOB_QUEUED) {
        scheduler_remove(s->scheduler, j);
        close_job(s, j);
    } else if (j->state == JOB_RUNNING) {
        worker_wake(s->workers[j->worker]);
    }
}

void completion_tick(struct service *s, uint64_t now_ns)
{
    uint64_t ping_ns = (uint64_t)s->config->ping_interval_ms * 1000000u;
    struct fault f;
    struct job *late;
    while ((late = scheduler_expired(s->scheduler, now_ns)) != NULL) {
        fault_set(&f, FAULT_DEADLINE, NULL, "the deadline passed in the queue");
        completion_fail(s, late, &f);
    }
    for (struct job *j = s->jobs; j != NULL; j = j->live_next)
        if (j->stream != NULL && j->exchange != NULL)
            stream_ping(s, j, now_ns, ping_ns);
}
