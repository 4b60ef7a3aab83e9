/* The worker's thread: load, then for ever: take jobs in, run a step of each model, tell the loop.
 * After the loss of its device it begins again. */
#include "server/worker.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "server/op_job.h"

#define LOG_TEXT_BYTES (2 * ERR_TEXT_BYTES)
#define IDLE_NS        500000000u /* nothing to do for so long: time for housekeeping */
#define WAIT_NS        50000000u  /* between looks at cancels and deadlines while nothing can run */
#define PLAN_BYTES     16384
#define REOPEN_MIN_NS \
    UINT64_C(1000000000) /* pause after the first failed opening of a lost device */
#define REOPEN_MAX_NS  UINT64_C(60000000000) /* the pauses double up to this */
#define TASK_NS        600000000000u         /* a piece of a task takes no longer than that */
#define SLOTS_TOLD_MAX 256                   /* slots of all models that GET /slots shows */

struct worker {
    struct worker_options options;
    uv_thread_t thread;
    atomic_bool stopping;

    /* shared, under `lock`, which is never held across a call of the engine */
    uv_mutex_t lock;
    uv_cond_t wake;
    bool woken;
    struct job *inbox, **inbox_end;
    struct job *outgoing, **outgoing_end;
    struct worker_status status;
    struct slot_status told[SLOTS_TOLD_MAX];
    uint32_t n_told;
    struct device_peaks peaks;
    bool wants_peaks, has_peaks;
    struct worker_task *tasks; /* in their order */

    /* of the thread */
    struct engine *engine;
    struct model *models[HOSTED_MAX];
    struct slots *slots[HOSTED_MAX];
    uint32_t n_models;
    struct job *operators, **operators_end; /* to be run, by next */
    bool unsaved;                           /* there may be kernels that the disk cache lacks */
    uint64_t loaded_bytes;                  /* of the models before the one being loaded */
    uint64_t model_bytes;                   /* of the one being loaded, as the engine counts them */
    uint64_t waiting_bytes;                 /* of the models after it, as their files say */

    struct worker_facts facts; /* written before the first WORKER_READY, read after it */
    bool has_facts;            /* of the thread: they are not written again */
};

const char *worker_state_name(enum worker_state state)
{
    static const char *const names[] = {"loading", "ready", "failed", "lost"};
    return names[state];
}

static void notify(struct worker *w)
{
    w->options.notify(w->options.user);
}

/* e NULL: nothing is wrong. */
static void set_state(struct worker *w, enum worker_state state, const struct err *e)
{
    uv_mutex_lock(&w->lock);
    w->status.state = state;
    w->status.step_ns = w->status.progress_ns = clock_now_ns();
    w->status.error = e != NULL ? *e : (struct err){0};
    if (w->engine != NULL)
        w->status.memory = device_memory(engine_device(w->engine));
    uv_mutex_unlock(&w->lock);
    notify(w);
}

/* ---- loading ---- */

static bool on_progress(void *user, uint64_t done, uint64_t total, uint32_t kernels_built)
{
    struct worker *w = user;
    w->model_bytes = total;
    uv_mutex_lock(&w->lock);
    w->status.bytes_done = w->loaded_bytes + done;
    w->status.bytes_total = w->loaded_bytes + total + w->waiting_bytes;
    w->status.kernels_built = kernels_built;
    w->status.step_ns = w->status.progress_ns = clock_now_ns();
    uv_mutex_unlock(&w->lock);
    notify(w);
    return !atomic_load(&w->stopping);
}

static void describe_plans(const struct model *m, struct strbuf *out)
{
    char line[256];
    uint32_t shapes[] = {1, model_n_batch(m)};
    strbuf_init(out, PLAN_BYTES);
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
        for (uint32_t i = 0; model_plan_line(m, shapes[k], i, line, sizeof line); i++)
            strbuf_printf(out, "%s %s\n", k == 0 ? "decode" : "prefill", line);
}

static void deliver(void *user, struct job *j, bool done);
static void step_begins(void *user);
static void step_ended(void *user);
static void damaged(void *user, const struct err *e);

