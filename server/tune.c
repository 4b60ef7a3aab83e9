/* Tunings: the list of them, the part of each that runs on a worker, and the exchanges that wait.
 */
#include "server/tune.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "server/reply.h"
#include "server/route.h"
#include "server/service.h"
#include "server/tune_file.h"

#define PATH_BYTES   4096
#define PING_NS      10000000000u /* silence of a stream before a comment is sent */
#define MAX_WATCHERS 64           /* streams of all tunings */
#define LOG_BYTES    (2 * ERR_TEXT_BYTES)

struct tuning {
    uint64_t id;
    struct tune_request request;
    uint64_t max_bytes; /* of the tensors of a shape that a client gave */
    uint32_t worker;    /* its number */
    char device[128];
    struct tunings *owner;
    struct worker_task task;
    atomic_bool cancelled;

    /* under `lock` */
    uv_mutex_t lock;
    struct tuning_state state;
    struct tune_store *results; /* a copy of the job's */
    bool opened, refused;       /* the worker has looked at the request; *error says why not */
    struct err error;
    bool over; /* the worker has let go of it */

    /* of the worker's thread */
    struct tune_job *job;
    uint32_t n_results;

    /* of the loop */
    struct exchange *starter; /* waits for `opened` */
    struct tuning *next;
};

struct watcher {
    struct exchange *x; /* NULL: free */
    struct tuning *tuning;
    uint32_t version; /* that was sent last */
    uint64_t written_ns;
};

struct tunings {
    struct service *service;
    struct tune_store *known;
    char path[PATH_BYTES]; /* of tune.json; "": none */
    uv_mutex_t file;       /* one writer at a time */
    uint64_t last_id;
    struct tuning *list; /* newest first */
    struct watcher watchers[MAX_WATCHERS];
};

const char *tuning_status_name(enum tuning_status status)
{
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    return names[status];
}

static bool is_final(enum tuning_status status)
{
    return status >= TUNING_DONE;
}

/* ---- on the worker's thread ---- */

static void set_status(struct tuning *t, enum tuning_status status, const struct err *e)
{
    uv_mutex_lock(&t->lock);
    t->state.status = status;
    t->state.version++;
    if (e)
        snprintf(t->state.error, sizeof t->state.error, "%s", e->text);
    if (is_final(status))
        t->over = true;
    uv_mutex_unlock(&t->lock);
}

/* Makes the job. False: the request was refused. */
static bool begin(struct tuning *t, struct engine *g, struct model *const *models)
{
    const struct tune_request *r = &t->request;
    const struct tuner_options options = {.search = (enum search_kind)r->search,
                                          .budget = (uint32_t)r->budget,
                                          .seed = r->seed,
                                          .max_bytes = r->model[0] ? 0 : t->max_bytes};
    struct tune_call *calls = mem_array(JOB_MAX_CALLS, sizeof *calls);
    struct err e = {0};
    enum status status = ST_OK;
    uint32_t n = 1;
    if (!calls) {
        status = err_set(&e, ST_NO_MEMORY, "tuning: out of memory");
    } else if (r->model[0]) {
        const struct hosted_model *m = hosted_find(t->owner->service->models, r->model);
        n = model_tune_calls(models[m->index], calls, JOB_MAX_CALLS);
    } else {
        calls[0] = r->call;
    }
    if (status == ST_OK)
        status = tune_job_open(engine_device(g), calls, n, &options, &t->job, &e);
    mem_free(calls);
    uv_mutex_lock(&t->lock);
    t->opened = true;
    t->refused = status != ST_OK;
    t->error = e;
    uv_mutex_unlock(&t->lock);
    return status == ST_OK;
}

/* Copies out what the job did. */
static void publish(struct tuning *t)
{
    const struct tune_record *r;
    uv_mutex_lock(&t->lock);
    t->state.progress = *tune_job_progress(t->job);
    t->state.begun = true;
    t->state.version++;
    for (; (r = store_at(tune_job_results(t->job), t->n_results)) != NULL; t->n_results++)
        if (store_add(t->results, r, NULL) != ST_OK)
            break;
    uv_mutex_unlock(&t->lock);
}

/* Puts the results to use and into the file. */
static void keep(struct tuning *t, struct engine *g)
{
    struct tunings *all = t->owner;
    struct err e;
    uint32_t n = 0;
    char quoted[LOG_BYTES];
    const struct tune_store *results = tune_job_results(t->job);
    enum status status = store_at(results, 0) ? engine_tune(g, results, &n, &e) : ST_OK;
    if (status == ST_OK && all->path[0] && store_at(results, 0)) {
        uv_mutex_lock(&all->file);
        status = tune_file_add(all->path, results, &e);
        uv_mutex_unlock(&all->file);
    }
    if (status != ST_OK)
        log_warn("tuned values not kept tuning=%" PRIu64 " reason=%s", t->id,
                 log_quote(quoted, sizeof quoted, e.text));
    uv_mutex_lock(&t->lock);
    t->state.n_applied = n;
    uv_mutex_unlock(&t->lock);
}

