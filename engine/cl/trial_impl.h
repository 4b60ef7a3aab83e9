/* The parent's side of trial builds, inside this folder. */
#ifndef OINFER_CL_TRIAL_IMPL_H
#define OINFER_CL_TRIAL_IMPL_H

#include "engine/cl/program.h"

/* A program to try: all borrowed. options: the complete build options. */
struct trial_job {
    struct cache_key key;
    const struct program_source *source;
    const char *options;
};

/* Whether this device's programs need trials and can have them: an LLVM-based driver (those of CPUs
 * all are), a trial command that works, and a cache directory. */
bool trial__wanted(const struct device *d);
/* Tries every job that the cache does not know yet; afterwards the cache knows what became of it,
 * unless the child could not be run at all, which is logged. Waits, at most TRIAL_LIMIT_NS a job.
 */
void trial__run(struct device *d, const struct trial_job *jobs, uint32_t n);
/* Probes the device's caps in a child; afterwards the cache knows them. False: the child failed. */
bool trial__probe(struct device *d);

#endif
