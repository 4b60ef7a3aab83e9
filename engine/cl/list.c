/* The list of devices: every platform's, ranked, with `host` at the end; and choosing from it.
 *
 * Immutable after device_list_open, so any thread may read it. A platform or device that cannot be
 * queried is left out or listed as unavailable with a note; it never makes the list fail.
 */
#include "engine/cl/list.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/cl/cache.h"
#include "engine/cl/hint.h"
#include "engine/cl/threads.h"

#define PLATFORMS_MAX 32
#define DEVICES_MAX   128 /* per platform */

/* Queries that the OpenCL 3.0 header set may lack. */
#define DEVICE_UUID_KHR             0x106A
#define DEVICE_UUID_BYTES           16
#define DEVICE_INTEGRATED_MEMORY_NV 0x4006

struct entry {
    struct device_info info;
    cl_platform_id platform;
    cl_device_id id;
    double power; /* compute units x clock x vector width: only to rank equals */
};

struct device_list {
    uint32_t count, capacity;
    struct entry *entries;
    char hint[HINT_TEXT_BYTES];
};

const char *device_kind_name(enum device_kind kind)
{
    static const char *const names[] = {"discrete", "integrated", "accelerator", "cpu", "host"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

static bool contains_nocase(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (; *text != '\0'; text++)
        if (strncasecmp(text, part, n) == 0)
            return true;
    return n == 0;
}

static struct entry *add_entry(struct device_list *l)
{
    if (l->count == l->capacity) {
        uint32_t capacity = l->capacity == 0 ? 8 : 2 * l->capacity;
        struct entry *entries = mem_array_resize(l->entries, capacity, sizeof *entries);
        if (entries == NULL)
            return NULL;
        l->entries = entries;
        l->capacity = capacity;
    }
    struct entry *entry = &l->entries[l->count++];
    memset(entry, 0, sizeof *entry);
    return entry;
}

static enum device_kind kind_of(cl_device_id id, cl_device_type type)
{
    if (type & CL_DEVICE_TYPE_CPU)
        return DEVICE_CPU;
    if (type & CL_DEVICE_TYPE_GPU) {
        cl_ulong unified = cl_device_number(id, CL_DEVICE_HOST_UNIFIED_MEMORY, 0);
        return cl_device_number(id, DEVICE_INTEGRATED_MEMORY_NV, unified) != 0
                   ? DEVICE_INTEGRATED_GPU
                   : DEVICE_DISCRETE_GPU;
    }
    return DEVICE_ACCELERATOR;
}

static void read_uuid(cl_device_id id, char *out, size_t size)
{
    unsigned char uuid[DEVICE_UUID_BYTES];
    out[0] = '\0';
    if (clGetDeviceInfo(id, DEVICE_UUID_KHR, sizeof uuid, uuid, NULL) != CL_SUCCESS)
        return;
    for (size_t i = 0; i < sizeof uuid && 2 * i + 2 < size; i++)
        snprintf(out + 2 * i, 3, "%02x", uuid[i]);
}

static uint32_t number32(cl_device_id id, cl_device_info what)
{
    cl_ulong value = cl_device_number(id, what, 0);
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Builds an empty kernel: some platforms list devices whose compiler cannot work at all. */
static bool trivial_build_works(cl_device_id id)
{
    static const char *text = "__kernel void probe(__global int *x) { x[0] = 1; }";
    bool works = false;
    cl_program program = NULL;
    cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, NULL);
    if (context != NULL)
        program = clCreateProgramWithSource(context, 1, &text, NULL, NULL);
    if (program != NULL)
        works = clBuildProgram(program, 1, &id, "", NULL, NULL) == CL_SUCCESS;
    if (program != NULL)
        clReleaseProgram(program);
    if (context != NULL)
        clReleaseContext(context);
    return works;
}

/* Decides whether the device may be used, and notes why not. */
static void judge(struct entry *entry)
{
    struct device_info *info = &entry->info;
    const char *reason = NULL;
    if (cl_device_number(entry->id, CL_DEVICE_AVAILABLE, 1) == 0)
        reason = "the driver says that it is not available";
    else if (cl_device_number(entry->id, CL_DEVICE_COMPILER_AVAILABLE, 1) == 0)
        reason = "the driver has no compiler";
    else if (cl_device_number(entry->id, CL_DEVICE_ENDIAN_LITTLE, 1) == 0)
        reason = "big-endian devices are not supported";
    else if (contains_nocase(info->name, "FPGA Emulation"))
        reason = "an emulator, not a device to compute on";
    else if (contains_nocase(info->platform, "Clover") && !trivial_build_works(entry->id))
        reason = "its compiler cannot build an empty kernel (libclc missing?)";
    info->available = reason == NULL;
    if (reason != NULL)
        snprintf(info->note, sizeof info->note, "%s", reason);
}

static void describe(struct entry *entry)
{
    struct device_info *info = &entry->info;
    cl_device_id id = entry->id;
    cl_platform_text(entry->platform, CL_PLATFORM_NAME, info->platform, sizeof info->platform);
    cl_device_text(id, CL_DEVICE_NAME, info->name, sizeof info->name);
    cl_device_text(id, CL_DEVICE_VENDOR, info->vendor, sizeof info->vendor);
    cl_device_text(id, CL_DRIVER_VERSION, info->driver, sizeof info->driver);
    cl_device_text(id, CL_DEVICE_VERSION, info->version, sizeof info->version);
    read_uuid(id, info->uuid, sizeof info->uuid);
    info->kind = kind_of(id, cl_device_number(id, CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU));
    info->compute_units = number32(id, CL_DEVICE_MAX_COMPUTE_UNITS);
    info->max_work_group = number32(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    info->clock_mhz = number32(id, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    info->vector_width_f32 = number32(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    info->base_align_bytes = number32(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    if (info->base_align_bytes < 128)
        info->base_align_bytes = 128;
    info->global_bytes = cl_device_number(id, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    info->max_alloc_bytes = cl_device_number(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0);
    info->local_bytes = cl_device_number(id, CL_DEVICE_LOCAL_MEM_SIZE, 0);
    info->unified_memory = info->kind == DEVICE_CPU || info->kind == DEVICE_INTEGRATED_GPU;
    judge(entry);
    double width = info->kind == DEVICE_CPU && info->vector_width_f32 > 0
                       ? (double)info->vector_width_f32
                       : 1.0;
    entry->power = (double)info->compute_units * (double)(info->clock_mhz + 1) * width;
}

static enum status add_platform(struct device_list *l, cl_platform_id platform, struct err *e)
{
    cl_device_id ids[DEVICES_MAX];
    cl_uint n = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, ids, &n) != CL_SUCCESS) {
        char name[64];
        cl_platform_text(platform, CL_PLATFORM_NAME, name, sizeof name);
        log_debug("platform without devices name=%s", name);
        return ST_OK;
    }
    for (cl_uint i = 0; i < n && i < DEVICES_MAX; i++) {
        struct entry *entry = add_entry(l);
        if (entry == NULL)
            return err_set(e, ST_NO_MEMORY, "list of OpenCL devices: out of memory");
        entry->platform = platform;
        entry->id = ids[i];
        describe(entry);
    }
    return ST_OK;
}

int list__order(const struct device_info *a, double a_power, const struct device_info *b,
                double b_power)
{
    if (a->available != b->available)
        return a->available ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a_power > b_power || a_power < b_power)
        return a_power > b_power ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return list__order(&x->info, x->power, &y->info, y->power);
}

static void describe_host(struct entry *entry)
{
    struct device_info *info = &entry->info;
    info->kind = DEVICE_HOST;
    snprintf(info->name, sizeof info->name, "host");
    snprintf(info->vendor, sizeof info->vendor, "OInfer");
    snprintf(info->driver, sizeof info->driver, "%s", OINFER_VERSION);
    snprintf(info->platform, sizeof info->platform, "host");
    snprintf(info->version, sizeof info->version, "C11 references");
    snprintf(info->note, sizeof info->note, "plain C references: right, but slow");
    info->compute_units = 1;
    info->max_work_group = 1;
    info->vector_width_f32 = 1;
    info->base_align_bytes = 128;
    info->global_bytes = mem_available_bytes();
    info->max_alloc_bytes = info->global_bytes;
    info->unified_memory = true;
    info->available = true;
}

/* PoCL ends the process over some of its variables when they are set but empty. */
static void unset_empty_variables(void)
{
    extern char **environ;
    char name[64];
    for (size_t i = 0; environ != NULL && environ[i] != NULL;) {
        const char *entry = environ[i++], *equals = strchr(entry, '=');
        if (equals == NULL || equals[1] != '\0' || strncmp(entry, "POCL_", 5) != 0 ||
            (size_t)(equals - entry) >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - entry), entry);
        unsetenv(name);
        i = 0; /* the list has moved */
    }
}

enum status device_list_cache_dir(const char *cache_dir, struct err *e)
{
    char path[CACHE_PATH_BYTES];
    unset_empty_variables();
    if (cache_dir == NULL)
        return ST_OK;
    int n = snprintf(path, sizeof path, "%s/pocl", cache_dir);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ST_INVALID, "cache directory %s: over %d bytes", cache_dir,
                       CACHE_PATH_BYTES);
    if (!cache_make_folder(path))
        return err_set(e, ST_IO, "cache directory %s cannot be made", path);
    if (setenv("POCL_CACHE_DIR", path, 0) != 0)
        return err_set(e, ST_NO_MEMORY, "cannot set POCL_CACHE_DIR=%s", path);
    return ST_OK;
}

enum status device_list_open(uint32_t n_threads, struct device_list **out, struct err *e)
{
    *out = NULL;
    enum status status = threads_tell_pocl(n_threads, e);
    if (status != ST_OK)
        return status;
    struct device_list *l = mem_zalloc(sizeof *l);
    if (l == NULL)
        return err_set(e, ST_NO_MEMORY, "list of OpenCL devices: out of memory");
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint n = 0;
    cl_int code = clGetPlatformIDs(PLATFORMS_MAX, platforms, &n);
    if (code != CL_SUCCESS)
        n = 0;
    if (n > PLATFORMS_MAX)
        n = PLATFORMS_MAX;
    for (cl_uint i = 0; i < n && status == ST_OK; i++)
        status = add_platform(l, platforms[i], e);
    if (status != ST_OK) {
        device_list_close(l);
        return status;
    }
    uint32_t n_cl = l->count;
    bool usable = false;
    for (uint32_t i = 0; i < n_cl; i++) {
        l->entries[i].info.index = i;
        usable = usable || l->entries[i].info.available;
    }
    if (n_cl > 1)
        qsort(l->entries, n_cl, sizeof *l->entries, compare_entries);
    struct entry *host = add_entry(l);
    if (host == NULL) {
        device_list_close(l);
        return err_set(e, ST_NO_MEMORY, "list of OpenCL devices: out of memory");
    }
    describe_host(host);
    for (uint32_t i = 0; i < l->count; i++)
        l->entries[i].info.index = i;
    if (!usable)
        hint_write(code, n, n_cl, HINT_NODES, l->hint, sizeof l->hint);
    *out = l;
    return ST_OK;
}

void device_list_close(struct device_list *l)
{
    if (l == NULL)
        return;
    mem_free(l->entries);
    mem_free(l);
}

uint32_t device_list_count(const struct device_list *l)
{
    return l->count;
}

const struct device_info *device_list_at(const struct device_list *l, uint32_t i)
{
    return i < l->count ? &l->entries[i].info : NULL;
}

bool device_list_find(const struct device_list *l, const char *platform, const char *name,
                      const char *driver, uint32_t *index)
{
    for (uint32_t i = 0; i < device_list_count(l); i++) {
        const struct device_info *info = device_list_at(l, i);
        if (info->available && strcmp(info->platform, platform) == 0 &&
            strcmp(info->name, name) == 0 && strcmp(info->driver, driver) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

const char *device_list_hint(const struct device_list *l)
{
    return l->hint;
}

void list__ids(const struct device_list *l, uint32_t index, cl_platform_id *platform,
               cl_device_id *id)
{
    *platform = l->entries[index].platform;
    *id = l->entries[index].id;
}

/* ST_NOT_FOUND with the names of all devices. */
static enum status not_found(const struct device_list *l, const char *wanted, struct err *e)
{
    char names[ERR_TEXT_BYTES] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < l->count && n < sizeof names; i++) {
        const struct device_info *info = &l->entries[i].info;
        int k = snprintf(names + n, sizeof names - n, "%s%u: %s%s", i == 0 ? "" : ", ", i,
                         info->name, info->available ? "" : " (unavailable)");
        n += k > 0 ? (size_t)k : 0;
    }
    return err_set(e, ST_NOT_FOUND, "no usable device \"%s\"; there are: %s", wanted, names);
}

static bool parse_index(const char *text, uint32_t *out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[0]))
        return false;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

/* The first usable device that `wanted` names: a UUID or an exact name before a part of one. */
static bool find_named(const struct device_list *l, const char *wanted, uint32_t *out)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < l->count; i++) {
            const struct device_info *info = &l->entries[i].info;
            bool exact = strcasecmp(info->name, wanted) == 0 ||
                         (info->uuid[0] != '\0' && strcasecmp(info->uuid, wanted) == 0);
            bool match = pass == 0 ? exact
                                   : contains_nocase(info->name, wanted) ||
                                         contains_nocase(info->platform, wanted);
            if (match && info->available) {
                *out = i;
                return true;
            }
        }
    return false;
}

/* Every usable OpenCL device; `host` when there is none. */
static enum status select_all(const struct device_list *l, uint32_t *indices, uint32_t *n,
                              struct err *e)
{
    uint32_t capacity = *n;
    *n = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct device_info *info = &l->entries[i].info;
        if (!info->available || (info->kind == DEVICE_HOST && *n > 0))
            continue;
        if (*n == capacity)
            return err_set(e, ST_INVALID, "more than %u usable devices", capacity);
        indices[(*n)++] = i;
    }
    return ST_OK;
}

