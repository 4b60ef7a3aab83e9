/* Loading: places everything, compares the bill with the device's memory, has layers stream where
 * that is too much, then allocates, uploads, binds and runs each plan once. The load report says
 * what it took.
 */
#include "engine/model/model.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/trim.h"
#include "engine/cl/kernel.h"
#include "engine/model/rehearsal.h"
#include "engine/model/rope.h"
#include "engine/tensor/quant.h"
#include "engine/tune/tuned.h"

#define DEFAULT_CTX   4096
#define DEFAULT_BATCH 512
#define FEW_TOKENS    8 /* the largest batch that counts as decoding */
#define IO_ALIGN      128
#define SCRATCH_BYTES (1ull << 30) /* of one scratch buffer at most */
#define WARM_TOKENS   9            /* more than FEW_TOKENS: the prefill plan */

static const struct fused_executor *const executors[] = {
#define X(executor) &executor,
#include "engine/model/fused.def"
#undef X
    NULL};

/* The counts of tokens for which there are plans. */
static uint32_t plan_counts(uint32_t n_batch, uint32_t counts[MODEL_MAX_PLANS])
{
    const uint32_t wanted[MODEL_MAX_PLANS] = {1, FEW_TOKENS, n_batch};
    uint32_t n = 0;
    for (uint32_t i = 0; i < MODEL_MAX_PLANS; i++)
        if (wanted[i] <= n_batch && (n == 0 || wanted[i] > counts[n - 1]))
            counts[n++] = wanted[i];
    return n;
}

struct plan *model__plan_for(const struct model *m, uint32_t n_tokens)
{
    uint32_t i = 0;
    while (m->plans[i]->max_tokens < n_tokens)
        i++;
    return m->plans[i];
}

/* ---- tuned values ---- */

/* Puts to use what the file carries, where nothing was tuned on this device. */
static enum status apply_tuned(struct engine *g, const struct model_file *f, struct err *e)
{
    struct tune_store *s;
    enum status status = store_open(&s, e);
    if (status != ST_OK)
        return status;
    status = model_file_tuned(f, s, e);
    if (status == ST_OK)
        status = tuned_apply(g->device, s, true, NULL, e);
    store_close(s);
    return status;
}

/* ---- options ---- */

static enum status resolve_options(struct model *m, const struct load_options *o, struct err *e)
{
    uint32_t n_ctx_train = m->file->hparams.n_ctx_train;
    m->n_ctx = o->n_ctx ? o->n_ctx : n_ctx_train < DEFAULT_CTX ? n_ctx_train : DEFAULT_CTX;
    m->n_slots = o->n_slots ? o->n_slots : 1;
    m->n_batch = o->n_batch ? o->n_batch : DEFAULT_BATCH;
    if (m->n_ctx > n_ctx_train)
        return err_set(e, ST_INVALID, "context: %u tokens, the model was trained for %u", m->n_ctx,
                       n_ctx_train);
    if (m->n_slots > MODEL_MAX_SLOTS)
        return err_set(e, ST_INVALID, "slots: %u, at most %d", m->n_slots, MODEL_MAX_SLOTS);
    if (m->n_batch > MODEL_MAX_BATCH)
        return err_set(e, ST_INVALID, "batch: %u tokens, at most %d", m->n_batch, MODEL_MAX_BATCH);
    if (m->n_batch > (uint64_t)m->n_ctx * m->n_slots)
        m->n_batch = m->n_ctx * m->n_slots;
    return ST_OK;
}

static enum dtype kv_dtype_of(enum kv_dtype kv)
{
    switch (kv) {
    case KV_F16: return DT_F16;
    case KV_F32: return DT_F32;
    case KV_Q8_0: return DT_Q8_0;
    }
    return DT_F16;
}

/* ---- the batch buffers ---- */

