/* One operator, measured: named variants on generated or given data, with warm-up, statistics,
 * verification against the reference, transfers and their overlap.
 *
 * What a server route or a command line calls; knows neither HTTP nor JSON. Work that would pass
 * the deadline is refused before it starts. Belongs to the device's thread; waits for the queues;
 * switches profiling on for its duration.
 */
#ifndef OINFER_OPS_OPBENCH_H
#define OINFER_OPS_OPBENCH_H

#include "engine/cl/device.h"
#include "engine/ops/data.h"
#include "engine/ops/setting.h"

#define OPBENCH_MAX_ROWS       32
#define OPBENCH_MAX_ITERATIONS 1000

struct opbench_request {
    enum op_id op;
    union op_params params; /* attention: n_splits 0 is what suits the device; sparse_gemv:
                               nnz 0 is what is generated */
    enum dtype dtype;       /* of the tensors; of the weight (linear) or the cache (attention) */
    const char *variant;    /* "auto" (or NULL), "all", or a name */
    const struct setting *settings; /* explicit tunables; only with a named variant */
    uint32_t n_settings;
    uint32_t warmup, iterations; /* iterations 1 to OPBENCH_MAX_ITERATIONS */
    bool verify, return_output;
    bool f32_output;      /* norm, quantize, swiglu: only variants that write ACT_F32 */
    uint64_t deadline_ns; /* the most that all of it may take; 0: no limit */
    uint64_t max_bytes;   /* of all tensors together; 0: what the device and the host have */
    struct op_data data;
    /* Asked between runs, with the time that the next piece of work may take at most; false ends it
     * all with ST_CANCELLED. NULL: never asked. */
    bool (*proceed)(void *user, double next_ns);
    void *user;
};

struct opbench_stats {
    double min_ns, median_ns, p95_ns, mean_ns, stddev_ns;
};

struct opbench_row {
    const char *variant; /* static */
    char settings[128];  /* "ROWS=12 TOKENS=32": every tunable with its value */
    enum status status;  /* not ST_OK: this variant failed; `reason` says why, the figures are 0 */
    char reason[160];    /* also of a wrong result */
    /* Device time: of runs one by one, and of short ones on a GPU the means of bursts, without gaps
     * between the runs. Host time: of runs one by one, from the call to the end. */
    struct opbench_stats kernel, host;
    double gflop_s, gb_s;                /* at the median device time */
    double share_flops, share_bandwidth; /* of the device's measured peaks; 0: not measured */
    double speedup; /* median of the naive variant (plain, three_pass, csr_scalar) over this; 0:
                       unknown */
    bool verified, pass;
    double max_abs, max_rel, nmse;
};

struct opbench_transfers {
    uint64_t upload_bytes, download_bytes;
    double upload_ns, download_ns; /* host time, queues waited for */
    /* the same upload while the first row's kernels run: busy times of the queues, and both at once
     */
    double compute_busy_ns, transfer_busy_ns, overlap_ns;
};

struct opbench_result {
    uint32_t n_rows;
    struct opbench_row rows[OPBENCH_MAX_ROWS];
    struct opbench_transfers transfers;
    struct device_peaks peaks;
    uint64_t bytes, flops; /* of one run */
    double estimate_ns;    /* made before the work */
    /* return_output: the outputs of the first run of row output_row, the last one that worked, one
     * after another, in the format of the op's tensors. Owned by the result. */
    void *output;
    uint64_t output_bytes;
    uint32_t output_row;
};

/* ST_INVALID, ST_UNSUPPORTED: field or shape with its limit, or the variant cannot run; ST_TIMEOUT:
 * the estimate passes the deadline (both in the text); ST_NOT_FOUND: no such variant; ST_CANCELLED:
 * `proceed` said so. A failure of one of "all" variants is in its row only. *out is zeroed first;
 * close it in any case. */
enum status opbench_run(struct device *d, const struct opbench_request *r,
                        struct opbench_result *out, struct err *e);
void opbench_close(struct opbench_result *r);

#endif
