/* Read bandwidth of the memory: N threads sum a private 256 MiB each, in huge pages where there are
 * any, over and over for half a second; prints GB/s. The limit that decoding is measured against.
 * Built by vs_llama_cpp.py: cc -O3 -march=native -pthread. */
#define _DEFAULT_SOURCE /* madvise */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES       ((size_t)256 << 20)
#define HUGE_PAGE   ((size_t)2 << 20)
#define MAX_THREADS 64
#define RUN_NS      500000000u

struct reader {
    pthread_t thread;
    const uint64_t *words;
    uint64_t sum, bytes;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *read_memory(void *argument)
{
    struct reader *r = argument;
    uint64_t start = now_ns();
    do {
        uint64_t sums[8] = {0};
        for (size_t i = 0; i < BYTES / sizeof *r->words; i += 8)
            for (size_t j = 0; j < 8; j++)
                sums[j] += r->words[i + j];
        for (size_t j = 0; j < 8; j++)
            r->sum += sums[j];
        r->bytes += BYTES;
    } while (now_ns() - start < RUN_NS);
    return NULL;
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    if (n < 1 || n > MAX_THREADS) {
        fprintf(stderr, "threads: 1 to %d\n", MAX_THREADS);
        return 1;
    }
    struct reader readers[MAX_THREADS];
    memset(readers, 0, sizeof readers);
    for (long i = 0; i < n; i++) {
        void *words = aligned_alloc(HUGE_PAGE, BYTES);
        if (words == NULL)
            return 1;
        (void)madvise(words, BYTES, MADV_HUGEPAGE);
        memset(words, 1, BYTES);
        readers[i].words = words;
    }
    uint64_t start = now_ns(), bytes = 0, sum = 0;
    for (long i = 0; i < n; i++)
        if (pthread_create(&readers[i].thread, NULL, read_memory, &readers[i]) != 0)
            return 1;
    for (long i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
        bytes += readers[i].bytes;
        sum += readers[i].sum;
    }
    printf("%.1f %s\n", (double)bytes / (double)(now_ns() - start), sum == 0 ? "zero" : "");
    return 0;
}
