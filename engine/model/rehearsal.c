/* The job's text form, the child's main, and the parent that decides and waits. */
#include "engine/model/rehearsal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/cl/cache.h"
#include "engine/cl/child.h"
#include "engine/cl/kernel.h"
#include "engine/cl/source.h"
#include "engine/model/model.h"

#define ARGUMENT     "--rehearse"
#define MAGIC        0x52454831u /* "REH1" */
#define FOLDER       "rehearsals"
#define FORMAT       "1" /* counts changes of what a rehearsal does */
#define LIMIT_NS     ((uint64_t)600 * 1000 * 1000 * 1000)
#define REASON_BYTES 320

/* What a stamp says: there was a rehearsal, and later loads found what it stored; or they did not.
 */
#define STAMP_DONE  "done"
#define STAMP_AGAIN "again"

/* ---- the job ---- */

enum stage { STAGE_RUN, STAGE_STORE };

struct job {
    char *platform, *name, *driver, *cache_dir, *command, *model, *force; /* force "": none */
    uint32_t stage, stepwise, n_threads, n_ctx, n_slots, n_batch, kv;
    uint64_t memory_limit_bytes;
};

static bool write_job(struct strbuf *s, const struct job *j)
{
    const uint32_t numbers[] = {MAGIC,    j->stage,   j->stepwise, j->n_threads,
                                j->n_ctx, j->n_slots, j->n_batch,  j->kv};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        job_put_u32(s, numbers[i]);
    job_put_u64(s, j->memory_limit_bytes);
    const char *const texts[] = {j->platform, j->name,  j->driver, j->cache_dir,
                                 j->command,  j->model, j->force};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        job_put_text(s, texts[i]);
    return !s->failed;
}

static bool read_job(struct span *s, struct job *j)
{
    *j = (struct job){0};
    uint32_t *const numbers[] = {&j->stage,   &j->stepwise, &j->n_threads, &j->n_ctx,
                                 &j->n_slots, &j->n_batch,  &j->kv};
    if (span_u32(s) != MAGIC)
        return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = span_u32(s);
    j->memory_limit_bytes = span_u64(s);
    char **const texts[] = {&j->platform, &j->name,  &j->driver, &j->cache_dir,
                            &j->command,  &j->model, &j->force};
    bool whole = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        whole = (*texts[i] = job_text(s)) != NULL && whole;
    return whole;
}

static void free_job(struct job *j)
{
    mem_free(j->platform);
    mem_free(j->name);
    mem_free(j->driver);
    mem_free(j->cache_dir);
    mem_free(j->command);
    mem_free(j->model);
    mem_free(j->force);
}

/* ---- the child ---- */

/* Opens the model, which runs all there is of it. */
static enum status run_model(struct engine *g, const struct job *j, struct err *e)
{
    const struct load_options options = {.n_ctx = j->n_ctx,
                                         .n_slots = j->n_slots,
                                         .n_batch = j->n_batch,
                                         .kv = (enum kv_dtype)j->kv};
    struct model_file *f = NULL;
    struct model *m = NULL;
    enum status status = model_file_open(j->model, &f, e);
    if (status == ST_OK)
        status = model__open_empty(g, f, &options, &m, e);
    while (status == ST_OK && j->stage == STAGE_STORE && kernel_save_next(g->device))
        continue;
    model_close(m);
    model_file_close(f);
    return status;
}

/* Only one child stores at a time: a service that is started again and again leaves no crowd. */
static bool may_store(const struct job *j)
{
    char path[CACHE_PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/" FOLDER "/lock", j->cache_dir);
    return n > 0 && (size_t)n < sizeof path && child_lock(path);
}

/* Leaves the second child to itself. */
static void leave_storing(const struct job *j)
{
    struct job next = *j;
    struct strbuf s;
    next.stage = STAGE_STORE;
    strbuf_init(&s, CHILD_JOB_BYTES);
    if (write_job(&s, &next))
        child_leave(j->command, ARGUMENT, &s);
    strbuf_free(&s);
}

static int run_job(const struct job *j)
{
    struct device_list *devices = NULL;
    uint32_t index;
    struct engine *g = NULL;
    struct err e = {0};
    const struct engine_options options = {
        .device = {.cache_dir = j->cache_dir,
                   .memory_limit_bytes = j->memory_limit_bytes,
                   .trial_command = j->stage == STAGE_STORE ? NULL : j->command}, /* who stores */
        .n_threads = j->n_threads,
        .stepwise = j->stepwise != 0,
        .force = *j->force ? j->force : NULL};
    if (device_list_open(j->n_threads, &devices, &e) != ST_OK)
        return CHILD_UNFIT;
    int status = CHILD_UNFIT;
    if (device_list_find(devices, j->platform, j->name, j->driver, &index)) {
        enum status ran = engine_open(devices, index, &options, &g, &e);
        if (ran == ST_OK)
            ran = run_model(g, j, &e);
        status = ran == ST_OK ? EXIT_SUCCESS : EXIT_FAILURE;
        if (ran != ST_OK)
            fprintf(stderr, "%s\n", e.text);
        if (ran == ST_OK && j->stage == STAGE_RUN)
            leave_storing(j);
    }
    engine_close(g);
    device_list_close(devices);
    return status;
}

int rehearsal_main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], ARGUMENT) != 0)
        return -1;
    struct strbuf input;
    struct job job = {0};
    int status = CHILD_UNFIT;
    strbuf_init(&input, CHILD_JOB_BYTES);
    child_yield_memory();
    if (job_read(&input)) {
        struct span s = span_make(strbuf_text(&input), input.length);
        const bool whole = read_job(&s, &job);
        if (whole && job.stage == STAGE_STORE)
            child_step_back();
        if (whole && (job.stage == STAGE_RUN || may_store(&job)))
            status = run_job(&job);
        free_job(&job);
    }
    strbuf_free(&input);
    return status;
}

