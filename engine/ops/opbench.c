/* One operator, measured. A trial (trial_impl.h) holds the data and does the verification; here are
 * the choice of variants, the estimate, the timing loop and the statistics. */
#include "engine/ops/opbench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/ops/config.h"
#include "engine/ops/rules.h"
#include "engine/ops/trial_impl.h"

/* Shares of the peaks that an estimate trusts a variant with, and the rate of the references. */
#define SHARE_GOOD       0.2
#define SHARE_PLAIN      0.005
#define PRIORITY_GOOD    10
#define REFERENCE_FLOP_S 5e8
#define DATA_BYTES_S     1.5e8 /* generated, converted and uploaded: 147 MB/s on two cores */
#define LAUNCH_NS        20e3
#define BUILD_NS         0.5e9
#define PEAKS_NS         10e9 /* measuring them, the first time on a device */
#define BASELINE_RUNS    3
#define BASELINE_NS      3e9 /* the plain variant is not run for longer, only for the comparison */
/* Short runs on a GPU are timed in bursts, as a plan enqueues them: one by itself takes
 * microseconds longer. The queue is held until all of a burst are in it. */
#define BURST_NS   1e6
#define BURST_MAX  16
#define HOLD_STEPS 60000u /* about 0.4 ms on a fast GPU; enqueueing a burst takes half of that */
#define HOLD_NS    2e6

struct bench {
    struct device *d;
    const struct opbench_request *r;
    struct opbench_result *out;
    struct trial trial;
    uint64_t start_ns;
    bool have_reference; /* host memory holds the outputs of the reference */
    double naive_ns;
    struct kernel *hold; /* NULL before the first burst */
    struct buffer *held;
    double samples[2][OPBENCH_MAX_ITERATIONS]; /* device, host */
};

static bool is_all(const struct opbench_request *r)
{
    return r->variant && strcmp(r->variant, "all") == 0;
}

static bool is_auto(const struct opbench_request *r)
{
    return !r->variant || strcmp(r->variant, "auto") == 0;
}

/* Does it write what the caller can read? */
static bool suits(const struct bench *b, const struct variant *v)
{
    return !b->r->f32_output || v->ref || v->act == ACT_F32;
}

/* May the next piece of work, of that length, be done? */
static enum status ask(const struct bench *b, double next_ns, struct err *e)
{
    if (!b->r->proceed || b->r->proceed(b->r->user, next_ns))
        return ST_OK;
    return err_set(e, ST_CANCELLED, "%s: cancelled", op_name(b->r->op));
}

static bool takes_dtype(const struct variant *v, enum dtype dtype)
{
    return v->dtype == DT_ANY || v->dtype == (int)dtype;
}

/* Why there is no such variant here: its name, what the device lacks, or its dtypes. */
static enum status explain(const struct bench *b, struct err *e)
{
    const struct opbench_request *r = b->r;
    const char *op = op_name(r->op), *device = device_info(b->d)->name;
    const struct variant *other = NULL;
    for (uint32_t i = 0; i < variant_row_count && !is_auto(r) && !is_all(r); i++) {
        const struct variant *v = &variant_rows[i];
        if (v->op != r->op || strcmp(v->name, r->variant) != 0)
            continue;
        const uint32_t lacks = v->needs & ~device_caps(b->d);
        if (device_is_host(b->d))
            return err_set(e, ST_UNSUPPORTED, "%s %s: %s runs the reference only (ref)", op,
                           v->name, device);
        if (takes_dtype(v, r->dtype) && suits(b, v) && lacks)
            return err_set(e, ST_UNSUPPORTED, "%s %s: needs %s, which %s lacks", op, v->name,
                           device_cap_name((enum device_cap)(lacks & (~lacks + 1))), device);
        other = v;
    }
    if (other)
        return err_set(e, ST_UNSUPPORTED, "%s %s: has no form for %s", op, other->name,
                       dtype_name(r->dtype));
    return err_set(e, ST_NOT_FOUND, "%s: no variant \"%.40s\" for %s on %s", op_name(r->op),
                   is_auto(r) ? "auto" : r->variant, dtype_name(r->dtype), device_info(b->d)->name);
}