static enum status load_model(struct worker *w, uint32_t i, struct err *e)
{
    const struct hosted_model *hosted = &w->options.models->items[i];
    struct load_options options = w->options.load;
    options.progress = on_progress;
    options.user = w;
    options.n_ctx = hosted->n_ctx;
    w->model_bytes = hosted->info->weight_bytes;
    w->waiting_bytes -= hosted->info->weight_bytes;
    enum status status = model_load(w->engine, hosted->file, &options, &w->models[i], e);
    if (status != ST_OK)
        return err_prefix(e, "%s: ", hosted->id);
    struct slots_host host = {.user = w,
                              .engine = w->engine,
                              .always_profile = w->options.engine.device.profiling,
                              .deliver = deliver,
                              .step_begins = step_begins,
                              .step_ended = step_ended,
                              .damaged = damaged};
    w->n_models = i + 1;
    status = slots_open(&host, w->models[i], hosted, model_n_slots(w->models[i]), &w->slots[i], e);
    if (status != ST_OK)
        return status;
    if (!w->has_facts) {
        w->facts.loads[i] = *model_load_report(w->models[i]);
        describe_plans(w->models[i], &w->facts.plans[i]);
    }
    w->loaded_bytes += w->model_bytes;
    return ST_OK;
}

static enum status load(struct worker *w, struct err *e)
{
    w->loaded_bytes = w->waiting_bytes = 0;
    for (uint32_t i = 0; i < w->options.models->count; i++)
        w->waiting_bytes += w->options.models->items[i].info->weight_bytes;
    enum status status =
        engine_open(w->options.devices, w->options.device_index, &w->options.engine, &w->engine, e);
    for (uint32_t i = 0; i < w->options.models->count && status == ST_OK; i++)
        status = load_model(w, i, e);
    if (status != ST_OK)
        return status;
    if (!w->has_facts) {
        w->facts.device = *device_info(engine_device(w->engine));
        w->facts.caps = device_caps(engine_device(w->engine));
    }
    w->has_facts = true;
    return ST_OK;
}

static void unload(struct worker *w)
{
    for (uint32_t i = w->n_models; i > 0; i--) {
        slots_close(w->slots[i - 1]);
        model_close(w->models[i - 1]);
        w->slots[i - 1] = NULL;
        w->models[i - 1] = NULL;
    }
    engine_close(w->engine);
    w->n_models = 0;
    w->engine = NULL;
}

/* ---- jobs ---- */

/* Tells the loop about a job; after `done` it is no longer ours. */
static void deliver(void *user, struct job *j, bool done)
{
    struct worker *w = user;
    uv_mutex_lock(&w->lock);
    if (done) {
        snprintf(j->timings.device, sizeof j->timings.device, "%s", w->facts.device.name);
        j->done = true;
    }
    bool was_listed = j->listed;
    if (!was_listed) {
        j->listed = true;
        j->outgoing_next = NULL;
        *w->outgoing_end = j;
        w->outgoing_end = &j->outgoing_next;
    }
    uv_mutex_unlock(&w->lock);
    if (!was_listed || done)
        notify(w);
}

static struct job *take_inbox(struct worker *w)
{
    uv_mutex_lock(&w->lock);
    struct job *list = w->inbox;
    w->inbox = NULL;
    w->inbox_end = &w->inbox;
    uv_mutex_unlock(&w->lock);
    return list;
}

/* Gives the jobs that came in to the slots of their model, or fails them if `f` is not NULL. */
static void admit(struct worker *w, const struct fault *f)
{
    for (struct job *j = take_inbox(w), *next; j != NULL; j = next) {
        next = j->next;
        j->next = NULL;
        if (f == NULL && j->kind == JOB_OPERATOR) {
            *w->operators_end = j;
            w->operators_end = &j->next;
        } else if (f == NULL) {
            slots_add(w->slots[j->model->index], j);
        } else {
            job_fail(j, f);
            deliver(w, j, true);
        }
    }
}

static struct job *pop_operator(struct worker *w)
{
    struct job *j = w->operators;
    if (j != NULL) {
        w->operators = j->next;
        if (w->operators == NULL)
            w->operators_end = &w->operators;
        j->next = NULL;
    }
    return j;
}

