/* Capabilities: the table, its probes, and their cached result.
 *
 * A probe is a kernel of kernels/probe/ (its protocol: probe/common.h) run with known bytes and
 * checked by value. Probes only run where they can make sense (an x86 instruction on the CPU that
 * has it), since an illegal instruction would end the process; those by inline assembly are built
 * in a child first where the driver may abort on them.
 */
#include "engine/cl/caps.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/cl/cpuflags.h"
#include "engine/cl/program.h"
#include "engine/cl/source.h"
#include "engine/cl/trial_impl.h"
#include "kernels/probe/common.h"

/* CAPS_VERSION is part of the cache key: it counts the changes of the table and of the probes. */
#define CAPS_FOLDER  "devices"
#define CAPS_VERSION "caps 6"
#define WARP         32
#define RETRIES      3 /* of a probe that other load on the machine can spoil */

static const struct {
    enum device_cap cap;
    const char *name;  /* for people and kernels.def */
    const char *macro; /* for kernels */
} names[] = {
/* clang-format off */
#define ROW(cap, name) {cap, name, #cap}
    /* clang-format on */
    ROW(CAP_CPU, "cpu"),
    ROW(CAP_GPU, "gpu"),
    ROW(CAP_HALF, "half"),
    ROW(CAP_FP64, "fp64"),
    ROW(CAP_SUBGROUPS, "subgroups"),
    ROW(CAP_IMAGES, "images"),
    ROW(CAP_ASM_X86, "asm_x86"),
    ROW(CAP_ASM_VNNI512, "vnni512"),
    ROW(CAP_ASM_VNNI256, "vnni256"),
    ROW(CAP_ASM_BF16, "bf16"),
    ROW(CAP_ASM_AVX2, "avx2"),
    ROW(CAP_ASM_F16C512, "f16c512"),
    ROW(CAP_PTX, "ptx"),
    ROW(CAP_PTX_DP4A, "ptx_dp4a"),
    ROW(CAP_PTX_MMA, "ptx_mma"),
    ROW(CAP_PTX_WGMMA, "ptx_wgmma"),
    ROW(CAP_BIG_LOCAL, "big_local"),
    ROW(CAP_PERSISTENT, "persistent"),
    ROW(CAP_ASM_SDOT, "sdot"),
    ROW(CAP_LONG_LOOPS, "long_loops"),
#undef ROW
};

#define NAME_COUNT (sizeof names / sizeof names[0])

const char *device_cap_name(enum device_cap cap)
{
    for (size_t i = 0; i < NAME_COUNT; i++)
        if (names[i].cap == cap)
            return names[i].name;
    return NULL;
}

const char *caps__macro(enum device_cap cap)
{
    for (size_t i = 0; i < NAME_COUNT; i++)
        if (names[i].cap == cap)
            return names[i].macro;
    return NULL;
}

/* Where a probe makes sense. */
enum place { ANYWHERE, X86_CPU, ARM_CPU, NVIDIA_GPU, VERSION_2 };