/* Reserves room for a tensor of the io buffer. */
static struct tensor io_tensor(uint64_t *end, enum dtype dtype, uint64_t ne0, uint64_t ne1)
{
    struct tensor t = {
        .offset = *end, .bytes = 4 * ne0 * ne1, .dtype = dtype, .ne = {ne0, ne1, 1, 1}};
    *end += (t.bytes + IO_ALIGN - 1) / IO_ALIGN * IO_ALIGN;
    return t;
}

static uint32_t n_tables(const struct model *m)
{
    return weights_at(m->weights, m->file->graph->nodes[0].weight)->n_chunks;
}

static uint64_t place_io(struct model *m)
{
    struct plan_context *c = &m->context;
    uint64_t end = 0;
    c->meta = io_tensor(&end, DT_I32, 4, m->n_batch);
    for (uint32_t i = 0; i < n_tables(m) && i < PLAN_MAX_TABLES; i++)
        c->ids[i] = io_tensor(&end, DT_I32, m->n_batch, 1);
    c->index = io_tensor(&end, DT_I32, PLAN_MAX_OUTPUTS, 1);
    c->found = io_tensor(&end, DT_F32, PLAN_MAX_OUTPUTS, 1);
    return end;
}

static enum status allocate_batch(struct model *m, struct err *e)
{
    m->batch.meta = mem_array(m->n_batch, 4 * sizeof *m->batch.meta);
    m->batch.ids = mem_array((size_t)m->n_batch * n_tables(m), sizeof *m->batch.ids);
    m->batch.rows = mem_array(m->n_batch, sizeof *m->batch.rows);
    m->sessions = mem_array(m->n_slots, sizeof(struct session *));
    if (!m->batch.meta || !m->batch.ids || !m->batch.rows || !m->sessions)
        return err_set(e, ST_NO_MEMORY, "batch: %u tokens", m->n_batch);
    return ST_OK;
}

/* ---- rotation table ---- */

static uint64_t rope_bytes(const struct model *m)
{
    return (uint64_t)m->kv.n_ctx * m->file->hparams.n_rot * sizeof(float);
}

static enum status upload_rope(struct model *m, struct err *e)
{
    const struct hparams *h = &m->file->hparams;
    const struct gguf_tensor *factors = m->file->graph->rope_factors;
    float *divisors = factors ? mem_array(factors->ne[0], sizeof(float)) : NULL;
    float *table = mem_alloc(rope_bytes(m));
    enum status status = ST_OK;
    if (!table || (factors && !divisors))
        status = err_set(e, ST_NO_MEMORY, "rotation table: %llu bytes",
                         (unsigned long long)rope_bytes(m));
    if (status == ST_OK && factors)
        status = quant_to_f32(factors->dtype, factors->data, divisors, factors->ne[0], e);
    if (status == ST_OK) {
        rope_table(h, divisors, m->kv.n_ctx, table);
        status = staging_upload(m->engine->device, m->rope, 0, table, rope_bytes(m), "upload", e);
    }
    mem_free(table);
    mem_free(divisors);
    return status;
}

/* ---- the bill ---- */

struct bill {
    uint64_t weights, kv, scratch; /* scratch: with tables and batch buffers */
    uint64_t loading;              /* on top of them, while the weights are loaded */
    uint64_t least;                /* weights with every layer streaming; 0: they may not */
    uint64_t available;            /* before the model took any */
};

static uint64_t available_bytes(const struct model *m)
{
    struct device_memory memory = device_memory(m->engine->device);
    return memory.limit_bytes > memory.used_bytes ? memory.limit_bytes - memory.used_bytes : 0;
}