static void end(struct tuning *t, struct engine *g, enum tuning_status status, const struct err *e)
{
    if (t->job && g)
        keep(t, g);
    tune_job_close(t->job);
    t->job = NULL;
    set_status(t, status, e);
}

/* One point. worker.h says what it returns. */
static enum worker_task_result run_tuning(struct worker_task *task, struct engine *g,
                                          struct model *const *models)
{
    struct tuning *t = task->user;
    struct err e = {0};
    bool more = false;
    if (!g || atomic_load(&t->cancelled)) {
        uv_mutex_lock(&t->lock);
        if (!t->opened)
            err_set(&t->error, ST_CANCELLED, "the server is stopping");
        t->refused = t->refused || !t->opened;
        t->opened = true;
        uv_mutex_unlock(&t->lock);
        end(t, g, TUNING_CANCELLED, NULL);
        return WORKER_TASK_OVER;
    }
    if (!t->job) {
        if (begin(t, g, models))
            return WORKER_TASK_GOES_ON;
        set_status(t, TUNING_FAILED, &t->error);
        return WORKER_TASK_OVER;
    }
    if (t->state.status == TUNING_QUEUED)
        set_status(t, TUNING_RUNNING, NULL);
    enum status status = tune_job_step(t->job, &more, &e);
    publish(t);
    if (status == ST_OK && more)
        return WORKER_TASK_GOES_ON;
    end(t, status == ST_DEVICE_LOST ? NULL : g, status == ST_OK ? TUNING_DONE : TUNING_FAILED,
        status == ST_OK ? NULL : &e);
    return status == ST_DEVICE_LOST ? WORKER_TASK_LOST : WORKER_TASK_OVER;
}

/* ---- the list ---- */

enum status tunings_open(struct service *s, struct tunings **out, struct err *e)
{
    struct tunings *t = mem_zalloc(sizeof *t);
    *out = NULL;
    if (!t)
        return err_set(e, ST_NO_MEMORY, "tunings: out of memory");
    t->service = s;
    enum status status = store_open(&t->known, e);
    if (status == ST_OK && uv_mutex_init(&t->file) != 0)
        status = err_set(e, ST_NO_MEMORY, "tunings: no lock");
    if (status != ST_OK) {
        store_close(t->known);
        mem_free(t);
        return status;
    }
    if (tune_file_path(s->options.cache_dir, t->path, sizeof t->path))
        tune_file_load(t->path, t->known);
    *out = t;
    return ST_OK;
}

static void close_tuning(struct tuning *t)
{
    if (!t)
        return;
    uv_mutex_destroy(&t->lock);
    store_close(t->results);
    mem_free(t);
}

void tunings_close(struct tunings *t)
{
    if (!t)
        return;
    while (t->list) {
        struct tuning *next = t->list->next;
        close_tuning(t->list);
        t->list = next;
    }
    store_close(t->known);
    uv_mutex_destroy(&t->file);
    mem_free(t);
}

const struct tune_store *tunings_store(const struct tunings *t)
{
    return t->known;
}

static bool is_over(struct tuning *t)
{
    uv_mutex_lock(&t->lock);
    const bool over = t->over;
    uv_mutex_unlock(&t->lock);
    return over;
}

static bool is_watched(const struct tunings *all, const struct tuning *t)
{
    for (uint32_t i = 0; i < MAX_WATCHERS; i++)
        if (all->watchers[i].x && all->watchers[i].tuning == t)
            return true;
    return t->starter != NULL;
}

/* Forgets the oldest finished tunings beyond TUNE_MAX_KEPT; returns how many are not finished. */
static uint32_t trim(struct tunings *all)
{
    uint32_t n = 0, waiting = 0;
    for (struct tuning **at = &all->list, *t; (t = *at) != NULL;) {
        const bool over = is_over(t);
        waiting += !over;
        if (++n >= TUNE_MAX_KEPT && over && !is_watched(all, t)) {
            *at = t->next;
            close_tuning(t);
        } else {
            at = &t->next;
        }
    }
    return waiting;
}

/* The tuning that the path ends with; NULL: none. */
static struct tuning *find(const struct tunings *all, const struct exchange *x)
{
    static const char prefix[] = "tune-";
    const char *name = strrchr(exchange_path(x), '/') + 1;
    char *last;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || name[sizeof prefix - 1] < '1' ||
        name[sizeof prefix - 1] > '9')
        return NULL;
    const uint64_t id = strtoull(name + sizeof prefix - 1, &last, 10);
    for (struct tuning *t = all->list; t && *last == '\0'; t = t->next)
        if (t->id == id)
            return t;
    return NULL;
}