static const struct probe {
    enum device_cap cap;
    enum place place;
    const char *file, *defines;
    uint32_t items;             /* one work-group of this many */
    uint32_t flags;             /* CPU_FLAG_* that must be set */
    enum device_cap cap_before; /* a capability it builds on; 0: none */
} probes[] = {
    {CAP_FP64, ANYWHERE, "probe/fp64.cl", "-DPROBE", 1, 0, 0},
    {CAP_HALF, ANYWHERE, "probe/half.cl", "-DPROBE", 1, 0, 0},
    {CAP_LONG_LOOPS, ANYWHERE, "probe/loops.cl", "-DPROBE", 1, 0, 0},
    {CAP_SUBGROUPS, VERSION_2, "probe/subgroups.cl", "-DPROBE", 64, 0, 0},
    {CAP_BIG_LOCAL, ANYWHERE, "probe/local.cl", "-DBYTES=98304", 16, 0, 0},
    {CAP_ASM_X86, X86_CPU, "probe/x86.cl", "-DPROBE_X86", 1, CPU_FLAG_X86, 0},
    {CAP_ASM_AVX2, X86_CPU, "probe/x86.cl", "-DPROBE_AVX2", 1, CPU_FLAG_AVX2, 0},
    {CAP_ASM_VNNI256, X86_CPU, "probe/x86.cl", "-DPROBE_VNNI256", 1, CPU_FLAG_AVX2, 0},
    {CAP_ASM_F16C512, X86_CPU, "probe/x86.cl", "-DPROBE_F16C512", 1, CPU_FLAG_AVX512, 0},
    {CAP_ASM_VNNI512, X86_CPU, "probe/x86.cl", "-DPROBE_VNNI512", 1, CPU_FLAG_VNNI512, 0},
    {CAP_ASM_BF16, X86_CPU, "probe/x86.cl", "-DPROBE_BF16", 1, CPU_FLAG_BF16, 0},
    {CAP_ASM_SDOT, ARM_CPU, "probe/arm.cl", "-DPROBE", 1, CPU_FLAG_DOTPROD, 0},
    {CAP_PTX, NVIDIA_GPU, "probe/ptx.cl", "-DPROBE_WARP", WARP, 0, 0},
    {CAP_PTX_DP4A, NVIDIA_GPU, "probe/ptx.cl", "-DPROBE_DP4A", WARP, 0, CAP_PTX},
    {CAP_PTX_MMA, NVIDIA_GPU, "probe/ptx.cl", "-DPROBE_MMA", WARP, 0, CAP_PTX},
    {CAP_PTX_WGMMA, NVIDIA_GPU, "probe/wgmma.cl", "-DPROBE", 12 * WARP, 0, CAP_PTX_MMA},
};

#define PROBE_COUNT (sizeof probes / sizeof probes[0])

/* The two buffers every probe uses. */
struct bench {
    struct device *device;
    struct buffer *in, *out;
    uint32_t cpu_flags;
};

static bool is_nvidia(const struct device *d)
{
    return strstr(d->info.platform, "NVIDIA") != NULL && d->info.kind != DEVICE_CPU;
}

/* A CPU device that may be asked for this machine's own instructions: in a child process, or here
 * where the driver is known not to die on them (PoCL 5.0 and 6.0 can: program.c's has_binary).
 * Never one that goes through SPIR-V, nor a simulator. */
static bool may_take_asm(const struct device *d)
{
    if (d->info.kind != DEVICE_CPU || d->dies_on_asm || strcmp(d->info.platform, "Oclgrind") == 0 ||
        strcmp(d->info.platform, "rusticl") == 0)
        return false;
    bool survives = device__is_pocl(d) && strncmp(d->info.driver, "3.1", 3) == 0;
    return survives || trial__wanted(d);
}

/* 256-bit VNNI needs either of two features, in two forms. */
static bool has_vnni256(uint32_t flags)
{
    uint32_t evex = CPU_FLAG_VNNI512 | CPU_FLAG_AVX512;
    return (flags & evex) == evex || (flags & CPU_FLAG_AVXVNNI) != 0;
}

static bool makes_sense(const struct bench *b, const struct probe *probe)
{
    const struct device *d = b->device;
    if ((b->cpu_flags & probe->flags) != probe->flags)
        return false;
    if (probe->cap == CAP_ASM_VNNI256 && !has_vnni256(b->cpu_flags))
        return false;
    if (d->info.max_work_group < probe->items)
        return false;
    switch (probe->place) {
    case ANYWHERE: return true;
    case X86_CPU:
    case ARM_CPU: return may_take_asm(d);
    case NVIDIA_GPU: return is_nvidia(d);
    case VERSION_2: return strncmp(d->info.version, "OpenCL 1", 8) != 0;
    }
    return false;
}