static enum status print_bill(const struct model *m, const struct bill *b, struct err *e)
{
    const double gb = 1e9;
    const uint64_t others = b->kv + b->scratch;
    char least[64] = "";
    if (b->least > 0)
        snprintf(least, sizeof least, "; with all layers streaming %.3f GB",
                 (double)(b->least + others + b->loading) / gb);
    return err_set(e, ST_NO_DEVICE_MEMORY,
                   "%s needs %.3f GB on %s: weights %.3f GB, KV cache %.3f GB (%u slots of %u "
                   "tokens), scratch %.3f GB%s; available: %.3f GB",
                   m->file->info.name, (double)(b->weights + others) / gb,
                   device_info(m->engine->device)->name, (double)b->weights / gb,
                   (double)b->kv / gb, m->n_slots, m->n_ctx, (double)b->scratch / gb, least,
                   (double)b->available / gb);
}

/* The bill of a model that the driver refused memory for, though there seemed to be enough: others
 * may have it. *e: what was refused. */
static void add_bill(const struct model *m, const struct bill *b, struct err *e)
{
    if (!e || b->weights == 0)
        return;
    char refused[ERR_TEXT_BYTES];
    snprintf(refused, sizeof refused, "%s", e->text);
    enum status status = print_bill(m, b, e);
    const size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, ", but %s", refused);
    e->status = status;
}

/* Where device and host share one memory, what streams would take as much of it as what stays:
 * there only a limit that was asked for is kept in this way. */
static bool may_stream(const struct model *m)
{
    const enum device_kind kind = device_info(m->engine->device)->kind;
    return (kind != DEVICE_CPU && kind != DEVICE_HOST) ||
           m->engine->memory_limit_bytes == device_memory(m->engine->device).limit_bytes;
}

/* Compares the bill with the memory there is; layers stream where it is too large. */
static enum status settle_bill(struct model *m, struct bill *b, struct err *e)
{
    const uint64_t limit = device_memory(m->engine->device).limit_bytes;
    const uint64_t available = b->available = available_bytes(m),
                   others = b->kv + b->scratch + b->loading;
    const bool may = may_stream(m);
    if (limit == 0 || b->weights + others - (may ? 0 : b->loading) <= available)
        return ST_OK;
    if (!may)
        return print_bill(m, b, e);
    enum status status =
        weights_stream(m->weights, available > others ? available - others : 0, &b->least, e);
    if (status == ST_NO_DEVICE_MEMORY)
        return print_bill(m, b, e);
    m->context.streamer = weights_streamer(m->weights);
    b->weights = weights_device_bytes(m->weights);
    return status;
}

/* ---- the steps of loading ---- */

static enum status place(struct model *m, const struct load_options *o, struct bill *b,
                         struct err *e)
{
    uint32_t counts[MODEL_MAX_PLANS], n = plan_counts(m->n_batch, counts);
    struct engine *g = m->engine;
    const struct model_file *f = m->file;
    enum status status = weights_place(&g->chooser, f->graph, counts, n, &m->weights, e);
    if (status == ST_OK)
        status = kv_place(&g->chooser, &f->hparams, kv_dtype_of(o->kv), m->n_slots, m->n_ctx,
                          counts, n, &m->kv, e);
    if (status != ST_OK)
        return status;
    struct plan_context *c = &m->context;
    *c = (struct plan_context){.chooser = &g->chooser,
                               .device = g->device,
                               .graph = f->graph,
                               .weights = m->weights,
                               .kv = &m->kv,
                               .scratch_limit = buffer_max_bytes(g->device)};
    if (c->scratch_limit > SCRATCH_BYTES)
        c->scratch_limit = SCRATCH_BYTES;
    c->rope = (struct tensor){
        .bytes = rope_bytes(m), .dtype = DT_F32, .ne = {f->hparams.n_rot, m->kv.n_ctx, 1, 1}};
    uint64_t io_bytes = place_io(m);
    for (uint32_t i = 0; i < n && status == ST_OK; i++) {
        status = plan_open(c, counts[i], counts[i], &m->plans[i], e);
        if (status == ST_OK) {
            m->n_plans++;
            if (plan_scratch(m->plans[i]) > m->scratch_bytes)
                m->scratch_bytes = plan_scratch(m->plans[i]);
        }
    }
    *b = (struct bill){.weights = weights_device_bytes(m->weights),
                       .kv = kv_bytes(&m->kv),
                       .scratch = m->scratch_bytes + rope_bytes(m) + io_bytes,
                       .loading = weights_loading_bytes(m->weights)};
    return status;
}

