/* `oinfer tune`: finds fast configurations of kernels by measuring, keeps them in tune.json, and
 * writes them into model files.
 *
 * One op and shape, or all that a model's plans choose by shape. Results are saved as they come: an
 * interrupt ends the search after the present point and loses nothing that was complete.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/cl/cache.h"
#include "server/cli/args.h"
#include "server/cli/cli.h"
#include "server/cli/loaded.h"
#include "server/cli/points.h"
#include "server/tune_file.h"

#define PATH_BYTES 1024
#define BAR_CELLS  20

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

struct tune {
    struct loaded_options load;
    const char *op, *shape, *dtype, *variant, *search, *file, *record, *embed, *output;
    uint32_t budget, passes;
    uint64_t seed;
    struct tuner_options options;
    uint32_t n_calls, n_saved;
    struct tune_call *calls; /* [JOB_MAX_CALLS] */
    struct loaded loaded;
    struct tune_job *job;
    struct points points; /* of --record */
    bool bar;             /* stderr is a terminal */
};

/* ---- what to tune ---- */

static enum status parse_call(struct tune *t, struct err *e)
{
    struct tune_call *call = &t->calls[0];
    enum op_id op;
    if (!shape_op(t->op, &op))
        return err_set(e, ST_INVALID, "--op \"%.40s\": no op of that name is tuned", t->op);
    const char *dtype = t->dtype ? t->dtype : op == OP_LINEAR ? "q4_0" : "f32";
    if (!dtype_parse(dtype, &call->dtype) || !dtype_info(call->dtype)->compute)
        return err_set(e, ST_INVALID, "--dtype \"%.40s\": not a number format of weights", dtype);
    enum status status = shape_parse(op, t->shape ? t->shape : "", &call->shape, e);
    if (status != ST_OK)
        return status;
    if (t->variant && (size_t)snprintf(call->variant, sizeof call->variant, "%s", t->variant) >=
                          sizeof call->variant)
        return err_set(e, ST_INVALID, "--variant \"%.40s\": no such variant", t->variant);
    t->n_calls = 1;
    return ST_OK;
}

static enum status open_device(struct tune *t, struct err *e)
{
    char cache[PATH_BYTES];
    const struct engine_options engine = {
        .device = {.cache_dir = loaded_cache_folder(cache, sizeof cache),
                   .trial_command = "/proc/self/exe"},
        .n_threads = t->load.n_threads,
    };
    uint32_t index, n = 1;
    enum status status = device_list_cache_dir(engine.device.cache_dir, e);
    if (status == ST_OK)
        status = device_list_open(t->load.n_threads, &t->loaded.devices, e);
    if (status == ST_OK)
        status = device_select(t->loaded.devices, t->load.device, &index, &n, e);
    if (status == ST_OK)
        status = engine_open(t->loaded.devices, index, &engine, &t->loaded.engine, e);
    return status;
}

/* ---- output ---- */

static void print_bar(const struct tune *t)
{
    const struct tune_progress *p = tune_job_progress(t->job);
    if (!t->bar)
        return;
    char bar[BAR_CELLS + 1];
    const uint32_t full = p->most_points ? p->points * BAR_CELLS / p->most_points : 0;
    for (uint32_t i = 0; i < BAR_CELLS; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r[%s] %u/%u  %.0f s left  %s %s  best %.4g us \033[K", bar, p->points,
            p->most_points, p->left_s, op_name(p->shape.op), p->variant, p->best_ns * 1e-3);
    fflush(stderr);
}

static void print_record(const struct tune_record *r)
{
    char shape[SHAPE_TEXT_BYTES];
    printf("%s %s %s %s %s%s%.4g us", op_name(r->shape.op), dtype_name(r->dtype),
           shape_text(&r->shape, shape), r->variant, r->settings, r->settings[0] ? " " : "",
           r->ns * 1e-3);
    if (r->standard_ns > 0)
        printf(", %.3g x the standard values", r->standard_ns / r->ns);
    printf("\n");
}

/* Prints and saves the records that are new. */
static enum status save(struct tune *t, struct err *e)
{
    struct tune_store *fresh;
    const struct tune_record *r;
    enum status status = ST_OK;
    if (!store_at(tune_job_results(t->job), t->n_saved))
        return ST_OK;
    status = store_open(&fresh, e);
    if (status != ST_OK)
        return status;
    if (t->bar)
        fprintf(stderr, "\r\033[K");
    for (; status == ST_OK && (r = store_at(tune_job_results(t->job), t->n_saved)) != NULL;
         t->n_saved++) {
        status = store_add(fresh, r, e);
        print_record(r);
    }
    fflush(stdout);
    char path[PATH_BYTES], folder[PATH_BYTES];
    const char *file = t->file;
    if (!file) {
        const char *cache = loaded_cache_folder(folder, sizeof folder);
        if (cache)
            cache_make_folder(cache);
        file = tune_file_path(cache, path, sizeof path);
    }
    if (status == ST_OK)
        status = file ? tune_file_add(file, fresh, e)
                      : err_set(e, ST_IO, "no cache folder for tune.json: give one with --file");
    store_close(fresh);
    return status;
}

/* ---- the whole ---- */

static enum status search(struct tune *t, struct err *e)
{
    bool more = true;
    enum status status = t->record ? points_open(t->record, &t->points, e) : ST_OK;
    t->options.known = t->points.known;
    t->options.n_known = t->points.n_known;
    if (status == ST_OK)
        status = tune_job_open(engine_device(t->loaded.engine), t->calls, t->n_calls, &t->options,
                               &t->job, e);
    while (status == ST_OK && !interrupted) {
        status = tune_job_step(t->job, &more, e);
        if (status != ST_OK)
            break;
        if (more) {
            points_add(&t->points, tune_job_progress(t->job));
            print_bar(t);
        }
        status = save(t, e);
        if (!more)
            break;
    }
    if (t->bar)
        fprintf(stderr, "\r\033[K");
    if (status == ST_OK && interrupted)
        status = err_set(e, ST_CANCELLED, "interrupted; what was complete is kept");
    return status;
}

/* --embed: from tune.json into a model file. */
static enum status embed(struct tune *t, struct err *e)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    const char *file =
        t->file ? t->file
                : tune_file_path(loaded_cache_folder(folder, sizeof folder), path, sizeof path);
    const char *out = t->output ? t->output : t->embed;
    struct tune_store *s = NULL;
    struct model_file *model = NULL;
    uint32_t n = 0;
    enum status status = store_open(&s, e);
    if (status == ST_OK)
        status = model_file_open(t->embed, &model, e);
    if (status == ST_OK && file)
        tune_file_load(file, s);
    if (status == ST_OK)
        status = model_file_embed(model, s, out, &n, e);
    if (status == ST_OK)
        printf("%s: %u tuned values\n", out, n);
    model_file_close(model);
    store_close(s);
    return status;
}

