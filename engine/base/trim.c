/* Reads /proc/self/smaps and drops what can be read again from its file. No state. */
#define _GNU_SOURCE /* madvise */
#include "engine/base/trim.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define WORTH_KB      1024 /* resident pages from which a mapping is worth a call */
#define LINE_BYTES    512
#define FACT_RESIDENT 1
#define FACT_PRIVATE  2

int trim__line(struct trim_mapping *m, const char *line)
{
    struct trim_mapping found = {0};
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*s %" SCNu64, &found.begin, &found.end,
               found.mode, &found.inode) == 4) {
        *m = found;
        return 0;
    }
    if (sscanf(line, "Rss: %" SCNu64, &m->resident_kb) == 1)
        m->facts |= FACT_RESIDENT;
    else if (sscanf(line, "Anonymous: %" SCNu64, &m->anonymous_kb) == 1)
        m->facts |= FACT_PRIVATE;
    else
        return 0;
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