/* The memory of layers that stream, once everything on the device has been written to: some drivers
 * give a buffer its memory only then, and pinned memory may take of it. */
static enum status allocate_streams(struct model *m, struct err *e)
{
    struct device *d = m->engine->device;
    enum status status = queue_touch(d, QUEUE_COMPUTE, m->rope, e);
    if (status == ST_OK)
        status = queue_touch(d, QUEUE_COMPUTE, m->io, e);
    for (uint32_t i = 0; i < m->context.n_scratch && status == ST_OK; i++)
        status = queue_touch(d, QUEUE_COMPUTE, m->scratch[i], e);
    const enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    status = status == ST_OK ? waited : status;
    return status == ST_OK
               ? streamer_allocate_host(m->context.streamer, weights_loading_bytes(m->weights), e)
               : status;
}

static enum status allocate(struct model *m, struct err *e)
{
    struct device *d = m->engine->device;
    struct plan_context *c = &m->context;
    enum status status = weights_allocate(m->weights, e);
    if (status == ST_OK)
        status = kv_allocate(&m->kv, e);
    if (status == ST_OK)
        status = buffer_open(d, rope_bytes(m), BUFFER_SCRATCH, "rotation table", &m->rope, e);
    if (status == ST_OK)
        status = buffer_open(d, c->found.offset + c->found.bytes, BUFFER_IO, "batch", &m->io, e);
    c->n_scratch = (uint32_t)((m->scratch_bytes + c->scratch_limit - 1) / c->scratch_limit);
    m->scratch = mem_array(c->n_scratch, sizeof(struct buffer *));
    if (status == ST_OK && !m->scratch)
        status = err_set(e, ST_NO_MEMORY, "scratch: %u buffers", c->n_scratch);
    for (uint32_t i = 0; i < c->n_scratch && status == ST_OK; i++) {
        uint64_t left = m->scratch_bytes - i * c->scratch_limit;
        status = buffer_open(d, left < c->scratch_limit ? left : c->scratch_limit, BUFFER_SCRATCH,
                             "activations", &m->scratch[i], e);
    }
    if (status == ST_OK && c->streamer)
        status = allocate_streams(m, e);
    c->scratch = m->scratch;
    c->rope.buffer = m->rope;
    c->meta.buffer = c->index.buffer = c->found.buffer = m->io;
    for (uint32_t i = 0; i < PLAN_MAX_TABLES; i++)
        c->ids[i].buffer = m->io;
    return status;
}

/* Tells load_options.progress how far the weights are. */
struct progress {
    const struct model *model;
    const struct load_options *options;
    uint64_t total_bytes;
};

static bool report_progress(void *user, uint64_t bytes_done)
{
    const struct progress *p = user;
    struct kernel_stats stats = kernel_stats(p->model->engine->device);
    return !p->options->progress ||
           p->options->progress(p->options->user, bytes_done, p->total_bytes, stats.built);
}

static enum status load_weights(struct model *m, const struct load_options *o, uint64_t begun_ns,
                                struct err *e)
{
    struct progress progress = {m, o, weights_load_bytes(m->weights)};
    struct weights_report report = {0};
    enum status status = upload_rope(m, e);
    const uint64_t start_ns = clock_now_ns();
    m->report.place_ms = (double)(start_ns - begun_ns) / 1e6;
    if (status == ST_OK)
        status = weights_load(m->weights, m->file->gguf, report_progress, &progress, &report, e);
    m->report.weights_ms = (double)(clock_now_ns() - start_ns) / 1e6;
    m->report.upload_bytes = report.upload_bytes + rope_bytes(m);
    return status;
}