/* The task to run next, which stays in the list; NULL: none. Those that begin or end go first. */
static struct worker_task *next_task(struct worker *w, bool only_urgent)
{
    uv_mutex_lock(&w->lock);
    struct worker_task *t = w->tasks;
    while (t != NULL && t->begun && !t->ending)
        t = t->next;
    if (t == NULL && !only_urgent)
        t = w->tasks;
    uv_mutex_unlock(&w->lock);
    return t;
}

/* Takes a task out of the list, before its last run lets go of it. */
static void drop_task(struct worker *w, const struct worker_task *t)
{
    uv_mutex_lock(&w->lock);
    struct worker_task **at = &w->tasks;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    uv_mutex_unlock(&w->lock);
}

static void end_tasks(struct worker *w)
{
    for (struct worker_task *t; (t = next_task(w, false)) != NULL;) {
        drop_task(w, t);
        t->run(t, NULL, NULL);
        notify(w);
    }
}

static void fail_all(struct worker *w, const struct fault *f)
{
    end_tasks(w);
    for (struct job *j = pop_operator(w); j != NULL; j = pop_operator(w)) {
        job_fail(j, f);
        deliver(w, j, true);
    }
    for (uint32_t i = 0; i < w->n_models; i++)
        if (w->slots[i] != NULL)
            slots_fail_all(w->slots[i], f);
    admit(w, f);
}

/* ---- the thread ---- */

static void tell_slots(struct worker *w)
{
    uv_mutex_lock(&w->lock);
    w->n_told = 0;
    for (uint32_t i = 0; i < w->n_models; i++)
        w->n_told += slots_describe(w->slots[i], w->told + w->n_told, SLOTS_TOLD_MAX - w->n_told);
    uv_mutex_unlock(&w->lock);
}

static void step_begins(void *user)
{
    struct worker *w = user;
    tell_slots(w);
    uv_mutex_lock(&w->lock);
    w->status.in_step = true;
    w->status.step_ns = w->status.progress_ns = clock_now_ns();
    uv_mutex_unlock(&w->lock);
}

static void step_ended(void *user)
{
    struct worker *w = user;
    struct device_memory memory = device_memory(engine_device(w->engine));
    uv_mutex_lock(&w->lock);
    w->status.in_step = false;
    w->status.step_ns = w->status.progress_ns = clock_now_ns();
    w->status.n_steps++;
    w->status.memory = memory;
    uv_mutex_unlock(&w->lock);
    w->unsaved = true; /* a step may have built kernels */
}

static void damaged(void *user, const struct err *e)
{
    struct worker *w = user;
    uv_mutex_lock(&w->lock);
    w->status.damaged = true;
    w->status.error = *e;
    uv_mutex_unlock(&w->lock);
    notify(w);
}

/* Waits for a job, a wake-up or the end of `ns` (0: for ever); true: it was the end of `ns`. */
static bool wait_for_work(struct worker *w, uint64_t ns)
{
    uv_mutex_lock(&w->lock);
    bool expired = false;
    w->status.resting = true;
    while (!w->woken && w->inbox == NULL && !expired) {
        if (ns == 0)
            uv_cond_wait(&w->wake, &w->lock);
        else
            expired = uv_cond_timedwait(&w->wake, &w->lock, ns) == UV_ETIMEDOUT;
    }
    w->woken = false;
    w->status.resting = false;
    w->status.progress_ns = clock_now_ns();
    uv_mutex_unlock(&w->lock);
    return expired;
}

/* Measures the device's peaks, as worker_measure asked; takes seconds the first time on a device.
 */
static void measure(struct worker *w)
{
    struct device_peaks peaks;
    struct err e;
    enum status status = device_measure_peaks(engine_device(w->engine), &peaks, &e);
    if (status != ST_OK) {
        char quoted[LOG_TEXT_BYTES];
        log_warn("device not measured reason=%s", log_quote(quoted, sizeof quoted, e.text));
        peaks = (struct device_peaks){0};
    }
    uv_mutex_lock(&w->lock);
    w->peaks = peaks;
    w->has_peaks = true;
    uv_mutex_unlock(&w->lock);
}

