/* Programs: registry, build from source or cached binary, and what is remembered of failures. */
#include "engine/cl/program.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/cl/sm90a.h"
#include "engine/cl/trial_impl.h"

#define PROGRAM_FOLDER    "programs"
#define OPTIONS_MAX_BYTES 4096
#define OPTIONS_OWN_BYTES 1024 /* of them for what we add ourselves */
#define BUILD_LOG_MAX     ((size_t)256 << 10)
#define LOG_LINE_BYTES    300
#define TRIAL_KERNELS     64 /* kernels of one program that a trial build creates */

/* Build options: no warnings (PoCL counts them on the process's stderr, and the tests' compilers
 * report them), the language version unless the caller names one, one macro per capability the
 * device has (kernels choose their fall-backs by them), and the caller's own. */
static enum status write_options(const struct device *d, const char *defines, struct strbuf *out,
                                 struct err *e)
{
    if (strlen(defines) > OPTIONS_MAX_BYTES - OPTIONS_OWN_BYTES)
        return err_set(e, ST_INVALID, "build options of %zu bytes, at most %d", strlen(defines),
                       OPTIONS_MAX_BYTES - OPTIONS_OWN_BYTES);
    strbuf_puts(out, "-w");
    if (strstr(defines, "-cl-std=") == NULL)
        strbuf_puts(out, " -cl-std=CL1.2");
    if (d->probed && (d->caps & CAP_FP64) == 0)
        strbuf_puts(out, " -cl-single-precision-constant");
    if (d->vex_only)
        strbuf_puts(out, " -DCAP_ASM_VEX=1");
    for (uint32_t bit = 0; bit < 32; bit++) {
        uint32_t cap = (uint32_t)1 << bit;
        const char *macro = (d->caps & cap) != 0 ? caps__macro((enum device_cap)cap) : NULL;
        if (macro != NULL)
            strbuf_printf(out, " -D%s=1", macro);
    }
    strbuf_printf(out, " %s", defines);
    return out->failed ? err_set(e, ST_NO_MEMORY, "build options: out of memory") : ST_OK;
}

struct cache_key device__key(const struct device *d, const char *text, size_t length,
                             const char *options)
{
    const struct device_info *info = &d->info;
    const char *parts[] = {info->platform, info->name, info->vendor,    info->driver, info->version,
                           info->uuid,     options,    d->driver_stamp, text};
    size_t lengths[sizeof parts / sizeof parts[0]];
    size_t n = sizeof parts / sizeof parts[0];
    for (size_t i = 0; i + 1 < n; i++)
        lengths[i] = strlen(parts[i]);
    lengths[n - 1] = length;
    return cache_hash(parts, lengths, n);
}

/* The first line of a build log that speaks of an error, or else its first line. */
static void first_error(const char *log, char *out, size_t size)
{
    const char *best = log;
    for (const char *line = log; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        const char *word = strstr(line, "error");
        if (word != NULL && word < line + length) {
            best = line;
            break;
        }
        line += length + (line[length] == '\n');
    }
    size_t length = strcspn(best, "\n");
    snprintf(out, size, "%.*s", (int)(length < size ? length : size - 1), best);
}

void program__read_log(struct device *d, cl_program program, char *out, size_t size)
{
    size_t n = 0;
    snprintf(out, size, "the driver gave no build log");
    if (clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) != CL_SUCCESS ||
        n <= 1)
        return;
    if (n > BUILD_LOG_MAX) {
        snprintf(out, size, "the build log has %zu bytes", n);
        return;
    }
    char *log = mem_zalloc(n + 1);
    if (log == NULL)
        return;
    if (clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, n, log, NULL) == CL_SUCCESS &&
        log[strspn(log, " \r\n\t")] != '\0')
        first_error(log + strspn(log, " \r\n\t"), out, size);
    mem_free(log);
}

/* A program from a cached binary; NULL on any trouble: then it is built from source. */
static cl_program load_binary(struct device *d, struct cache_key key, const char *options)
{
    void *data;
    size_t length;
    if (!cache_load(d->cache_dir, PROGRAM_FOLDER, key, CACHE_PROGRAM, &data, &length))
        return NULL;
    const unsigned char *bytes = data;
    cl_int state = CL_SUCCESS, code = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithBinary(d->context, 1, &d->id, &length, &bytes, &state, &code);
    if (code == CL_SUCCESS && state == CL_SUCCESS)
        code = clBuildProgram(program, 1, &d->id, options, NULL, NULL);
    else
        code = CL_INVALID_BINARY;
    mem_free(data);
    if (code == CL_SUCCESS)
        return program;
    if (program != NULL)
        clReleaseProgram(program);
    log_debug("cached program refused device=%s error=%d", d->info.name, code);
    return NULL;
}