/* Binds the plans and runs each once, so that what a driver builds at first use is built here. */
static enum status bind_plans(struct model *m, struct err *e)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < m->n_plans && status == ST_OK; i++)
        status = plan_bind(m->plans[i], e);
    if (status != ST_OK || device_is_host(m->engine->device))
        return status;
    memset(m->batch.meta, 0, m->n_batch * 4 * sizeof *m->batch.meta);
    memset(m->batch.ids, 0, (size_t)m->n_batch * n_tables(m) * sizeof *m->batch.ids);
    status = queue_write(m->engine->device, QUEUE_COMPUTE, m->io, 0, m->batch.meta,
                         m->context.meta.bytes, "batch", e);
    for (uint32_t i = 0; i < n_tables(m) && status == ST_OK; i++)
        status = queue_write(m->engine->device, QUEUE_COMPUTE, m->io, m->context.ids[i].offset,
                             m->batch.ids, m->context.ids[i].bytes, "batch", e);
    for (uint32_t i = 0; i < m->n_plans && status == ST_OK; i++) {
        struct plan_batch batch = {
            .n_tokens = m->plans[i]->max_tokens, .n_outputs = 1, .kv_max = 1};
        if (batch.n_tokens > WARM_TOKENS)
            batch.n_tokens = WARM_TOKENS;
        status = plan_run(m->plans[i], &batch, e);
    }
    enum status waited = queue_wait(m->engine->device, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    return status == ST_OK ? waited : status;
}

/* Lets go of an executor that fails its self-test; the report says so. */
static enum status check_fused(struct model *m, struct err *e)
{
    struct selftest_row row = {.op = "decode", .variant = m->executor->name};
    enum status status = model__check_fused(m, row.reason, sizeof row.reason, e);
    if (status != ST_OK || row.reason[0] == '\0')
        return status;
    log_warn("one-launch decoding failed its self-test executor=%s reason=\"%s\"", row.variant,
             row.reason);
    m->executor->close(m->fused);
    m->executor = NULL;
    struct chooser *c = &m->engine->chooser;
    if (c->n_replaced < sizeof c->replaced / sizeof *c->replaced)
        c->replaced[c->n_replaced++] = row;
    return ST_OK;
}

static enum status open_fused(struct model *m, struct err *e)
{
    if (m->engine->stepwise || m->context.streamer || device_is_host(m->engine->device))
        return ST_OK;
    for (uint32_t i = 0; executors[i]; i++) {
        struct err why;
        const uint32_t wanted = executors[i]->plan_tokens;
        const struct plan *p = model__plan_for(m, wanted < m->n_batch ? wanted : m->n_batch);
        enum status status = executors[i]->open(p, &m->fused, &why);
        if (status == ST_OK) {
            m->executor = executors[i];
            return ST_OK;
        }
        if (status != ST_UNSUPPORTED) {
            if (e)
                *e = why;
            return status;
        }
        log_debug("one-launch executor not used executor=%s reason=\"%s\"", executors[i]->name,
                  why.text);
    }
    return ST_OK;
}

/* ---- the report ---- */

/* Bytes per second of the rows tagged "upload". */
static double upload_rate(const struct prof_report *r)
{
    for (uint32_t i = 0; i < r->n_rows; i++)
        if (strcmp(r->rows[i].name, "upload") == 0 && r->rows[i].total_ns > 0)
            return (double)r->rows[i].bytes / (double)r->rows[i].total_ns; /* GB/s = bytes/ns */
    return 0.0;
}

