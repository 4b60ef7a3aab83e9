/* Seats sequences, batches their steps and shares out the time. */
#include "server/slots.h"

#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#define LOG_TEXT_BYTES (2 * ERR_TEXT_BYTES)

struct slot {
    struct session *session;
    struct sequence *sequence; /* NULL: free */
    uint32_t key;              /* API key whose tokens the session holds */
    uint64_t used;             /* turn in which it was last taken */
    uint64_t job;              /* last one */
};

struct slots {
    struct slots_host host;
    struct model *model;
    const struct hosted_model *hosted;
    struct slot slots[SLOTS_MAX];
    uint32_t n;
    uint32_t first; /* slot whose prompt is served first in the next step */
    uint64_t turn;
    struct job *waiting, **waiting_end; /* have sequences without a slot */
    bool profiling;                     /* what the engine was last told */
    struct prof_report report;          /* of the last step */
};

enum status slots_open(const struct slots_host *host, struct model *model,
                       const struct hosted_model *hosted, uint32_t n, struct slots **out,
                       struct err *e)
{
    struct slots *s = mem_zalloc(sizeof *s);
    if (s == NULL)
        return err_set(e, ST_NO_MEMORY, "slots: out of memory");
    s->host = *host;
    s->model = model;
    s->hosted = hosted;
    s->waiting_end = &s->waiting;
    s->profiling = host->always_profile;
    for (; s->n < n && s->n < SLOTS_MAX; s->n++) {
        enum status status = session_open(model, &s->slots[s->n].session, e);
        if (status != ST_OK) {
            slots_close(s);
            return status;
        }
    }
    *out = s;
    return ST_OK;
}

void slots_close(struct slots *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        session_close(s->slots[i].session);
    mem_free(s);
}

/* ---- jobs in and out ---- */

void slots_add(struct slots *s, struct job *j)
{
    j->next = NULL;
    *s->waiting_end = j;
    s->waiting_end = &j->next;
}

static struct job *pop_waiting(struct slots *s)
{
    struct job *j = s->waiting;
    if (j != NULL) {
        s->waiting = j->next;
        j->next = NULL;
        if (s->waiting == NULL)
            s->waiting_end = &s->waiting;
    }
    return j;
}

/* One of the job's sequences is over; the last one ends the job. */
static void count_finished(struct slots *s, struct job *j)
{
    if (++j->n_finished < j->n_sequences) {
        s->host.deliver(s->host.user, j, false);
        return;
    }
    j->timings.ended_ns = clock_now_ns();
    s->host.deliver(s->host.user, j, true);
}

static void leave_slot(struct slots *s, struct slot *slot)
{
    struct job *j = slot->sequence->job;
    slot->sequence->session = NULL;
    slot->sequence = NULL;
    count_finished(s, j);
}

/* Takes every sequence of a job out: the seated ones, and those that were never seated. */
static void end_job(struct slots *s, struct job *j)
{
    struct job **link = &s->waiting;
    while (*link != NULL && *link != j)
        link = &(*link)->next;
    if (*link == j) {
        *link = j->next;
        j->next = NULL;
        s->waiting_end = &s->waiting;
        while (*s->waiting_end != NULL)
            s->waiting_end = &(*s->waiting_end)->next;
    }
    uint32_t unseated = j->n_sequences - j->next_sequence;
    j->next_sequence = j->n_sequences;
    uint32_t seated = 0;
    for (uint32_t i = 0; i < s->n; i++)
        seated += s->slots[i].sequence != NULL && s->slots[i].sequence->job == j;
    /* The last count hands the job over: nothing may touch it afterwards. */
    for (; unseated > 0; unseated--)
        count_finished(s, j);
    for (uint32_t i = 0; i < s->n && seated > 0; i++) {
        if (s->slots[i].sequence != NULL && s->slots[i].sequence->job == j) {
            seated--;
            leave_slot(s, &s->slots[i]);
        }
    }
}

static void fail_job(struct slots *s, struct job *j, const struct fault *f)
{
    job_fail(j, f);
    end_job(s, j);
}

/* What a failed step was about is not gone on from: the cells it has may be as bad as its result.
 */
static void forget_tokens(struct slots *s, const struct job *j)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->slots[i].sequence != NULL && s->slots[i].sequence->job == j)
            session_rewind(s->slots[i].session, 0);
}

/* The deadline is over: what was generated is the answer, and nothing generated is an error. */
static void end_late_job(struct slots *s, struct job *j)
{
    struct fault f;
    j->timings.deadline_passed = true;
    if (j->timings.predicted_tokens == 0) {
        fault_set(&f, FAULT_DEADLINE, NULL, "the deadline passed before the first token");
        fail_job(s, j, &f);
        return;
    }
    for (uint32_t i = 0; i < j->n_sequences; i++)
        if (!j->sequences[i].finished &&
            sequence_finish(&j->sequences[i], FINISH_LENGTH, &f) != ST_OK)
            job_fail(j, &f);
    end_job(s, j);
}

