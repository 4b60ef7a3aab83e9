/* The tuner: a trial's memory kept over all points, its outputs made fresh for each. */
#include "engine/tune/tuner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/ops/config.h"
#include "engine/ops/data.h"
#include "engine/ops/rules.h"
#include "engine/ops/trial_impl.h"

#define BATCH_NS    1e6 /* of a batch, at least */
#define BATCHES     5
#define BATCHES_MIN 3
#define POINT_NS    0.4e9 /* no more batches after so long */
#define MAX_RUNS    100000

struct tuner {
    struct device *d;
    const struct variant *v;
    struct space *space;
    struct search *search; /* NULL: none */
    struct trial trial;
    uint32_t passes;
    double standard_ns;
    double *known; /* [n_points] times; below 0: not known. NULL: none is */
};

static enum status make_data(struct tuner *t, const struct shape *shape, enum dtype dtype,
                             uint64_t max_bytes, struct err *e)
{
    union op_params params;
    shape_params(shape, &params);
    struct trial *trial = &t->trial;
    trial->d = t->d;
    trial->v = t->v;
    trial->seed = SHAPE_SEED;
    trial->ref_call.op = trial->call.op = t->v->op;
    const struct op_call call = {.op = t->v->op, .params = params};
    enum status st = op_check_params(t->v, &call, e);
    const char *why = st == ST_OK ? variant_refuses(t->v, &call) : NULL;
    if (why)
        return err_set(e, ST_UNSUPPORTED, "%s %s: %s", op_name(t->v->op), t->v->name, why);
    if (st != ST_OK)
        return st;
    trial__describe(trial, &params, dtype);
    uint64_t need = 0;
    for (uint32_t i = 0; i < op_tensor_count(t->v->op); i++) {
        const uint64_t bytes = trial->call.tensors[i].bytes;
        need += bytes;
        if (!device_is_host(t->d) && bytes > buffer_max_bytes(t->d))
            return err_set(e, ST_INVALID, "%s: tensor %s of %llu bytes, the device allows %llu",
                           op_name(t->v->op), op_tensor_name(t->v->op, i),
                           (unsigned long long)bytes, (unsigned long long)buffer_max_bytes(t->d));
    }
    if (max_bytes > 0 && need > max_bytes)
        return err_set(e, ST_NO_DEVICE_MEMORY, "%s: tensors of %llu bytes, the limit is %llu",
                       op_name(t->v->op), (unsigned long long)need, (unsigned long long)max_bytes);
    const uint64_t available = mem_available_bytes();
    if (available > 0 && 2 * need > available)
        return err_set(e, ST_INVALID, "%s: tensors of %llu bytes, the host has %llu left",
                       op_name(t->v->op), (unsigned long long)need, (unsigned long long)available);
    const struct op_data data = {.seed = SHAPE_SEED, .density = SHAPE_DENSITY};
    st = trial__host(trial, e);
    if (st == ST_OK)
        st = data_make(&trial->ref_call, &data, trial->host, e);
    if (st == ST_OK)
        st = trial__upload(trial, e);
    if (st == ST_OK)
        st = trial__reference(trial, e);
    return st;
}

/* Finds the points of this call among those known. */
static enum status find_known(struct tuner *t, const struct shape *shape, enum dtype dtype,
                              const struct tuner_options *options, struct err *e)
{
    char text[SHAPE_TEXT_BYTES];
    shape_text(shape, text);
    if (options->n_known == 0)
        return ST_OK;
    t->known = mem_array(t->space->n_points, sizeof *t->known);
    if (!t->known)
        return err_set(e, ST_NO_MEMORY, "%s %s: no memory to tune", op_name(t->v->op), t->v->name);
    for (uint32_t i = 0; i < t->space->n_points; i++)
        t->known[i] = -1;
    for (uint32_t i = 0; i < options->n_known; i++) {
        const struct tune_known *k = &options->known[i];
        char settings[SPACE_TEXT_BYTES];
        if (k->op != t->v->op || strcmp(k->variant, t->v->name) != 0 ||
            strcmp(k->dtype, dtype_name(dtype)) != 0 || strcmp(k->shape, text) != 0)
            continue;
        for (uint32_t point = 0; point < t->space->n_points; point++)
            if (strcmp(space_text(t->space, point, settings), k->settings) == 0)
                t->known[point] = k->ns;
    }
    return ST_OK;
}

