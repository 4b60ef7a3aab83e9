/* Mappings and the handler of SIGBUS. The handler calls mmap and sigaction and reads atomics. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, syscall */
#include "engine/base/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/mem.h"

#define GUARDED_MAX 4096 /* mappings beyond that are not guarded */

struct mapping {
    unsigned char *bytes;
    size_t n;
    int fd; /* a copy of ours */
    atomic_bool damaged;
};

static _Atomic(struct mapping *) guarded[GUARDED_MAX];
static atomic_size_t n_guarded; /* places of `guarded` that were ever in use */
static struct sigaction previous;
static uintptr_t page_bytes;

/* The mapping that an address lies in, or NULL. */
static struct mapping *find(uintptr_t address)
{
    size_t n = atomic_load(&n_guarded);
    for (size_t i = 0; i < n; i++) {
        struct mapping *m = atomic_load(&guarded[i]);
        if (m != NULL && address - (uintptr_t)m->bytes < m->n)
            return m;
    }
    return NULL;
}

/* Zeros in place of the n bytes from address on. The system call itself: it may be made in a
 * handler, and no tool takes it for a write that races with readers: they meet a fault or zeros, by
 * the kernel's own lock. */
static bool put_zeros(uintptr_t address, size_t n)
{
#ifdef SYS_mmap2
    const long number = SYS_mmap2;
#else
    const long number = SYS_mmap;
#endif
    return syscall(number, address, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0L) != -1;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    const int error = errno;
    const uintptr_t address = (uintptr_t)info->si_addr & ~(page_bytes - 1);
    struct mapping *m = find((uintptr_t)info->si_addr);
    bool replaced = false;
    if (m != NULL) {
        atomic_store(&m->damaged, true);
        replaced = put_zeros(address, m->n - (address - (uintptr_t)m->bytes));
    }
    if (!replaced)
        sigaction(SIGBUS, &previous, NULL); /* the access is made again, and meets it */
    errno = error;
}

/* Again with every mapping and check: a compiler in a driver (LLVM) puts handlers of its own there
 * when it is used first, and its one for SIGBUS takes away all others, also the one for SIGTERM. */
static void install(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction now;
    pthread_mutex_lock(&lock);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != on_bus_error) {
        previous = now;
        sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&lock);
}

static void guard(struct mapping *m)
{
    install();
    for (size_t i = 0; i < GUARDED_MAX; i++) {
        struct mapping *none = NULL;
        size_t n = atomic_load(&n_guarded);
        if (!atomic_compare_exchange_strong(&guarded[i], &none, m))
            continue;
        while (n < i + 1 && !atomic_compare_exchange_weak(&n_guarded, &n, i + 1))
            continue;
        return;
    }
}

static void unguard(const struct mapping *m)
{
    for (size_t i = 0; i < GUARDED_MAX; i++)
        if (atomic_load(&guarded[i]) == m)
            atomic_store(&guarded[i], NULL);
}

enum status mapping_open(int fd, size_t n, struct mapping **out, struct err *e)
{
    struct mapping *m = mem_zalloc(sizeof *m);
    if (m == NULL)
        return err_set(e, ST_NO_MEMORY, "cannot map %zu bytes: no memory", n);
    m->n = n;
    m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    void *bytes = m->fd < 0 ? MAP_FAILED : mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        const int error = errno;
        if (m->fd >= 0)
            close(m->fd);
        mem_free(m);
        return err_set(e, error == ENOMEM ? ST_NO_MEMORY : ST_IO, "cannot map %zu bytes: %s", n,
                       strerror(error));
    }
    m->bytes = bytes;
    guard(m);
    *out = m;
    return ST_OK;
}

void mapping_close(struct mapping *m)
{
    if (m == NULL)
        return;
    unguard(m);
    munmap(m->bytes, m->n);
    close(m->fd);
    mem_free(m);
}

const void *mapping_bytes(const struct mapping *m)
{
    return m->bytes;
}

int mapping_fd(const struct mapping *m)
{
    return m->fd;
}

enum status mapping_check(const struct mapping *m, struct err *e)
{
    struct stat info;
    install();
    if (fstat(m->fd, &info) == 0 && (uint64_t)info.st_size < m->n)
        return err_set(e, ST_IO, "the file was cut to %lld bytes, it had %zu when it was opened",
                       (long long)info.st_size, m->n);
    if (atomic_load(&m->damaged))
        return err_set(e, ST_IO, "a part of the file could not be read");
    return ST_OK;
}