/* ---- replies ---- */

static void describe(struct tuning *t, struct strbuf *out)
{
    uv_mutex_lock(&t->lock);
    tune_reply(out, t->id, &t->request, t->device, &t->state, t->results);
    uv_mutex_unlock(&t->lock);
}

static void reply_with(struct service *s, struct exchange *x, struct tuning *t, unsigned status)
{
    struct strbuf body;
    char location[48];
    struct http_header headers[2] = {{"Location", location},
                                     {"X-OInfer-Ignored", t->request.ignored}};
    const bool created = status == 202;
    snprintf(location, sizeof location, "/v1/tune/tune-%" PRIu64, t->id);
    strbuf_init(&body, REPLY_CEILING_BYTES);
    describe(t, &body);
    route_reply(s, x, status, ROUTE_JSON, headers,
                created ? 1 + (t->request.ignored[0] != '\0') : 0, &body);
}

static void reply_missing(struct service *s, struct exchange *x)
{
    struct fault f;
    fault_set(&f, FAULT_TUNING, NULL, "there is no tuning \"%.60s\"",
              strrchr(exchange_path(x), '/') + 1);
    route_fault(s, x, &f);
}

/* ---- starting ---- */

static enum status find_worker(const struct service *s, const struct tune_request *r, uint32_t *out,
                               struct fault *f)
{
    uint32_t indices[WORKERS_MAX], n = WORKERS_MAX;
    struct err e;
    *out = 0;
    if (!r->device[0])
        return ST_OK;
    if (device_select(s->options.devices, r->device, indices, &n, &e) != ST_OK)
        return fault_set(f, FAULT_BAD_REQUEST, "device", "%s", e.text);
    for (uint32_t i = 0; i < n; i++)
        for (*out = 0; *out < s->options.n_devices; ++*out)
            if (s->options.device_indices[*out] == indices[i])
                return ST_OK;
    return fault_set(f, FAULT_BAD_REQUEST, "device", "device \"%.60s\" is not in use here",
                     r->device);
}

static enum status check_start(struct service *s, const struct tune_request *r, uint32_t *worker,
                               struct fault *f)
{
    if (s->state == SERVICE_DRAINING)
        return fault_set(f, FAULT_DRAINING, NULL, "the server is stopping");
    if (r->model[0] && !hosted_find(s->models, r->model))
        return fault_set(f, FAULT_MODEL, "model", "model \"%.60s\" is not served here", r->model);
    enum status status = find_worker(s, r, worker, f);
    if (status != ST_OK)
        return status;
    if (!worker_facts(s->workers[*worker]))
        return fault_set(f, FAULT_LOADING, NULL, "the device is not ready");
    if (trim(s->tunings) >= TUNE_MAX_WAITING)
        return fault_set(f, FAULT_QUEUE, NULL, "%d tunings are waiting, the most there may be",
                         TUNE_MAX_WAITING);
    return ST_OK;
}

static struct tuning *open_tuning(struct service *s, const struct tune_request *r, uint32_t worker)
{
    struct tuning *t = mem_zalloc(sizeof *t);
    if (!t || store_open(&t->results, NULL) != ST_OK || uv_mutex_init(&t->lock) != 0) {
        if (t)
            store_close(t->results);
        mem_free(t);
        return NULL;
    }
    t->id = ++s->tunings->last_id;
    t->request = *r;
    t->worker = worker;
    t->owner = s->tunings;
    t->task = (struct worker_task){.run = run_tuning, .user = t};
    snprintf(t->device, sizeof t->device, "%s",
             device_list_at(s->options.devices, s->options.device_indices[worker])->name);
    t->next = s->tunings->list;
    s->tunings->list = t;
    return t;
}

void tune_start(struct service *s, struct exchange *x)
{
    struct tune_request *request = mem_zalloc(sizeof *request);
    struct tuning *t = NULL;
    struct strbuf body;
    struct fault f;
    uint32_t worker = 0;
    exchange_take_body(x, &body);
    enum status status = request ? tune_request_parse(strbuf_text(&body), body.length, request, &f)
                                 : fault_set(&f, FAULT_MEMORY, NULL, "out of memory");
    strbuf_free(&body);
    if (status == ST_OK)
        status = check_start(s, request, &worker, &f);
    if (status == ST_OK && !(t = open_tuning(s, request, worker)))
        status = fault_set(&f, FAULT_MEMORY, NULL, "out of memory");
    mem_free(request);
    if (status != ST_OK) {
        route_fault(s, x, &f);
        return;
    }
    t->starter = x;
    t->max_bytes = s->limits.matrix_bytes;
    log_info("tuning begins tuning=%" PRIu64 " device=%u", t->id, worker);
    worker_add_task(s->workers[worker], &t->task);
}

