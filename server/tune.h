/* Tuning over HTTP: POST /v1/tune, GET and DELETE /v1/tune/{id}.
 *
 * A tuning runs on the worker of one device, a point at a time, when no request can run; the loop
 * sees a copy of its state under the tuning's lock, which is never held while a point is measured.
 * What was found is put to use on that worker (for operators from then on, for models that are
 * loaded later) and added to tune.json. The last TUNE_MAX_KEPT tunings can be asked for. Loop
 * thread, but for what tune.c says of the worker.
 */
#ifndef OINFER_SERVER_TUNE_H
#define OINFER_SERVER_TUNE_H

#include <uv.h>

#include "server/http.h"
#include "server/tune_request.h"

#define TUNE_MAX_KEPT    32 /* running, waiting and finished */
#define TUNE_MAX_WAITING 8  /* not finished; more are refused with 429 */

struct service;
struct tunings;

enum tuning_status { TUNING_QUEUED, TUNING_RUNNING, TUNING_DONE, TUNING_FAILED, TUNING_CANCELLED };
const char *tuning_status_name(enum tuning_status status); /* "queued", ... */

/* What can be told of a tuning. */
struct tuning_state {
    enum tuning_status status;
    uint32_t version;              /* counts changes */
    bool begun;                    /* progress is set */
    struct tune_progress progress; /* of the last point */
    uint32_t n_applied;            /* records that came into use */
    char error[ERR_TEXT_BYTES];    /* FAILED: why */
};

/* Reads tune.json of the cache folder. */
enum status tunings_open(struct service *s, struct tunings **out, struct err *e);
/* After the workers are closed; accepts NULL. */
void tunings_close(struct tunings *t);
/* What was tuned before: for engine_options. Borrowed until close, unchanged from open on. */
const struct tune_store *tunings_store(const struct tunings *t);

/* Handlers of routes.def. */
void tune_start(struct service *s, struct exchange *x);
void tune_show(struct service *s, struct exchange *x);
void tune_cancel(struct service *s, struct exchange *x);

/* A worker has news, or time has passed: replies and events that are due. */
void tune_news(struct service *s, uint64_t now_ns);
/* x is about to die. */
void tune_gone(struct service *s, struct exchange *x);
/* Cancels everything. */
void tune_drain(struct service *s);

/* ---- between tune.c and tune_reply.c ---- */

/* Appends the JSON object of a tuning; results: its records so far. */
void tune_reply(struct strbuf *out, uint64_t id, const struct tune_request *request,
                const char *device, const struct tuning_state *state,
                const struct tune_store *results);

#endif