/* The variants that the request names, in the registry's order; auto: the best one. */
static enum status choose(struct bench *b, const struct variant *list[OPBENCH_MAX_ROWS],
                          uint32_t *n, struct err *e)
{
    const struct opbench_request *r = b->r;
    const struct op_call call = {.op = r->op, .params = r->params};
    *n = 0;
    if (is_auto(r) && r->f32_output) {
        uint64_t rows, tokens;
        op_extent(&call, &rows, &tokens);
        list[0] = variant_choose(b->d, &(struct variant_query){.op = r->op,
                                                               .dtype = -1,
                                                               .act = ACT_F32,
                                                               .layout = -1,
                                                               .n_tokens = (uint32_t)tokens,
                                                               .k = op_columns(&call)});
        *n = list[0] ? 1 : 0;
    } else if (is_auto(r)) {
        list[0] = variant_for_call(b->d, &call, r->dtype, NULL);
        *n = list[0] ? 1 : 0;
    } else {
        const struct variant *v;
        for (uint32_t i = 0; (v = variant_at(b->d, r->op, i)) != NULL && *n < OPBENCH_MAX_ROWS; i++)
            if (takes_dtype(v, r->dtype) && suits(b, v) &&
                (is_all(r) || strcmp(v->name, r->variant) == 0))
                list[(*n)++] = v;
    }
    if (*n > 0)
        return ST_OK;
    return explain(b, e);
}

/* One run of a variant, judged by its kind and the device's peaks; what it packs into private
 * memory is written and read once. */
static double estimate_run_ns(const struct bench *b, const struct variant *v)
{
    const struct device_peaks *peaks = &b->out->peaks;
    const struct op_call call = {.op = b->r->op, .params = b->r->params};
    const double share = v->priority >= PRIORITY_GOOD ? SHARE_GOOD : SHARE_PLAIN;
    const double math = (double)b->out->flops / (peaks->f32_gflop_s * share);
    const double packed = 2.0 * (double)op_scratch_bytes(v, &call);
    const double memory = ((double)b->out->bytes + packed) / (peaks->copy_gb_s * share);
    return LAUNCH_NS + fmax(math, memory);
}

/* The reference's run. */
static double reference_ns(const struct bench *b)
{
    return ((double)b->out->flops + (double)b->out->bytes) / REFERENCE_FLOP_S * 1e9;
}

static double estimate_ns(const struct bench *b, const struct variant *const *list, uint32_t n)
{
    const struct opbench_request *r = b->r;
    double total = (double)b->out->bytes / DATA_BYTES_S * 1e9;
    for (uint32_t i = 0; i < n; i++)
        total += BUILD_NS + estimate_run_ns(b, list[i]) * (r->warmup + r->iterations + 1.0);
    if (r->verify)
        total += reference_ns(b);
    return total;
}