/* The one usable device that `wanted` stands for; `host` where nothing else is usable. */
static bool find_one(const struct device_list *l, const char *wanted, uint32_t *out)
{
    uint32_t index = 0;
    bool found;
    if (wanted[0] == '\0' || strcasecmp(wanted, "auto") == 0)
        found = true; /* unavailable ones are sorted behind, and host is always there */
    else if (parse_index(wanted, &index))
        found = index < l->count && l->entries[index].info.available;
    else
        found = find_named(l, wanted, &index);
    if (found && !l->entries[index].info.available)
        index = l->count - 1;
    *out = index;
    return found;
}

/* Devices between commas, each once, in that order. */
static enum status select_each(const struct device_list *l, const char *wanted, uint32_t *indices,
                               uint32_t *n, struct err *e)
{
    const uint32_t capacity = *n;
    *n = 0;
    for (const char *at = wanted, *end; at; at = *end ? end + 1 : NULL) {
        char name[sizeof l->entries->info.name];
        uint32_t index;
        at += strspn(at, " ");
        end = at + strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        if (name[0] == '\0' || !find_one(l, name, &index))
            return not_found(l, name, e);
        for (uint32_t i = 0; i < *n; i++)
            if (indices[i] == index)
                return err_set(e, ST_INVALID, "\"%s\" names device %u twice", wanted, index);
        if (*n == capacity)
            return err_set(e, ST_INVALID, "\"%s\": more than %u device%s", wanted, capacity,
                           capacity == 1 ? "" : "s");
        indices[(*n)++] = index;
    }
    return ST_OK;
}

enum status device_select(const struct device_list *l, const char *wanted, uint32_t *indices,
                          uint32_t *n, struct err *e)
{
    ASSERT(*n > 0);
    if (strcasecmp(wanted, "all") == 0)
        return select_all(l, indices, n, e);
    if (find_one(l, wanted, &indices[0])) {
        *n = 1;
        return ST_OK;
    }
    const enum status status =
        strchr(wanted, ',') ? select_each(l, wanted, indices, n, e) : not_found(l, wanted, e);
    if (status != ST_OK)
        *n = 0;
    return status;
}