/* ---- the parent ---- */

/* What a rehearsal depends on: its job, the file's content, the kernels. */
static struct cache_key key_of(const struct engine *g, const struct model_file *f,
                               const struct strbuf *job)
{
    const char *parts[] = {job->data};
    const size_t lengths[] = {job->length};
    const struct cache_key hash = cache_hash(parts, lengths, 1);
    char text[128];
    snprintf(text, sizeof text, FORMAT " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, hash.low,
             f->info.identity, source_hash());
    return device_cache_key(g->device, text);
}

struct wait {
    const struct load_options *options;
    uint64_t total_bytes;
    bool cancelled;
};

static bool tell(void *user)
{
    struct wait *w = user;
    w->cancelled =
        w->options->progress && !w->options->progress(w->options->user, 0, w->total_bytes, 0);
    return !w->cancelled;
}

static bool is_stamped(const struct device *d, struct cache_key key)
{
    void *data;
    size_t length;
    if (!cache_load(device_cache_dir(d), FOLDER, key, CACHE_REHEARSAL, &data, &length))
        return false;
    const bool done = length == sizeof STAMP_DONE && memcmp(data, STAMP_DONE, length) == 0;
    mem_free(data);
    return done;
}

/* Runs the child; what it said of a failure is logged. False: cancelled. */
static bool run_child(struct engine *g, const struct model_file *f, const struct load_options *o,
                      const struct strbuf *job)
{
    struct wait wait = {o, f->info.weight_bytes, false};
    const struct child child = {.command = device_trial_command(g->device),
                                .argument = ARGUMENT,
                                .limit_ns = LIMIT_NS,
                                .tick = tell,
                                .user = &wait};
    char reason[REASON_BYTES], quoted[REASON_BYTES];
    g->rehearsal = key_of(g, f, job);
    g->rehearsed_before = is_stamped(g->device, g->rehearsal);
    if (g->rehearsed_before)
        return true;
    const uint64_t start_ns = clock_now_ns();
    log_info("compiling kernels for a first start model=\"%s\" device=\"%s\"", f->info.name,
             device_info(g->device)->name);
    if (child_run(&child, job, reason, sizeof reason) == CHILD_GOOD) {
        cache_store(device_cache_dir(g->device), FOLDER, g->rehearsal, CACHE_REHEARSAL, STAMP_DONE,
                    sizeof STAMP_DONE);
        log_info("kernels compiled ms=%.0f", (double)(clock_now_ns() - start_ns) * 1e-6);
    } else if (!wait.cancelled) {
        log_warn("kernels could not be compiled in a child, so they are compiled here reason=%s",
                 log_quote(quoted, sizeof quoted, reason));
    }
    return !wait.cancelled;
}

void rehearsal_loaded(struct engine *g, uint32_t n_built)
{
    if (g->rehearsed_before && n_built > 0)
        cache_store(device_cache_dir(g->device), FOLDER, g->rehearsal, CACHE_REHEARSAL, STAMP_AGAIN,
                    sizeof STAMP_AGAIN);
}

bool rehearse(struct engine *g, const struct model_file *f, const struct load_options *o)
{
    const struct device_info *info = device_info(g->device);
    const char *command = device_trial_command(g->device);
    g->rehearsed_before = false;
    if (!command || device_kernel_dir(g->device))
        return true;
    const struct job job = {.platform = (char *)(uintptr_t)info->platform,
                            .name = (char *)(uintptr_t)info->name,
                            .driver = (char *)(uintptr_t)info->driver,
                            .cache_dir = (char *)(uintptr_t)device_cache_dir(g->device),
                            .command = (char *)(uintptr_t)command,
                            .model = f->path,
                            .force = g->force ? g->force : (char *)(uintptr_t) "",
                            .stage = STAGE_RUN,
                            .stepwise = g->stepwise,
                            .n_threads = g->n_threads,
                            .n_ctx = o->n_ctx,
                            .n_slots = o->n_slots,
                            .n_batch = o->n_batch,
                            .kv = (uint32_t)o->kv,
                            .memory_limit_bytes = g->memory_limit_bytes};
    struct strbuf text;
    strbuf_init(&text, CHILD_JOB_BYTES);
    bool going = !write_job(&text, &job) || run_child(g, f, o, &text);
    strbuf_free(&text);
    return going;
}
