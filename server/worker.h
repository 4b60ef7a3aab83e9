/* Workers: one thread for each device, which owns the engine, its models and their slots.
 *
 * A device that is lost is opened again: its jobs fail, everything on it is closed, and the engine
 * and the models are loaded anew, at once and then after pauses that grow.
 *
 * Jobs come in by worker_submit and come back by worker_collect; in between they belong to the
 * worker's thread. What others may know of the worker (state, progress, slots) is copied out under
 * a lock that is never held during a step, so asking never waits for the engine.
 */
#ifndef OINFER_SERVER_WORKER_H
#define OINFER_SERVER_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/hosted.h"
#include "server/job.h"
#include "server/slots.h"

struct worker_options {
    const struct device_list *devices; /* borrowed until close, as are the models and the texts */
    uint32_t device_index;
    struct engine_options engine;
    struct load_options load; /* progress and user are the worker's own */
    const struct hosted_models *models;
    /* Called on the worker's thread when worker_collect or worker_status has news. */
    void (*notify)(void *user);
    void *user;
};

/* FAILED: could not load, for good. LOST: served, and is being opened again. */
enum worker_state { WORKER_LOADING, WORKER_READY, WORKER_FAILED, WORKER_LOST };
const char *worker_state_name(enum worker_state state); /* "loading", ... */

struct worker_status {
    enum worker_state state;
    uint64_t bytes_done, bytes_total; /* of the models' weights, all models */
    uint32_t kernels_built;
    uint64_t step_ns;     /* end of the last step, or of the last sign of progress in loading */
    bool in_step;         /* the engine is working */
    bool resting;         /* the thread waits for work: no progress is to be expected */
    uint64_t progress_ns; /* last sign of progress of any kind: a load's, a step's, a wait's */
    uint64_t n_steps;
    uint32_t n_losses;           /* times that the device was lost */
    uint32_t n_failed_openings;  /* since it was lost last; 0 when it serves */
    struct device_memory memory; /* at the last step or load */
    bool damaged;     /* a model's file cannot be read any more: a new process may help */
    struct err error; /* FAILED, LOST and damaged: why */
};

/* What became known by loading, the first time; complete and immutable from WORKER_READY on. */
struct worker_facts {
    struct device_info device;
    uint32_t caps;
    struct load_report loads[HOSTED_MAX]; /* by model index */
    struct strbuf plans[HOSTED_MAX];      /* lines of model_plan_line: decode, then prefill */
};

/* Work of low priority: run on the worker's thread, a piece at a time, when no request can run, one
 * task after another. The first piece, and the last one of a task that is to end, come before
 * requests, so that whoever asked has an answer: they have to be short. */
enum worker_task_result { WORKER_TASK_GOES_ON, WORKER_TASK_OVER, WORKER_TASK_LOST };
struct worker_task {
    /* One piece; the loop is notified after it. models: by model index. g NULL: the worker runs
     * nothing any more, and the task has to end. LOST: over, and so is the device. */
    enum worker_task_result (*run)(struct worker_task *t, struct engine *g,
                                   struct model *const *models);
    void *user;
    /* of the worker */
    struct worker_task *next;
    bool begun, ending;
};

struct worker;
/* Starts the thread, which opens the device and loads the models. */
enum status worker_open(const struct worker_options *options, struct worker **out, struct err *e);
/* Asks the thread to end: loading is broken off, jobs fail with FAULT_DRAINING. */
void worker_stop(struct worker *w);
void worker_close(struct worker *w); /* stops, joins and frees; accepts NULL */

/* Loop thread. Hands a prepared job over. */
void worker_submit(struct worker *w, struct job *j);
/* Loop thread. The task is the worker's until its run gave something else than GOES_ON. */
void worker_add_task(struct worker *w, struct worker_task *t);
/* Loop thread. The task's next piece, in which it has to end, comes before requests. It may be over
 * already, but its memory has to be there still. */
void worker_end_task(struct worker *w, struct worker_task *t);
/* Wakes the thread: an outbox has room again, or a job was cancelled. Any thread. */
void worker_wake(struct worker *w);
/* Loop thread. Calls `take` for each job with news; with done, it is the caller's again. */
void worker_collect(struct worker *w, void (*take)(void *user, struct job *j, bool done),
                    void *user);

/* Any thread; never waits for the engine. */
void worker_status(struct worker *w, struct worker_status *out);
uint32_t worker_slots(struct worker *w, struct slot_status *out, uint32_t capacity);
/* Has the device's peaks measured when it is idle next (seconds, the first time on a device). */
void worker_measure(struct worker *w);
/* False: not measured yet. */
bool worker_peaks(struct worker *w, struct device_peaks *out);
/* NULL before WORKER_READY. */
const struct worker_facts *worker_facts(struct worker *w);

#endif
