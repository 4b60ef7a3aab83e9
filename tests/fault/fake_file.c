/* A shared library that stands between a program and libc's file calls, and makes chosen ones fail.
 *
 * Use it as LD_PRELOAD=libfake_file.so PROGRAM with OINFER_FILE_FAULT: rules separated by commas,
 * CALL:PART:N:CODE. Call number N (from 1; N+: and all after it) of CALL, among those on files
 * whose path has PART in it, fails with the errno CODE; for read and write CODE may be `short`: one
 * byte is transferred. CODE `kill` ends the process there, as kill -9 does; a write has put half of
 * its bytes before that. CALL is open, stat, map, read, write, sync, close or rename. A stream
 * (fopen) whose reads are to fail is one of a file that gives EIO. Files that no rule names pass
 * through.
 * Thread-safe for what it is used for: a descriptor is not closed while another thread uses it.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum call { OPEN, STAT, MAP, READ, WRITE, SYNC, CLOSE, RENAME, CALL_COUNT };

static const char *const call_names[CALL_COUNT] = {"open",  "stat", "map",   "read",
                                                   "write", "sync", "close", "rename"};

#define RULES_MAX  16
#define FILES_MAX  1024
#define PATH_BYTES 4096
#define SHORT      (-1)
#define KILL       (-2)

struct rule {
    enum call call;
    char part[128];
    unsigned long number, count;
    int sticky;
    int code; /* errno, SHORT or KILL */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static int rule_count;
static char *paths[FILES_MAX]; /* of open descriptors that a rule names */

/* A rule that cannot be read ends the program, since a test depends on it. */
static void parse_rule(char *text)
{
    struct rule r = {.call = OPEN};
    char *rest = NULL, *end = NULL;
    const char *call = strtok_r(text, ":", &rest), *part = strtok_r(NULL, ":", &rest);
    const char *number = strtok_r(NULL, ":", &rest), *code = strtok_r(NULL, ":", &rest);
    while (call != NULL && r.call < CALL_COUNT && strcmp(call_names[r.call], call) != 0)
        r.call++;
    if (code == NULL || r.call == CALL_COUNT || rule_count == RULES_MAX ||
        strlen(part) >= sizeof r.part) {
        fprintf(stderr, "fake_file: bad rule\n");
        _exit(2);
    }
    snprintf(r.part, sizeof r.part, "%s", part);
    r.number = strtoul(number, &end, 10);
    r.sticky = *end == '+';
    r.code = strcmp(code, "short") == 0  ? SHORT
             : strcmp(code, "kill") == 0 ? KILL
                                         : (int)strtol(code, NULL, 10);
    rules[rule_count++] = r;
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("OINFER_FILE_FAULT");
    char *copy = text != NULL ? strdup(text) : NULL, *rest = NULL;
    for (char *part = copy != NULL ? strtok_r(copy, ",", &rest) : NULL; part != NULL;
         part = strtok_r(NULL, ",", &rest))
        parse_rule(part);
    free(copy);
}

