/* Host memory: checked allocation, an arena, and the switch by which tests fail allocation n.
 *
 * All of our own C code allocates here (libraries use malloc). A failure returns NULL, never
 * aborts. Thread-safe, except that one arena belongs to one thread at a time.
 */
#ifndef OINFER_BASE_MEM_H
#define OINFER_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* malloc / calloc(1, n) / realloc / free; NULL when out of memory. n = 0 gives a unique pointer. */
void *mem_alloc(size_t n);
void *mem_zalloc(size_t n);
void *mem_realloc(void *p, size_t n);
void mem_free(void *p);
/* Zeroed array of count x size bytes; NULL when the product overflows or memory is short. */
void *mem_array(size_t count, size_t size);
/* realloc to count x size bytes with the same overflow check. On NULL the old block stays. */
void *mem_array_resize(void *p, size_t count, size_t size);
char *mem_strdup(const char *text);
/* Copy of n bytes with a terminating NUL. */
char *mem_strndup(const char *text, size_t n);
/* Aligned block (alignment: power of two, at least sizeof(void *)); free with mem_free. */
void *mem_aligned(size_t alignment, size_t n);
#define MEM_HUGE_PAGE_BYTES ((size_t)2 << 20)
/* The same for blocks of at least that size, in huge pages where the system grants them: reading
 * such a block costs a fraction of the address translations. Free with mem_free. */
void *mem_huge(size_t n);

/* For tests: allocation number n from now (1 = the next) and, with `sticky`, all after it fail.
 * 0 turns it off. Returns how many allocations were made since the last call. Process-wide. */
uint64_t mem_fail_at(uint64_t n, int sticky);

/* Memory available to this process: MemAvailable, bounded by its cgroup's limit; bytes; 0 unknown.
 */
uint64_t mem_available_bytes(void);
/* Resident set of this process now, and its peak; bytes; 0 unknown. */
uint64_t mem_resident_bytes(void);
uint64_t mem_peak_resident_bytes(void);

/* A bump allocator for things that die together. Blocks are zeroed and 16-byte aligned. */
struct arena;
/* ceiling_bytes: the most it will hand out in all. NULL when out of memory. */
struct arena *arena_open(size_t ceiling_bytes);
void arena_close(struct arena *a); /* accepts NULL */
void *arena_alloc(struct arena *a, size_t n);
void *arena_array(struct arena *a, size_t count, size_t size);
char *arena_strndup(struct arena *a, const char *text, size_t n);
size_t arena_used_bytes(const struct arena *a);

#endif
