/* Devices: every OpenCL device of every platform, and `host` (the plain C references).
 *
 * A device owns its context, queue pair, program registry, memory account and caps. Caps are probed
 * by building and running tiny programs, not read off extension lists, and cached on disk.
 * Listing is thread-safe after device_list_open returned; an open device belongs to one thread.
 */
#ifndef OINFER_CL_DEVICE_H
#define OINFER_CL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/cl/cache.h"

/* In the order in which they are preferred. */
enum device_kind {
    DEVICE_DISCRETE_GPU,
    DEVICE_INTEGRATED_GPU,
    DEVICE_ACCELERATOR,
    DEVICE_CPU,
    DEVICE_HOST
};
const char *device_kind_name(enum device_kind kind); /* "discrete", ..., "host" */

/* Capability bits: what kernels.def's `needs` column names. Each is proven by a probe. */
enum device_cap {
    CAP_CPU = 1 << 0,  /* a CPU device with vectors: few wide work-items */
    CAP_GPU = 1 << 1,  /* a GPU device: many narrow ones (also what is unknown) */
    CAP_HALF = 1 << 2, /* half arithmetic gives right results */
    CAP_FP64 = 1 << 3,
    CAP_SUBGROUPS = 1 << 4, /* cl_khr_subgroups works */
    CAP_IMAGES = 1 << 5,
    CAP_ASM_X86 = 1 << 6,      /* x86-64 inline asm in kernels (pause, prefetch) */
    CAP_ASM_VNNI512 = 1 << 7,  /* vpdpbusd on zmm by inline asm gives right sums */
    CAP_ASM_VNNI256 = 1 << 8,  /* the same on ymm (AVX-VNNI or AVX512VL) */
    CAP_ASM_BF16 = 1 << 9,     /* vdpbf16ps on zmm */
    CAP_ASM_AVX2 = 1 << 10,    /* vpmaddubsw / vpmaddwd on ymm */
    CAP_ASM_F16C512 = 1 << 11, /* vcvtph2ps on zmm */
    CAP_PTX = 1 << 12,         /* NVIDIA inline PTX, warp shuffles */
    CAP_PTX_DP4A = 1 << 13,
    CAP_PTX_MMA = 1 << 14,    /* mma.sync m16n8k16, cp.async, ldmatrix (sm_80+) */
    CAP_PTX_WGMMA = 1 << 15,  /* wgmma, tensor copies, 220 KiB of local memory, as sm_90a */
    CAP_BIG_LOCAL = 1 << 16,  /* static local memory over 48 KiB works */
    CAP_PERSISTENT = 1 << 17, /* co-resident groups with a device-wide barrier work */
    CAP_ASM_SDOT = 1 << 18,   /* ARM sdot */
    CAP_LONG_LOOPS = 1 << 19  /* a work-item may loop more than 65,535 times */
};
const char *device_cap_name(enum device_cap cap); /* "vnni512", ... ; NULL for an unknown bit */

struct device_info {
    uint32_t index; /* in the list */
    enum device_kind kind;
    char name[128], vendor[64], driver[64], platform[64], version[64];
    char uuid[40]; /* hex; "" where the driver has none */
    uint32_t compute_units, max_work_group, clock_mhz, vector_width_f32, base_align_bytes;
    uint64_t global_bytes, max_alloc_bytes, local_bytes;
    bool unified_memory, available;
    char note[160]; /* why it is not available, or what is odd; "" */
};

/* Makes drivers that keep a cache of their own keep it below this folder, unless the user chose
 * another place; NULL: nothing. Call it before device_list_open, if at all. */
enum status device_list_cache_dir(const char *cache_dir, struct err *e);

struct device_list;
/* Finds all devices; never fails because of a broken platform (its note says why). Devices are
 * sorted by kind, then by compute power; the last is always `host`. Must be called before any other
 * OpenCL use in the process: it sets the PoCL environment that threads.h describes (thread
 * affinity) unless the user set it. n_threads: 0 or the most threads a CPU device may use. */