static double elapsed_ns(const struct bench *b)
{
    return (double)(clock_now_ns() - b->start_ns);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct opbench_stats summarise(double *samples, uint32_t n)
{
    struct opbench_stats s = {0};
    qsort(samples, n, sizeof *samples, compare_doubles);
    for (uint32_t i = 0; i < n; i++)
        s.mean_ns += samples[i] / n;
    for (uint32_t i = 0; i < n; i++)
        s.stddev_ns += (samples[i] - s.mean_ns) * (samples[i] - s.mean_ns) / n;
    s.stddev_ns = sqrt(s.stddev_ns);
    s.min_ns = samples[0];
    s.median_ns = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
    s.p95_ns = samples[(n - 1) * 95 / 100];
    return s;
}

/* One run: device time from the events of all its stages, host time from call to finish. */
static enum status time_run(struct bench *b, struct op_step *step, double *device_ns,
                            double *host_ns, struct err *e)
{
    struct prof_report report = {0};
    const uint64_t start_ns = clock_now_ns();
    enum status st = op_run(step, e);
    if (st == ST_OK)
        st = queue_wait(b->d, QUEUE_COMPUTE, e);
    *host_ns = (double)(clock_now_ns() - start_ns);
    if (st == ST_OK)
        st = prof_collect(b->d, &report, e);
    *device_ns = (double)report.compute_busy_ns;
    return st;
}

static enum status open_hold(struct bench *b, struct err *e)
{
    const uint32_t steps = HOLD_STEPS;
    enum status st = b->hold ? ST_OK : kernel_open(b->d, "memory/hold.cl", "", "hold", &b->hold, e);
    if (st == ST_OK && !b->held)
        st = buffer_open(b->d, sizeof steps, BUFFER_SCRATCH, "hold", &b->held, e);
    if (st == ST_OK)
        st = kernel_set_buffer(b->hold, 0, b->held, e);
    return st == ST_OK ? kernel_set_bytes(b->hold, 1, &steps, sizeof steps, e) : st;
}

/* How many runs of this length make a burst; 1: they are timed one by one. */
static uint32_t burst_runs(const struct bench *b, double device_ns)
{
    if (!(device_caps(b->d) & CAP_GPU) || device_ns <= 0 || device_ns * 2 > BURST_NS)
        return 1;
    return device_ns * BURST_MAX < BURST_NS ? BURST_MAX : (uint32_t)(BURST_NS / device_ns);
}

/* Mean device time of n runs in a row. */
static enum status time_burst(struct bench *b, struct op_step *step, uint32_t n, double *device_ns,
                              struct err *e)
{
    static const size_t one[3] = {1, 1, 1};
    struct prof_report report = {0};
    enum status st = open_hold(b, e);
    if (st == ST_OK)
        st = kernel_launch(b->hold, one, one, "hold", "", 0, 0, e);
    for (uint32_t i = 0; st == ST_OK && i < n; i++)
        st = op_run(step, e);
    if (st == ST_OK)
        st = queue_wait(b->d, QUEUE_COMPUTE, e);
    if (st == ST_OK)
        st = prof_collect(b->d, &report, e);
    uint64_t ns = report.compute_busy_ns;
    for (uint32_t i = 0; i < report.n_rows; i++)
        ns -= strcmp(report.rows[i].name, "hold") == 0 ? report.rows[i].total_ns : 0;
    *device_ns = (double)ns / n;
    return st;
}

/* Fresh inputs on the device, in the variant's formats. */
static enum status prepare(struct bench *b, const struct variant *v, struct err *e)
{
    struct trial *t = &b->trial;
    trial__close_buffers(t);
    t->v = v;
    enum status st = ST_OK;
    if (!op_rules(v->op) || !t->host[0]) { /* references of model ops may change their inputs */
        trial__close(t);
        t->ref_call = t->call = (struct op_call){.op = v->op};
        trial__describe(t, &b->r->params, b->r->dtype);
        b->have_reference = false;
        st = trial__host(t, e);
        if (st == ST_OK)
            st = data_make(&t->ref_call, &b->r->data, t->host, e);
    } else {
        trial__describe(t, &b->r->params, b->r->dtype);
    }
    return st == ST_OK ? trial__upload(t, e) : st;
}

static enum status verify(struct bench *b, struct opbench_row *row, struct err *e)
{
    struct trial *t = &b->trial;
    struct trial_result result;
    enum status st = ask(b, reference_ns(b), e);
    if (st == ST_OK && !b->have_reference)
        st = trial__reference(t, e);
    if (st != ST_OK)
        return st;
    b->have_reference = true;
    st = trial__check(t, &result, e);
    if (st != ST_OK)
        return st;
    row->verified = true;
    row->pass = result.passed;
    row->max_abs = result.max_abs;
    row->max_rel = result.max_rel;
    row->nmse = result.nmse;
    memcpy(row->reason, result.reason, sizeof row->reason);
    return ST_OK;
}

/* Copies the outputs behind one another to *out, which replaces what is there. */
static enum status take_output(struct bench *b, void **out, uint64_t *out_bytes, struct err *e)
{
    const struct op_call *call = &b->trial.call;
    uint64_t n = 0;
    for (uint32_t i = 0; i < op_tensor_count(call->op); i++)
        n += op_tensor_is_output(call->op, i) ? call->tensors[i].bytes : 0;
    char *output = mem_alloc(n);
    if (!output)
        return err_set(e, ST_NO_MEMORY, "%s: no memory for %" PRIu64 " bytes of output",
                       op_name(call->op), n);
    mem_free(*out);
    *out = output;
    *out_bytes = n;
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < op_tensor_count(call->op); i++) {
        const struct tensor *x = &call->tensors[i];
        if (!op_tensor_is_output(call->op, i) || x->bytes == 0)
            continue;
        st = queue_read(b->d, QUEUE_COMPUTE, x->buffer, x->offset, output, x->bytes, "output", e);
        output += x->bytes;
    }
    return st == ST_OK ? queue_wait(b->d, QUEUE_COMPUTE, e) : st;
}

