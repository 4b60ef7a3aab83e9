/* What the device reaches at most, measured by its own kernels (probe/peaks.cl) and cached. */
#include <math.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/cl/impl.h"

#define PEAKS_FOLDER  "devices"
#define PEAKS_VERSION "peaks 5" /* part of the cache key */
#define PEAKS_FILE    "probe/peaks.cl"
#define ROUNDS_CPU    200000
#define ROUNDS_GPU    20000
#define REPEATS       4 /* the best counts: other load on the machine only slows down */
#define BATCH_NS      ((uint64_t)20 * 1000 * 1000)

/* Sizes of one device's measurement. word_bytes: of the kernels' `word`; lanes: floats of `lanes`;
 * chains: independent multiply-adds of an item (as in the kernel file). */
struct shape {
    const char *defines;
    uint64_t bytes;
    size_t items, group, math_items;
    uint32_t word_bytes, lanes, chains, rounds;
};

static struct shape choose_shape(const struct device *d)
{
    bool cpu = d->info.kind == DEVICE_CPU;
    uint64_t gib = (uint64_t)1 << 30, room = d->memory.limit_bytes / 4;
    uint64_t bytes = cpu ? gib / 4 : gib, max = buffer_max_bytes(d);
    if (bytes > room)
        bytes = room;
    if (bytes > max)
        bytes = max;
    size_t units = d->info.compute_units == 0 ? 1 : d->info.compute_units;
    struct shape s = {.bytes = bytes};
    if (cpu) {
        s.defines = "-DCPU";
        s.items = s.math_items = units;
        s.group = 1;
        s.word_bytes = 64;
        s.lanes = 16; /* or half of them, twice */
        s.chains = 12;
        s.rounds = ROUNDS_CPU;
    } else {
        s.defines = "";
        s.group = d->info.max_work_group < 256 ? d->info.max_work_group : 256;
        s.items = units * 8 * s.group;
        s.math_items = units * 32 * s.group;
        s.word_bytes = 16;
        s.lanes = 1;
        s.chains = 16;
        s.rounds = ROUNDS_GPU;
    }
    s.bytes -= s.bytes % ((uint64_t)s.word_bytes * s.items);
    return s;
}

/* Time of n launches back to back, in ns. */
static enum status time_batch(struct kernel *k, struct device *d, size_t items, size_t group,
                              const char *name, uint32_t n, uint64_t *ns, struct err *e)
{
    uint64_t start = clock_now_ns();
    enum status status = ST_OK;
    for (uint32_t i = 0; i < n && status == ST_OK; i++)
        status = kernel_launch(k, (const size_t[]){items, 1, 1}, (const size_t[]){group, 1, 1},
                               name, "", 0, 0, e);
    if (status == ST_OK)
        status = queue_wait(d, QUEUE_COMPUTE, e);
    *ns = clock_now_ns() - start + 1;
    return status;
}

/* Time of one launch: the best of REPEATS batches that are long enough for the wait not to matter,
 * after two launches that compile and warm up. */
static enum status time_launch(struct kernel *k, struct device *d, size_t items, size_t group,
                               const char *name, double *best_ns, struct err *e)
{
    uint64_t ns = 0;
    enum status status = time_batch(k, d, items, group, name, 1, &ns, e);
    if (status == ST_OK)
        status = time_batch(k, d, items, group, name, 1, &ns, e);
    uint32_t n = ns < BATCH_NS ? (uint32_t)(BATCH_NS / ns) + 1 : 1;
    *best_ns = 0;
    for (int i = 0; i < REPEATS && status == ST_OK; i++) {
        status = time_batch(k, d, items, group, name, n, &ns, e);
        if (i == 0 || (double)ns / n < *best_ns)
            *best_ns = (double)ns / n;
    }
    return status;
}

/* Reads (or copies) a buffer with the kernel `entry`. */
static enum status measure_stream(struct device *d, const struct shape *s, const char *entry,
                                  struct buffer *from, struct buffer *to, double *ns, struct err *e)
{
    struct kernel *k = NULL;
    cl_ulong n_words = from->n_bytes / s->word_bytes;
    enum status status = kernel_open(d, PEAKS_FILE, s->defines, entry, &k, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, 0, from, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, 1, to, e);
    if (status == ST_OK)
        status = kernel_set_bytes(k, 2, &n_words, sizeof n_words, e);
    if (status == ST_OK)
        status = time_launch(k, d, s->items, s->group, entry, ns, e);
    kernel_close(k);
    return status;
}

static enum status measure_math(struct device *d, const struct shape *s, struct buffer *to,
                                double *ns, struct err *e)
{
    struct kernel *k = NULL;
    float factor = 0.999f, addend = 0.25f;
    enum status status = kernel_open(d, PEAKS_FILE, s->defines, "multiply_add", &k, e);
    if (status == ST_OK)
        status = kernel_set_buffer(k, 0, to, e);
    if (status == ST_OK)
        status = kernel_set_bytes(k, 1, &factor, sizeof factor, e);
    if (status == ST_OK)
        status = kernel_set_bytes(k, 2, &addend, sizeof addend, e);
    if (status == ST_OK)
        status = kernel_set_bytes(k, 3, &s->rounds, sizeof s->rounds, e);
    if (status == ST_OK)
        status = time_launch(k, d, s->math_items, s->group, "multiply_add", ns, e);
    kernel_close(k);
    return status;
}

