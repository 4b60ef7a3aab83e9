/* Opens, runs and closes the service: workers first, the socket last, and back in reverse. */
#include "server/service.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "server/completion.h"
#include "server/notify.h"
#include "server/route.h"

#define TICK_MS                50
#define TELL_NS                200000000u /* between two reports of progress in loading */
#define ALIVE_PARTS            3          /* signs of life in an interval of the watchdog */
#define EXIT_AT_ONCE           130
#define HOPELESS               3    /* failed openings of a device after which little is expected */
#define CLOSE_WAIT_MS          2000 /* cancelled jobs come back within a step */
#define PROBLEMS_CEILING_BYTES ((size_t)1 << 20)

const char *service_state_name(enum service_state state)
{
    static const char *const names[] = {"loading", "ok", "degraded", "draining"};
    return names[state];
}

void service_add_job(struct service *s, struct job *j)
{
    j->live_next = s->jobs;
    j->live_previous = NULL;
    if (s->jobs != NULL)
        s->jobs->live_previous = j;
    s->jobs = j;
}

void service_drop_job(struct service *s, struct job *j)
{
    if (j->live_previous != NULL)
        j->live_previous->live_next = j->live_next;
    else
        s->jobs = j->live_next;
    if (j->live_next != NULL)
        j->live_next->live_previous = j->live_previous;
}

/* ---- the state ---- */

static void fail_queued(struct service *s, const struct fault *f)
{
    for (struct job *j = scheduler_pop(s->scheduler); j != NULL; j = scheduler_pop(s->scheduler))
        completion_fail(s, j, f);
}

void service_no_device(struct service *s, struct fault *f)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct worker_status status;
        worker_status(s->workers[i], &status);
        if (status.state != WORKER_LOST)
            continue;
        uint32_t index = s->options.device_indices[i];
        fault_set(f, FAULT_DEVICE_LOST, NULL, "device %s was lost and is being opened again",
                  device_list_at(s->options.devices, index)->name);
        return;
    }
    fault_set(f, FAULT_DEVICE_LOST, NULL, "no device is left");
}

static void become_ready(struct service *s, uint32_t n_ready)
{
    s->state = n_ready == s->n_workers ? SERVICE_READY : SERVICE_DEGRADED;
    log_info("ready address=%s port=%u devices=%u models=%u", s->options.address.text,
             s->options.address.port, n_ready, s->models->count);
    notify_ready(service_state_name(s->state));
}

/* Looks at the workers: loading is over when none of them loads any more. */
static void update_state(struct service *s)
{
    uint32_t n_loading = 0, n_ready = 0, n_damaged = 0;
    uint64_t done = 0, total = 0;
    uint32_t kernels = 0;
    struct fault f;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct worker_status status;
        worker_status(s->workers[i], &status);
        n_loading += status.state == WORKER_LOADING;
        n_ready += status.state == WORKER_READY;
        n_damaged += status.damaged;
        done += status.bytes_done;
        total += status.bytes_total;
        kernels += status.kernels_built;
    }
    if (s->state == SERVICE_DRAINING)
        return;
    if (s->state == SERVICE_LOADING && n_loading > 0) {
        uint64_t now_ns = clock_now_ns();
        if (now_ns - s->alive_ns < TELL_NS) /* the manager's socket is not for floods */
            return;
        s->alive_ns = now_ns;
        notify_loading(done, total, kernels);
    } else if (s->state == SERVICE_LOADING && n_ready == 0) {
        s->failed = true;
        uv_stop(&s->loop);
    } else if (s->state == SERVICE_LOADING) {
        become_ready(s, n_ready);
    } else {
        enum service_state state =
            n_ready == s->n_workers && n_damaged == 0 ? SERVICE_READY : SERVICE_DEGRADED;
        if (state != s->state)
            notify_status(service_state_name(state));
        s->state = state;
    }
    if (s->state == SERVICE_DEGRADED && n_ready == 0) {
        service_no_device(s, &f);
        fail_queued(s, &f);
    }
}

static void take_news(void *user, struct job *j, bool done)
{
    completion_news(user, j, done);
}

static void on_news(uv_async_t *news)
{
    struct service *s = news->data;
    update_state(s);
    for (uint32_t i = 0; i < s->n_workers; i++)
        worker_collect(s->workers[i], take_news, s);
    tune_news(s, clock_now_ns());
}

/* On a worker's thread. */
static void notify_news(void *user)
{
    struct service *s = user;
    uv_async_send(&s->news);
}