/* Inputs to the device and outputs back, then the inputs again beside running kernels. */
static enum status measure_transfers(struct bench *b, struct op_step *step, struct err *e)
{
    struct opbench_transfers *x = &b->out->transfers;
    struct trial *t = &b->trial;
    struct buffer *spare = NULL;
    uint64_t largest = 0;
    void *output = NULL;
    enum status st = ask(b, LAUNCH_NS, e);
    for (uint32_t pass = 0; st == ST_OK && pass < 2; pass++) {
        struct prof_report report = {0};
        uint64_t start_ns = clock_now_ns();
        for (uint32_t i = 0; pass == 1 && st == ST_OK && i < b->r->iterations; i++)
            st = op_run(step, e);
        if (pass == 1 && st == ST_OK)
            st = queue_flush(b->d, QUEUE_COMPUTE, e);
        for (uint32_t i = 0; st == ST_OK && i < op_tensor_count(t->call.op); i++) {
            const uint64_t n = op_tensor_bytes(&t->ref_call, i);
            if (op_tensor_is_output(t->call.op, i) || n == 0)
                continue;
            if (n > largest) {
                buffer_close(spare);
                spare = NULL;
                largest = n;
                st = buffer_open(b->d, n, BUFFER_IO, "transfers", &spare, e);
            }
            if (st == ST_OK)
                st = queue_write(b->d, QUEUE_TRANSFER, spare, 0, t->host[i], n, "upload", e);
            x->upload_bytes += pass == 0 ? n : 0;
        }
        if (st == ST_OK)
            st = queue_wait(b->d, QUEUE_TRANSFER, e);
        if (pass == 0) {
            x->upload_ns = (double)(clock_now_ns() - start_ns);
            start_ns = clock_now_ns();
            if (st == ST_OK)
                st = take_output(b, &output, &x->download_bytes, e);
            x->download_ns = (double)(clock_now_ns() - start_ns);
        }
        if (st == ST_OK)
            st = prof_collect(b->d, &report, e);
        if (pass == 1) {
            x->compute_busy_ns = (double)report.compute_busy_ns;
            x->transfer_busy_ns = (double)report.transfer_busy_ns;
            x->overlap_ns = (double)report.overlap_ns;
        }
    }
    mem_free(output);
    buffer_close(spare);
    return st;
}

/* Fills the rates of a row from its times. */
static void rate(const struct bench *b, struct opbench_row *row)
{
    const struct opbench_result *out = b->out;
    if (row->kernel.median_ns <= 0)
        return;
    row->gflop_s = (double)out->flops / row->kernel.median_ns;
    row->gb_s = (double)out->bytes / row->kernel.median_ns;
    if (out->peaks.f32_gflop_s > 0)
        row->share_flops = row->gflop_s / out->peaks.f32_gflop_s;
    if (out->peaks.copy_gb_s > 0)
        row->share_bandwidth = row->gb_s / out->peaks.copy_gb_s;
}

/* Text of every tunable of the configuration. */
static void describe_settings(const struct variant *v, const struct opbench_request *r,
                              struct opbench_row *row)
{
    struct tunable list[CONFIG_MAX_TUNABLES];
    const uint32_t n = variant_tunable_list(v, list);
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof row->settings; i++) {
        uint32_t value = list[i].standard;
        for (uint32_t j = 0; j < r->n_settings; j++)
            if (strcmp(r->settings[j].name, list[i].name) == 0)
                value = r->settings[j].value;
        used += (size_t)snprintf(row->settings + used, sizeof row->settings - used, "%s%s=%u",
                                 i ? " " : "", list[i].name, value);
    }
}

