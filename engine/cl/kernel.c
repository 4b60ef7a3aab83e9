/* Kernel objects: opened on a shared program, arguments set, launched with checked sizes. */
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/cl/program.h"
#include "engine/cl/source.h"

struct kernel {
    struct device *device;
    struct program *program;
    cl_kernel cl;
    uint32_t max_work_group, preferred_multiple;
    char entry[64];
};

static uint32_t work_group_number(const struct kernel *k, cl_kernel_work_group_info what,
                                  uint32_t otherwise)
{
    size_t value = 0;
    if (clGetKernelWorkGroupInfo(k->cl, k->device->id, what, sizeof value, &value, NULL) !=
            CL_SUCCESS ||
        value == 0)
        return otherwise;
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static enum status create(struct kernel *k, const char *name, const char *defines, struct err *e)
{
    struct device *d = k->device;
    cl_int code = CL_SUCCESS;
    k->cl = clCreateKernel(k->program->cl, k->entry, &code);
    enum status status = cl_check(d, code, "clCreateKernel", k->entry, e);
    if (status == ST_BUILD)
        return err_set(e, ST_BUILD, "%s: %s has no kernel %s with \"%s\": %s (%d)", d->info.name,
                       name, k->entry, defines, cl_error_name(code), code);
    if (status != ST_OK)
        return status;
    k->max_work_group = work_group_number(k, CL_KERNEL_WORK_GROUP_SIZE, d->info.max_work_group);
    k->preferred_multiple = work_group_number(k, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, 1);
    program__created(d, k->program);
    return ST_OK;
}

static enum status open_assembled(struct device *d, const struct program_source *source,
                                  const char *entry, struct kernel **out, struct err *e)
{
    struct kernel *k = mem_zalloc(sizeof *k);
    if (k == NULL)
        return err_set(e, ST_NO_MEMORY, "kernel %s: out of memory", entry);
    k->device = d;
    snprintf(k->entry, sizeof k->entry, "%s", entry);
    enum status status = program__take(d, source, &k->program, e);
    if (status == ST_OK)
        status = create(k, source->name, source->defines, e);
    if (status != ST_OK) {
        kernel_close(k);
        return status;
    }
    *out = k;
    return ST_OK;
}

/* text NULL: the file `name`; otherwise made at run time, which is risky. */
static enum status open_any(struct device *d, const char *name, const char *text,
                            const char *defines, const char *entry, struct kernel **out,
                            struct err *e)
{
    *out = NULL;
    if (d->host)
        return err_set(e, ST_UNSUPPORTED, "host: has no kernels (%s, %s)", name, entry);
    enum status status = device__usable(d, e);
    if (status != ST_OK)
        return status;
    struct strbuf assembled;
    strbuf_init(&assembled, SOURCE_MAX_BYTES);
    status = text == NULL ? source_file(d->kernel_dir, name, &assembled, e)
                          : source_text(d->kernel_dir, name, text, &assembled, e);
    if (status == ST_OK) {
        struct program_source source = {.name = name,
                                        .text = strbuf_text(&assembled),
                                        .length = assembled.length,
                                        .defines = defines,
                                        .risky = text != NULL};
        status = open_assembled(d, &source, entry, out, e);
    }
    strbuf_free(&assembled);
    return status;
}

enum status kernel_open(struct device *d, const char *file, const char *defines, const char *entry,
                        struct kernel **out, struct err *e)
{
    return open_any(d, file, NULL, defines, entry, out, e);
}

enum status kernel_open_source(struct device *d, const char *name, const char *source,
                               const char *defines, const char *entry, struct kernel **out,
                               struct err *e)
{
    return open_any(d, name, source, defines, entry, out, e);
}

void kernel_close(struct kernel *k)
{
    if (k == NULL)
        return;
    if (k->cl != NULL)
        clReleaseKernel(k->cl);
    if (k->program != NULL)
        program__release(k->device, k->program);
    mem_free(k);
}

static enum status set_arg(struct kernel *k, uint32_t index, size_t n, const void *value,
                           struct err *e)
{
    cl_int code = clSetKernelArg(k->cl, index, n, value);
    if (code == CL_SUCCESS)
        return ST_OK;
    char thing[96];
    snprintf(thing, sizeof thing, "%s argument %u, %zu bytes", k->entry, index, n);
    return cl_check(k->device, code, "clSetKernelArg", thing, e);
}

enum status kernel_set_buffer(struct kernel *k, uint32_t index, struct buffer *b, struct err *e)
{
    return set_arg(k, index, sizeof b->cl, &b->cl, e);
}

enum status kernel_set_bytes(struct kernel *k, uint32_t index, const void *value, size_t n,
                             struct err *e)
{
    return set_arg(k, index, n, value, e);
}

enum status kernel_set_local(struct kernel *k, uint32_t index, size_t n, struct err *e)
{
    return set_arg(k, index, n, NULL, e);
}

uint32_t kernel_max_work_group(const struct kernel *k)
{
    return k->max_work_group;
}

void kernel_expect_work_group(struct kernel *k, uint32_t n)
{
    if (n > k->max_work_group && n <= k->device->info.max_work_group)
        k->max_work_group = n;
}

uint64_t kernel_local_bytes(const struct kernel *k)
{
    cl_ulong value = 0;
    if (clGetKernelWorkGroupInfo(k->cl, k->device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof value,
                                 &value, NULL) != CL_SUCCESS)
        return 0;
    return value;
}

uint32_t kernel_preferred_multiple(const struct kernel *k)
{
    return k->preferred_multiple;
}

/* Sizes that the driver would refuse, or worse, with the value and the limit. */
static enum status check_sizes(const struct kernel *k, const size_t gws[3], const size_t lws[3],
                               struct err *e)
{
    uint64_t group = 1;
    for (int i = 0; i < 3; i++) {
        if (gws[i] == 0 || (lws[i] != 0 && gws[i] % lws[i] != 0))
            return err_set(e, ST_INVALID,
                           "kernel %s: global size %zu, local size %zu in dimension %d", k->entry,
                           gws[i], lws[i], i);
        group *= lws[i];
    }
    if (group > k->max_work_group)
        return err_set(e, ST_INVALID, "kernel %s: work-group of %llu items, %s allows %u", k->entry,
                       (unsigned long long)group, k->device->info.name, k->max_work_group);
    return ST_OK;
}

enum status kernel__launch_on(struct kernel *k, enum queue_id q, const size_t gws[3],
                              const size_t lws[3], const char *name, const char *variant,
                              uint64_t bytes, uint64_t flops, struct err *e)
{
    struct device *d = k->device;
    cl_event *event;
    enum status status = device__usable(d, e);
    if (status == ST_OK)
        status = check_sizes(k, gws, lws, e);
    if (status == ST_OK)
        status = prof__slot(d, &event, e);
    if (status != ST_OK)
        return status;
    bool chosen = lws[0] != 0 || lws[1] != 0 || lws[2] != 0;
    cl_int code = clEnqueueNDRangeKernel(d->queues[q].cl, k->cl, 3, NULL, gws, chosen ? lws : NULL,
                                         0, NULL, event);
    if (code != CL_SUCCESS)
        return cl_check(d, code, "clEnqueueNDRangeKernel", k->entry, e);
    d->queues[q].enqueued++;
    prof__commit(d, &(struct prof_slot){.queue = q,
                                        .launch = true,
                                        .name = name,
                                        .variant = variant,
                                        .bytes = bytes,
                                        .flops = flops});
    return ST_OK;
}

enum status kernel_launch(struct kernel *k, const size_t gws[3], const size_t lws[3],
                          const char *name, const char *variant, uint64_t bytes, uint64_t flops,
                          struct err *e)
{
    return kernel__launch_on(k, QUEUE_COMPUTE, gws, lws, name, variant, bytes, flops, e);
}

void kernel_set_risky(struct device *d, bool risky)
{
    d->risky = risky;
}

struct kernel_stats kernel_stats(const struct device *d)
{
    return d->kernel_stats;
}
