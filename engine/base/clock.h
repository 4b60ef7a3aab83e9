/* The clocks: monotonic for durations and deadlines, wall for `created`. Thread-safe. */
#ifndef OINFER_BASE_CLOCK_H
#define OINFER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Seconds since 1970. */
static inline int64_t clock_wall_s(void)
{
    return (int64_t)time(NULL);
}

#endif
