/* Tuning jobs: several calls, for each the variants that might serve it, a point at a time.
 *
 * A call without a variant's name is tried with the best variants for it (JOB_VARIANTS at most, in
 * the order of the heuristic); one whose own values are JOB_HOPELESS times slower than the fastest
 * point of the call so far is left after that. Each variant that was searched to its end gives a
 * record. Between steps the device may do other work. Belongs to the device's thread.
 */
#ifndef OINFER_TUNE_JOB_H
#define OINFER_TUNE_JOB_H

#include "engine/tune/store.h"

#define JOB_MAX_CALLS 256
#define JOB_VARIANTS  4
#define JOB_HOPELESS  3.0

struct tune_call {
    struct shape shape;
    enum dtype dtype;
    char variant[32]; /* "": the best ones */
};

struct tune_progress {
    uint32_t call, n_calls;
    uint32_t points, most_points; /* measured, and the most that there will be */
    double elapsed_s, left_s;     /* an estimate */
    struct shape shape;           /* of the call */
    enum dtype dtype;
    const char *variant; /* static */
    struct tune_point last;
    double best_ns, standard_ns; /* of this variant; 0: none yet */
    char best_settings[SPACE_TEXT_BYTES];
};

struct tune_job;
/* options.search is one of the kinds. ST_INVALID names field, value and limit; ST_NOT_FOUND: no
 * such variant, or none for the call. Nothing is measured yet. */
enum status tune_job_open(struct device *d, const struct tune_call *calls, uint32_t n,
                          const struct tuner_options *options, struct tune_job **out,
                          struct err *e);
void tune_job_close(struct tune_job *j); /* accepts NULL */
/* Measures one point; *more false: all was done before. ST_DEVICE_LOST, ST_NO_MEMORY; and with a
 * variant by name what is wrong with the call. */
enum status tune_job_step(struct tune_job *j, bool *more, struct err *e);
/* As of the last step. Borrowed from the job. */
const struct tune_progress *tune_job_progress(const struct tune_job *j);
/* The records so far. Borrowed. */
const struct tune_store *tune_job_results(const struct tune_job *j);

#endif
