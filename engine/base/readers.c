/* Pieces wait in a ring; threads take slices of the oldest one that has any left. */
#include "engine/base/readers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"

#define SLICE_BYTES  ((size_t)256 << 10)
#define THREADS_MANY 4 /* do without the caller, who then is back as soon as a piece is there */
#define END_OF_FILE  (-1)

struct piece {
    struct readers_source from;
    uint64_t offset;
    char *dst;
    size_t n, taken, done; /* bytes */
    uint64_t failed_at;
    int error; /* errno, END_OF_FILE, or 0; of the first slice that failed */
};

struct readers {
    pthread_mutex_t lock; /* of all that follows but `threads` */
    pthread_cond_t begun, done;
    struct piece pieces[READERS_PENDING];
    uint64_t first, next; /* numbers of the oldest piece and of the next one */
    bool closing;
    uint32_t n_threads;
    pthread_t *threads;
};

/* A piece that has slices left, or NULL. */
static struct piece *find_work(struct readers *r)
{
    for (uint64_t i = r->first; i < r->next; i++) {
        struct piece *p = &r->pieces[i % READERS_PENDING];
        if (p->taken < p->n)
            return p;
    }
    return NULL;
}

/* 0, errno or END_OF_FILE; *got bytes were read. */
static int read_fully(int fd, uint64_t offset, char *dst, size_t n, size_t *got)
{
    for (*got = 0; *got < n;) {
        const ssize_t count = pread(fd, dst + *got, n - *got, (off_t)(offset + *got));
        if (count == 0)
            return END_OF_FILE;
        if (count < 0 && errno != EINTR)
            return errno;
        *got += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

static int read_source(const struct readers_source *from, uint64_t offset, char *dst, size_t n,
                       size_t *got)
{
    if (from->memory == NULL)
        return read_fully(from->fd, offset, dst, n, got);
    memcpy(dst, (const char *)from->memory + offset, n);
    *got = n;
    return 0;
}

/* Reads a slice of p; called, and returns, with the lock held. */
static void read_slice(struct readers *r, struct piece *p)
{
    const size_t at = p->taken, n = p->n - at < SLICE_BYTES ? p->n - at : SLICE_BYTES;
    size_t got = 0;
    p->taken += n;
    pthread_mutex_unlock(&r->lock);
    const int error = read_source(&p->from, p->offset + at, p->dst + at, n, &got);
    pthread_mutex_lock(&r->lock);
    if (error != 0 && (p->error == 0 || p->offset + at + got < p->failed_at)) {
        p->error = error;
        p->failed_at = p->offset + at + got;
    }
    p->done += n;
    if (p->done == p->n)
        pthread_cond_signal(&r->done);
}

static void *run(void *user)
{
    struct readers *r = user;
    pthread_mutex_lock(&r->lock);
    while (!r->closing) {
        struct piece *p = find_work(r);
        if (p != NULL)
            read_slice(r, p);
        else
            pthread_cond_wait(&r->begun, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void start_threads(struct readers *r, uint32_t n)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return;
    while (r->n_threads < n && pthread_create(&r->threads[r->n_threads], NULL, run, r) == 0)
        r->n_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

enum status readers_open(uint32_t n_threads, struct readers **out, struct err *e)
{
    struct readers *r = mem_zalloc(sizeof *r);
    if (r != NULL)
        r->threads = mem_array(n_threads > 0 ? n_threads : 1, sizeof *r->threads);
    if (r == NULL || r->threads == NULL) {
        mem_free(r);
        return err_set(e, ST_NO_MEMORY, "no memory for %u threads that read", n_threads);
    }
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->begun, NULL);
    pthread_cond_init(&r->done, NULL);
    start_threads(r, n_threads);
    *out = r;
    return ST_OK;
}

void readers_close(struct readers *r)
{
    if (r == NULL)
        return;
    while (r->first < r->next)
        (void)readers_wait(r, NULL);
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->begun);
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->n_threads; i++)
        pthread_join(r->threads[i], NULL);
    pthread_cond_destroy(&r->done);
    pthread_cond_destroy(&r->begun);
    pthread_mutex_destroy(&r->lock);
    mem_free(r->threads);
    mem_free(r);
}

void readers_begin(struct readers *r, struct readers_source from, uint64_t offset, void *dst,
                   size_t n)
{
    pthread_mutex_lock(&r->lock);
    ASSERT(r->next - r->first < READERS_PENDING);
    r->pieces[r->next++ % READERS_PENDING] =
        (struct piece){.from = from, .offset = offset, .dst = dst, .n = n};
    pthread_cond_broadcast(&r->begun);
    pthread_mutex_unlock(&r->lock);
}

enum status readers_wait(struct readers *r, struct err *e)
{
    pthread_mutex_lock(&r->lock);
    ASSERT(r->first < r->next);
    struct piece *oldest = &r->pieces[r->first % READERS_PENDING];
    while (oldest->done < oldest->n) {
        struct piece *p = r->n_threads < THREADS_MANY ? find_work(r) : NULL;
        if (p != NULL)
            read_slice(r, p);
        else
            pthread_cond_wait(&r->done, &r->lock);
    }
    const struct piece got = *oldest;
    r->first++;
    pthread_mutex_unlock(&r->lock);
    if (got.error == 0)
        return ST_OK;
    return err_set(e, ST_IO, "cannot read %zu bytes from byte %llu on: %s at byte %llu", got.n,
                   (unsigned long long)got.offset,
                   got.error == END_OF_FILE ? "the file ends" : strerror(got.error),
                   (unsigned long long)got.failed_at);
}