/* Clears `out`, so that what an earlier probe left cannot pass for success. */
static enum status clear_out(struct bench *b, struct err *e)
{
    uint32_t zero = 0;
    cl_int code = clEnqueueFillBuffer(b->device->queues[QUEUE_COMPUTE].cl, b->out->cl, &zero,
                                      sizeof zero, 0, PROBE_WORDS * sizeof zero, 0, NULL, NULL);
    b->device->queues[QUEUE_COMPUTE].enqueued++;
    return cl_check(b->device, code, "clEnqueueFillBuffer", "probe", e);
}

/* Runs a probe kernel whose arguments are set; false on any failure or wrong result. */
static bool run(struct bench *b, struct kernel *k, uint32_t items, uint32_t group)
{
    uint32_t result[1024];
    struct err e = {0};
    struct device *d = b->device;
    ASSERT(items <= sizeof result / sizeof result[0]);
    memset(result, 0, sizeof result);
    enum status status = clear_out(b, &e);
    if (status == ST_OK)
        status = kernel_launch(k, (const size_t[]){items, 1, 1}, (const size_t[]){group, 1, 1},
                               "probe", "", 0, 0, &e);
    if (status == ST_OK)
        status =
            queue_read(d, QUEUE_COMPUTE, b->out, 0, result, items * sizeof result[0], "probe", &e);
    if (status == ST_OK)
        status = queue_wait(d, QUEUE_COMPUTE, &e);
    if (status != ST_OK) {
        log_debug("probe failed device=%s reason=%s", d->info.name, e.text);
        return false;
    }
    for (uint32_t i = 0; i < items; i++)
        if (result[i] != PROBE_OK)
            return false;
    return true;
}

static struct kernel *open_probe(struct bench *b, const char *file, const char *defines)
{
    struct kernel *k = NULL;
    struct err e = {0};
    if (kernel_open(b->device, file, defines, "probe", &k, &e) != ST_OK)
        log_debug("probe not built device=%s reason=%s", b->device->info.name, e.text);
    return k;
}

/* Options of a probe: its own, and the language version where it needs a newer one. */
static void probe_defines(const struct device *d, const struct probe *probe, char *out, size_t size)
{
    const char *version = "";
    if (probe->place == VERSION_2)
        version =
            strncmp(d->info.version, "OpenCL 2", 8) == 0 ? " -cl-std=CL2.0" : " -cl-std=CL3.0";
    snprintf(out, size, "%s%s", probe->defines, version);
}

static bool run_probe(struct bench *b, const struct probe *probe)
{
    char defines[64];
    probe_defines(b->device, probe, defines, sizeof defines);
    struct kernel *k = open_probe(b, probe->file, defines);
    if (k != NULL && probe->cap == CAP_PTX_WGMMA)
        kernel_expect_work_group(k, probe->items);
    bool right = k != NULL && kernel_set_buffer(k, 0, b->in, NULL) == ST_OK &&
                 kernel_set_buffer(k, 1, b->out, NULL) == ST_OK &&
                 run(b, k, probe->items, probe->items);
    kernel_close(k);
    return right;
}

/* Images that kernels write and read: need image objects and two kernels, so they are no row of the
 * table. Not for Oclgrind, which takes what an image holds for uninitialised. */
