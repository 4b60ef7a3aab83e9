/* The fake engine's tuner: two points of one variant for each call, each as long as a step. The
 * shape with m 13 loses the device, with m 14 is refused, with m 15 has many points; the variant
 * "none" does not exist. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/base/mem.h"
#include "engine/engine.h"
#include "engine/ops/data.h"
#include "fake_engine.h"

#define FAKE_POINTS 2
#define FAKE_MANY   1000

struct tune_job {
    struct tune_progress progress;
    struct tune_store *results;
    uint32_t n_calls;
    struct tune_call calls[];
};

enum status tune_job_open(struct device *d, const struct tune_call *calls, uint32_t n,
                          const struct tuner_options *options, struct tune_job **out, struct err *e)
{
    (void)d;
    (void)options;
    if (strcmp(calls[0].variant, "none") == 0)
        return err_set(e, ST_NOT_FOUND, "fake: no variant none");
    if (calls[0].shape.dims[0] == 14)
        return err_set(e, ST_INVALID, "fake: m is 14, expected another");
    struct tune_job *j = mem_zalloc(sizeof *j + n * sizeof *calls);
    if (!j || store_open(&j->results, e) != ST_OK) {
        mem_free(j);
        return err_set(e, ST_NO_MEMORY, "fake: out of memory");
    }
    j->n_calls = n;
    memcpy(j->calls, calls, n * sizeof *calls);
    j->progress.most_points = FAKE_POINTS * n;
    if (calls[0].shape.dims[0] == 15)
        j->progress.most_points = FAKE_MANY;
    j->progress.n_calls = n;
    *out = j;
    return ST_OK;
}

void tune_job_close(struct tune_job *j)
{
    if (!j)
        return;
    store_close(j->results);
    mem_free(j);
}

enum status tune_job_step(struct tune_job *j, bool *more, struct err *e)
{
    struct tune_progress *p = &j->progress;
    const struct timespec t = {.tv_nsec = (long)(fake_sleep_ms() % 1000) * 1000000};
    *more = p->points < p->most_points;
    if (!*more)
        return ST_OK;
    nanosleep(&t, NULL);
    p->call = p->most_points == FAKE_MANY ? 0 : p->points / FAKE_POINTS;
    p->shape = j->calls[p->call].shape;
    p->dtype = j->calls[p->call].dtype;
    p->variant = "quick";
    if (p->shape.dims[0] == 13)
        return err_set(e, ST_DEVICE_LOST, "fake: the device is lost");
    p->last = (struct tune_point){.point = p->points, .ns = 1000.0 * (1 + p->points % FAKE_POINTS)};
    snprintf(p->last.settings, sizeof p->last.settings, "LWS=%u", 32u << p->points % FAKE_POINTS);
    p->best_ns = p->standard_ns = 1000;
    snprintf(p->best_settings, sizeof p->best_settings, "LWS=32");
    p->points++;
    atomic_fetch_add(&fake_counts.points, 1);
    if (p->points % FAKE_POINTS != 0)
        return ST_OK;
    struct tune_record r = {.shape = p->shape,
                            .variant = "quick",
                            .dtype = p->dtype,
                            .device = "fake 0",
                            .driver = "1",
                            .version = TUNER_VERSION,
                            .settings = "LWS=32",
                            .ns = 1000,
                            .standard_ns = 1000,
                            .work = 1};
    return store_add(j->results, &r, e);
}

const struct tune_progress *tune_job_progress(const struct tune_job *j)
{
    return &j->progress;
}

const struct tune_store *tune_job_results(const struct tune_job *j)
{
    return j->results;
}

enum status engine_tune(struct engine *g, const struct tune_store *s, uint32_t *n, struct err *e)
{
    (void)g;
    (void)e;
    *n = 0;
    while (store_at(s, *n))
        ++*n;
    return ST_OK;
}

uint32_t model_tune_calls(const struct model *m, struct tune_call *out, uint32_t n)
{
    (void)m;
    for (uint32_t i = 0; i < n && i < 2; i++)
        out[i] = (struct tune_call){
            .shape = {.op = OP_LINEAR, .n_dims = 3, .dims = {1024u << i, 1024, 1}},
            .dtype = DT_Q4_0};
    return 2;
}

const char *search_kind_name(enum search_kind kind)
{
    static const char *const names[] = {"grid", "random", "bayes"};
    return names[kind];
}

uint64_t data_count_kept(uint32_t seed, uint64_t m, uint64_t k, double density)
{
    (void)seed;
    return (uint64_t)((double)(m * k) * density) + 1;
}
