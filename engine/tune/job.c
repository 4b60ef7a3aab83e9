/* Tuning jobs: a list of (call, variant), and a tuner for the present one. */
#include "engine/tune/job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/ops/variant.h"

struct target {
    uint32_t call;
    const struct variant *v;
    uint32_t most; /* points */
};

struct tune_job {
    struct device *d;
    struct tuner_options options;
    uint32_t n_calls, n_targets, at; /* target in work */
    struct tune_call *calls;
    struct target *targets;
    struct tuner *tuner; /* of targets[at]; NULL: not begun */
    struct tune_store *results;
    struct tune_progress progress;
    uint32_t points_before; /* of the targets done */
    double call_best_ns;    /* of the present call, over its variants; 0: none */
    uint64_t start_ns;
};

static uint32_t points_of(struct device *d, const struct variant *v,
                          const struct tuner_options *options)
{
    struct space *space;
    if (space_open(d, v, &space, NULL) != ST_OK)
        return 1;
    const uint32_t n = space->n_points;
    space_close(space);
    return options->search == SEARCH_GRID || options->budget > n ? n : options->budget;
}

static enum status add_targets(struct tune_job *j, uint32_t call, struct err *e)
{
    const struct tune_call *c = &j->calls[call];
    struct op_call op_call = {.op = c->shape.op};
    enum status st = shape_check(&c->shape, e);
    if (st != ST_OK)
        return st;
    shape_params(&c->shape, &op_call.params);
    const uint32_t before = j->n_targets;
    const uint32_t most = c->variant[0] ? 1 : JOB_VARIANTS;
    for (uint32_t i = 0; i < most; i++) {
        const struct variant *v = c->variant[0]
                                      ? variant_for_call(j->d, &op_call, c->dtype, c->variant)
                                      : variant_candidate(j->d, &op_call, c->dtype, i);
        if (!v)
            break;
        if (i == 0)
            st = op_check_params(v, &op_call, e);
        if (st != ST_OK)
            return st;
        j->targets[j->n_targets++] = (struct target){call, v, points_of(j->d, v, &j->options)};
        j->progress.most_points += j->targets[j->n_targets - 1].most;
    }
    if (j->n_targets > before)
        return ST_OK;
    char shape[SHAPE_TEXT_BYTES];
    return err_set(e, ST_NOT_FOUND, "%s: no variant%s%.31s for %s %s on %s", op_name(c->shape.op),
                   c->variant[0] ? " " : "", c->variant, dtype_name(c->dtype),
                   shape_text(&c->shape, shape), device_info(j->d)->name);
}

enum status tune_job_open(struct device *d, const struct tune_call *calls, uint32_t n,
                          const struct tuner_options *options, struct tune_job **out, struct err *e)
{
    *out = NULL;
    if (n < 1 || n > JOB_MAX_CALLS)
        return err_set(e, ST_INVALID, "%u calls to tune, expected 1 to %d", n, JOB_MAX_CALLS);
    if (options->search != SEARCH_GRID &&
        (options->budget < 1 || options->budget > SEARCH_MAX_BUDGET))
        return err_set(e, ST_INVALID, "budget is %u, expected 1 to %d", options->budget,
                       SEARCH_MAX_BUDGET);
    struct tune_job *j = mem_zalloc(sizeof *j);
    if (!j)
        return err_set(e, ST_NO_MEMORY, "a tuning job of %u calls", n);
    j->d = d;
    j->options = *options;
    j->n_calls = n;
    j->progress.n_calls = n;
    j->calls = mem_array(n, sizeof *j->calls);
    j->targets = mem_array((size_t)n * JOB_VARIANTS, sizeof *j->targets);
    enum status st = store_open(&j->results, e);
    if (st == ST_OK && (!j->calls || !j->targets))
        st = err_set(e, ST_NO_MEMORY, "a tuning job of %u calls", n);
    if (st == ST_OK)
        memcpy(j->calls, calls, n * sizeof *calls);
    for (uint32_t i = 0; st == ST_OK && i < n; i++)
        st = add_targets(j, i, e);
    if (st != ST_OK) {
        tune_job_close(j);
        return st;
    }
    j->start_ns = clock_now_ns();
    *out = j;
    return ST_OK;
}

void tune_job_close(struct tune_job *j)
{
    if (!j)
        return;
    tuner_close(j->tuner);
    store_close(j->results);
    mem_free(j->calls);
    mem_free(j->targets);
    mem_free(j);
}

