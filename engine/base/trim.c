/* Reads /proc/self/smaps and drops what can be read again from its file. No state. */
#define _GNU_SOURCE /* madvise */
#include "engine/base/trim.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WORTH_KB      1024 /* resident pages from which a mapping is worth a call */
#define LINE_BYTES    512
#define FACT_RESIDENT 1
#define FACT_PRIVATE  2

/* "begin-end mode offset device inode ...": the line that opens a mapping. */
static bool read_first(struct trim_mapping *m, const char *line)
{
    char *at;
    struct trim_mapping found = {.begin = (uintptr_t)strtoull(line, &at, 16)};
    if (at == line || *at != '-')
        return false;
    found.end = (uintptr_t)strtoull(at + 1, &at, 16);
    if (*at != ' ' || strlen(at) < sizeof found.mode)
        return false;
    memcpy(found.mode, at + 1, sizeof found.mode - 1);
    at += sizeof found.mode;
    for (int skipped = 0; skipped < 2; skipped++) { /* offset, device */
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    found.inode = strtoull(at, NULL, 10);
    *m = found;
    return true;
}

/* The number behind `key`, if the line begins with it. */
static bool read_kb(const char *line, const char *key, uint64_t *kb)
{
    const size_t n = strlen(key);
    if (strncmp(line, key, n) != 0)
        return false;
    *kb = strtoull(line + n, NULL, 10);
    return true;
}

int trim__line(struct trim_mapping *m, const char *line)
{
    if (read_kb(line, "Rss:", &m->resident_kb))
        m->facts |= FACT_RESIDENT;
    else if (read_kb(line, "Anonymous:", &m->anonymous_kb))
        m->facts |= FACT_PRIVATE;
    else {
        (void)read_first(m, line);
        return 0;
    }
    return m->facts == (FACT_RESIDENT | FACT_PRIVATE);
}

/* A private mapping of a file that cannot be written to and has no page of its own (a relocation,
 * a breakpoint): every page of it is the file's. */
int trim__droppable(const struct trim_mapping *m)
{
    return m->facts == (FACT_RESIDENT | FACT_PRIVATE) && m->inode != 0 && m->mode[1] == '-' &&
           m->mode[3] == 'p' && m->anonymous_kb == 0 && m->resident_kb >= WORTH_KB;
}

void trim_memory(void)
{
    malloc_trim(0);
    FILE *f = fopen("/proc/self/smaps", "re");
    if (f == NULL)
        return;
    struct trim_mapping m = {0};
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, f) != NULL)
        if (trim__line(&m, line) && trim__droppable(&m))
            (void)madvise((void *)m.begin, m.end - m.begin, MADV_DONTNEED);
    fclose(f);
}