static bool probe_images(struct bench *b)
{
    enum { EDGE = 8, LAYERS = 2, TEXELS = EDGE * EDGE * LAYERS };
    struct device *d = b->device;
    struct kernel *fill = NULL;
    if (cl_device_number(d->id, CL_DEVICE_IMAGE_SUPPORT, 0) == 0 ||
        strcmp(d->info.platform, "Oclgrind") == 0)
        return false;
    struct kernel *k = open_probe(b, "probe/image.cl", "");
    if (k == NULL || kernel_open(d, "probe/image.cl", "", "fill", &fill, NULL) != ST_OK) {
        kernel_close(k);
        return false;
    }
    const cl_image_format format = {CL_RGBA, CL_FLOAT};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY,
                                .image_width = EDGE,
                                .image_height = EDGE,
                                .image_array_size = LAYERS};
    const size_t items[3] = {TEXELS, 1, 1}, group[3] = {EDGE, 1, 1};
    cl_int code = CL_SUCCESS;
    cl_mem image = clCreateImage(d->context, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
    bool right = false;
    if (code == CL_SUCCESS) {
        struct buffer wrapped = {.device = d, .cl = image};
        right = kernel_set_buffer(fill, 0, b->in, NULL) == ST_OK &&
                kernel_set_buffer(fill, 1, &wrapped, NULL) == ST_OK &&
                kernel_set_buffer(k, 0, b->in, NULL) == ST_OK &&
                kernel_set_buffer(k, 1, b->out, NULL) == ST_OK &&
                kernel_set_buffer(k, 2, &wrapped, NULL) == ST_OK &&
                kernel_launch(fill, items, group, "probe", "", 0, 0, NULL) == ST_OK &&
                run(b, k, TEXELS, EDGE);
        clReleaseMemObject(image);
    }
    kernel_close(fill);
    kernel_close(k);
    return right;
}

/* Some thousand device-wide barriers over as many groups as there are compute units. */
static bool probe_persistent(struct bench *b)
{
    const struct device *d = b->device;
    bool cpu = d->info.kind == DEVICE_CPU;
    uint32_t group = cpu ? 1 : WARP, units = d->info.compute_units;
    if (strcmp(d->info.platform, "Oclgrind") == 0 || units == 0 || units * group > 1024)
        units = 0; /* runs groups one after the other; or more groups than a probe looks at */
    if (!cpu && units == 0 && d->info.compute_units <= 1024)
        units = d->info.compute_units, group = 1;
    if (units == 0)
        return false;
    struct kernel *k =
        open_probe(b, "probe/persistent.cl",
                   cpu ? "-DROUNDS=2000 -DSPIN=1000000" : "-DROUNDS=2000 -DSPIN=100000");
    bool right = k != NULL && kernel_set_buffer(k, 0, b->in, NULL) == ST_OK &&
                 kernel_set_buffer(k, 1, b->out, NULL) == ST_OK;
    bool passed = false;
    for (int i = 0; i < RETRIES && right && !passed && !d->lost; i++)
        passed = run(b, k, units * group, group);
    kernel_close(k);
    return passed;
}

/* Builds the probes by inline assembly in a child first, where that is wanted, all in one. */
static enum status try_risky(struct bench *b, struct err *e)
{
    struct strbuf texts[PROBE_COUNT];
    struct program_source sources[PROBE_COUNT];
    uint32_t n = 0;
    enum status status = ST_OK;
    for (size_t i = 0; i < PROBE_COUNT && status == ST_OK; i++) {
        const struct probe *probe = &probes[i];
        if ((probe->place != X86_CPU && probe->place != ARM_CPU) || !makes_sense(b, probe))
            continue;
        strbuf_init(&texts[n], SOURCE_MAX_BYTES);
        status = source_file(b->device->kernel_dir, probe->file, &texts[n], e);
        sources[n] = (struct program_source){.name = probe->file,
                                             .text = strbuf_text(&texts[n]),
                                             .length = texts[n].length,
                                             .defines = probe->defines};
        n++;
    }
    if (status == ST_OK)
        status = program__try(b->device, sources, n, e);
    for (uint32_t i = 0; i < n; i++)
        strbuf_free(&texts[i]);
    return status;
}

static enum status open_bench(struct bench *b, struct err *e)
{
    unsigned char bytes[PROBE_IN_BYTES];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 + 11);
    enum status status =
        buffer_open(b->device, sizeof bytes, BUFFER_SCRATCH, "probe input", &b->in, e);
    if (status == ST_OK)
        status = buffer_open(b->device, PROBE_WORDS * sizeof(uint32_t), BUFFER_SCRATCH,
                             "probe output", &b->out, e);
    if (status == ST_OK)
        status = queue_write(b->device, QUEUE_COMPUTE, b->in, 0, bytes, sizeof bytes, "probe", e);
    if (status == ST_OK)
        status = queue_wait(b->device, QUEUE_COMPUTE, e);
    return status;
}