/* ---- stopping ---- */

static void drain(struct service *s, const char *why)
{
    if (s->state == SERVICE_DRAINING)
        return;
    bool loading = s->state == SERVICE_LOADING;
    s->state = SERVICE_DRAINING;
    s->drain_end_ns = clock_now_ns() + (uint64_t)s->config->drain_time_ms * 1000000u;
    log_info("stopping reason=%s drain_ms=%" PRId64, why, s->config->drain_time_ms);
    notify_stopping("draining", (uint64_t)s->config->drain_time_ms + CLOSE_WAIT_MS);
    tune_drain(s);
    http_quiesce(s->http);
    for (uint32_t i = 0; i < s->n_workers && loading; i++)
        worker_stop(s->workers[i]);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct service *s = handle->data;
    if (number == SIGHUP) {
        service_reload(s);
        return;
    }
    if (number == SIGINT && s->state == SERVICE_DRAINING)
        _exit(EXIT_AT_ONCE);
    drain(s, number == SIGINT ? "SIGINT" : "SIGTERM");
}

static void cancel_all(struct service *s)
{
    struct fault f;
    uint32_t n_jobs = 0;
    s->cancelled = true;
    fault_set(&f, FAULT_DRAINING, NULL, "the server is stopping");
    fail_queued(s, &f);
    for (struct job *j = s->jobs; j != NULL; j = j->live_next, n_jobs++)
        job_cancel(j);
    log_warn("drain time is over cancelled=%u open_requests=%u", n_jobs, http_exchanges(s->http));
    for (uint32_t i = 0; i < s->n_workers; i++)
        worker_wake(s->workers[i]);
}

/* ---- the tick ---- */

/* Whether every engine that works has made progress since the last sign of life, or has nothing to
 * do; and one is left that can, or may soon be opened again. A new process helps where a driver
 * does not let a lost device be opened, and where a model's file was damaged and is whole again. */
static bool engines_progress(struct service *s)
{
    bool usable = false;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct worker_status status;
        worker_status(s->workers[i], &status);
        usable |= status.state == WORKER_READY ||
                  (status.state == WORKER_LOST && status.n_failed_openings < HOPELESS);
        if (status.damaged || (!status.resting && status.progress_ns <= s->alive_ns))
            return false;
    }
    return usable;
}

/* A sign of life for the service manager, when it is due and the engines give one. The loop alone
 * never does: what hangs is the engine. Loading reports by itself, as it makes progress. The
 * manager ends a process without signs of life by SIGABRT, which a compiler in a driver (LLVM)
 * catches, and goes on: it is made to end the process again. */
static void watch(struct service *s, uint64_t now_ns)
{
    if (s->watchdog_ns == 0 || s->state == SERVICE_LOADING ||
        now_ns - s->alive_ns < s->watchdog_ns / ALIVE_PARTS)
        return;
    signal(SIGABRT, SIG_DFL);
    if (!engines_progress(s))
        return;
    s->alive_ns = now_ns;
    notify_alive();
}

static void on_tick(uv_timer_t *tick)
{
    struct service *s = tick->data;
    uint64_t now_ns = clock_now_ns();
    completion_tick(s, now_ns);
    tune_news(s, now_ns);
    watch(s, now_ns);
    if (s->state != SERVICE_DRAINING || s->http == NULL)
        return;
    bool idle = s->jobs == NULL && http_exchanges(s->http) == 0 && !http_expects_request(s->http);
    if (idle || now_ns > s->drain_end_ns + CLOSE_WAIT_MS * UINT64_C(1000000))
        uv_stop(&s->loop);
    else if (now_ns > s->drain_end_ns && !s->cancelled)
        cancel_all(s);
}

/* ---- open and close ---- */

static enum status open_loop(struct service *s, struct err *e)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    int status = uv_loop_init(&s->loop);
    s->has_loop = status == 0;
    if (status == 0)
        status = uv_async_init(&s->loop, &s->news, on_news);
    s->has_news = status == 0;
    if (status == 0)
        status = uv_timer_init(&s->loop, &s->tick);
    s->has_tick = status == 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && status == 0; i++) {
        status = uv_signal_init(&s->loop, &s->signals[i]);
        s->n_signals += status == 0;
        s->signals[i].data = s;
        if (status == 0)
            status = uv_signal_start(&s->signals[i], on_signal, numbers[i]);
    }
    s->news.data = s->tick.data = s;
    if (status == 0)
        status = uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    return status == 0 ? ST_OK : err_set(e, ST_IO, "event loop: %s", uv_strerror(status));
}