/* Builds from source. ST_BUILD: the source does not compile; other statuses are the device's. */
static enum status build_source(struct device *d, const struct program_source *source,
                                const char *options, cl_program *out, struct err *e)
{
    cl_int code = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(d->context, 1, (const char *[]){source->text},
                                                   (const size_t[]){source->length}, &code);
    if (code != CL_SUCCESS)
        return cl_check(d, code, "clCreateProgramWithSource", source->name, e);
    code = clBuildProgram(program, 1, &d->id, options, NULL, NULL);
    if (code == CL_SUCCESS) {
        *out = program;
        return sm90a__wanted(source->text) ? sm90a__reload(d, source->name, out, e) : ST_OK;
    }
    enum status status = cl_check(d, code, "clBuildProgram", source->name, e);
    if (status == ST_BUILD) {
        char line[LOG_LINE_BYTES];
        program__read_log(d, program, line, sizeof line);
        err_set(e, ST_BUILD, "%s: %s does not build (%s) with \"%s\": %s", d->info.name,
                source->name, cl_error_name(code), source->defines, line);
    }
    clReleaseProgram(program);
    return status;
}

/* Whether the driver can be asked for the program's binary. Later versions of PoCL make code for
 * any local size then, in a pass that takes inline assembly for functions of work-items and aborts
 * (seen with 6.0); launched with a local size of one they compile it. They have a cache
 * themselves. */
static bool has_binary(const struct device *d, const struct program_source *source)
{
    return !device__is_pocl(d) || strncmp(d->info.driver, "3.", 2) == 0 ||
           strstr(source->text, "__asm__") == NULL;
}

static void free_program(struct program *p)
{
    if (p->cl != NULL)
        clReleaseProgram(p->cl);
    mem_free(p->error);
    mem_free(p);
}

/* Drops the idle programs used longest ago beyond PROGRAMS_IDLE_MAX. */
static void drop_idle(struct device *d)
{
    uint32_t n_idle = 0;
    for (struct program **at = &d->programs; *at != NULL;) {
        struct program *p = *at;
        if (p->users == 0 && ++n_idle > PROGRAMS_IDLE_MAX) {
            *at = p->next;
            free_program(p);
        } else {
            at = &p->next;
        }
    }
}

/* Finds a program and moves it to the front. */
static struct program *find(struct device *d, struct cache_key key)
{
    for (struct program **at = &d->programs; *at != NULL; at = &(*at)->next) {
        struct program *p = *at;
        if (p->key.high != key.high || p->key.low != key.low)
            continue;
        *at = p->next;
        p->next = d->programs;
        d->programs = p;
        return p;
    }
    return NULL;
}

void program__store_failure(struct device *d, struct cache_key key, const char *text)
{
    cache_store(d->cache_dir, PROGRAM_FOLDER, key, CACHE_FAILURE, text, strlen(text));
}

bool program__is_stored(const struct device *d, struct cache_key key)
{
    static const enum cache_kind kinds[] = {CACHE_PROGRAM, CACHE_FAILURE, CACHE_TRIED};
    bool stored = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !stored; i++) {
        void *data;
        size_t length;
        stored = cache_load(d->cache_dir, PROGRAM_FOLDER, key, kinds[i], &data, &length);
        mem_free(data);
    }
    return stored;
}

/* Fills a new entry: from disk, or by building. */
static enum status make(struct device *d, struct program *p, const struct program_source *source,
                        const char *options, struct err *e)
{
    void *text;
    size_t length;
    uint64_t start = clock_now_ns();
    enum status status = ST_OK;
    p->cl = load_binary(d, p->key, options);
    p->saved = p->cl != NULL || !has_binary(d, source);
    if (p->cl != NULL) {
        d->kernel_stats.cached++;
    } else if (cache_load(d->cache_dir, PROGRAM_FOLDER, p->key, CACHE_FAILURE, &text, &length)) {
        p->error = text;
        status = err_set(e, ST_BUILD, "%s", p->error);
    } else {
        status = build_source(d, source, options, &p->cl, e);
        if (status == ST_OK)
            d->kernel_stats.built++;
        else
            d->kernel_stats.failed++;
        if (status == ST_BUILD) {
            p->error = mem_strdup(e->text);
            program__store_failure(d, p->key, e->text);
        }
    }
    d->kernel_stats.build_ms += (double)(clock_now_ns() - start) * 1e-6;
    return status;
}

static enum status take_new(struct device *d, const struct program_source *source,
                            const char *options, struct cache_key key, struct program **out,
                            struct err *e)
{
    if ((source->risky || d->risky) && trial__wanted(d))
        trial__run(d, &(struct trial_job){key, source, options}, 1);
    struct program *p = mem_zalloc(sizeof *p);
    if (p == NULL)
        return err_set(e, ST_NO_MEMORY, "program %s: out of memory", source->name);
    p->key = key;
    enum status status = make(d, p, source, options, e);
    if (status != ST_OK && p->error == NULL) { /* the device's trouble, not the source's */
        mem_free(p);
        return status;
    }
    p->next = d->programs;
    d->programs = p;
    drop_idle(d);
    *out = p;
    return status;
}