enum status device_list_open(uint32_t n_threads, struct device_list **out, struct err *e);
void device_list_close(struct device_list *l);
uint32_t device_list_count(const struct device_list *l);
const struct device_info *device_list_at(const struct device_list *l, uint32_t i);
/* The first device of those names that can be used; false: there is none. */
bool device_list_find(const struct device_list *l, const char *platform, const char *name,
                      const char *driver, uint32_t *index);
/* Why there is no OpenCL device, with what was searched and what to do; "" if there is one. */
const char *device_list_hint(const struct device_list *l);
/* Chooses by index ("0"), part of the name (any case), UUID, "host", "all" or "" / "auto" (the
 * first usable one), or several of these between commas. Fills indices[0..*n) (capacity *n on
 * entry). ST_NOT_FOUND lists what there is; ST_INVALID: one twice, or more than the capacity. */
enum status device_select(const struct device_list *l, const char *wanted, uint32_t *indices,
                          uint32_t *n, struct err *e);

struct device_options {
    const char *cache_dir;  /* binaries, probe and self-test results; NULL: no disk cache */
    const char *kernel_dir; /* read kernel sources from here instead of the embedded ones; NULL */
    uint64_t memory_limit_bytes; /* 0: what the device says */
    bool profiling;              /* start with a profiling queue pair */
    /* This program's own path ("/proc/self/exe") if its main calls trial_build_main (trial.h):
     * builds that a compiler may die on then run in a child first. NULL: they run here. */
    const char *trial_command;
};

struct device;
/* Opens a context and the queue pair, and probes caps. */
enum status device_open(const struct device_list *l, uint32_t index,
                        const struct device_options *options, struct device **out, struct err *e);
void device_close(struct device *d); /* all buffers and kernels must be closed before */

const struct device_info *device_info(const struct device *d);
uint32_t device_caps(const struct device *d); /* bits of enum device_cap */
bool device_is_host(const struct device *d);
bool device_is_lost(const struct device *d);
/* Whether the device still works, after a call that failed: runs a small kernel and reads what it
 * wrote. ST_DEVICE_LOST when not, and then it is lost; ST_NO_MEMORY, ST_NO_DEVICE_MEMORY: not
 * known.
 */
enum status device_check(struct device *d, struct err *e);
/* Directory of this device's cached results (the option's cache_dir); NULL: no disk cache. */
const char *device_cache_dir(const struct device *d);
/* Key for a result that depends on the device, its driver and a text. */
struct cache_key device_cache_key(const struct device *d, const char *text);
/* How many groups of lws items a launch of a kernel that loops should have at most: more would make
 * the driver compile it once more, for nothing. */
uint64_t device_grid_groups(const struct device *d, size_t lws);
/* The option's trial_command; NULL also where this device's compilers need no child. */
const char *device_trial_command(const struct device *d);
/* Folder that kernel sources are read from instead of the embedded ones; NULL: embedded. */
const char *device_kernel_dir(const struct device *d);
/* DEVICE_MARKS bytes, zero at open, that the ops layer keeps with the device: one per variant. */
#define DEVICE_MARKS 1024
uint8_t *device_marks(struct device *d);
/* One thing of the ops layer that lives as long as the device, which closes it first. */
void device_keep(struct device *d, void *thing, void (*close)(void *thing));
void *device_kept(const struct device *d); /* NULL: nothing yet */
/* Bytes in the device's buffers now, at most ever, and the most allowed; by usage. staging is
 * pinned memory of the host, which used and limit leave out. */
struct device_memory {
    uint64_t used_bytes, peak_bytes, limit_bytes;
    uint64_t weights_bytes, kv_bytes, scratch_bytes, staging_bytes, io_bytes;
};
struct device_memory device_memory(const struct device *d);
/* Measured by the device's own kernels (seconds), once while it is open; the cache keeps the best
 * of three openings, one of which may have been a busy moment, and later ones take that. `host` is
 * measured by plain C, without the cache. Bandwidth of reading and copying, f32 FMA
 * rate. */
struct device_peaks {
    double read_gb_s, copy_gb_s, f32_gflop_s;
};
enum status device_measure_peaks(struct device *d, struct device_peaks *out, struct err *e);

#endif