static enum status run(struct tune *t, struct err *e)
{
    enum status status;
    if (t->embed)
        return embed(t, e);
    t->calls = mem_array(JOB_MAX_CALLS, sizeof *t->calls);
    if (!t->calls)
        return err_set(e, ST_NO_MEMORY, "tune: out of memory");
    if (t->load.path) {
        status = loaded_open(&t->load, &t->loaded, e);
        if (status == ST_OK)
            t->n_calls = model_tune_calls(t->loaded.model, t->calls, JOB_MAX_CALLS);
    } else {
        status = parse_call(t, e);
        if (status == ST_OK)
            status = open_device(t, e);
    }
    if (status == ST_OK)
        status = search(t, e);
    tune_job_close(t->job);
    const enum status closed = points_close(&t->points, status == ST_OK ? e : NULL);
    status = status == ST_OK ? closed : status;
    loaded_close(&t->loaded);
    mem_free(t->calls);
    return status;
}

static int check(const struct tune *t)
{
    enum search_kind kind;
    if ((t->op != NULL) + (t->load.path != NULL) + (t->embed != NULL) != 1)
        fprintf(stderr, "oinfer tune: give one of --op, --model and --embed\n");
    else if (!search_kind_parse(t->search, &kind))
        fprintf(stderr, "oinfer tune: --search is \"%s\", expected bayes, random or grid\n",
                t->search);
    else if (t->budget < 1 || t->budget > SEARCH_MAX_BUDGET)
        fprintf(stderr, "oinfer tune: --budget is %u, expected 1 to %d\n", t->budget,
                SEARCH_MAX_BUDGET);
    else if (t->passes < 1 || t->passes > TUNER_MAX_PASSES)
        fprintf(stderr, "oinfer tune: --passes is %u, expected 1 to %d\n", t->passes,
                TUNER_MAX_PASSES);
    else
        return 0;
    return CLI_USAGE;
}

int cli_tune(int argc, char **argv)
{
    struct tune t = {.load = {.device = "", .kv = "f16"},
                     .search = "bayes",
                     .budget = 20,
                     .passes = 1,
                     .seed = 1};
    const struct arg args[] = {
        {"--op", NULL, "NAME", ARG_TEXT, &t.op, false, "the op to tune: matmul, gemv, softmax, .."},
        {"--shape", NULL, "m=..,..", ARG_TEXT, &t.shape, false, "its dimensions"},
        {"--dtype", NULL, "DTYPE", ARG_TEXT, &t.dtype, false, "f32; of gemv's weight q4_0"},
        {"--model", "-m", "FILE", ARG_TEXT, &t.load.path, false, "tune what a model's plans run"},
        {"--variant", NULL, "NAME", ARG_TEXT, &t.variant, false, "one variant (the best four)"},
        {"--search", NULL, "KIND", ARG_TEXT, &t.search, false, "bayes, random or grid (bayes)"},
        {"--budget", NULL, "N", ARG_COUNT, &t.budget, false, "points a variant (20)"},
        {"--seed", NULL, "N", ARG_SEED, &t.seed, false, "of the search (1)"},
        {"--passes", NULL, "N", ARG_COUNT, &t.passes, false, "least of so many medians (1)"},
        {"--device", NULL, "NAME", ARG_TEXT, &t.load.device, false, "index, part of a name, host"},
        {"--threads", "-t", "N", ARG_COUNT, &t.load.n_threads, false, "of CPU devices (all)"},
        {"--file", NULL, "FILE", ARG_TEXT, &t.file, false, "tune.json to use (the user's)"},
        {"--record", NULL, "FILE", ARG_TEXT, &t.record, false,
         "keep every point, and go on from there"},
        {"--embed", NULL, "FILE", ARG_TEXT, &t.embed, false, "write tuned values into a GGUF"},
        {"-o", "--output", "OUT", ARG_TEXT, &t.output, false, "another file for --embed's result"},
    };
    int done = args_parse("tune", "Finds the fastest configurations of kernels and keeps them.",
                          args, sizeof args / sizeof args[0], argc, argv);
    if (done >= 0)
        return done;
    done = check(&t);
    if (done != 0)
        return done;
    search_kind_parse(t.search, &t.options.search);
    t.options.budget = t.budget;
    t.options.seed = t.seed;
    t.options.passes = t.passes;
    t.bar = isatty(STDERR_FILENO);
    log_init(LOG_WARN, 0);
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    struct err e = {0};
    if (run(&t, &e) != ST_OK) {
        fprintf(stderr, "oinfer tune: %s\n", e.text);
        return CLI_FAILED;
    }
    return 0;
}