enum status program__take(struct device *d, const struct program_source *source,
                          struct program **out, struct err *e)
{
    *out = NULL;
    struct err local = {0};
    struct err *to = e != NULL ? e : &local; /* a failure's text is kept even if nobody asks */
    struct strbuf options;
    strbuf_init(&options, OPTIONS_MAX_BYTES);
    enum status status = write_options(d, source->defines, &options, to);
    struct program *p = NULL;
    if (status == ST_OK) {
        struct cache_key key = device__key(d, source->text, source->length, strbuf_text(&options));
        p = find(d, key);
        if (p == NULL)
            status = take_new(d, source, strbuf_text(&options), key, &p, to);
        else if (p->error != NULL)
            status = err_set(to, ST_BUILD, "%s", p->error);
    }
    strbuf_free(&options);
    if (status != ST_OK)
        return status;
    p->users++;
    *out = p;
    return ST_OK;
}

void program__release(struct device *d, struct program *p)
{
    ASSERT(p->users > 0);
    p->users--;
    drop_idle(d);
}

/* Stores the binary of a program whose kernels were created. The driver's error where it cannot
 * make one; CL_SUCCESS also when there is nothing to store or no memory for it. */
static cl_int store_binary(struct device *d, cl_program program, struct cache_key key)
{
    size_t length = 0;
    cl_int code = clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof length, &length, NULL);
    if (code != CL_SUCCESS || length == 0 || length > CACHE_MAX_BYTES)
        return code;
    unsigned char *bytes = mem_zalloc(length);
    if (bytes == NULL)
        return CL_SUCCESS;
    code = clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL);
    if (code == CL_SUCCESS)
        cache_store(d->cache_dir, PROGRAM_FOLDER, key, CACHE_PROGRAM, bytes, length);
    mem_free(bytes);
    return code;
}

void program__save(struct device *d, struct program *p)
{
    if (p->saved || p->cl == NULL || d->cache_dir == NULL)
        return;
    p->saved = true;
    store_binary(d, p->cl, p->key);
}

void program__created(struct device *d, struct program *p)
{
    p->created = true;
    if (d->info.kind != DEVICE_CPU) /* CPU drivers compile every kernel once more for it */
        program__save(d, p);
}

bool kernel_save_next(struct device *d)
{
    /* PoCL has a cache itself, and compiles every kernel once more for a binary: a child's work */
    if (trial__wanted(d) && device__is_pocl(d))
        return false;
    for (struct program *p = d->programs; p != NULL; p = p->next)
        if (p->created && !p->saved && d->cache_dir != NULL && !d->lost) {
            program__save(d, p);
            return true;
        }
    return false;
}

void program__build_stored(struct device *d, const struct program_source *source,
                           const char *options, struct cache_key key)
{
    struct err e = {0};
    cl_program program = NULL;
    enum status status = build_source(d, source, options, &program, &e);
    if (status == ST_BUILD)
        program__store_failure(d, key, e.text);
    if (status != ST_OK)
        return;
    cl_kernel kernels[TRIAL_KERNELS];
    cl_uint n = 0;
    cl_int code = clCreateKernelsInProgram(program, TRIAL_KERNELS, kernels, &n);
    if (code == CL_SUCCESS && !has_binary(d, source))
        cache_store(d->cache_dir, PROGRAM_FOLDER, key, CACHE_TRIED, "", 0);
    else if (code == CL_SUCCESS)
        code = store_binary(d, program, key);
    if (code != CL_SUCCESS) { /* what cannot be made into code here would end the process later */
        err_set(&e, ST_BUILD, "%s: %s cannot be compiled with \"%s\": %s (%d)", d->info.name,
                source->name, source->defines, cl_error_name(code), code);
        program__store_failure(d, key, e.text);
    }
    for (cl_uint i = 0; i < n && i < TRIAL_KERNELS; i++)
        clReleaseKernel(kernels[i]);
    clReleaseProgram(program);
}

enum status program__try(struct device *d, const struct program_source *sources, uint32_t n,
                         struct err *e)
{
    if (!trial__wanted(d) || n == 0)
        return ST_OK;
    struct strbuf *options = mem_array(n, sizeof *options);
    struct trial_job *jobs = mem_array(n, sizeof *jobs);
    enum status status = options != NULL && jobs != NULL
                             ? ST_OK
                             : err_set(e, ST_NO_MEMORY, "trial builds: out of memory");
    for (uint32_t i = 0; i < n && status == ST_OK; i++) {
        strbuf_init(&options[i], OPTIONS_MAX_BYTES);
        status = write_options(d, sources[i].defines, &options[i], e);
        const char *text = strbuf_text(&options[i]);
        jobs[i].key = device__key(d, sources[i].text, sources[i].length, text);
        jobs[i].source = &sources[i];
        jobs[i].options = text;
    }
    if (status == ST_OK)
        trial__run(d, jobs, n);
    for (uint32_t i = 0; i < n && options != NULL; i++)
        strbuf_free(&options[i]);
    mem_free(options);
    mem_free(jobs);
    return status;
}

void program__close_all(struct device *d)
{
    while (d->programs != NULL) {
        struct program *p = d->programs;
        d->programs = p->next;
        free_program(p);
    }
}