/* Replies to the POST as soon as the worker has looked at its request. */
static void reply_started(struct service *s, struct tuning *t)
{
    struct fault f;
    uv_mutex_lock(&t->lock);
    const bool opened = t->opened, refused = t->refused;
    if (refused)
        tune_request_fault(&t->request, &t->error, &f);
    uv_mutex_unlock(&t->lock);
    if (!opened || !t->starter)
        return;
    struct exchange *x = t->starter;
    t->starter = NULL;
    if (refused)
        route_fault(s, x, &f);
    else
        reply_with(s, x, t, 202);
}

/* ---- showing ---- */

static bool wants_events(const struct exchange *x)
{
    const char *accept = exchange_header(x, "Accept");
    return accept && strstr(accept, "text/event-stream");
}

static void send_text(struct watcher *w, const char *text, size_t n, uint64_t now_ns)
{
    w->written_ns = now_ns;
    exchange_write(w->x, text, n);
}

/* What is new for a watcher; at the end of the tuning also the end of the stream. */
static void feed(struct watcher *w, uint64_t now_ns)
{
    struct tuning *t = w->tuning;
    uv_mutex_lock(&t->lock);
    const uint32_t version = t->state.version;
    const bool over = t->over;
    uv_mutex_unlock(&t->lock);
    if (version != w->version && (over || exchange_writable(w->x))) {
        struct strbuf frame;
        strbuf_init(&frame, REPLY_CEILING_BYTES);
        strbuf_puts(&frame, "data: ");
        describe(t, &frame);
        strbuf_puts(&frame, "\n\n");
        if (over)
            strbuf_puts(&frame, "data: [DONE]\n\n");
        w->version = version;
        if (frame.failed) {
            exchange_abort(w->x);
            w->x = NULL;
        } else {
            send_text(w, frame.data, frame.length, now_ns);
        }
        strbuf_free(&frame);
    } else if (now_ns > w->written_ns + PING_NS && exchange_writable(w->x)) {
        send_text(w, ":\n\n", 3, now_ns);
    }
    if (over && w->x && w->version == version) {
        struct exchange *x = w->x;
        w->x = NULL;
        exchange_end(x);
    }
}

static void watch(struct service *s, struct exchange *x, struct tuning *t)
{
    static const struct http_header headers[] = {{"Cache-Control", "no-cache"},
                                                 {"X-Accel-Buffering", "no"}};
    struct watcher *w = NULL;
    for (uint32_t i = 0; i < MAX_WATCHERS && !w; i++)
        if (!s->tunings->watchers[i].x)
            w = &s->tunings->watchers[i];
    if (!w) {
        struct fault f;
        fault_set(&f, FAULT_QUEUE, NULL, "%d streams of tunings are open, the most there may be",
                  MAX_WATCHERS);
        route_fault(s, x, &f);
        return;
    }
    route_count(s, x, 200);
    exchange_stream(x, 200, "text/event-stream", headers, 2);
    *w = (struct watcher){.x = x, .tuning = t, .version = UINT32_MAX};
    feed(w, clock_now_ns());
}

void tune_show(struct service *s, struct exchange *x)
{
    struct tuning *t = find(s->tunings, x);
    if (!t)
        reply_missing(s, x);
    else if (wants_events(x) && strcmp(exchange_method(x), "GET") == 0)
        watch(s, x, t);
    else
        reply_with(s, x, t, 200);
}

static void cancel(struct service *s, struct tuning *t)
{
    atomic_store(&t->cancelled, true);
    worker_end_task(s->workers[t->worker], &t->task);
}

void tune_cancel(struct service *s, struct exchange *x)
{
    struct tuning *t = find(s->tunings, x);
    if (!t) {
        reply_missing(s, x);
        return;
    }
    cancel(s, t);
    reply_with(s, x, t, 200);
}

void tune_news(struct service *s, uint64_t now_ns)
{
    if (!s->tunings)
        return;
    for (struct tuning *t = s->tunings->list; t; t = t->next)
        reply_started(s, t);
    for (uint32_t i = 0; i < MAX_WATCHERS; i++)
        if (s->tunings->watchers[i].x)
            feed(&s->tunings->watchers[i], now_ns);
}

void tune_gone(struct service *s, struct exchange *x)
{
    if (!s->tunings)
        return;
    for (uint32_t i = 0; i < MAX_WATCHERS; i++)
        if (s->tunings->watchers[i].x == x)
            s->tunings->watchers[i].x = NULL;
    for (struct tuning *t = s->tunings->list; t; t = t->next)
        if (t->starter == x) {
            t->starter = NULL; /* nobody knows its id */
            cancel(s, t);
        }
}

void tune_drain(struct service *s)
{
    for (struct tuning *t = s->tunings->list; t; t = t->next)
        cancel(s, t);
}
