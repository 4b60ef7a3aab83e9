/* The service: everything that is alive while the daemon serves, on one event loop.
 *
 * It owns the workers, the scheduler, the HTTP side and the list of live jobs, and runs until it
 * has been told to stop and the running jobs are done or out of time. Its fields belong to the
 * loop's thread; the other files of the server that take a `struct service *` run there too.
 */
#ifndef OINFER_SERVER_SERVICE_H
#define OINFER_SERVER_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "config/config.h"
#include "engine/engine.h"
#include "server/hosted.h"
#include "server/http.h"
#include "server/keys.h"
#include "server/listen.h"
#include "server/metrics.h"
#include "server/scheduler.h"
#include "server/tls.h"
#include "server/tune.h"
#include "server/worker.h"

/* What main has made ready; everything is borrowed until service_close. */
struct service_options {
    struct config *config; /* a reload changes its live rows */
    /* Reads the configuration again, as at the start; as config_load. */
    enum status (*read_config)(void *user, struct config **out, struct strbuf *problems);
    void *user;
    const struct device_list *devices;
    uint32_t device_indices[WORKERS_MAX];
    uint32_t n_devices;
    const struct hosted_models *models;
    const struct keys *keys; /* NULL: no key is asked for */
    const struct tls *tls;   /* NULL: plain HTTP */
    const char *cache_dir;   /* NULL: none */
    int listen_fd;           /* taken over */
    struct listen_address address;
};

enum service_state { SERVICE_LOADING, SERVICE_READY, SERVICE_DEGRADED, SERVICE_DRAINING };

struct service {
    struct service_options options;
    const struct config *config;
    const struct hosted_models *models;
    struct request_limits limits;
    enum service_state state;
    bool failed; /* no worker could load: the daemon ends with an error */

    uv_loop_t loop;
    uv_async_t news; /* a worker has something to tell */
    uv_timer_t tick;
    uv_signal_t signals[3]; /* SIGTERM, SIGINT, SIGHUP */
    bool has_loop, has_news, has_tick;
    uint32_t n_signals;

    struct worker *workers[WORKERS_MAX];
    uint32_t n_workers;
    struct scheduler *scheduler;
    struct http *http;
    struct metrics metrics;
    struct tunings *tunings;
    struct job *jobs; /* live ones, by live_next */
    uint32_t n_preparing;
    struct keys *reloaded_keys; /* NULL: options.keys are those that main has read */

    uint64_t drain_end_ns; /* when draining: jobs that still run then are cancelled */
    bool cancelled;        /* that has been done */
    uint64_t watchdog_ns;  /* interval of signs of life; 0 none */
    uint64_t alive_ns;     /* when the last one was given */
};

/* Opens everything and starts loading. On failure nothing is left open. */
enum status service_open(struct service *s, const struct service_options *options, struct err *e);
/* Serves until told to stop. ST_OK: stopped as asked; otherwise *e says why it could not serve. */
enum status service_run(struct service *s, struct err *e);
void service_close(struct service *s);

/* Reads the configuration again and takes over what can change while the daemon runs; what cannot
 * is named in the log. All or nothing: with any problem everything stays as it was. */
void service_reload(struct service *s);

const char *service_state_name(enum service_state state); /* "ok" for READY, "loading", ... */

/* The fault of requests while no device serves: names one that is being opened again. */
void service_no_device(struct service *s, struct fault *f);

/* Puts a job on the list of live ones, and takes it off. */
void service_add_job(struct service *s, struct job *j);
void service_drop_job(struct service *s, struct job *j);

#endif