static void fill_report(struct model *m, const struct bill *b, const struct prof_report *prof,
                        const struct kernel_stats *before, uint64_t start_ns)
{
    struct load_report *r = &m->report;
    struct kernel_stats after = kernel_stats(m->engine->device);
    r->weights_bytes = b->weights;
    r->kv_bytes = b->kv;
    r->scratch_bytes = b->scratch;
    r->in_place_bytes = weights_in_place_bytes(m->weights);
    r->upload_gb_s = upload_rate(prof);
    r->overlap_ms = (double)prof->overlap_ns / 1e6;
    r->load_ms = (double)(clock_now_ns() - start_ns) / 1e6;
    r->bind_ms = r->load_ms - r->place_ms - r->weights_ms;
    r->build_ms = after.build_ms - before->build_ms;
    r->kernels_built = after.built - before->built;
    r->kernels_cached = after.cached - before->cached;
    r->n_layer = m->file->graph->hparams->n_layer;
    if (m->context.streamer) {
        r->n_streamed = streamer_layers(m->context.streamer);
        r->stream_bytes = streamer_run_bytes(m->context.streamer);
        r->n_pinned = streamer_pinned(m->context.streamer);
        r->n_staged = streamer_staged(m->context.streamer);
    }
    r->n_replaced = m->engine->chooser.n_replaced;
    memcpy(r->replaced, m->engine->chooser.replaced, sizeof r->replaced);
    log_info("model loaded name=\"%s\" weights_mb=%.1f in_place_mb=%.1f kv_mb=%.1f scratch_mb=%.1f "
             "upload_gb_s=%.2f place_ms=%.0f weights_ms=%.0f bind_ms=%.0f overlap_ms=%.1f "
             "load_ms=%.0f build_ms=%.0f "
             "kernels_built=%u "
             "kernels_cached=%u",
             m->file->info.name, (double)r->weights_bytes / 1e6, (double)r->in_place_bytes / 1e6,
             (double)r->kv_bytes / 1e6, (double)r->scratch_bytes / 1e6, r->upload_gb_s, r->place_ms,
             r->weights_ms, r->bind_ms, r->overlap_ms, r->load_ms, r->build_ms, r->kernels_built,
             r->kernels_cached);
    if (r->n_streamed > 0)
        log_info("layers stream name=\"%s\" resident=%u streamed=%u mb_per_token=%.1f gb_s=%.2f "
                 "pinned=%u staged=%u",
                 m->file->info.name, r->n_layer - r->n_streamed, r->n_streamed,
                 (double)r->stream_bytes / 1e6, r->stream_gb_s, r->n_pinned, r->n_staged);
}

/* Everything between an empty model and one that can run. */
static enum status load(struct model *m, const struct load_options *o, bool with_weights,
                        uint64_t begun_ns, struct bill *b, struct err *e)
{
    enum status status = resolve_options(m, o, e);
    if (status == ST_OK)
        status = place(m, o, b, e);
    if (status == ST_OK)
        status = settle_bill(m, b, e);
    const bool placed = status == ST_OK;
    trim_memory(); /* what choosing kernels left, before the weights come */
    if (status == ST_OK)
        status = allocate_batch(m, e);
    if (status == ST_OK)
        status = allocate(m, e);
    if (status == ST_OK)
        status = with_weights ? load_weights(m, o, begun_ns, e)
                              : weights_load_first(m->weights, m->file->gguf, e);
    if (status == ST_OK)
        status = bind_plans(m, e);
    if (status == ST_OK)
        status = open_fused(m, e);
    if (status == ST_OK && with_weights && m->context.streamer)
        status = streamer_measure(m->context.streamer, &m->report.stream_gb_s, e);
    if (status == ST_OK && with_weights && m->executor)
        status = check_fused(m, e);
    if (status == ST_NO_DEVICE_MEMORY && placed)
        add_bill(m, b, e);
    return status;
}

enum status model__open_empty(struct engine *g, const struct model_file *f,
                              const struct load_options *options, struct model **out, struct err *e)
{
    struct bill bill = {0};
    struct model *m = mem_zalloc(sizeof *m);
    if (!m)
        return err_set(e, ST_NO_MEMORY, "model: %zu bytes", sizeof *m);
    m->engine = g;
    m->file = f;
    enum status status = apply_tuned(g, f, e);
    if (status == ST_OK)
        status = load(m, options, false, clock_now_ns(), &bill, e);
    if (status != ST_OK) {
        model_close(m);
        return status;
    }
    *out = m;
    return ST_OK;
}