/* Whether the job is to go on; if not, it is ended and must not be touched again. */
static bool keep_job(struct slots *s, struct job *j, uint64_t now_ns)
{
    if (job_is_cancelled(j)) {
        struct fault f;
        fault_set(&f, FAULT_DRAINING, NULL, "the request was cancelled");
        fail_job(s, j, &f);
        return false;
    }
    if (j->deadline_ns != 0 && now_ns > j->deadline_ns) {
        end_late_job(s, j);
        return false;
    }
    return true;
}

static void drop_jobs(struct slots *s)
{
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < s->n; i++)
        if (s->slots[i].sequence != NULL)
            keep_job(s, s->slots[i].sequence->job, now_ns);
    for (struct job *j = s->waiting, *next; j != NULL; j = next) {
        next = j->next;
        keep_job(s, j, now_ns);
    }
}

void slots_fail_all(struct slots *s, const struct fault *f)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->slots[i].sequence != NULL)
            fail_job(s, s->slots[i].sequence->job, f);
    while (s->waiting != NULL)
        fail_job(s, s->waiting, f);
}

/* ---- seating ---- */

/* The free slot from which most of the prompt can be reused; among equals the one unused longest.
 */
static struct slot *best_slot(struct slots *s, const struct sequence *q)
{
    struct slot *best = NULL;
    uint32_t best_reusable = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->sequence != NULL)
            continue;
        uint32_t reusable = slot->key == q->job->key ? sequence_reusable(q, slot->session) : 0;
        if (best == NULL || reusable > best_reusable ||
            (reusable == best_reusable && slot->used < best->used)) {
            best = slot;
            best_reusable = reusable;
        }
    }
    return best;
}

static bool has_free_slot(const struct slots *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->slots[i].sequence == NULL)
            return true;
    return false;
}

/* Seats the job's next sequence. */
static void seat(struct slots *s, struct job *j)
{
    struct sequence *q = &j->sequences[j->next_sequence++];
    struct slot *slot = best_slot(s, q);
    struct fault f;
    if (j->timings.started_ns == 0)
        j->timings.started_ns = j->mark_ns = clock_now_ns();
    bool same_key = slot->key == j->key;
    slot->sequence = q;
    slot->used = ++s->turn;
    slot->key = j->key;
    slot->job = j->id;
    if (sequence_start(q, slot->session, same_key, &f) != ST_OK)
        fail_job(s, j, &f);
}

/* Jobs take turns, a sequence each, so that one with many choices does not keep the others out. */
static void seat_waiting(struct slots *s)
{
    while (s->waiting != NULL && has_free_slot(s)) {
        struct job *j = pop_waiting(s);
        bool more = j->next_sequence + 1 < j->n_sequences;
        if (more)
            slots_add(s, j);
        seat(s, j);
    }
}

/* ---- steps ---- */

struct batch {
    struct step_item items[STEP_MAX_ITEMS];
    struct slot *slots[STEP_MAX_ITEMS];
    uint32_t n, n_tokens, n_rows;
};

static void add_item(struct slots *s, struct batch *b, struct slot *slot)
{
    struct sequence *q = slot->sequence;
    uint32_t tokens_left = model_n_batch(s->model) - b->n_tokens;
    uint32_t rows_left = STEP_MAX_LOGITS - b->n_rows;
    if (tokens_left == 0 || rows_left == 0 || outbox_is_full(&q->job->outbox))
        return;
    struct step_item *item = &b->items[b->n];
    b->n_rows += sequence_want(q, tokens_left, rows_left, item);
    b->n_tokens += item->n_tokens;
    b->slots[b->n++] = slot;
    q->job->in_step = true;
    if (!sequence_is_prefill(q))
        q->job->decodes = true;
}

static void gather(struct slots *s, struct batch *b)
{
    b->n = b->n_tokens = b->n_rows = 0;
    for (int prefill = 0; prefill < 2; prefill++) {
        for (uint32_t i = 0; i < s->n; i++) {
            struct slot *slot = &s->slots[(s->first + i) % s->n];
            if (slot->sequence != NULL && sequence_is_prefill(slot->sequence) == (prefill == 1))
                add_item(s, b, slot);
        }
    }
    s->first = (s->first + 1) % s->n;
}

/* Measures kernels while a job that asks for it takes part. */
static enum status set_profiling(struct slots *s, const struct batch *b, struct err *e)
{
    bool wanted = s->host.always_profile;
    for (uint32_t i = 0; i < b->n; i++)
        wanted |= b->slots[i]->sequence->job->timings.report != NULL;
    if (wanted == s->profiling)
        return ST_OK;
    s->profiling = wanted;
    return engine_profile(s->host.engine, wanted, e);
}

