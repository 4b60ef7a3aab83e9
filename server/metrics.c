/* The metrics and their text. */
#include "server/metrics.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name, *help;
    double first, factor; /* bounds: first * factor^i */
} histogram_rows[METRICS_HISTOGRAMS] = {
    {"oinfer_request_duration_seconds", "Completions from arrival to end.", 0.005, 2},
    {"oinfer_queue_duration_seconds", "Completions from arrival to their first step.", 0.0005, 2.5},
    {"oinfer_prompt_duration_seconds", "Time in which prompts were evaluated.", 0.001, 2.2},
    {"oinfer_token_duration_seconds", "Mean time of a generated token in a completion.", 0.0001, 2},
};

static const unsigned statuses[METRICS_STATUSES] = {
    200, 202, 400, 401, 404, 405, 413, 414, 415, 429, 431, METRICS_LEFT_EARLY, 500, 503};

static const char *const route_paths[METRICS_ROUTES] = {
#define ROUTE(method, path, key, handler) path,
#include "server/routes.def"
#undef ROUTE
};

static double bound_of(enum metrics_histogram h, uint32_t i)
{
    double bound = histogram_rows[h].first;
    for (uint32_t k = 0; k < i; k++)
        bound *= histogram_rows[h].factor;
    return bound;
}

static void observe(struct metrics *m, enum metrics_histogram h, double value)
{
    uint32_t i = 0;
    while (i < METRICS_BOUNDS && value > bound_of(h, i))
        i++;
    m->histograms[h].buckets[i]++;
    m->histograms[h].sum += value;
}

void metrics_count_request(struct metrics *m, uint32_t route, unsigned status)
{
    uint32_t i = 0;
    while (i < METRICS_STATUSES - 1 && statuses[i] != status)
        i++;
    m->requests[route][i]++;
}

void metrics_count_job(struct metrics *m, const struct job *j)
{
    const struct job_timings *t = &j->timings;
    m->prompt_tokens += t->prompt_tokens;
    m->cached_tokens += t->cached_tokens;
    m->predicted_tokens += t->predicted_tokens;
    if (t->started_ns == 0 || t->ended_ns == 0)
        return;
    observe(m, METRICS_REQUEST_SECONDS, (double)(t->ended_ns - t->arrived_ns) / 1e9);
    observe(m, METRICS_QUEUE_SECONDS, (double)(t->started_ns - t->arrived_ns) / 1e9);
    observe(m, METRICS_PROMPT_SECONDS, (double)t->prompt_ns / 1e9);
    if (t->predicted_tokens > 0)
        observe(m, METRICS_TOKEN_SECONDS,
                (double)t->predicted_ns / 1e9 / (double)t->predicted_tokens);
}

void metrics_put_family(struct strbuf *out, const char *name, const char *type, const char *help)
{
    strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value, with what the format wants escaped. */
static void put_label(struct strbuf *out, const char *label, const char *value)
{
    strbuf_printf(out, "%s=\"", label);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\\' || *p == '"')
            strbuf_putc(out, '\\');
        if (*p == '\n')
            strbuf_puts(out, "\\n");
        else
            strbuf_putc(out, *p);
    }
    strbuf_putc(out, '"');
}

void metrics_put_value(struct strbuf *out, const char *name, const char *label, const char *value,
                       double number)
{
    strbuf_puts(out, name);
    if (label != NULL) {
        strbuf_putc(out, '{');
        put_label(out, label, value);
        strbuf_putc(out, '}');
    }
    strbuf_printf(out, " %.17g\n", number);
}

static void put_requests(struct strbuf *out, const struct metrics *m)
{
    static const char name[] = "oinfer_requests_total";
    metrics_put_family(out, name, "counter",
                       "Requests by route and HTTP status; 499: client left.");
    for (uint32_t r = 0; r < METRICS_ROUTES; r++) {
        for (uint32_t i = 0; i < METRICS_STATUSES; i++) {
            if (m->requests[r][i] == 0)
                continue;
            strbuf_printf(out, "%s{route=\"%s\",code=\"%u\"} %" PRIu64 "\n", name,
                          route_paths[r] != NULL ? route_paths[r] : "other", statuses[i],
                          m->requests[r][i]);
        }
    }
}

static void put_histogram(struct strbuf *out, enum metrics_histogram h,
                          const struct histogram *data)
{
    const char *name = histogram_rows[h].name;
    uint64_t count = 0;
    metrics_put_family(out, name, "histogram", histogram_rows[h].help);
    for (uint32_t i = 0; i < METRICS_BOUNDS; i++) {
        count += data->buckets[i];
        strbuf_printf(out, "%s_bucket{le=\"%.6g\"} %" PRIu64 "\n", name, bound_of(h, i), count);
    }
    count += data->buckets[METRICS_BOUNDS];
    strbuf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n",
                  name, count, name, data->sum, name, count);
}

void metrics_put_all(struct strbuf *out, const struct metrics *m)
{
    const struct {
        const char *name, *help;
        uint64_t value;
    } counters[] = {
        {"oinfer_prompt_tokens_total", "Prompt tokens evaluated.", m->prompt_tokens},
        {"oinfer_prompt_cached_tokens_total", "Prompt tokens taken from the cache.",
         m->cached_tokens},
        {"oinfer_predicted_tokens_total", "Tokens generated.", m->predicted_tokens},
    };
    put_requests(out, m);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        metrics_put_family(out, counters[i].name, "counter", counters[i].help);
        metrics_put_value(out, counters[i].name, NULL, NULL, (double)counters[i].value);
    }
    for (enum metrics_histogram h = 0; h < METRICS_HISTOGRAMS; h++)
        put_histogram(out, h, &m->histograms[h]);
    metrics_put_family(out, "oinfer_start_time_seconds", "gauge",
                       "Start of the process, Unix time.");
    metrics_put_value(out, "oinfer_start_time_seconds", NULL, NULL, m->start_s);
}
