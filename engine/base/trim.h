/* Giving back memory that the process holds and does not use.
 *
 * Compilers inside drivers leave much of it: freed heap, and pages of their own code that were
 * needed once. Any thread.
 */
#ifndef OINFER_BASE_TRIM_H
#define OINFER_BASE_TRIM_H

#include <stddef.h>
#include <stdint.h>

/* Returns freed heap to the system, and drops the pages of large libraries' code: those that are
 * needed again come back from the page cache. Advice: where the system does not say enough about
 * a mapping, it is left alone. Takes milliseconds: for once after a large step, not for each. */
void trim_memory(void);

/* One mapping as /proc/PID/smaps describes it. */
struct trim_mapping {
    uintptr_t begin, end;
    char mode[5]; /* "r-xp" */
    uint64_t inode;
    uint64_t resident_kb, anonymous_kb;
    int facts; /* bits: which of the two lines above were there */
};

/* Takes one line of the file, without its end; true when it completes what m needs. */
int trim__line(struct trim_mapping *m, const char *line);
/* May its pages be dropped without loss, and is that worth a call? */
int trim__droppable(const struct trim_mapping *m);

#endif