static bool should_measure(struct worker *w)
{
    uv_mutex_lock(&w->lock);
    bool wanted = w->wants_peaks && !w->has_peaks;
    uv_mutex_unlock(&w->lock);
    return wanted;
}

/* Nothing can run: waits for work, and while jobs wait for their readers not for long. Kernels
 * whose binaries are not in the cache yet are stored one by one while nobody asks for anything. */
static void rest(struct worker *w, bool has_jobs)
{
    if (has_jobs)
        wait_for_work(w, WAIT_NS);
    else if (should_measure(w))
        measure(w);
    else if (!w->unsaved)
        wait_for_work(w, 0);
    else if (wait_for_work(w, IDLE_NS))
        w->unsaved = kernel_save_next(engine_device(w->engine));
}

/* Who asks now is not sent here any more, and then who was here hears of it. */
static void lose(struct worker *w, const struct err *e)
{
    struct fault f;
    char quoted[LOG_TEXT_BYTES];
    log_error("device lost device=%u reason=%s", w->options.device_index,
              log_quote(quoted, sizeof quoted, e->text));
    set_state(w, WORKER_LOST, e);
    fault_set(&f, FAULT_DEVICE_LOST, NULL, "device %s was lost: %s", w->facts.device.name, e->text);
    fail_all(w, &f);
}

/* Steps every model once; false when the device is lost. */
static bool turn(struct worker *w, bool *stepped, bool *has_jobs)
{
    struct err e;
    *stepped = *has_jobs = false;
    for (uint32_t i = 0; i < w->n_models; i++) {
        switch (slots_step(w->slots[i], &e)) {
        case SLOTS_IDLE: break;
        case SLOTS_STEPPED: *stepped = true; break;
        case SLOTS_WAITING: *has_jobs = true; break;
        case SLOTS_DEVICE_LOST: lose(w, &e); return false;
        }
    }
    return true;
}

/* An operator is busy for so long at most: until then it counts as progress. */
static bool on_operator(void *user, double next_ns)
{
    struct worker *w = user;
    uv_mutex_lock(&w->lock);
    w->status.step_ns = w->status.progress_ns =
        clock_now_ns() + (uint64_t)(next_ns < 3.6e12 ? next_ns : 3.6e12);
    uv_mutex_unlock(&w->lock);
    return !atomic_load(&w->stopping);
}

/* Runs one operator, if one waits; false when the device is lost. */
static bool run_operator(struct worker *w, bool *ran)
{
    struct job *j = pop_operator(w);
    const struct op_job_host host = {.user = w, .proceed = on_operator};
    struct err e;
    *ran = j != NULL;
    if (j == NULL)
        return true;
    step_begins(w);
    const enum status status = op_job_run(j, engine_device(w->engine), &host, &e);
    step_ended(w);
    if (status != ST_OK)
        lose(w, &e);
    deliver(w, j, true);
    return status == ST_OK;
}

/* Runs a piece of a task, if there is one; false when the device is lost. */
static bool run_task(struct worker *w, bool only_urgent, bool *ran)
{
    struct worker_task *t = next_task(w, only_urgent);
    struct err e;
    *ran = t != NULL;
    if (t == NULL)
        return true;
    t->begun = true;
    step_begins(w);
    on_operator(w, (double)TASK_NS);
    /* it may be freed as soon as it is over: out of the list first, and back if it goes on */
    drop_task(w, t);
    const enum worker_task_result result = t->run(t, w->engine, w->models);
    if (result == WORKER_TASK_GOES_ON) {
        uv_mutex_lock(&w->lock);
        t->next = w->tasks;
        w->tasks = t;
        uv_mutex_unlock(&w->lock);
    }
    step_ended(w);
    notify(w);
    if (result != WORKER_TASK_LOST)
        return true;
    err_set(&e, ST_DEVICE_LOST, "the device was lost in a task");
    lose(w, &e);
    return false;
}

/* Until the worker is to stop (true) or the device is lost. */
static bool serve(struct worker *w)
{
    bool stepped, has_jobs, ran;
    while (!atomic_load(&w->stopping)) {
        admit(w, NULL);
        if (!turn(w, &stepped, &has_jobs) || !run_operator(w, &ran))
            return false;
        tell_slots(w);
        stepped = stepped || ran;
        if (!run_task(w, stepped, &ran))
            return false;
        if (!stepped && !ran)
            rest(w, has_jobs);
    }
    return true;
}