/* Gives the step's time, and its kernels, to each job that took part with an item of the range. */
static void account(struct slots *s, const struct batch *b, uint32_t first, uint32_t n)
{
    struct err e;
    char quoted[LOG_TEXT_BYTES];
    uint64_t now_ns = clock_now_ns();
    if (s->profiling) {
        s->report = (struct prof_report){0};
        if (engine_collect(s->host.engine, &s->report, &e) != ST_OK)
            log_warn("kernel times are missing reason=%s",
                     log_quote(quoted, sizeof quoted, e.text));
    }
    for (uint32_t i = first; i < first + n; i++) {
        struct job *j = b->slots[i]->sequence->job;
        if (!j->in_step)
            continue;
        *(j->decodes ? &j->timings.predicted_ns : &j->timings.prompt_ns) += now_ns - j->mark_ns;
        j->mark_ns = now_ns;
        j->in_step = j->decodes = false;
        if (j->timings.report != NULL && s->profiling)
            prof_merge(j->timings.report, &s->report);
    }
}

/* Gives an item's results to its sequence. */
static void take(struct slots *s, struct slot *slot, const struct step_item *item)
{
    struct sequence *q = slot->sequence;
    struct fault f;
    if (q == NULL)
        return; /* its job failed earlier in this batch */
    if (sequence_take(q, item, &f) != ST_OK)
        fail_job(s, q->job, &f);
    else if (q->finished)
        leave_slot(s, slot);
    else
        s->host.deliver(s->host.user, q->job, false);
}

/* One step. When a call of the device fails though the device works, it is made a second time. */
static enum status run_step(struct slots *s, struct step_item *items, uint32_t n, struct err *e)
{
    s->host.step_begins(s->host.user);
    enum status status = model_step(s->model, items, n, e);
    if (status == ST_DEVICE) {
        struct err lost;
        char quoted[LOG_TEXT_BYTES];
        log_warn("step failed and is tried again reason=%s",
                 log_quote(quoted, sizeof quoted, e->text));
        status = device_check(engine_device(s->host.engine), &lost);
        if (status == ST_DEVICE_LOST)
            *e = lost;
        else
            status = model_step(s->model, items, n, e);
    }
    s->host.step_ended(s->host.user);
    return status;
}

/* Runs the items; when a batch fails, each alone, so that only the request at fault fails. */
static enum status run_items(struct slots *s, struct batch *b, uint32_t first, uint32_t n,
                             struct err *e)
{
    enum status status = run_step(s, b->items + first, n, e);
    if (status == ST_OK) {
        account(s, b, first, n);
        for (uint32_t i = first; i < first + n; i++)
            take(s, b->slots[i], &b->items[i]);
        return ST_OK;
    }
    if (status == ST_DEVICE_LOST)
        return status;
    if (n > 1) {
        for (uint32_t i = first; i < first + n && status != ST_DEVICE_LOST; i++)
            if (b->slots[i]->sequence != NULL)
                status = run_items(s, b, i, 1, e);
        return status == ST_DEVICE_LOST ? status : ST_OK;
    }
    struct job *j = b->slots[first]->sequence->job;
    struct fault f;
    char quoted[LOG_TEXT_BYTES];
    log_error("step failed job=%llu reason=%s", (unsigned long long)j->id,
              log_quote(quoted, sizeof quoted, e->text));
    fault_from_err(&f, NULL, e);
    if (status == ST_IO)
        s->host.damaged(s->host.user, e);
    forget_tokens(s, j);
    fail_job(s, j, &f);
    return ST_OK;
}

enum slots_result slots_step(struct slots *s, struct err *e)
{
    struct batch b;
    drop_jobs(s);
    seat_waiting(s);
    gather(s, &b);
    if (b.n == 0) {
        for (uint32_t i = 0; i < s->n; i++)
            if (s->slots[i].sequence != NULL)
                return SLOTS_WAITING;
        return SLOTS_IDLE;
    }
    enum status status = set_profiling(s, &b, e);
    if (status == ST_OK)
        status = run_items(s, &b, 0, b.n, e);
    return status == ST_OK ? SLOTS_STEPPED : SLOTS_DEVICE_LOST;
}

uint32_t slots_describe(const struct slots *s, struct slot_status *out, uint32_t capacity)
{
    uint32_t n = s->n < capacity ? s->n : capacity;
    for (uint32_t i = 0; i < n; i++) {
        const struct slot *slot = &s->slots[i];
        const struct sequence *q = slot->sequence;
        out[i] = (struct slot_status){.model = s->hosted->index,
                                      .slot = i,
                                      .busy = q != NULL,
                                      .job = slot->job,
                                      .n_timeline = session_length(slot->session)};
        if (q != NULL) {
            out[i].n_prompt = q->n_prompt;
            out[i].n_evaluated = q->n_evaluated;
            out[i].n_cached = q->n_cached;
            out[i].n_predicted = q->n_predicted;
        }
    }
    return n;
}
