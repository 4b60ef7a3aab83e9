/* Buffers that are longer than 4 GiB and of which only parts exist.
 *
 * On CPU devices and host they are host memory used in place: address space in which `mapped` parts
 * are memory and the rest faults. Other devices allocate all of it. Tests skip, with the reason,
 * where a device or the system refuses.
 */
#ifndef OINFER_TESTS_OPS_FAR_H
#define OINFER_TESTS_OPS_FAR_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/mem.h"
#include "engine/cl/buffer.h"
#include "engine/cl/queue.h"

#define FAR_BYTES ((uint64_t)4 << 30)
#define FAR_FILL  0x5c /* what the near end holds */

/* `end_bytes` at byte 0 and as many at 4 GiB. */
struct far_ends {
    struct buffer *buffer;
    char *memory; /* NULL: the device's own */
    uint64_t end_bytes;
};

static inline bool far_in_place(struct device *d)
{
    return device_is_host(d) || device_info(d)->kind == DEVICE_CPU;
}

/* Address space of n bytes, none of it mapped; NULL with the reason. */
static inline char *far_reserve(uint64_t n, struct err *e)
{
    char *p = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED)
        return p;
    err_set(e, ST_NO_MEMORY, "the system gives no %llu bytes of address space: %s",
            (unsigned long long)n, strerror(errno));
    return NULL;
}

/* Memory for a part of it. */
static inline bool far_map(char *p, uint64_t n, struct err *e)
{
    if (mprotect(p, n, PROT_READ | PROT_WRITE) == 0)
        return true;
    err_set(e, ST_NO_MEMORY, "the system gives no %llu bytes: %s", (unsigned long long)n,
            strerror(errno));
    return false;
}

static inline bool far_ends_open(struct device *d, uint64_t end_bytes, struct far_ends *f,
                                 struct err *e)
{
    const uint64_t n = FAR_BYTES + end_bytes;
    *f = (struct far_ends){.end_bytes = end_bytes};
    if (far_in_place(d)) {
        f->memory = far_reserve(n, e);
        if (!f->memory || !far_map(f->memory, end_bytes, e) ||
            !far_map(f->memory + FAR_BYTES, end_bytes, e) ||
            buffer_wrap_writable(d, f->memory, n, BUFFER_IO, "far", &f->buffer, e) != ST_OK)
            return false;
    } else if (buffer_open(d, n, BUFFER_IO, "far", &f->buffer, e) != ST_OK) {
        return false;
    }
    return queue_fill(d, QUEUE_COMPUTE, f->buffer, 0, end_bytes, FAR_FILL, "far", e) == ST_OK &&
           queue_wait(d, QUEUE_COMPUTE, e) == ST_OK;
}

/* Fails the test if the near end was written. */
static inline void far_ends_untouched(struct device *d, const struct far_ends *f)
{
    unsigned char *got = mem_alloc(f->end_bytes);
    assert_non_null(got);
    assert_int_equal(queue_read(d, QUEUE_COMPUTE, f->buffer, 0, got, f->end_bytes, "far", NULL),
                     ST_OK);
    assert_int_equal(queue_wait(d, QUEUE_COMPUTE, NULL), ST_OK);
    uint64_t n_written = 0;
    for (uint64_t i = 0; i < f->end_bytes; i++)
        n_written += got[i] != FAR_FILL;
    mem_free(got);
    assert_int_equal(n_written, 0);
}

static inline void far_ends_close(struct far_ends *f)
{
    buffer_close(f->buffer);
    if (f->memory)
        munmap(f->memory, FAR_BYTES + f->end_bytes);
    *f = (struct far_ends){0};
}

#endif