static enum status measure(struct device *d, struct device_peaks *out, struct err *e)
{
    struct shape s = choose_shape(d);
    struct buffer *from = NULL, *to = NULL;
    double read_ns = 0, copy_ns = 0, math_ns = 0;
    enum status status = buffer_open(d, s.bytes, BUFFER_SCRATCH, "peaks source", &from, e);
    if (status == ST_OK)
        status = buffer_open(d, s.bytes, BUFFER_SCRATCH, "peaks target", &to, e);
    if (status == ST_OK)
        status = queue_fill(d, QUEUE_COMPUTE, from, 0, s.bytes, 1, "peaks", e);
    if (status == ST_OK)
        status = measure_stream(d, &s, "read_all", from, to, &read_ns, e);
    if (status == ST_OK)
        status = measure_stream(d, &s, "copy_all", from, to, &copy_ns, e);
    if (status == ST_OK)
        status = measure_math(d, &s, to, &math_ns, e);
    buffer_close(from);
    buffer_close(to);
    if (status != ST_OK)
        return status;
    double flops = 2.0 * (double)s.math_items * s.lanes * s.chains * s.rounds;
    out->read_gb_s = (double)s.bytes / read_ns;
    out->copy_gb_s = 2.0 * (double)s.bytes / copy_ns;
    out->f32_gflop_s = flops / math_ns;
    return ST_OK;
}

/* `host` is measured as the references run: one thread, plain C. */
static enum status measure_host(struct device_peaks *out, struct err *e)
{
    enum { BYTES = 64 << 20, MATH = 1 << 24 };
    unsigned char *from = mem_aligned(64, BYTES), *to = mem_aligned(64, BYTES);
    if (from == NULL || to == NULL) {
        mem_free(from);
        mem_free(to);
        return err_set(e, ST_NO_MEMORY, "host: measuring: out of memory");
    }
    memset(from, 1, BYTES);
    memset(to, 0, BYTES);
    uint64_t start = clock_now_ns();
    memcpy(to, from, BYTES);
    uint64_t copy_ns = clock_now_ns() - start + 1;
    const volatile uint64_t *words = (const uint64_t *)(const void *)from;
    start = clock_now_ns();
    for (size_t i = 0; i < BYTES / sizeof *words; i++)
        (void)words[i];
    uint64_t read_ns = clock_now_ns() - start + 1;
    volatile float sink = 1.0f;
    float v[4] = {sink, sink, sink, sink};
    start = clock_now_ns();
    for (int i = 0; i < MATH; i++)
        v[i % 4] = v[i % 4] * 0.999f + 0.25f;
    sink = v[0] + v[1] + v[2] + v[3];
    uint64_t math_ns = clock_now_ns() - start + 1;
    out->read_gb_s = (double)BYTES / (double)read_ns;
    out->copy_gb_s = 2.0 * (double)BYTES / (double)copy_ns;
    out->f32_gflop_s = 2.0 * (double)MATH / (double)math_ns;
    mem_free(from);
    mem_free(to);
    return ST_OK;
}

/* What the cache's file holds: the best of n measurements. */
struct kept_peaks {
    struct device_peaks best;
    uint64_t n;
};

static void keep_best(struct device_peaks *best, const struct device_peaks *p)
{
    best->read_gb_s = fmax(best->read_gb_s, p->read_gb_s);
    best->copy_gb_s = fmax(best->copy_gb_s, p->copy_gb_s);
    best->f32_gflop_s = fmax(best->f32_gflop_s, p->f32_gflop_s);
}

/* From the cache's file. In the first processes it is measured again, for one measurement may have
 * met a busy moment; the best of them is kept. */
static enum status recall_or_measure(struct device *d, struct device_peaks *out, struct err *e)
{
    struct cache_key key = device__key(d, "", 0, PEAKS_VERSION);
    struct kept_peaks kept = {.n = 0};
    struct device_peaks now;
    void *data;
    size_t length;
    if (cache_load(d->cache_dir, PEAKS_FOLDER, key, CACHE_PEAKS, &data, &length) &&
        length == sizeof kept)
        memcpy(&kept, data, sizeof kept);
    mem_free(data);
    if (kept.n < PEAKS_MEASURED) {
        enum status status = measure(d, &now, e);
        if (status != ST_OK)
            return status;
        keep_best(&kept.best, &now);
        kept.n++;
        cache_store(d->cache_dir, PEAKS_FOLDER, key, CACHE_PEAKS, &kept, sizeof kept);
    }
    *out = kept.best;
    return ST_OK;
}

enum status device_measure_peaks(struct device *d, struct device_peaks *out, struct err *e)
{
    enum status status = ST_OK;
    memset(out, 0, sizeof *out);
    if (!d->peaks_known) {
        status = d->host ? measure_host(&d->peaks, e) : recall_or_measure(d, &d->peaks, e);
        d->peaks_known = status == ST_OK;
    }
    if (status == ST_OK)
        *out = d->peaks;
    return status;
}
