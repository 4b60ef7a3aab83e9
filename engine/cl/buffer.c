/* Buffers: created within the device's limits, counted by usage, freed.
 *
 * Invariant: the account of a device is the sum of its open buffers, wrapped ones left out (their
 * memory is the caller's). Pinned ones have an account of their own: they lie in host memory, and
 * neither the device's size nor the option's limit speaks of that.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/cl/impl.h"

#define HOST_ALIGN_BYTES 128
#define TEXEL_BYTES      (4 * sizeof(float))
/* Smaller buffers on CPU devices are not compared with the memory the machine has left. */
#define CHECK_FREE_BYTES ((uint64_t)16 << 20)
/* Intel needs a flag at creation and a build option for larger ones, else results are wrong. */
#define INTEL_MAX_BYTES (((uint64_t)4 << 30) - 4096)

uint64_t buffer_max_bytes(const struct device *d)
{
    uint64_t max = d->info.max_alloc_bytes;
    if (d->info.kind != DEVICE_CPU && strstr(d->info.vendor, "Intel") != NULL &&
        max > INTEL_MAX_BYTES)
        max = INTEL_MAX_BYTES;
    return max;
}

static uint64_t *usage_bytes(struct device_memory *m, enum buffer_usage usage)
{
    switch (usage) {
    case BUFFER_WEIGHTS: return &m->weights_bytes;
    case BUFFER_KV: return &m->kv_bytes;
    case BUFFER_SCRATCH: return &m->scratch_bytes;
    case BUFFER_STAGING: return &m->staging_bytes;
    case BUFFER_IO: return &m->io_bytes;
    }
    return &m->io_bytes;
}

static void account_add(struct buffer *b)
{
    struct device_memory *m = &b->device->memory;
    *usage_bytes(m, b->usage) += b->n_bytes;
    m->used_bytes += b->usage == BUFFER_STAGING ? 0 : b->n_bytes;
    if (m->used_bytes > m->peak_bytes)
        m->peak_bytes = m->used_bytes;
    b->accounted = true;
}

/* Refuses what cannot fit, with the need, the use and the limit. */
static enum status check_room(struct device *d, uint64_t n_bytes, enum buffer_usage usage,
                              const char *label, struct err *e)
{
    uint64_t max = buffer_max_bytes(d);
    if (n_bytes == 0)
        return err_set(e, ST_INVALID, "%s: buffer %s of 0 bytes", d->info.name, label);
    if (n_bytes > max)
        return err_set(e, ST_NO_DEVICE_MEMORY,
                       "%s: buffer %s needs %llu bytes, one buffer has at most %llu", d->info.name,
                       label, (unsigned long long)n_bytes, (unsigned long long)max);
    const struct device_memory *m = &d->memory;
    if (usage != BUFFER_STAGING &&
        (n_bytes > m->limit_bytes || m->used_bytes > m->limit_bytes - n_bytes))
        return err_set(e, ST_NO_DEVICE_MEMORY,
                       "%s: buffer %s needs %llu bytes, %llu of %llu are in use", d->info.name,
                       label, (unsigned long long)n_bytes, (unsigned long long)m->used_bytes,
                       (unsigned long long)m->limit_bytes);
    if ((d->host || d->info.kind == DEVICE_CPU) && n_bytes >= CHECK_FREE_BYTES) {
        uint64_t left = mem_available_bytes();
        if (left != 0 && n_bytes > left)
            return err_set(
                e, ST_NO_DEVICE_MEMORY, "%s: buffer %s needs %llu bytes, the machine has %llu left",
                d->info.name, label, (unsigned long long)n_bytes, (unsigned long long)left);
    }
    return ST_OK;
}

static struct buffer *make_buffer(struct device *d, uint64_t n_bytes, enum buffer_usage usage,
                                  const char *label)
{
    struct buffer *b = mem_zalloc(sizeof *b);
    if (b == NULL)
        return NULL;
    b->device = d;
    b->n_bytes = n_bytes;
    b->usage = usage;
    snprintf(b->label, sizeof b->label, "%s", label);
    return b;
}

static void CL_CALLBACK free_memory(cl_mem cl, void *memory)
{
    (void)cl;
    mem_free(memory);
}

/* Host memory in huge pages as a CPU device's buffer; NULL: the driver has to allocate. The memory
 * goes when the driver lets go of the buffer, after the last command that uses it. */
static cl_mem create_in_huge_pages(const struct buffer *b)
{
    cl_int code = CL_SUCCESS;
    void *memory = mem_huge((size_t)b->n_bytes);
    if (memory == NULL)
        return NULL;
    cl_mem cl = clCreateBuffer(b->device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                               (size_t)b->n_bytes, memory, &code);
    if (code == CL_SUCCESS &&
        clSetMemObjectDestructorCallback(cl, free_memory, memory) == CL_SUCCESS)
        return cl;
    if (code == CL_SUCCESS)
        clReleaseMemObject(cl);
    mem_free(memory);
    return NULL;
}