static enum kv_dtype kv_of(const struct config *c)
{
    static const enum kv_dtype kinds[] = {KV_F16, KV_F32, KV_Q8_0}; /* in options.def's order */
    return kinds[c->kv];
}

static enum status open_workers(struct service *s, struct err *e)
{
    const struct config *c = s->config;
    struct worker_options options = {
        .devices = s->options.devices,
        .engine = {.device = {.cache_dir = s->options.cache_dir,
                              .kernel_dir = c->kernel_dir[0] != '\0' ? c->kernel_dir : NULL,
                              .memory_limit_bytes = (uint64_t)c->memory_limit_bytes,
                              .profiling = c->profiling,
                              .trial_command = "/proc/self/exe"},
                   .n_threads = (uint32_t)c->threads,
                   .stepwise = c->stepwise,
                   .tuned = tunings_store(s->tunings),
                   .force = c->force[0] != '\0' ? c->force : NULL},
        .load = {.n_slots = (uint32_t)c->slots,
                 .n_batch = (uint32_t)c->batch_tokens,
                 .kv = kv_of(c)},
        .models = s->models,
        .notify = notify_news,
        .user = s};
    for (uint32_t i = 0; i < s->options.n_devices; i++) {
        options.device_index = s->options.device_indices[i];
        enum status status = worker_open(&options, &s->workers[i], e);
        if (status != ST_OK)
            return status;
        s->n_workers++;
    }
    return ST_OK;
}

static struct http_options http_options_of(const struct config *c)
{
    return (struct http_options){.body_bytes = (uint64_t)c->body_bytes,
                                 .header_bytes = (size_t)c->header_bytes,
                                 .connections = (uint32_t)c->connections,
                                 .connections_per_address = (uint32_t)c->connections_per_address,
                                 .header_time_ms = (uint32_t)c->header_time_ms,
                                 .body_time_ms = (uint32_t)c->body_time_ms,
                                 .idle_time_ms = (uint32_t)c->idle_time_ms};
}

static struct request_limits limits_of(const struct config *c)
{
    return (struct request_limits){.choices = (uint32_t)c->choices,
                                   .stop_strings = (uint32_t)c->stop_strings,
                                   .max_tokens = (uint32_t)c->max_tokens,
                                   .deadline_ms = (uint64_t)c->deadline_ms,
                                   .matrix_bytes = (uint64_t)c->matrix_bytes};
}

static enum status open_http(struct service *s, struct err *e)
{
    struct http_options options = http_options_of(s->config);
    if (s->options.tls != NULL) {
        options.tls_cert = tls_cert(s->options.tls);
        options.tls_key = tls_key(s->options.tls);
    }
    struct http_handlers handlers = route_handlers(s);
    int fd = s->options.listen_fd;
    s->options.listen_fd = -1;
    return http_open(&s->loop, fd, &options, &handlers, &s->http, e);
}

enum status service_open(struct service *s, const struct service_options *options, struct err *e)
{
    *s = (struct service){.options = *options,
                          .config = options->config,
                          .models = options->models,
                          .limits = limits_of(options->config),
                          .metrics.start_s = (double)clock_wall_s(),
                          .watchdog_ns = notify_watchdog_ns()};
    enum status status = open_loop(s, e);
    if (status == ST_OK)
        status = tunings_open(s, &s->tunings, e);
    if (status == ST_OK)
        status = open_workers(s, e);
    if (status == ST_OK)
        status = scheduler_open(s->workers, s->n_workers, (uint32_t)s->config->slots,
                                (uint32_t)s->config->queue_jobs, &s->scheduler, e);
    if (status == ST_OK)
        status = open_http(s, e);
    if (status != ST_OK)
        service_close(s);
    return status;
}

/* ---- reloading ---- */

/* Names each line of `problems` in the log. */
static void log_problems(const struct strbuf *problems)
{
    char line[ERR_TEXT_BYTES], quoted[2 * ERR_TEXT_BYTES];
    for (const char *p = strbuf_text(problems); *p != '\0';) {
        size_t n = strcspn(p, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, p);
        log_error("not reloaded reason=%s", log_quote(quoted, sizeof quoted, line));
        p += n + (p[n] == '\n');
    }
}