/* Runs, verifies and times one variant; n iterations. */
static enum status bench_variant(struct bench *b, const struct variant *v, uint32_t n,
                                 struct opbench_row *row, bool report, struct err *e)
{
    struct op_step *step = NULL;
    double device_ns, host_ns;
    enum status st = ask(b, BUILD_NS + estimate_run_ns(b, v), e);
    if (st == ST_OK)
        st = prepare(b, v, e);
    if (st == ST_OK)
        st = op_bind(b->d, v, &b->trial.call, &step, e);
    if (st == ST_OK)
        st = time_run(b, step, &device_ns, &host_ns, e);
    if (st == ST_OK && report && b->r->verify)
        st = verify(b, row, e);
    if (st == ST_OK && report && b->r->return_output) { /* before ops in place have run again */
        st = take_output(b, &b->out->output, &b->out->output_bytes, e);
        b->out->output_row = b->out->n_rows - 1;
    }
    const uint64_t left = b->r->warmup + (uint64_t)n;
    const double burst_ns = device_caps(b->d) & CAP_GPU ? HOLD_NS + BURST_NS : 0;
    const double run_ns = st == ST_OK ? host_ns + burst_ns : 0;
    if (st == ST_OK && b->r->deadline_ns > 0 &&
        elapsed_ns(b) + run_ns * (double)left > (double)b->r->deadline_ns)
        st = err_set(
            e, ST_TIMEOUT, "%s %s: %" PRIu64 " runs of %.3g ms pass the deadline of %.3g ms",
            op_name(v->op), v->name, left, run_ns * 1e-6, (double)b->r->deadline_ns * 1e-6);
    for (uint32_t i = 0; st == ST_OK && i < left; i++) {
        st = ask(b, run_ns, e);
        if (st == ST_OK)
            st = time_run(b, step, &device_ns, &host_ns, e);
        const uint32_t burst = st == ST_OK ? burst_runs(b, device_ns) : 1;
        if (st == ST_OK && burst > 1)
            st = time_burst(b, step, burst, &device_ns, e);
        if (st == ST_OK && i >= b->r->warmup) {
            b->samples[0][i - b->r->warmup] = device_ns;
            b->samples[1][i - b->r->warmup] = host_ns;
        }
    }
    if (st == ST_OK) {
        row->kernel = summarise(b->samples[0], n);
        row->host = summarise(b->samples[1], n);
        rate(b, row);
    }
    if (st == ST_OK && report && b->out->transfers.upload_bytes == 0)
        st = measure_transfers(b, step, e);
    op_step_close(step);
    return st;
}

/* The form that the others are compared with: the one that is first written down. */
static bool is_naive(const struct variant *v)
{
    static const char *const names[] = {"naive", "plain", "three_pass", "csr_scalar"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(v->name, names[i]) == 0)
            return true;
    return false;
}

/* The time of the plain variant where no row has it and there is time for it. */
static void measure_naive(struct bench *b)
{
    const struct variant *v = NULL;
    for (uint32_t i = 0; (v = variant_at(b->d, b->r->op, i)) != NULL; i++)
        if (is_naive(v) && takes_dtype(v, b->r->dtype))
            break;
    const double wanted = v ? (BASELINE_RUNS + 1.0) * estimate_run_ns(b, v) : 0;
    if (!v || wanted > BASELINE_NS ||
        (b->r->deadline_ns > 0 && elapsed_ns(b) + wanted > (double)b->r->deadline_ns))
        return;
    struct opbench_row row = {.variant = v->name};
    struct opbench_request once = *b->r;
    once.warmup = 0;
    const struct opbench_request *r = b->r;
    b->r = &once;
    const uint32_t n = r->iterations < BASELINE_RUNS ? r->iterations : BASELINE_RUNS;
    if (bench_variant(b, v, n, &row, false, NULL) == ST_OK)
        b->naive_ns = row.kernel.median_ns;
    b->r = r;
}

