/* Usable CPUs (affinity mask, cgroup quota, option) and the PoCL environment made from them. */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#include "engine/cl/threads.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CGROUP_DEPTH_MAX 32 /* ancestors of our cgroup that are looked at */

uint32_t threads_quota(const char *cpu_max)
{
    char *end = NULL;
    unsigned long long quota = strtoull(cpu_max, &end, 10);
    unsigned long long period = end != cpu_max ? strtoull(end, NULL, 10) : 0;
    if (period == 0) /* "max", or not a number */
        return 0;
    unsigned long long cpus = quota / period;
    if (cpus == 0)
        return 1;
    return cpus > UINT32_MAX ? 0 : (uint32_t)cpus;
}

static bool read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool got = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return got;
}

/* The smallest quota of our cgroup (version 2) and its ancestors; 0: none. */
static uint32_t cgroup_quota(void)
{
    char line[1024];
    if (!read_line("/proc/self/cgroup", line, sizeof line) || strncmp(line, "0::/", 4) != 0)
        return 0;
    line[strcspn(line, "\n")] = '\0';
    char *group = line + 3;
    uint32_t least = 0;
    for (int depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
        char path[1100], text[64];
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        if (read_line(path, text, sizeof text)) {
            uint32_t quota = threads_quota(text);
            if (quota != 0 && (least == 0 || quota < least))
                least = quota;
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL || group[0] == '\0')
            break;
        *slash = '\0';
    }
    return least;
}

uint32_t threads_usable(uint32_t most)
{
    cpu_set_t mask;
    uint32_t n = 1;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0)
        n = (uint32_t)CPU_COUNT(&mask);
    uint32_t quota = cgroup_quota();
    if (quota != 0 && quota < n)
        n = quota;
    if (most != 0 && most < n)
        n = most;
    return n == 0 ? 1 : n;
}

/* Whether the mask holds CPUs 0 .. n - 1, the ones PoCL would pin its threads to. */
static bool holds_first_cpus(uint32_t n)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (i >= CPU_SETSIZE || !CPU_ISSET(i, &mask))
            return false;
    return true;
}

enum status threads_tell_pocl(uint32_t most, struct err *e)
{
    uint32_t n = threads_usable(most);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    char count[16];
    snprintf(count, sizeof count, "%u", n);
    if (online > 0 && n < (unsigned long)online && setenv("POCL_MAX_PTHREAD_COUNT", count, 0) != 0)
        return err_set(e, ST_NO_MEMORY, "cannot set POCL_MAX_PTHREAD_COUNT=%s", count);
    if (n > 1 && holds_first_cpus(n) && setenv("POCL_AFFINITY", "1", 0) != 0)
        return err_set(e, ST_NO_MEMORY, "cannot set POCL_AFFINITY=1");
    return ST_OK;
}
