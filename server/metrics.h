/* Counters and histograms in the text format of Prometheus. Loop thread only; gauges are read from
 * their owners when the text is made. */
#ifndef OINFER_SERVER_METRICS_H
#define OINFER_SERVER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/strbuf.h"
#include "server/job.h"

/* Which histogram; the bounds are in metrics.c. */
enum metrics_histogram {
    METRICS_REQUEST_SECONDS, /* of a completion, arrival to end */
    METRICS_QUEUE_SECONDS,   /* arrival to the first step */
    METRICS_PROMPT_SECONDS,
    METRICS_TOKEN_SECONDS, /* a generated token, mean of a job */
    METRICS_HISTOGRAMS
};
#define METRICS_BOUNDS 16

struct histogram {
    uint64_t buckets[METRICS_BOUNDS + 1]; /* not cumulative; the last one is +Inf */
    double sum;
};

#define METRICS_ROUTES   32
#define METRICS_STATUSES 16

struct metrics {
    uint64_t requests[METRICS_ROUTES][METRICS_STATUSES];
    uint64_t prompt_tokens, cached_tokens, predicted_tokens;
    struct histogram histograms[METRICS_HISTOGRAMS];
    double start_s; /* wall clock */
};

#define METRICS_NO_ROUTE   (METRICS_ROUTES - 1) /* requests of unknown paths */
#define METRICS_LEFT_EARLY 499                  /* the client was gone before its reply */

/* A request was answered. route: its row in routes.def, or METRICS_NO_ROUTE. */
void metrics_count_request(struct metrics *m, uint32_t route, unsigned status);
/* A completion came back from its worker. */
void metrics_count_job(struct metrics *m, const struct job *j);

/* Writing one family: a gauge or counter with one optional label. */
void metrics_put_family(struct strbuf *out, const char *name, const char *type, const char *help);
void metrics_put_value(struct strbuf *out, const char *name, const char *label, const char *value,
                       double number);
/* Everything that struct metrics holds. */
void metrics_put_all(struct strbuf *out, const struct metrics *m);

#endif