/* All rows, in order. */
static enum status bench_rows(struct bench *b, const struct variant *const *list, uint32_t n,
                              struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        struct config config;
        struct err why = {0};
        struct opbench_row *row = &b->out->rows[b->out->n_rows++];
        *row = (struct opbench_row){.variant = list[i]->name};
        const struct variant *v = list[i];
        if (b->r->n_settings > 0) {
            row->status = variant_configure(v, b->r->settings, b->r->n_settings, &config, &why);
            v = &config.row;
        }
        describe_settings(list[i], b->r, row);
        if (row->status == ST_OK)
            row->status = bench_variant(b, v, b->r->iterations, row, true, &why);
        if (row->status == ST_OK && is_naive(v))
            b->naive_ns = row->kernel.median_ns;
        if (row->status == ST_OK)
            continue;
        if (!is_all(b->r) || row->status == ST_DEVICE_LOST || row->status == ST_CANCELLED) {
            if (e)
                *e = why;
            return row->status;
        }
        snprintf(row->reason, sizeof row->reason, "%.159s", why.text);
    }
    return ST_OK;
}

static enum status check_request(const struct opbench_request *r, struct err *e)
{
    const char *op = op_name(r->op);
    if (r->op >= OP_COUNT)
        return err_set(e, ST_INVALID, "op %u: no such op", (unsigned)r->op);
    if (r->iterations < 1 || r->iterations > OPBENCH_MAX_ITERATIONS)
        return err_set(e, ST_INVALID, "%s: iterations is %u, expected 1 to %d", op, r->iterations,
                       OPBENCH_MAX_ITERATIONS);
    if (r->warmup > OPBENCH_MAX_ITERATIONS)
        return err_set(e, ST_INVALID, "%s: warmup is %u, expected at most %d", op, r->warmup,
                       OPBENCH_MAX_ITERATIONS);
    if (r->n_settings > 0 && (is_auto(r) || is_all(r)))
        return err_set(e, ST_INVALID, "%s: params need a variant by name", op);
    return ST_OK;
}

/* The layout of the call's tensors, as rows of kernels.def have it. */
static uint32_t layout_of(const struct op_call *call)
{
    return call->op == OP_CONV2D        ? call->params.conv2d.layout
           : call->op == OP_SPARSE_GEMV ? call->params.sparse_gemv.format
                                        : 0;
}

/* The shape, and whether it fits the device, before anything is allocated. */
static enum status check_shape(struct bench *b, const struct variant *const *list, uint32_t n,
                               struct err *e)
{
    const struct opbench_request *r = b->r;
    struct trial *t = &b->trial;
    uint64_t need = 0;
    t->v = list[0];
    enum status st =
        op_check_params(list[0], &(struct op_call){.op = r->op, .params = r->params}, e);
    if (st != ST_OK)
        return st;
    t->ref_call.op = t->call.op = r->op;
    trial__describe(t, &r->params, r->dtype);
    for (uint32_t i = 0; i < op_tensor_count(r->op); i++) {
        const uint64_t bytes = t->ref_call.tensors[i].bytes;
        need += bytes;
        if (!device_is_host(b->d) && bytes > buffer_max_bytes(b->d))
            return err_set(e, ST_INVALID,
                           "%s: tensor %s of %" PRIu64 " bytes, the device allows %" PRIu64,
                           op_name(r->op), op_tensor_name(r->op, i), bytes, buffer_max_bytes(b->d));
    }
    if (r->max_bytes > 0 && need > r->max_bytes)
        return err_set(e, ST_NO_DEVICE_MEMORY,
                       "%s: tensors of %" PRIu64 " bytes, the limit is %" PRIu64, op_name(r->op),
                       need, r->max_bytes);
    const struct device_memory memory = device_memory(b->d);
    if (memory.limit_bytes > 0 && need > memory.limit_bytes - memory.used_bytes)
        return err_set(e, ST_INVALID,
                       "%s: tensors of %" PRIu64 " bytes, the device has %" PRIu64 " left",
                       op_name(r->op), need, memory.limit_bytes - memory.used_bytes);
    const uint64_t available = mem_available_bytes();
    if (available > 0 && 2 * need > available)
        return err_set(e, ST_INVALID,
                       "%s: tensors of %" PRIu64 " bytes, the host has %" PRIu64
                       " left for them and their reference",
                       op_name(r->op), need, available);
    const struct op_call call = {.op = r->op, .params = r->params};
    /* rows of one name may be for other layouts: one has to fit, else that of the call's layout
     * says why not */
    const char *why = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const char *reason = variant_refuses(list[i], &call);
        if (!reason || !why || list[i]->layout == layout_of(&call))
            why = reason;
        if (!reason)
            break;
    }
    if (why)
        return err_set(e, ST_UNSUPPORTED, "%s %s: %s", op_name(r->op), list[n - 1]->name, why);
    b->out->bytes = op_bytes(&t->ref_call);
    b->out->flops = op_flops(&t->ref_call);
    return ST_OK;
}