/* Fails what comes in, for `ns` (0: without end) or until the worker is to stop. */
static void turn_away(struct worker *w, const struct fault *f, uint64_t ns)
{
    uint64_t end_ns = clock_now_ns() + ns;
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        fail_all(w, f);
        if (atomic_load(&w->stopping) || (ns != 0 && now_ns >= end_ns))
            return;
        wait_for_work(w, ns != 0 ? end_ns - now_ns : 0);
    }
}

/* What is done with the driver counts as a step, so that one that hangs is noticed. */
static void set_in_step(struct worker *w, bool in_step)
{
    uv_mutex_lock(&w->lock);
    w->status.in_step = in_step;
    w->status.step_ns = w->status.progress_ns = clock_now_ns();
    uv_mutex_unlock(&w->lock);
}

static void count_loss(struct worker *w)
{
    uv_mutex_lock(&w->lock);
    w->status.n_losses++;
    uv_mutex_unlock(&w->lock);
}

static void set_failed_openings(struct worker *w, uint32_t n)
{
    uv_mutex_lock(&w->lock);
    w->status.n_failed_openings = n;
    uv_mutex_unlock(&w->lock);
}

/* Closes what the lost device had and loads it again until that works; false: the worker is to
 * stop. */
static bool reopen(struct worker *w)
{
    struct fault lost;
    struct err e;
    char quoted[LOG_TEXT_BYTES];
    uint64_t pause_ns = REOPEN_MIN_NS;
    fault_set(&lost, FAULT_DEVICE_LOST, NULL, "device %s was lost and is being opened again",
              w->facts.device.name);
    count_loss(w);
    for (uint32_t failed = 0; !atomic_load(&w->stopping); pause_ns *= 2) {
        fail_all(w, &lost);
        set_in_step(w, true);
        unload(w);
        tell_slots(w);
        enum status status = load(w, &e);
        set_in_step(w, false);
        if (status == ST_OK) {
            log_info("device opened again device=%u", w->options.device_index);
            set_failed_openings(w, 0);
            return true;
        }
        set_failed_openings(w, ++failed);
        pause_ns = pause_ns < REOPEN_MAX_NS ? pause_ns : REOPEN_MAX_NS;
        log_error("device not opened again device=%u retry_ms=%llu reason=%s",
                  w->options.device_index, (unsigned long long)(pause_ns / 1000000),
                  log_quote(quoted, sizeof quoted, e.text));
        set_state(w, WORKER_LOST, &e);
        turn_away(w, &lost, pause_ns);
    }
    return false;
}

static void run(void *user)
{
    struct worker *w = user;
    struct err e;
    struct fault f;
    if (load(w, &e) == ST_OK) {
        do {
            tell_slots(w);
            w->unsaved = true;
            set_state(w, WORKER_READY, NULL);
        } while (!serve(w) && reopen(w));
        fault_set(&f, FAULT_DRAINING, NULL, "the server is stopping");
    } else {
        fault_from_err(&f, NULL, &e);
        set_state(w, WORKER_FAILED, &e);
        turn_away(w, &f, 0);
    }
    fail_all(w, &f);
    unload(w);
}

/* ---- for the others ---- */

enum status worker_open(const struct worker_options *options, struct worker **out, struct err *e)
{
    struct worker *w = mem_zalloc(sizeof *w);
    if (w == NULL)
        return err_set(e, ST_NO_MEMORY, "worker: out of memory");
    w->options = *options;
    w->inbox_end = &w->inbox;
    w->outgoing_end = &w->outgoing;
    w->operators_end = &w->operators;
    w->status.step_ns = w->status.progress_ns = clock_now_ns();
    w->facts.device = *device_list_at(options->devices, options->device_index);
    for (uint32_t i = 0; i < options->models->count; i++)
        w->status.bytes_total += options->models->items[i].info->weight_bytes;
    for (uint32_t i = 0; i < HOSTED_MAX; i++)
        strbuf_init(&w->facts.plans[i], PLAN_BYTES);
    if (uv_mutex_init(&w->lock) != 0)
        goto no_lock;
    if (uv_cond_init(&w->wake) != 0)
        goto no_cond;
    if (uv_thread_create(&w->thread, run, w) != 0)
        goto no_thread;
    *out = w;
    return ST_OK;
no_thread:
    uv_cond_destroy(&w->wake);
no_cond:
    uv_mutex_destroy(&w->lock);
no_lock:
    mem_free(w);
    return err_set(e, ST_NO_MEMORY, "worker: no thread could be started");
}

