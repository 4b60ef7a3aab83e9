/* How many threads a CPU device may use, and telling PoCL so before it starts.
 *
 * PoCL reads its environment once, at the first OpenCL call of the process; so this must come
 * before it, and while the process has one thread (setenv). A variable the user set stays.
 */
#ifndef OINFER_CL_THREADS_H
#define OINFER_CL_THREADS_H

#include <stdint.h>

#include "engine/base/err.h"

/* The CPUs this process may use now: its affinity mask, bounded by its cgroup's cpu.max (rounded
 * down, at least 1) and by `most` unless that is 0. */
uint32_t threads_usable(uint32_t most);

/* The quota of a cpu.max line ("200000 100000", "max 100000") in whole CPUs, rounded down, at least
 * 1; 0 when there is no quota or the line is malformed. */
uint32_t threads_quota(const char *cpu_max);

/* Sets POCL_MAX_PTHREAD_COUNT where fewer threads than online CPUs are usable, and POCL_AFFINITY=1
 * where each of them can have a CPU of its own: PoCL pins thread i to CPU i and overrides the
 * process's mask, so only when the mask holds CPUs 0 .. n - 1, and never for a single thread. */
enum status threads_tell_pocl(uint32_t most, struct err *e);

#endif
