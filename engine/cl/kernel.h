/* Kernels: built on demand from embedded sources, with arguments bound.
 *
 * Program text = common.cl + quant.h + params.h + file, with #line, so that build logs point at the
 * real file. A line `#include "path"` takes in another file below kernels/, once per program. Every
 * capability that the device was proven to have is a macro named as its enumerator (CAP_HALF=1).
 * Programs are shared inside the device and cached on disk as binaries (key: source, options,
 * platform, device, driver and its file); any trouble with a cached binary means rebuild. Builds an
 * LLVM-based driver may abort on are tried first in a child process (trial.h). A struct kernel is
 * one cl_kernel object with its arguments: it belongs to the device's thread.
 */
#ifndef OINFER_CL_KERNEL_H
#define OINFER_CL_KERNEL_H

#include "engine/cl/queue.h"

struct kernel;
/* file: path below kernels/ ("gemv/rows.cl"); defines: build options ("-DT=4") or ""; entry: the
 * kernel's name. ST_BUILD names device, file, entry, options and the log's first error. On `host`:
 * ST_UNSUPPORTED. */
enum status kernel_open(struct device *d, const char *file, const char *defines, const char *entry,
                        struct kernel **out, struct err *e);
/* The same from source text made at run time (one-launch plans); name stands for the file. */
enum status kernel_open_source(struct device *d, const char *name, const char *source,
                               const char *defines, const char *entry, struct kernel **out,
                               struct err *e);
void kernel_close(struct kernel *k); /* accepts NULL */

enum status kernel_set_buffer(struct kernel *k, uint32_t index, struct buffer *b, struct err *e);
enum status kernel_set_bytes(struct kernel *k, uint32_t index, const void *value, size_t n,
                             struct err *e);
enum status kernel_set_local(struct kernel *k, uint32_t index, size_t n, struct err *e);
/* CL_KERNEL_WORK_GROUP_SIZE and preferred multiple on this device. */
uint32_t kernel_max_work_group(const struct kernel *k);
/* The kernel's code was made for groups of n items, whatever less the driver reports: NVIDIA's
 * reports 256 for kernels of PTX programs that require, and run with, 384. */
void kernel_expect_work_group(struct kernel *k, uint32_t n);
uint32_t kernel_preferred_multiple(const struct kernel *k);
/* Local memory that a group of it takes, as the driver reports it; 0: not known. */
uint64_t kernel_local_bytes(const struct kernel *k);
/* Enqueues on the compute queue; gws[i] a multiple of lws[i]; lws all 0: the driver's choice.
 * name, variant: static strings for prof; bytes and flops: of this launch, for the rates. */
enum status kernel_launch(struct kernel *k, const size_t gws[3], const size_t lws[3],
                          const char *name, const char *variant, uint64_t bytes, uint64_t flops,
                          struct err *e);

/* Programs opened from now on are tried in a child process first where the driver may abort on
 * them (tuning points); programs made from text always are. Off at first. */
void kernel_set_risky(struct device *d, bool risky);
/* Writes one program's binary to the disk cache, if one is still unwritten: on CPU devices that
 * takes as long as the build, so it is left to the idle moments of the caller, and to device_close
 * for as many as it writes in about two seconds. Nothing on PoCL with a trial command, where a
 * child stores what models need (engine/model/rehearsal.h). False when there was nothing to do. */
bool kernel_save_next(struct device *d);

/* Program statistics of the device: built, loaded from the cache, milliseconds spent. */
struct kernel_stats {
    uint32_t built, cached, failed;
    double build_ms;
};
struct kernel_stats kernel_stats(const struct device *d);

#endif
