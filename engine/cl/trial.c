/* Trial builds: the job's text form, the child's main, and the parent that watches it. */
#include "engine/cl/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/cl/caps.h"
#include "engine/cl/child.h"
#include "engine/cl/trial_impl.h"

#define TRIAL_ARGUMENT "--trial-build"
#define TRIAL_MAGIC    0x54524932u /* "TRI2" */
#define TRIAL_LIMIT_NS ((uint64_t)60 * 1000 * 1000 * 1000)
#define REASON_BYTES   320

/* n programs; none: the device's caps. */
static bool write_job(struct strbuf *s, const struct device *d, const struct trial_job *jobs,
                      uint32_t n)
{
    job_put_u32(s, TRIAL_MAGIC);
    job_put_u32(s, n);
    job_put_text(s, d->info.platform);
    job_put_text(s, d->info.name);
    job_put_text(s, d->info.driver);
    job_put_text(s, d->cache_dir);
    job_put_text(s, d->trial_command);
    for (uint32_t i = 0; i < n; i++) {
        job_put_u64(s, jobs[i].key.high);
        job_put_u64(s, jobs[i].key.low);
        job_put_text(s, jobs[i].source->name);
        job_put_text(s, jobs[i].source->defines);
        job_put_text(s, jobs[i].options);
        job_put_text(s, jobs[i].source->text);
    }
    return !s->failed;
}

/* ---- the child ---- */

/* Opens the device that the job names, without probing it. */
static struct device *open_named(const char *platform, const char *name, const char *driver,
                                 const struct device_options *options)
{
    struct device_list *list = NULL;
    struct device *d = NULL;
    if (device_list_open(0, &list, NULL) != ST_OK)
        return NULL;
    uint32_t index;
    if (device_list_find(list, platform, name, driver, &index))
        device__open_bare(list, index, options, &d, NULL);
    device_list_close(list);
    return d;
}

/* Builds the next program of the job and stores what came of it. */
static bool build_next(struct device *d, struct span *s)
{
    struct cache_key key;
    key.high = span_u64(s);
    key.low = span_u64(s);
    char *name = job_text(s), *defines = job_text(s), *options = job_text(s);
    char *text = job_text(s);
    bool whole = name != NULL && defines != NULL && options != NULL && text != NULL;
    if (whole) {
        struct program_source source = {
            .name = name, .text = text, .defines = defines, .length = strlen(text)};
        program__build_stored(d, &source, options, key);
    }
    mem_free(name);
    mem_free(defines);
    mem_free(options);
    mem_free(text);
    return whole;
}

static int run_job(struct span *s)
{
    if (span_u32(s) != TRIAL_MAGIC)
        return CHILD_UNFIT;
    uint32_t n = span_u32(s);
    char *platform = job_text(s), *name = job_text(s), *driver = job_text(s);
    char *cache_dir = job_text(s), *command = job_text(s);
    struct device_options options = {.cache_dir = cache_dir, .trial_command = command};
    struct device *d = NULL;
    if (platform != NULL && name != NULL && driver != NULL && cache_dir != NULL && command != NULL)
        d = open_named(platform, name, driver, &options);
    int status = d != NULL ? 0 : CHILD_UNFIT;
    if (d != NULL && n == 0)
        status = caps__probe(d, NULL) == ST_OK ? 0 : EXIT_FAILURE;
    for (uint32_t i = 0; i < n && d != NULL && status == 0; i++)
        if (!build_next(d, s))
            status = CHILD_UNFIT;
    device_close(d);
    mem_free(platform);
    mem_free(name);
    mem_free(driver);
    mem_free(cache_dir);
    mem_free(command);
    return status;
}

int trial_build_main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], TRIAL_ARGUMENT) != 0)
        return -1;
    struct strbuf input;
    strbuf_init(&input, CHILD_JOB_BYTES);
    int status = CHILD_UNFIT;
    child_yield_memory();
    if (job_read(&input)) {
        struct span s = span_make(strbuf_text(&input), input.length);
        status = run_job(&s);
    }
    strbuf_free(&input);
    return status;
}

/* ---- the parent ---- */

bool trial__wanted(const struct device *d)
{
    if (d->trial_command == NULL || d->cache_dir == NULL || d->trial_broken)
        return false;
    return d->info.kind == DEVICE_CPU || strcmp(d->info.platform, "rusticl") == 0 ||
           strcmp(d->info.platform, "Clover") == 0;
}

/* One child over n jobs, or for the caps. */
static enum child_end run_child(struct device *d, const struct trial_job *jobs, uint32_t n,
                                char reason[REASON_BYTES])
{
    const struct child c = {.command = d->trial_command,
                            .argument = TRIAL_ARGUMENT,
                            .limit_ns = TRIAL_LIMIT_NS * (n > 0 ? n : 1)};
    struct strbuf job;
    strbuf_init(&job, CHILD_JOB_BYTES);
    snprintf(reason, REASON_BYTES, "out of memory");
    enum child_end end =
        write_job(&job, d, jobs, n) ? child_run(&c, &job, reason, REASON_BYTES) : CHILD_BROKEN;
    strbuf_free(&job);
    if (end == CHILD_BROKEN) {
        char quoted[REASON_BYTES];
        d->trial_broken = true;
        log_warn("trial builds do not work device=%s reason=%s", d->info.name,
                 log_quote(quoted, sizeof quoted, reason));
    }
    return end;
}

bool trial__probe(struct device *d)
{
    char reason[REASON_BYTES], quoted[REASON_BYTES];
    if (run_child(d, NULL, 0, reason) != CHILD_FAILED)
        return true;
    log_warn("the child that probed failed device=%s reason=%s", d->info.name,
             log_quote(quoted, sizeof quoted, reason));
    return false;
}

/* One child over jobs [0, n), none of which the cache knows. Returns how many of the first jobs
 * need no more trying: all of them, or up to and including the one that the child died on. */
static uint32_t try_jobs(struct device *d, const struct trial_job *jobs, uint32_t n)
{
    char reason[REASON_BYTES];
    if (run_child(d, jobs, n, reason) != CHILD_FAILED)
        return n;
    for (uint32_t i = 0; i < n; i++) {
        if (program__is_stored(d, jobs[i].key))
            continue;
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s: the compiler died on %s with \"%s\": %s", d->info.name,
                 jobs[i].source->name, jobs[i].source->defines, reason);
        program__store_failure(d, jobs[i].key, text);
        return i + 1;
    }
    return n;
}

void trial__run(struct device *d, const struct trial_job *jobs, uint32_t n)
{
    struct trial_job *todo = mem_array(n, sizeof *todo);
    if (todo == NULL)
        return;
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!program__is_stored(d, jobs[i].key))
            todo[left++] = jobs[i];
    for (uint32_t done = 0; done < left;)
        done += try_jobs(d, todo + done, left - done);
    mem_free(todo);
}
