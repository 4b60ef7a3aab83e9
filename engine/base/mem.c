/* Host memory. The fail-at counter is process-wide and atomic; arenas are single-threaded. */
#include "engine/base/mem.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static _Atomic uint64_t allocation_count;
static _Atomic uint64_t fail_number; /* 0: off */
static _Atomic int fail_sticky;

/* Counts one allocation and says whether it must fail. */
static int must_fail(void)
{
    uint64_t number = atomic_fetch_add(&allocation_count, 1) + 1;
    uint64_t n = atomic_load_explicit(&fail_number, memory_order_relaxed);
    if (n == 0)
        return 0;
    return atomic_load(&fail_sticky) ? number >= n : number == n;
}

uint64_t mem_fail_at(uint64_t n, int sticky)
{
    atomic_store(&fail_number, 0);
    uint64_t made = atomic_exchange(&allocation_count, 0);
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_number, n);
    return made;
}

void *mem_alloc(size_t n)
{
    return must_fail() ? NULL : malloc(n > 0 ? n : 1);
}

void *mem_zalloc(size_t n)
{
    return must_fail() ? NULL : calloc(1, n > 0 ? n : 1);
}

void *mem_realloc(void *p, size_t n)
{
    return must_fail() ? NULL : realloc(p, n > 0 ? n : 1);
}

void mem_free(void *p)
{
    free(p);
}

void *mem_array(size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n))
        return NULL;
    return mem_zalloc(n);
}

void *mem_array_resize(void *p, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n))
        return NULL;
    return mem_realloc(p, n);
}

char *mem_strndup(const char *text, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *copy = mem_alloc(n + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

void *mem_aligned(size_t alignment, size_t n)
{
    void *p = NULL;
    if (must_fail() || posix_memalign(&p, alignment, n > 0 ? n : 1) != 0)
        return NULL;
    return p;
}

void *mem_huge(size_t n)
{
    void *p = mem_aligned(MEM_HUGE_PAGE_BYTES, n);
    if (p != NULL)
        (void)madvise(p, n, MADV_HUGEPAGE); /* a system without them reads slower, no more */
    return p;
}

/* Reads the number after `key` in a file of lines; -1 when absent. */
static int64_t read_number(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return -1;
    char line[256];
    int64_t value = -1;
    size_t key_length = strlen(key);
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, key, key_length) != 0)
            continue;
        char *end;
        long long number = strtoll(line + key_length, &end, 10);
        if (end != line + key_length)
            value = number;
        break;
    }
    fclose(f);
    return value;
}

/* The memory controller of a version of cgroups. */
struct controller {
    const char *mark; /* in its line of /proc/self/cgroup, before the path */
    const char *mount, *limit, *used, *file_keys[2];
};

static const struct controller controllers[] = {
    {"0::", "/sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file ", "active_file "}},
    {":memory:",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "}},
};

/* Path of this process's group below the mount; "" where it has none. */
static void find_group(const struct controller *c, char *out, size_t n)
{
    char line[400];
    out[0] = '\0';
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *mark = strstr(line, c->mark);
        if (mark != NULL)
            snprintf(out, n, "%s", mark + strlen(c->mark));
    }
    if (f != NULL)
        fclose(f);
}

static int64_t group_number(const struct controller *c, const char *group, const char *file,
                            const char *key)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s/%s", c->mount, group, file);
    return read_number(path, key);
}

/* What a group may still take: its limit minus its use, without the pages of files, which are given
 * up under pressure; INT64_MAX when it has no limit. */
static int64_t group_left(const struct controller *c, const char *group)
{
    const int64_t limit = group_number(c, group, c->limit, "");
    int64_t used = group_number(c, group, c->used, "");
    if (limit < 0 || used < 0 || limit > INT64_MAX / 2)
        return INT64_MAX;
    for (size_t i = 0; i < 2; i++) {
        const int64_t files = group_number(c, group, "memory.stat", c->file_keys[i]);
        used -= files > 0 ? files : 0;
    }
    return used > limit ? 0 : limit - (used > 0 ? used : 0);
}

/* The least of what the groups that this process is in may still take; INT64_MAX: no limit. A group
 * that is not to be found below the mount is that of another namespace. */
static int64_t cgroup_available(void)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof controllers / sizeof controllers[0]; i++) {
        char group[400];
        find_group(&controllers[i], group, sizeof group);
        for (bool root = false; !root;) {
            char *slash = strrchr(group, '/');
            root = slash == NULL || slash[1] == '\0';
            if (root)
                group[0] = '\0';
            const int64_t left = group_left(&controllers[i], group);
            least = left < least ? left : least;
            if (!root)
                *slash = '\0';
        }
    }
    return least;
}

uint64_t mem_available_bytes(void)
{
    int64_t available = read_number("/proc/meminfo", "MemAvailable:");
    available = available < 0 ? 0 : available * 1024;
    const int64_t group = cgroup_available();
    if (group != INT64_MAX && (available == 0 || group < available))
        available = group;
    return (uint64_t)available;
}

uint64_t mem_resident_bytes(void)
{
    int64_t kib = read_number("/proc/self/status", "VmRSS:");
    return kib < 0 ? 0 : (uint64_t)kib * 1024;
}

uint64_t mem_peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

#define ARENA_BLOCK_BYTES ((size_t)64 * 1024)
#define ARENA_ALIGN       ((size_t)16)

struct arena_block {
    struct arena_block *next;
    size_t size, used; /* bytes of data[] */
    _Alignas(16) unsigned char data[];
};

struct arena {
    struct arena_block *head;
    size_t ceiling, used;
};

struct arena *arena_open(size_t ceiling_bytes)
{
    struct arena *a = mem_zalloc(sizeof *a);
    if (a != NULL)
        a->ceiling = ceiling_bytes;
    return a;
}

void arena_close(struct arena *a)
{
    if (a == NULL)
        return;
    for (struct arena_block *b = a->head; b != NULL;) {
        struct arena_block *next = b->next;
        mem_free(b);
        b = next;
    }
    mem_free(a);
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX / 2)
        return NULL;
    n = (n + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
    if (n > a->ceiling - a->used)
        return NULL;
    struct arena_block *b = a->head;
    if (b == NULL || b->size - b->used < n) {
        size_t size = n > ARENA_BLOCK_BYTES ? n : ARENA_BLOCK_BYTES;
        b = mem_zalloc(sizeof *b + size);
        if (b == NULL)
            return NULL;
        b->size = size;
        b->next = a->head;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += n;
    a->used += n;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n))
        return NULL;
    return arena_alloc(a, n);
}

char *arena_strndup(struct arena *a, const char *text, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *copy = arena_alloc(a, n + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

size_t arena_used_bytes(const struct arena *a)
{
    return a->used;
}