/* Leaves out what cannot run the shape. */
static void drop_refusing(const struct opbench_request *r, const struct variant **list, uint32_t *n)
{
    const struct op_call call = {.op = r->op, .params = r->params};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++)
        if (!variant_refuses(list[i], &call))
            list[kept++] = list[i];
    *n = kept;
}

static enum status run(struct bench *b, struct err *e)
{
    const struct variant *list[OPBENCH_MAX_ROWS];
    uint32_t n;
    enum status st = check_request(b->r, e);
    if (st == ST_OK)
        st = choose(b, list, &n, e);
    if (st == ST_OK)
        st = check_shape(b, list, n, e);
    if (st == ST_OK)
        st = ask(b, PEAKS_NS, e);
    if (st == ST_OK)
        st = device_measure_peaks(b->d, &b->out->peaks, e);
    if (st != ST_OK)
        return st;
    drop_refusing(b->r, list, &n);
    b->out->estimate_ns = estimate_ns(b, list, n);
    if (b->r->deadline_ns > 0 && b->out->estimate_ns > (double)b->r->deadline_ns)
        return err_set(
            e, ST_TIMEOUT,
            "%s: %u variants and %u iterations would take about %.0f ms, the deadline is "
            "%.0f ms",
            op_name(b->r->op), n, b->r->iterations, b->out->estimate_ns * 1e-6,
            (double)b->r->deadline_ns * 1e-6);
    const bool was_on = prof_enabled(b->d);
    st = prof_enable(b->d, true, e);
    b->start_ns = clock_now_ns();
    if (st == ST_OK)
        st = bench_rows(b, list, n, e);
    if (st == ST_OK && b->naive_ns == 0)
        measure_naive(b);
    for (uint32_t i = 0; i < b->out->n_rows; i++)
        if (b->out->rows[i].kernel.median_ns > 0)
            b->out->rows[i].speedup = b->naive_ns / b->out->rows[i].kernel.median_ns;
    trial__close(&b->trial);
    kernel_close(b->hold);
    buffer_close(b->held);
    const enum status off = was_on ? ST_OK : prof_enable(b->d, false, st == ST_OK ? e : NULL);
    return st == ST_OK ? off : st;
}

enum status opbench_run(struct device *d, const struct opbench_request *r,
                        struct opbench_result *out, struct err *e)
{
    *out = (struct opbench_result){0};
    struct bench *b = mem_zalloc(sizeof *b);
    if (!b)
        return err_set(e, ST_NO_MEMORY, "%s: no memory to measure", op_name(r->op));
    struct opbench_request own = *r;
    if (own.op == OP_ATTENTION && own.params.attention.n_splits == 0)
        own.params.attention.n_splits = device_is_host(d) || own.params.attention.n_tokens == 0 ||
                                                own.params.attention.n_head == 0
                                            ? 1
                                            : attention_splits(d, &own.params.attention);
    struct sparse_gemv_params *sparse = &own.params.sparse_gemv;
    if (own.op == OP_SPARSE_GEMV && sparse->format == SPARSE_CSR && sparse->nnz == 0 &&
        !own.data.inputs[0] && (uint64_t)sparse->m * sparse->k <= UINT32_MAX)
        sparse->nnz =
            (uint32_t)data_count_kept(own.data.seed, sparse->m, sparse->k, own.data.density);
    b->d = d;
    b->r = &own;
    b->out = out;
    b->trial.d = d;
    enum status st = run(b, e);
    mem_free(b);
    if (!r->return_output) {
        mem_free(out->output);
        out->output = NULL;
        out->output_bytes = 0;
    }
    return st;
}

void opbench_close(struct opbench_result *r)
{
    mem_free(r->output);
    r->output = NULL;
}