static enum status allocate(struct buffer *b, struct err *e)
{
    struct device *d = b->device;
    if (d->host) {
        b->memory = b->n_bytes >= MEM_HUGE_PAGE_BYTES
                        ? mem_huge((size_t)b->n_bytes)
                        : mem_aligned(HOST_ALIGN_BYTES, (size_t)b->n_bytes);
        if (b->memory == NULL)
            return err_set(e, ST_NO_DEVICE_MEMORY,
                           "host: buffer %s needs %llu bytes: out of memory", b->label,
                           (unsigned long long)b->n_bytes);
        b->owned = true;
        return ST_OK;
    }
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    if (b->usage == BUFFER_STAGING)
        flags |= CL_MEM_ALLOC_HOST_PTR;
    cl_int code = CL_SUCCESS;
    if (d->info.kind == DEVICE_CPU && b->n_bytes >= MEM_HUGE_PAGE_BYTES)
        b->cl = create_in_huge_pages(b);
    if (b->cl != NULL)
        return ST_OK;
    b->cl = clCreateBuffer(d->context, flags, (size_t)b->n_bytes, NULL, &code);
    enum status status = cl_check(d, code, "clCreateBuffer", b->label, e);
    if (status == ST_NO_DEVICE_MEMORY)
        err_set(e, status, "%s: buffer %s needs %llu bytes, %llu of %llu are in use: %s (%d)",
                d->info.name, b->label, (unsigned long long)b->n_bytes,
                (unsigned long long)d->memory.used_bytes, (unsigned long long)d->memory.limit_bytes,
                cl_error_name(code), code);
    return status;
}

enum status buffer_open(struct device *d, uint64_t n_bytes, enum buffer_usage usage,
                        const char *label, struct buffer **out, struct err *e)
{
    *out = NULL;
    enum status status = device__usable(d, e);
    if (status == ST_OK)
        status = check_room(d, n_bytes, usage, label, e);
    if (status != ST_OK)
        return status;
    struct buffer *b = make_buffer(d, n_bytes, usage, label);
    if (b == NULL)
        return err_set(e, ST_NO_MEMORY, "buffer %s: out of memory", label);
    status = allocate(b, e);
    if (status != ST_OK) {
        mem_free(b);
        return status;
    }
    account_add(b);
    *out = b;
    return ST_OK;
}

static enum status check_image(const struct device *d, struct image_size size, const char *label,
                               struct err *e)
{
    const uint64_t limit[] = {cl_device_number(d->id, CL_DEVICE_IMAGE2D_MAX_WIDTH, 0),
                              cl_device_number(d->id, CL_DEVICE_IMAGE2D_MAX_HEIGHT, 0),
                              cl_device_number(d->id, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, 0)};
    if (size.width > limit[0] || size.height > limit[1] || size.layers > limit[2])
        return err_set(e, ST_UNSUPPORTED,
                       "%s: image %s of %u x %u x %u, the device has at most %llu x %llu x %llu",
                       d->info.name, label, size.width, size.height, size.layers,
                       (unsigned long long)limit[0], (unsigned long long)limit[1],
                       (unsigned long long)limit[2]);
    return ST_OK;
}

enum status buffer_open_image(struct device *d, struct image_size size, const char *label,
                              struct buffer **out, struct err *e)
{
    const uint64_t n_bytes = (uint64_t)size.width * size.height * size.layers * TEXEL_BYTES;
    *out = NULL;
    enum status status = device__usable(d, e);
    if (status == ST_OK && (d->host || (d->caps & CAP_IMAGES) == 0))
        status = err_set(e, ST_UNSUPPORTED, "%s: image %s: the device has no images", d->info.name,
                         label);
    if (status == ST_OK)
        status = check_image(d, size, label, e);
    if (status == ST_OK)
        status = check_room(d, n_bytes, BUFFER_SCRATCH, label, e);
    if (status != ST_OK)
        return status;
    struct buffer *b = make_buffer(d, n_bytes, BUFFER_SCRATCH, label);
    if (b == NULL)
        return err_set(e, ST_NO_MEMORY, "image %s: out of memory", label);
    const cl_image_format format = {CL_RGBA, CL_FLOAT};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY,
                                .image_width = size.width,
                                .image_height = size.height,
                                .image_array_size = size.layers};
    cl_int code = CL_SUCCESS;
    b->cl = clCreateImage(d->context, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
    status = cl_check(d, code, "clCreateImage", label, e);
    if (status != ST_OK) {
        mem_free(b);
        return status;
    }
    account_add(b);
    *out = b;
    return ST_OK;
}