enum status model_load(struct engine *g, const struct model_file *f,
                       const struct load_options *options, struct model **out, struct err *e)
{
    uint64_t start_ns = clock_now_ns();
    if (!rehearse(g, f, options))
        return err_set(e, ST_CANCELLED, "loading %s: cancelled", f->info.name);
    struct kernel_stats before = kernel_stats(g->device);
    struct model *m = mem_zalloc(sizeof *m);
    if (!m)
        return err_set(e, ST_NO_MEMORY, "model: %zu bytes", sizeof *m);
    m->engine = g;
    m->file = f;
    bool profiled = prof_enabled(g->device);
    struct bill bill = {0};
    struct prof_report *prof = mem_zalloc(sizeof *prof);
    enum status status = prof ? prof_enable(g->device, true, e)
                              : err_set(e, ST_NO_MEMORY, "report: %zu bytes", sizeof *prof);
    if (status == ST_OK)
        status = apply_tuned(g, f, e);
    if (status == ST_OK)
        status = load(m, options, true, start_ns, &bill, e);
    if (status == ST_OK)
        status = prof_collect(g->device, prof, e);
    enum status restored = prof_enable(g->device, profiled, status == ST_OK ? e : NULL);
    if (status == ST_OK)
        status = restored;
    if (!m->context.streamer)
        staging_release(g->device);
    if (status == ST_OK) {
        trim_memory();
        fill_report(m, &bill, prof, &before, start_ns);
        rehearsal_loaded(g, m->report.kernels_built);
        *out = m;
    } else {
        model_close(m);
    }
    mem_free(prof);
    return status;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    queue_wait(m->engine->device, QUEUE_TRANSFER, NULL);
    queue_wait(m->engine->device, QUEUE_COMPUTE, NULL);
    for (uint32_t i = 0; m->sessions && i < m->n_slots; i++)
        session_close(m->sessions[i]);
    if (m->executor)
        m->executor->close(m->fused);
    for (uint32_t i = 0; i < m->n_plans; i++)
        plan_close(m->plans[i]);
    for (uint32_t i = 0; m->scratch && i < m->context.n_scratch; i++)
        buffer_close(m->scratch[i]);
    buffer_close(m->rope);
    buffer_close(m->io);
    buffer_close(m->batch.logits_memory);
    kv_close(&m->kv);
    weights_close(m->weights);
    mem_free(m->scratch);
    mem_free(m->sessions);
    mem_free(m->batch.meta);
    mem_free(m->batch.ids);
    mem_free(m->batch.rows);
    mem_free(m);
}

const struct model_file *model_file_of(const struct model *m)
{
    return m->file;
}

const struct load_report *model_load_report(const struct model *m)
{
    return &m->report;
}

uint64_t model_streamed_bytes(const struct model *m)
{
    return m->context.streamer ? streamer_total_bytes(m->context.streamer) : 0;
}

uint32_t model_n_ctx(const struct model *m)
{
    return m->n_ctx;
}

uint32_t model_n_slots(const struct model *m)
{
    return m->n_slots;
}

uint32_t model_n_batch(const struct model *m)
{
    return m->n_batch;
}

bool model_plan_line(const struct model *m, uint32_t n_tokens, uint32_t i, char *line, size_t n)
{
    if (n_tokens == 0 || n_tokens > m->n_batch)
        return false;
    const struct plan *p = model__plan_for(m, n_tokens);
    if (m->executor && n_tokens <= m->executor->max_rows) {
        if (i == 0)
            snprintf(line, n, "greedy tokens in one launch: %s", m->executor->name);
        return i == 0 || plan_line(p, i - 1, line, n);
    }
    return plan_line(p, i, line, n);
}
