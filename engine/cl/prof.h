/* Timings: what ran on the two queues, by kernel and variant.
 *
 * Off: no events, no cost. On: every enqueue takes an event slot, collected in batches, released at
 * once. A report is a plain value that the caller owns. Belongs to the device's thread.
 */
#ifndef OINFER_CL_PROF_H
#define OINFER_CL_PROF_H

#include "engine/cl/device.h"

struct prof_row {
    const char *name, *variant; /* static strings */
    uint64_t calls, total_ns, min_ns, max_ns, bytes, flops;
};

#define PROF_MAX_ROWS 64

struct prof_report {
    uint32_t n_rows;
    struct prof_row
        rows[PROF_MAX_ROWS]; /* descending total_ns; the last one "other" if they overflow */
    uint64_t compute_busy_ns, transfer_busy_ns, overlap_ns; /* unions of intervals */
    uint64_t launches;
};

/* Switches measuring. Turning it on or off may re-create the queue pair (both must be idle: waits).
 */
enum status prof_enable(struct device *d, bool on, struct err *e);
bool prof_enabled(const struct device *d);
/* Waits for both queues, adds what was measured since the last collect to *report, and forgets it.
 * Drain regularly (each step): at most PROF_EVENTS slots are held, then the oldest are read. */
enum status prof_collect(struct device *d, struct prof_report *report, struct err *e);
/* Adds a row measured elsewhere (host references, device-side timestamps). Queue: compute. */
void prof_add(struct device *d, const char *name, const char *variant, uint64_t start_ns,
              uint64_t end_ns, uint64_t bytes, uint64_t flops);
/* Divides the last launch, which has been waited for, among parts that the device itself measured:
 * each becomes a row, and what they leave of the launch's time and bytes stays its own row. At
 * most 64 parts; that sum to more than the launch took are scaled down. A launch already collected
 * stays whole. */
void prof_divide(struct device *d, const struct prof_row *parts, uint32_t n);
void prof_merge(struct prof_report *into, const struct prof_report *from);

#endif