void worker_stop(struct worker *w)
{
    atomic_store(&w->stopping, true);
    worker_wake(w);
}

void worker_close(struct worker *w)
{
    if (w == NULL)
        return;
    worker_stop(w);
    uv_thread_join(&w->thread);
    for (uint32_t i = 0; i < HOSTED_MAX; i++)
        strbuf_free(&w->facts.plans[i]);
    uv_cond_destroy(&w->wake);
    uv_mutex_destroy(&w->lock);
    mem_free(w);
}

void worker_submit(struct worker *w, struct job *j)
{
    uv_mutex_lock(&w->lock);
    j->next = NULL;
    *w->inbox_end = j;
    w->inbox_end = &j->next;
    uv_cond_signal(&w->wake);
    uv_mutex_unlock(&w->lock);
}

void worker_add_task(struct worker *w, struct worker_task *t)
{
    uv_mutex_lock(&w->lock);
    struct worker_task **end = &w->tasks;
    while (*end != NULL)
        end = &(*end)->next;
    t->next = NULL;
    t->begun = t->ending = false;
    *end = t;
    w->woken = true;
    uv_cond_signal(&w->wake);
    uv_mutex_unlock(&w->lock);
}

void worker_end_task(struct worker *w, struct worker_task *t)
{
    uv_mutex_lock(&w->lock);
    t->ending = w->woken = true;
    uv_cond_signal(&w->wake);
    uv_mutex_unlock(&w->lock);
}

void worker_wake(struct worker *w)
{
    uv_mutex_lock(&w->lock);
    w->woken = true;
    uv_cond_signal(&w->wake);
    uv_mutex_unlock(&w->lock);
}

/* Takes the first of the outgoing jobs; NULL: none. */
static struct job *pop_outgoing(struct worker *w, bool *done)
{
    uv_mutex_lock(&w->lock);
    struct job *j = w->outgoing;
    if (j != NULL) {
        w->outgoing = j->outgoing_next;
        if (w->outgoing == NULL)
            w->outgoing_end = &w->outgoing;
        j->listed = false;
        *done = j->done;
    }
    uv_mutex_unlock(&w->lock);
    return j;
}

void worker_collect(struct worker *w, void (*take)(void *user, struct job *j, bool done),
                    void *user)
{
    bool done;
    for (struct job *j = pop_outgoing(w, &done); j != NULL; j = pop_outgoing(w, &done))
        take(user, j, done);
}

void worker_status(struct worker *w, struct worker_status *out)
{
    uv_mutex_lock(&w->lock);
    *out = w->status;
    uv_mutex_unlock(&w->lock);
}

uint32_t worker_slots(struct worker *w, struct slot_status *out, uint32_t capacity)
{
    uv_mutex_lock(&w->lock);
    uint32_t n = w->n_told < capacity ? w->n_told : capacity;
    memcpy(out, w->told, n * sizeof *out);
    uv_mutex_unlock(&w->lock);
    return n;
}

void worker_measure(struct worker *w)
{
    uv_mutex_lock(&w->lock);
    w->wants_peaks = true;
    uv_mutex_unlock(&w->lock);
    worker_wake(w);
}

bool worker_peaks(struct worker *w, struct device_peaks *out)
{
    uv_mutex_lock(&w->lock);
    bool known = w->has_peaks;
    *out = w->peaks;
    uv_mutex_unlock(&w->lock);
    return known;
}

const struct worker_facts *worker_facts(struct worker *w)
{
    uv_mutex_lock(&w->lock);
    bool ready = w->status.state == WORKER_READY || w->status.state == WORKER_LOST;
    uv_mutex_unlock(&w->lock);
    return ready ? &w->facts : NULL;
}
