/* The queue, and what each worker has of each model. */
#include "server/scheduler.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#define RETRY_MAX_S 60

#define LANES                                                                           \
    (HOSTED_MAX + 1) /* kinds of jobs that a worker has room for: the models, operators \
                      */

struct scheduler {
    struct worker *workers[WORKERS_MAX];
    uint32_t n_workers, slots, queue_jobs;
    uint32_t jobs[WORKERS_MAX][LANES]; /* that a worker has: as many as its room */
    uint32_t sequences[WORKERS_MAX];   /* of these jobs */
    struct job *first, **end;
    struct scheduler_counts counts;
    double job_seconds; /* running mean of the time a job took on its worker */
};

enum status scheduler_open(struct worker *const *workers, uint32_t n_workers, uint32_t slots,
                           uint32_t queue_jobs, struct scheduler **out, struct err *e)
{
    struct scheduler *s = mem_zalloc(sizeof *s);
    if (s == NULL)
        return err_set(e, ST_NO_MEMORY, "scheduler: out of memory");
    ASSERT(n_workers <= WORKERS_MAX);
    for (uint32_t i = 0; i < n_workers; i++)
        s->workers[i] = workers[i];
    s->n_workers = n_workers;
    s->slots = slots;
    s->queue_jobs = queue_jobs;
    s->end = &s->first;
    s->job_seconds = 1;
    *out = s;
    return ST_OK;
}

void scheduler_set_queue(struct scheduler *s, uint32_t queue_jobs)
{
    s->queue_jobs = queue_jobs;
}

void scheduler_close(struct scheduler *s)
{
    mem_free(s);
}

static bool is_usable(const struct scheduler *s, uint32_t w)
{
    struct worker_status status;
    worker_status(s->workers[w], &status);
    return status.state == WORKER_READY;
}

static uint32_t lane_of(const struct job *j)
{
    return j->kind == JOB_OPERATOR ? HOSTED_MAX : j->model->index;
}

static uint32_t room_of(const struct scheduler *s, uint32_t lane)
{
    return lane == HOSTED_MAX ? 1 : s->slots;
}

/* What a job adds to its worker's load. */
static uint32_t load_of(const struct job *j)
{
    return j->kind == JOB_OPERATOR ? 1 : j->n_sequences;
}

/* The least loaded worker that takes the job; n_workers: none. A worker takes as many
 * jobs as it has slots, however many sequences they have: it seats them in turns. */
static uint32_t find_worker(const struct scheduler *s, const struct job *j)
{
    const uint32_t lane = lane_of(j);
    uint32_t best = s->n_workers, best_load = 0;
    for (uint32_t w = 0; w < s->n_workers; w++) {
        if (j->wanted_worker != JOB_ANY_WORKER && j->wanted_worker != w)
            continue;
        if (s->jobs[w][lane] < room_of(s, lane) &&
            (best == s->n_workers || s->sequences[w] < best_load) && is_usable(s, w)) {
            best = w;
            best_load = s->sequences[w];
        }
    }
    return best;
}

/* Jobs that the workers would take at once, whatever their model: so many more than the queue holds
 * can be let in. */
static uint32_t free_places(const struct scheduler *s)
{
    uint32_t sum = 0;
    for (uint32_t w = 0; w < s->n_workers; w++) {
        uint32_t most = 0;
        for (uint32_t m = 0; m < HOSTED_MAX; m++)
            most = s->jobs[w][m] > most ? s->jobs[w][m] : most;
        sum += s->slots - most;
    }
    return sum;
}

static void unlink_job(struct scheduler *s, struct job **link)
{
    struct job *j = *link;
    *link = j->next;
    if (*link == NULL)
        s->end = link;
    j->next = NULL;
    s->counts.queued--;
}

/* Gives queued jobs to workers; one whose model has no place lets those of other models pass.
 */
static void dispatch(struct scheduler *s)
{
    struct job **link = &s->first;
    while (*link != NULL) {
        struct job *j = *link;
        uint32_t w = find_worker(s, j);
        if (w == s->n_workers) {
            link = &j->next;
            continue;
        }
        unlink_job(s, link);
        s->jobs[w][lane_of(j)]++;
        s->sequences[w] += load_of(j);
        s->counts.running++;
        j->worker = w;
        j->state = JOB_RUNNING;
        worker_submit(s->workers[w], j);
    }
}

enum status scheduler_reserve(struct scheduler *s)
{
    if (s->counts.preparing + s->counts.queued >= s->queue_jobs + free_places(s))
        return ST_BUSY;
    s->counts.preparing++;
    return ST_OK;
}

void scheduler_release(struct scheduler *s)
{
    s->counts.preparing--;
}

void scheduler_enqueue(struct scheduler *s, struct job *j)
{
    s->counts.preparing--;
    s->counts.queued++;
    j->state = JOB_QUEUED;
    j->next = NULL;
    *s->end = j;
    s->end = &j->next;
    dispatch(s);
}

void scheduler_remove(struct scheduler *s, struct job *j)
{
    struct job **link = &s->first;
    while (*link != j)
        link = &(*link)->next;
    unlink_job(s, link);
}

void scheduler_returned(struct scheduler *s, struct job *j)
{
    s->jobs[j->worker][lane_of(j)]--;
    s->sequences[j->worker] -= load_of(j);
    s->counts.running--;
    if (j->timings.started_ns != 0) {
        double seconds = (double)(clock_now_ns() - j->timings.started_ns) / 1e9;
        s->job_seconds += (seconds - s->job_seconds) / 8;
    }
    dispatch(s);
}

struct job *scheduler_expired(struct scheduler *s, uint64_t now_ns)
{
    for (struct job **link = &s->first; *link != NULL; link = &(*link)->next) {
        struct job *j = *link;
        if (j->deadline_ns != 0 && now_ns > j->deadline_ns) {
            unlink_job(s, link);
            return j;
        }
    }
    return NULL;
}

struct job *scheduler_pop(struct scheduler *s)
{
    struct job *j = s->first;
    if (j != NULL)
        unlink_job(s, &s->first);
    return j;
}

uint32_t scheduler_retry_after_s(const struct scheduler *s)
{
    uint32_t seats = s->slots * (s->n_workers > 0 ? s->n_workers : 1);
    double seconds = s->job_seconds * (s->counts.queued + 1) / seats;
    return seconds < 1 ? 1 : seconds > RETRY_MAX_S ? RETRY_MAX_S : (uint32_t)(seconds + 0.5);
}

struct scheduler_counts scheduler_counts(const struct scheduler *s)
{
    return s->counts;
}