/* Counts a call on a file; 0, the errno it must fail with, SHORT or KILL. */
static int count(enum call call, const char *path)
{
    int code = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < rule_count && path != NULL; i++) {
        struct rule *r = &rules[i];
        if (r->call != call || strstr(path, r->part) == NULL)
            continue;
        r->count++;
        if (r->sticky ? r->count >= r->number : r->count == r->number)
            code = r->code;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* As count; a process that is to be killed does not come back. */
static int fault(enum call call, const char *path)
{
    int code = count(call, path);
    if (code == KILL)
        raise(SIGKILL);
    return code;
}

static int is_named(const char *path)
{
    for (int i = 0; i < rule_count; i++)
        if (strstr(path, rules[i].part) != NULL)
            return 1;
    return 0;
}

static const char *path_of(int fd)
{
    return fd >= 0 && fd < FILES_MAX ? paths[fd] : NULL;
}

static int remember(int fd, const char *path)
{
    if (fd >= 0 && fd < FILES_MAX && is_named(path)) {
        free(paths[fd]);
        paths[fd] = strdup(path);
    }
    return fd;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int refuse(int code)
{
    errno = code;
    return -1;
}

#define OPEN_CALL(name)                                                     \
    int name(const char *path, int flags, ...)                              \
    {                                                                       \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0; \
        va_end(rest);                                                       \
        int code = fault(OPEN, path);                                       \
        if (code != 0)                                                      \
            return refuse(code);                                            \
        return remember(REAL(name)(path, flags, mode), path);               \
    }
OPEN_CALL(open)
OPEN_CALL(open64)

#define TEMPORARY_CALL(name)                            \
    int name(char *path, int flags)                     \
    {                                                   \
        int code = fault(OPEN, path);                   \
        if (code != 0)                                  \
            return refuse(code);                        \
        return remember(REAL(name)(path, flags), path); \
    }
TEMPORARY_CALL(mkostemp)
TEMPORARY_CALL(mkostemp64)

#define PLAIN_TEMPORARY_CALL(name)                                     \
    int name(char *path)                                               \
    {                                                                  \
        int code = fault(OPEN, path);                                  \
        return code ? refuse(code) : remember(REAL(name)(path), path); \
    }
PLAIN_TEMPORARY_CALL(mkstemp)
PLAIN_TEMPORARY_CALL(mkstemp64)

#define STREAM_CALL(name)                                                     \
    FILE *name(const char *path, const char *mode)                            \
    {                                                                         \
        int code = fault(OPEN, path);                                         \
        if (code != 0) {                                                      \
            errno = code;                                                     \
            return NULL;                                                      \
        }                                                                     \
        /* the memory at address 0 cannot be read: EIO */                     \
        return REAL(name)(fault(READ, path) ? "/proc/self/mem" : path, mode); \
    }
STREAM_CALL(fopen)
STREAM_CALL(fopen64)

#define STAT_CALL(name, type)                             \
    int name(int fd, type *out)                           \
    {                                                     \
        int code = fault(STAT, path_of(fd));              \
        return code ? refuse(code) : REAL(name)(fd, out); \
    }
STAT_CALL(fstat, struct stat)
STAT_CALL(fstat64, struct stat64)

#define MAP_CALL(name, type)                                                       \
    void *name(void *at, size_t n, int protection, int flags, int fd, type offset) \
    {                                                                              \
        int code = fault(MAP, path_of(fd));                                        \
        if (code != 0) {                                                           \
            errno = code;                                                          \
            return MAP_FAILED;                                                     \
        }                                                                          \
        return REAL(name)(at, n, protection, flags, fd, offset);                   \
    }
MAP_CALL(mmap, off_t)
MAP_CALL(mmap64, off64_t)

ssize_t read(int fd, void *data, size_t n)
{
    int code = fault(READ, path_of(fd));
    if (code > 0)
        return refuse(code);
    return REAL(read)(fd, data, code == SHORT && n > 0 ? 1 : n);
}

ssize_t write(int fd, const void *data, size_t n)
{
    int code = count(WRITE, path_of(fd));
    if (code == KILL) {
        REAL(write)(fd, data, n / 2);
        raise(SIGKILL);
    }
    if (code > 0)
        return refuse(code);
    return REAL(write)(fd, data, code == SHORT && n > 0 ? 1 : n);
}

int fsync(int fd)
{
    int code = fault(SYNC, path_of(fd));
    return code != 0 ? refuse(code) : REAL(fsync)(fd);
}

int close(int fd)
{
    int code = fault(CLOSE, path_of(fd));
    if (path_of(fd) != NULL) {
        free(paths[fd]);
        paths[fd] = NULL;
    }
    int closed = REAL(close)(fd);
    return code != 0 ? refuse(code) : closed;
}

int rename(const char *from, const char *to)
{
    int code = fault(RENAME, to);
    return code != 0 ? refuse(code) : REAL(rename)(from, to);
}
