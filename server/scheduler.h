/* The queue between requests and workers: bounded, first come first served, least loaded worker
 * first.
 *
 * Each worker takes as many jobs of a model as it has slots for it, and one operator at a time.
 * A place is taken when a request's body is there (it is then being prepared) and given back when
 * its job goes to a worker. Loop thread only.
 */
#ifndef OINFER_SERVER_SCHEDULER_H
#define OINFER_SERVER_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "server/job.h"
#include "server/worker.h"

#define WORKERS_MAX 16

struct scheduler;
/* queue_jobs: how many may wait. slots: of each model on each worker. The workers are borrowed. */
enum status scheduler_open(struct worker *const *workers, uint32_t n_workers, uint32_t slots,
                           uint32_t queue_jobs, struct scheduler **out, struct err *e);
/* Another length of the queue; jobs that wait already go on waiting. */
void scheduler_set_queue(struct scheduler *s, uint32_t queue_jobs);
void scheduler_close(struct scheduler *s); /* accepts NULL; the queue must be empty */

/* Takes a place for a job that will be prepared; ST_BUSY when the queue is full. */
enum status scheduler_reserve(struct scheduler *s);
/* Gives a place back: the job will not come. */
void scheduler_release(struct scheduler *s);
/* The prepared job comes: it is queued, or goes to a worker at once. */
void scheduler_enqueue(struct scheduler *s, struct job *j);
/* Takes a queued job out. */
void scheduler_remove(struct scheduler *s, struct job *j);
/* A job is back from its worker: there is room for others. */
void scheduler_returned(struct scheduler *s, struct job *j);
/* Takes out the first queued job that is over its deadline; NULL: none. */
struct job *scheduler_expired(struct scheduler *s, uint64_t now_ns);
/* Any queued job, taken out; NULL: none. */
struct job *scheduler_pop(struct scheduler *s);

/* When it is worth asking again, in seconds, going by how long jobs took of late. */
uint32_t scheduler_retry_after_s(const struct scheduler *s);
struct scheduler_counts {
    uint32_t preparing, queued, running;
};
struct scheduler_counts scheduler_counts(const struct scheduler *s);

#endif