/* The best point of the present tuner as a record. */
static enum status keep_record(struct tune_job *j, struct err *e)
{
    const struct target *target = &j->targets[j->at];
    const struct device_info *info = device_info(j->d);
    const struct tune_call *call = &j->calls[target->call];
    struct tune_record r = {.shape = call->shape, .dtype = call->dtype, .version = TUNER_VERSION};
    struct op_call op_call = {.op = call->shape.op};
    const uint32_t best = tuner_best(j->tuner, &r.ns, &r.standard_ns);
    if (best == SPACE_NONE || target->v->ref)
        return ST_OK;
    snprintf(r.variant, sizeof r.variant, "%s", target->v->name);
    snprintf(r.device, sizeof r.device, "%s", info->name);
    snprintf(r.driver, sizeof r.driver, "%s", info->driver);
    space_text(tuner_space(j->tuner), best, r.settings);
    shape_params(&call->shape, &op_call.params);
    const uint64_t flops = op_flops(&op_call);
    r.work = flops > 0 ? (double)flops : 1;
    enum status st = variant_source_hash(j->d, target->v, &r.source, e);
    return st == ST_OK ? store_add(j->results, &r, e) : st;
}

/* Lets go of the present target and turns to the next. */
static void advance(struct tune_job *j)
{
    uint32_t done = 0, most = 0;
    if (j->tuner)
        tuner_progress(j->tuner, &done, &most);
    j->progress.most_points -= j->targets[j->at].most;
    j->progress.most_points += done;
    j->points_before += done;
    tuner_close(j->tuner);
    j->tuner = NULL;
    j->at++;
    if (j->at == j->n_targets || j->targets[j->at].call != j->targets[j->at - 1].call)
        j->call_best_ns = 0;
}

static enum status begin(struct tune_job *j, struct err *e)
{
    struct target *target = &j->targets[j->at];
    const struct tune_call *call = &j->calls[target->call];
    struct tune_progress *p = &j->progress;
    p->call = target->call;
    p->shape = call->shape;
    p->dtype = call->dtype;
    p->variant = target->v->name;
    p->best_ns = p->standard_ns = 0;
    p->best_settings[0] = '\0';
    return tuner_open(j->d, target->v, &call->shape, call->dtype, &j->options, &j->tuner, e);
}

static void note_progress(struct tune_job *j)
{
    struct tune_progress *p = &j->progress;
    struct target *target = &j->targets[j->at];
    uint32_t done, most;
    tuner_progress(j->tuner, &done, &most);
    p->most_points += most;
    p->most_points -= target->most;
    target->most = most;
    p->points = j->points_before + done;
    const uint32_t best = tuner_best(j->tuner, &p->best_ns, &p->standard_ns);
    if (best != SPACE_NONE)
        space_text(tuner_space(j->tuner), best, p->best_settings);
    p->elapsed_s = (double)(clock_now_ns() - j->start_ns) * 1e-9;
    p->left_s = p->points ? p->elapsed_s / p->points * (p->most_points - p->points) : 0;
    if (p->best_ns > 0 && (j->call_best_ns == 0 || p->best_ns < j->call_best_ns))
        j->call_best_ns = p->best_ns;
}

enum status tune_job_step(struct tune_job *j, bool *more, struct err *e)
{
    for (*more = false; j->at < j->n_targets;) {
        const bool named = j->calls[j->targets[j->at].call].variant[0] != '\0';
        enum status st = j->tuner ? ST_OK : begin(j, e);
        if (st != ST_OK && (named || st == ST_DEVICE_LOST || st == ST_NO_MEMORY))
            return st;
        if (st != ST_OK) { /* a variant whose inputs cannot be made here */
            advance(j);
            continue;
        }
        st = tuner_step(j->tuner, &j->progress.last, more, e);
        if (st != ST_OK)
            return st;
        if (!*more) {
            st = keep_record(j, e);
            if (st != ST_OK)
                return st;
            advance(j);
            continue;
        }
        note_progress(j);
        if (!named && j->progress.standard_ns > JOB_HOPELESS * j->call_best_ns) {
            st = keep_record(j, e);
            advance(j);
        }
        return st;
    }
    if (e)
        err_clear(e);
    return ST_OK;
}

const struct tune_progress *tune_job_progress(const struct tune_job *j)
{
    return &j->progress;
}

const struct tune_store *tune_job_results(const struct tune_job *j)
{
    return j->results;
}