static enum status wrap(struct device *d, void *memory, bool read_only, uint64_t n_bytes,
                        enum buffer_usage usage, const char *label, struct buffer **out,
                        struct err *e)
{
    *out = NULL;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (!d->host && d->info.kind != DEVICE_CPU)
        return err_set(e, ST_UNSUPPORTED,
                       "%s: buffer %s: only CPU devices use host memory in place", d->info.name,
                       label);
    if ((uintptr_t)memory % page != 0)
        return err_set(e, ST_INVALID, "buffer %s: memory is not aligned to %llu bytes", label,
                       (unsigned long long)page);
    if (n_bytes == 0 || n_bytes > buffer_max_bytes(d))
        return err_set(e, ST_INVALID, "%s: buffer %s of %llu bytes, allowed are 1 to %llu",
                       d->info.name, label, (unsigned long long)n_bytes,
                       (unsigned long long)buffer_max_bytes(d));
    enum status status = device__usable(d, e);
    if (status != ST_OK)
        return status;
    struct buffer *b = make_buffer(d, n_bytes, usage, label);
    if (b == NULL)
        return err_set(e, ST_NO_MEMORY, "buffer %s: out of memory", label);
    b->memory = memory;
    b->read_only = read_only;
    if (!d->host) {
        const cl_mem_flags flags = read_only ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE;
        cl_int code = CL_SUCCESS;
        b->cl = clCreateBuffer(d->context, flags | CL_MEM_USE_HOST_PTR, (size_t)n_bytes, b->memory,
                               &code);
        status = cl_check(d, code, "clCreateBuffer", label, e);
    }
    if (status != ST_OK) {
        mem_free(b);
        return status;
    }
    *out = b;
    return ST_OK;
}

enum status buffer_wrap(struct device *d, const void *memory, uint64_t n_bytes,
                        enum buffer_usage usage, const char *label, struct buffer **out,
                        struct err *e)
{
    /* never written: the buffer is read-only */
    return wrap(d, (void *)(uintptr_t)memory, true, n_bytes, usage, label, out, e);
}

enum status buffer_wrap_writable(struct device *d, void *memory, uint64_t n_bytes,
                                 enum buffer_usage usage, const char *label, struct buffer **out,
                                 struct err *e)
{
    return wrap(d, memory, false, n_bytes, usage, label, out, e);
}

enum status buffer_open_pinned(struct device *d, uint64_t n_bytes, const char *label,
                               struct buffer **out, void **memory, struct err *e)
{
    const bool plain = d->host || d->info.kind == DEVICE_CPU;
    struct buffer *b = NULL;
    enum status status = ST_OK;
    *out = NULL;
    if (plain)
        b = make_buffer(d, n_bytes, BUFFER_STAGING, label);
    else
        status = buffer_open(d, n_bytes, BUFFER_STAGING, label, &b, e);
    if (plain && b != NULL) {
        b->memory = mem_aligned(HOST_ALIGN_BYTES, (size_t)n_bytes);
        b->owned = b->memory != NULL;
    }
    if (plain && (b == NULL || b->memory == NULL))
        status = err_set(e, ST_NO_MEMORY, "%s: %llu bytes", label, (unsigned long long)n_bytes);
    if (!plain && status == ST_OK) {
        cl_int code = CL_SUCCESS;
        b->memory = clEnqueueMapBuffer(d->queues[QUEUE_TRANSFER].cl, b->cl, CL_TRUE,
                                       CL_MAP_READ | CL_MAP_WRITE, 0, (size_t)n_bytes, 0, NULL,
                                       NULL, &code);
        status = cl_check(d, code, "clEnqueueMapBuffer", label, e);
        b->mapped = status == ST_OK;
    }
    if (status != ST_OK) {
        buffer_close(b);
        return status;
    }
    *out = b;
    *memory = b->memory;
    return ST_OK;
}

void buffer_close(struct buffer *b)
{
    if (b == NULL)
        return;
    cl_command_queue queue = b->device->queues[QUEUE_TRANSFER].cl;
    if (b->mapped && queue != NULL &&
        clEnqueueUnmapMemObject(queue, b->cl, b->memory, 0, NULL, NULL) == CL_SUCCESS)
        clFlush(queue);
    if (b->cl != NULL)
        clReleaseMemObject(b->cl);
    if (b->owned)
        mem_free(b->memory);
    if (b->accounted) {
        struct device_memory *m = &b->device->memory;
        *usage_bytes(m, b->usage) -= b->n_bytes;
        m->used_bytes -= b->usage == BUFFER_STAGING ? 0 : b->n_bytes;
    }
    mem_free(b);
}

uint64_t buffer_bytes(const struct buffer *b)
{
    return b->n_bytes;
}

void *buffer_host(const struct buffer *b)
{
    return b->memory;
}

enum status buffer__check_read(const struct buffer *b, uint64_t offset, uint64_t n, struct err *e)
{
    if (offset > b->n_bytes || n > b->n_bytes - offset)
        return err_set(e, ST_INVALID, "buffer %s: bytes %llu + %llu of %llu", b->label,
                       (unsigned long long)offset, (unsigned long long)n,
                       (unsigned long long)b->n_bytes);
    return ST_OK;
}

enum status buffer__check_write(const struct buffer *b, uint64_t offset, uint64_t n, struct err *e)
{
    if (b->read_only)
        return err_set(e, ST_INVALID, "buffer %s is read-only", b->label);
    return buffer__check_read(b, offset, n, e);
}