enum status tuner_open(struct device *d, const struct variant *v, const struct shape *shape,
                       enum dtype dtype, const struct tuner_options *options, struct tuner **out,
                       struct err *e)
{
    *out = NULL;
    enum status st = shape_check(shape, e);
    if (st != ST_OK)
        return st;
    struct tuner *t = mem_zalloc(sizeof *t);
    if (!t)
        return err_set(e, ST_NO_MEMORY, "%s %s: no memory to tune", op_name(v->op), v->name);
    t->d = d;
    t->v = v;
    t->passes = options->passes ? options->passes : 1;
    st = space_open(d, v, &t->space, e);
    if (st == ST_OK && options->search != SEARCH_KINDS)
        st = search_open(options->search, t->space, options->budget, options->seed, &t->search, e);
    if (st == ST_OK)
        st = find_known(t, shape, dtype, options, e);
    if (st == ST_OK)
        st = make_data(t, shape, dtype, options->max_bytes, e);
    if (st != ST_OK) {
        tuner_close(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void tuner_close(struct tuner *t)
{
    if (!t)
        return;
    trial__close(&t->trial);
    search_close(t->search);
    space_close(t->space);
    mem_free(t->known);
    mem_free(t);
}

const struct space *tuner_space(const struct tuner *t)
{
    return t->space;
}

/* n runs, waited for; host time of one. */
static enum status run_batch(struct tuner *t, struct op_step *step, uint32_t n, double *ns,
                             struct err *e)
{
    const uint64_t start_ns = clock_now_ns();
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < n; i++)
        st = op_run(step, e);
    const enum status waited = queue_wait(t->d, QUEUE_COMPUTE, st == ST_OK ? e : NULL);
    *ns = (double)(clock_now_ns() - start_ns) / n;
    return st == ST_OK ? waited : st;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over batches; `runs` make a batch of BATCH_NS. */
static enum status median_time(struct tuner *t, struct op_step *step, double *median, struct err *e)
{
    double samples[BATCHES], ns;
    enum status st = run_batch(t, step, 1, &ns, e); /* warm by now: the check came before */
    uint32_t runs = 1, n = 0;
    while (st == ST_OK && ns * runs < BATCH_NS && runs < MAX_RUNS) {
        const double wanted = ceil(1.2 * BATCH_NS / fmax(ns, 10));
        runs = wanted > runs ? (wanted < MAX_RUNS ? (uint32_t)wanted : MAX_RUNS) : 2 * runs;
        st = run_batch(t, step, runs, &ns, e);
    }
    const uint64_t start_ns = clock_now_ns();
    while (st == ST_OK && n < BATCHES &&
           (n < BATCHES_MIN || (double)(clock_now_ns() - start_ns) < POINT_NS))
        st = run_batch(t, step, runs, &samples[n++], e);
    if (st != ST_OK)
        return st;
    qsort(samples, n, sizeof *samples, compare_doubles);
    *median = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
    return ST_OK;
}

/* The outputs as the canaries are, so that what a point leaves out shows. */
static enum status refresh(struct tuner *t, struct err *e)
{
    struct trial *trial = &t->trial;
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < op_tensor_count(t->v->op); i++)
        if (op_tensor_is_output(t->v->op, i) && trial->buffers[i])
            st = trial__blank(trial, i, e);
    return st;
}

/* Build, fit, check, time; anything wrong is in *e. */
static enum status measure(struct tuner *t, const struct variant *row, double *ns, struct err *e)
{
    struct op_step *step = NULL;
    struct trial_result result;
    kernel_set_risky(t->d, true);
    enum status st = op_bind(t->d, row, &t->trial.call, &step, e);
    kernel_set_risky(t->d, false);
    if (st == ST_OK)
        st = op_step_check_fit(step, e);
    if (st == ST_OK)
        st = refresh(t, e);
    if (st == ST_OK)
        st = op_run(step, e);
    if (st == ST_OK)
        st = trial__check(&t->trial, &result, e);
    if (st == ST_OK && !result.passed)
        st = err_set(e, ST_NUMERIC, "wrong: %s", result.reason);
    double least = INFINITY;
    for (uint32_t i = 0; st == ST_OK && i < t->passes; i++) {
        double median = INFINITY;
        st = median_time(t, step, &median, e);
        least = fmin(least, median);
    }
    op_step_close(step);
    *ns = least;
    return st;
}

enum status tuner_measure(struct tuner *t, uint32_t point, struct tune_point *out, struct err *e)
{
    struct config config;
    struct err why = {0};
    double ns = 0;
    *out = (struct tune_point){.point = point};
    space_text(t->space, point, out->settings);
    enum status st = space_configure(t->space, point, t->v, &config, &why);
    if (st == ST_OK)
        st = measure(t, &config.row, &ns, &why);
    if (st == ST_DEVICE_LOST || st == ST_NO_MEMORY) {
        if (e)
            *e = why;
        return st;
    }
    if (st == ST_OK)
        out->ns = ns;
    else
        snprintf(out->reason, sizeof out->reason, "%.159s", why.text);
    if (point == t->space->standard && st == ST_OK)
        t->standard_ns = ns;
    return ST_OK;
}

enum status tuner_step(struct tuner *t, struct tune_point *out, bool *more, struct err *e)
{
    uint32_t point;
    *more = t->search && search_next(t->search, &point);
    if (!*more)
        return ST_OK;
    enum status st = ST_OK;
    if (t->known && t->known[point] >= 0) {
        *out = (struct tune_point){.point = point, .ns = t->known[point], .known = true};
        space_text(t->space, point, out->settings);
        if (point == t->space->standard)
            t->standard_ns = out->ns;
    } else {
        st = tuner_measure(t, point, out, e);
    }
    if (st == ST_OK)
        search_tell(t->search, point, out->ns);
    return st;
}

uint32_t tuner_best(const struct tuner *t, double *ns, double *standard_ns)
{
    *standard_ns = t->standard_ns;
    *ns = 0;
    return t->search ? search_best(t->search, ns) : SPACE_NONE;
}

void tuner_progress(const struct tuner *t, uint32_t *done, uint32_t *most)
{
    *done = *most = 0;
    if (t->search)
        search_progress(t->search, done, most);
}