/* The simplest program of all: a device that cannot run it is of no use. */
static enum status check_basics(struct bench *b, struct err *e)
{
    struct kernel *k = NULL;
    enum status status = kernel_open(b->device, "probe/local.cl", "-DBYTES=1024", "probe", &k, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, 0, b->in, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, 1, b->out, e);
    if (status == ST_OK && !run(b, k, 4, 4))
        status = err_set(e, ST_DEVICE, "%s: the simplest kernel gives wrong results or fails",
                         b->device->info.name);
    kernel_close(k);
    return status;
}

static enum status probe_all(struct bench *b, struct err *e)
{
    struct device *d = b->device;
    enum status status = open_bench(b, e);
    if (status == ST_OK)
        status = check_basics(b, e);
    if (status == ST_OK)
        status = try_risky(b, e);
    if (status != ST_OK)
        return status;
    uint32_t caps = d->caps;
    for (size_t i = 0; i < PROBE_COUNT && !d->lost; i++) {
        bool ready = probes[i].cap_before == 0 || (caps & probes[i].cap_before) != 0;
        if (ready && makes_sense(b, &probes[i]) && run_probe(b, &probes[i]))
            caps |= probes[i].cap;
    }
    if (!d->lost && probe_images(b))
        caps |= CAP_IMAGES;
    if (!d->lost && probe_persistent(b))
        caps |= CAP_PERSISTENT;
    if (d->lost)
        return err_set(e, ST_DEVICE_LOST, "%s: lost while it was probed", d->info.name);
    d->caps = caps;
    return ST_OK;
}

/* What the result depends on besides the device and its driver. */
static struct cache_key caps_key(const struct device *d, uint32_t cpu_flags)
{
    char text[64];
    int n =
        snprintf(text, sizeof text, "%x %u %d", cpu_flags, d->info.compute_units, may_take_asm(d));
    return device__key(d, text, (size_t)n, CAPS_VERSION);
}

static bool load_caps(struct device *d, struct cache_key key)
{
    void *data;
    size_t length;
    bool known = cache_load(d->cache_dir, CAPS_FOLDER, key, CACHE_CAPS, &data, &length) &&
                 length == sizeof d->caps;
    if (known)
        memcpy(&d->caps, data, sizeof d->caps);
    mem_free(data);
    return known;
}

/* What is known without a probe. Returns the flags of the processor. */
static uint32_t begin(struct device *d)
{
    uint32_t flags = cpuflags_read();
    d->vex_only =
        may_take_asm(d) && (flags & CPU_FLAG_AVXVNNI) != 0 && (flags & CPU_FLAG_VNNI512) == 0;
    /* a CPU whose driver makes lanes of work-items (llvmpipe) is used like a GPU */
    d->caps = d->info.kind == DEVICE_CPU && d->info.vector_width_f32 > 1 ? CAP_CPU : CAP_GPU;
    return flags;
}

enum status caps__probe(struct device *d, struct err *e)
{
    struct bench b = {.device = d, .cpu_flags = begin(d)};
    enum status status = probe_all(&b, e);
    buffer_close(b.in);
    buffer_close(b.out);
    if (status != ST_OK)
        return status;
    d->probed = true;
    cache_store(d->cache_dir, CAPS_FOLDER, caps_key(d, b.cpu_flags), CACHE_CAPS, &d->caps,
                sizeof d->caps);
    return ST_OK;
}

enum status caps__find(struct device *d, struct err *e)
{
    struct cache_key key = caps_key(d, begin(d));
    d->probed = load_caps(d, key);
    if (!d->probed && trial__wanted(d)) {
        d->dies_on_asm = !trial__probe(d);
        d->probed = load_caps(d, key);
    }
    /* a child may also fail for want of time or memory: the next start tries again */
    return d->probed ? ST_OK : caps__probe(d, e);
}
