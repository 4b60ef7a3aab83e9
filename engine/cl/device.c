/* An open device: context, queue pair, caps and account; and its end. */
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/cl/caps.h"
#include "engine/cl/impl.h"
#include "engine/cl/list.h"
#include "engine/cl/trial_impl.h"

/* How long closing may go on writing binaries; what is left is built again another time. */
#define CLOSE_SAVE_NS 2000000000u

/* PoCL compiles a kernel for grids of up to 65,535 items, and again at the first larger one. */
#define POCL_GRID_ITEMS 65535u
#define GROUPS_PER_UNIT 8 /* with as many, no unit waits long for the others at the end */

enum status device__usable(const struct device *d, struct err *e)
{
    if (d->lost)
        return err_set(e, ST_DEVICE_LOST, "%s: the device was lost", d->info.name);
    return ST_OK;
}

/* What the account may reach. A CPU's driver takes the memory of the machine, and what it says
 * about its size is no more than advice; so there the machine is asked. */
static uint64_t memory_limit(const struct device *d, uint64_t wanted)
{
    uint64_t have = d->info.global_bytes;
    uint64_t free_bytes = mem_available_bytes();
    if ((d->info.kind == DEVICE_CPU || d->host) && free_bytes > 0)
        have = free_bytes;
    return wanted > 0 && wanted < have ? wanted : have;
}

static enum status copy_path(const char *path, char **out, struct err *e)
{
    if (path == NULL)
        return ST_OK;
    *out = mem_strdup(path);
    return *out != NULL ? ST_OK : err_set(e, ST_NO_MEMORY, "device: out of memory");
}

static enum status open_context(struct device *d, struct err *e)
{
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)d->platform,
                                          0};
    cl_int code = CL_SUCCESS;
    d->context = clCreateContext(properties, 1, &d->id, NULL, NULL, &code);
    enum status status = cl_check(d, code, "clCreateContext", "", e);
    if (status == ST_OK)
        status = queue__open_pair(d, e);
    return status;
}

enum status device__open_bare(const struct device_list *l, uint32_t index,
                              const struct device_options *options, struct device **out,
                              struct err *e)
{
    *out = NULL;
    const struct device_info *info = device_list_at(l, index);
    if (info == NULL)
        return err_set(e, ST_INVALID, "device %u: there are %u", index, device_list_count(l));
    if (!info->available)
        return err_set(e, ST_UNSUPPORTED, "device %s: %s", info->name, info->note);
    struct device *d = mem_zalloc(sizeof *d);
    if (d == NULL)
        return err_set(e, ST_NO_MEMORY, "device %s: out of memory", info->name);
    d->info = *info;
    d->host = info->kind == DEVICE_HOST;
    d->prof.on = options->profiling;
    d->memory.limit_bytes = memory_limit(d, options->memory_limit_bytes);
    list__ids(l, index, &d->platform, &d->id);
    if (!d->host)
        cl_driver_stamp(d->platform, d->driver_stamp, sizeof d->driver_stamp);
    enum status status = copy_path(options->cache_dir, &d->cache_dir, e);
    if (status == ST_OK)
        status = copy_path(options->kernel_dir, &d->kernel_dir, e);
    if (status == ST_OK)
        status = copy_path(options->trial_command, &d->trial_command, e);
    if (status == ST_OK && !d->host)
        status = open_context(d, e);
    if (status != ST_OK) {
        device_close(d);
        return status;
    }
    *out = d;
    return ST_OK;
}

enum status device_open(const struct device_list *l, uint32_t index,
                        const struct device_options *options, struct device **out, struct err *e)
{
    enum status status = device__open_bare(l, index, options, out, e);
    if (status != ST_OK || (*out)->host)
        return status;
    status = caps__find(*out, e);
    if (status != ST_OK) {
        device_close(*out);
        *out = NULL;
    }
    return status;
}

void device_close(struct device *d)
{
    if (d == NULL)
        return;
    if (d->kept != NULL)
        d->close_kept(d->kept);
    if (!d->host && d->context != NULL) {
        for (int q = 0; q < QUEUE_COUNT; q++)
            if (d->queues[q].cl != NULL)
                queue_wait(d, (enum queue_id)q, NULL); /* lost or not: everything goes now */
        prof__discard(d);
        kernel_close(d->fill_kernel);
        const uint64_t end_ns = clock_now_ns() + CLOSE_SAVE_NS;
        while (kernel_save_next(d) && clock_now_ns() < end_ns)
            continue;
        staging_release(d);
        program__close_all(d);
        queue__close_pair(d);
        clReleaseContext(d->context);
    }
    mem_free(d->cache_dir);
    mem_free(d->kernel_dir);
    mem_free(d->trial_command);
    mem_free(d);
}

const struct device_info *device_info(const struct device *d)
{
    return &d->info;
}

uint32_t device_caps(const struct device *d)
{
    return d->caps;
}

bool device_is_host(const struct device *d)
{
    return d->host;
}

bool device_is_lost(const struct device *d)
{
    return d->lost;
}

const char *device_cache_dir(const struct device *d)
{
    return d->cache_dir;
}

const char *device_trial_command(const struct device *d)
{
    return trial__wanted(d) ? d->trial_command : NULL;
}

bool device__is_pocl(const struct device *d)
{
    return strcmp(d->info.platform, "Portable Computing Language") == 0;
}

uint64_t device_grid_groups(const struct device *d, size_t lws)
{
    const uint64_t groups = POCL_GRID_ITEMS / lws;
    const uint64_t busy = (uint64_t)GROUPS_PER_UNIT * d->info.compute_units;
    return device__is_pocl(d) && groups >= busy ? groups : UINT64_MAX;
}

struct cache_key device_cache_key(const struct device *d, const char *text)
{
    return device__key(d, text, strlen(text), "");
}

const char *device_kernel_dir(const struct device *d)
{
    return d->kernel_dir;
}

void device_keep(struct device *d, void *thing, void (*close)(void *thing))
{
    ASSERT(d->kept == NULL);
    d->kept = thing;
    d->close_kept = close;
}

void *device_kept(const struct device *d)
{
    return d->kept;
}

uint8_t *device_marks(struct device *d)
{
    return d->marks;
}

struct device_memory device_memory(const struct device *d)
{
    return d->memory;
}