/* The keys of the new configuration; *keys stays NULL when it has none. */
static enum status reload_keys(struct service *s, const struct config *next, struct keys **keys,
                               struct strbuf *problems)
{
    struct err e;
    if (next->api_key_file[0] == '\0' && s->options.keys == NULL)
        return ST_OK;
    if (next->api_key_file[0] == '\0') {
        strbuf_puts(problems, "api-key-file: keys can be taken away by a restart only");
        return ST_INVALID;
    }
    enum status status = keys_reopen(next->api_key_file, s->options.keys, keys, &e);
    if (status != ST_OK)
        strbuf_puts(problems, e.text);
    return status;
}

static void take_over(struct service *s, struct config *next, struct keys *keys)
{
    struct strbuf taken, fixed;
    strbuf_init(&taken, PROBLEMS_CEILING_BYTES);
    strbuf_init(&fixed, PROBLEMS_CEILING_BYTES);
    config_reload(s->options.config, next, &taken, &fixed);
    struct http_options http = http_options_of(s->config);
    s->limits = limits_of(s->config);
    http_set_limits(s->http, &http);
    scheduler_set_queue(s->scheduler, (uint32_t)s->config->queue_jobs);
    log_level_set((enum log_level)s->config->log_level); /* in options.def's order */
    if (keys != NULL) {
        keys_close(s->reloaded_keys);
        s->options.keys = s->reloaded_keys = keys;
    }
    log_info("reloaded keys=%u changed=%s needs_restart=%s",
             s->options.keys != NULL ? keys_count(s->options.keys) : 0,
             taken.length > 0 ? strbuf_text(&taken) : "none",
             fixed.length > 0 ? strbuf_text(&fixed) : "none");
    strbuf_free(&taken);
    strbuf_free(&fixed);
}

void service_reload(struct service *s)
{
    struct config *next = NULL;
    struct keys *keys = NULL;
    struct strbuf problems;
    bool told = s->state == SERVICE_READY || s->state == SERVICE_DEGRADED;
    if (s->state == SERVICE_DRAINING)
        return;
    if (told)
        notify_reloading();
    strbuf_init(&problems, PROBLEMS_CEILING_BYTES);
    enum status status = s->options.read_config(s->options.user, &next, &problems);
    if (status == ST_OK)
        status = reload_keys(s, next, &keys, &problems);
    if (status == ST_OK)
        take_over(s, next, keys);
    else if (problems.length > 0)
        log_problems(&problems);
    else
        log_error("not reloaded reason=\"out of memory\"");
    config_close(next);
    strbuf_free(&problems);
    if (told)
        notify_ready(service_state_name(s->state));
}

/* ---- running ---- */

enum status service_run(struct service *s, struct err *e)
{
    log_info("listening address=%s port=%u tls=%s", s->options.address.text,
             s->options.address.port, s->options.tls != NULL ? "yes" : "no");
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < s->models->count; i++)
        total_bytes += s->models->items[i].info->weight_bytes;
    notify_loading(0, total_bytes, 0); /* the manager's patience is asked for before all else */
    uv_run(&s->loop, UV_RUN_DEFAULT);
    if (!s->failed)
        return ST_OK;
    struct worker_status status;
    worker_status(s->workers[0], &status);
    *e = status.error;
    return status.error.status;
}

static void close_handles(struct service *s)
{
    if (s->has_news)
        uv_close((uv_handle_t *)&s->news, NULL);
    if (s->has_tick)
        uv_close((uv_handle_t *)&s->tick, NULL);
    for (uint32_t i = 0; i < s->n_signals; i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
}

void service_close(struct service *s)
{
    http_close(s->http); /* every job loses its client and is cancelled */
    s->http = NULL;
    for (uint32_t i = 0; i < s->n_workers; i++)
        worker_stop(s->workers[i]);
    while (s->jobs != NULL) /* they come back: from the pool, and from workers that stop */
        uv_run(&s->loop, UV_RUN_ONCE);
    for (uint32_t i = s->n_workers; i > 0; i--)
        worker_close(s->workers[i - 1]);
    tunings_close(s->tunings);
    s->tunings = NULL;
    scheduler_close(s->scheduler);
    close_handles(s);
    while (s->has_loop && uv_loop_close(&s->loop) == UV_EBUSY)
        uv_run(&s->loop, UV_RUN_ONCE);
    if (s->options.listen_fd >= 0)
        close(s->options.listen_fd);
    keys_close(s->reloaded_keys);
}
