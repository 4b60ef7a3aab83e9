/* Trial builds: the job's text form, the child's main, and the parent that watches it. */
#include "engine/cl/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/span.h"
#include "engine/base/strbuf.h"
#include "engine/cl/trial_impl.h"

#define TRIAL_ARGUMENT  "--trial-build"
#define TRIAL_MAGIC     0x54524931u /* "TRI1" */
#define TRIAL_MAX_BYTES ((size_t)64 << 20)
#define TRIAL_LIMIT_NS  ((uint64_t)60 * 1000 * 1000 * 1000)
#define TRIAL_POLL_NS   (5 * 1000 * 1000)
#define OUTPUT_TAIL     256
#define EXIT_NO_DEVICE  3

extern char **environ;

/* ---- the job: u32 magic, u32 n, then strings (u32 length, bytes) ---- */

static void put_u32(struct strbuf *s, uint32_t value)
{
    unsigned char bytes[4] = {(unsigned char)value, (unsigned char)(value >> 8),
                              (unsigned char)(value >> 16), (unsigned char)(value >> 24)};
    strbuf_append(s, bytes, sizeof bytes);
}

static void put_u64(struct strbuf *s, uint64_t value)
{
    put_u32(s, (uint32_t)value);
    put_u32(s, (uint32_t)(value >> 32));
}

static void put_text(struct strbuf *s, const char *text)
{
    put_u32(s, (uint32_t)strlen(text));
    strbuf_append(s, text, strlen(text));
}

/* A NUL-terminated copy of the next string; NULL at the end of the span or of memory. */
static char *take_text(struct span *s)
{
    uint32_t length = span_u32(s);
    const char *bytes = span_take(s, length);
    return bytes != NULL ? mem_strndup(bytes, length) : NULL;
}

static bool write_job(struct strbuf *s, const struct device *d, const struct trial_job *jobs,
                      uint32_t n)
{
    put_u32(s, TRIAL_MAGIC);
    put_u32(s, n);
    put_text(s, d->info.platform);
    put_text(s, d->info.name);
    put_text(s, d->info.driver);
    put_text(s, d->cache_dir);
    for (uint32_t i = 0; i < n; i++) {
        put_u64(s, jobs[i].key.high);
        put_u64(s, jobs[i].key.low);
        put_text(s, jobs[i].source->name);
        put_text(s, jobs[i].source->defines);
        put_text(s, jobs[i].options);
        put_text(s, jobs[i].source->text);
    }
    return !s->failed;
}

/* ---- the child ---- */

static bool read_input(struct strbuf *s)
{
    char block[65536];
    ssize_t n;
    do {
        n = read(STDIN_FILENO, block, sizeof block);
        if (n > 0 && !strbuf_append(s, block, (size_t)n))
            return false;
    } while (n > 0 || (n < 0 && errno == EINTR));
    return n == 0;
}

/* Opens the device that the job names, without probing it. */
static struct device *open_named(const char *platform, const char *name, const char *driver,
                                 const char *cache_dir)
{
    struct device_list *list = NULL;
    struct device *d = NULL;
    struct device_options options = {.cache_dir = cache_dir};
    if (device_list_open(0, &list, NULL) != ST_OK)
        return NULL;
    for (uint32_t i = 0; i < device_list_count(list) && d == NULL; i++) {
        const struct device_info *info = device_list_at(list, i);
        if (strcmp(info->platform, platform) == 0 && strcmp(info->name, name) == 0 &&
            strcmp(info->driver, driver) == 0)
            device__open_bare(list, i, &options, &d, NULL);
    }
    device_list_close(list);
    return d;
}

/* Builds the next program of the job and stores what came of it. */
static bool build_next(struct device *d, struct span *s)
{
    struct cache_key key;
    key.high = span_u64(s);
    key.low = span_u64(s);
    char *name = take_text(s), *defines = take_text(s), *options = take_text(s);
    char *text = take_text(s);
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
        return EXIT_NO_DEVICE;
    uint32_t n = span_u32(s);
    char *platform = take_text(s), *name = take_text(s), *driver = take_text(s);
    char *cache_dir = take_text(s);
    struct device *d = NULL;
    if (platform != NULL && name != NULL && driver != NULL && cache_dir != NULL)
        d = open_named(platform, name, driver, cache_dir);
    int status = d != NULL ? 0 : EXIT_NO_DEVICE;
    for (uint32_t i = 0; i < n && d != NULL && status == 0; i++)
        if (!build_next(d, s))
            status = EXIT_NO_DEVICE;
    device_close(d);
    mem_free(platform);
    mem_free(name);
    mem_free(driver);
    mem_free(cache_dir);
    return status;
}

int trial_build_main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], TRIAL_ARGUMENT) != 0)
        return -1;
    struct strbuf input;
    strbuf_init(&input, TRIAL_MAX_BYTES);
    int status = EXIT_NO_DEVICE;
    if (read_input(&input)) {
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

/* Starts the child with the job on its standard input and both outputs in `output`. */
static int start_child(const char *command, int job, int output, pid_t *pid)
{
    char *argv[] = {(char *)(uintptr_t)command, (char *)(uintptr_t)TRIAL_ARGUMENT, NULL};
    posix_spawn_file_actions_t actions;
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0)
        return code;
    code = posix_spawn_file_actions_adddup2(&actions, job, STDIN_FILENO);
    if (code == 0)
        code = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (code == 0)
        code = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    if (code == 0)
        code = posix_spawn(pid, command, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Waits for the child, kills it when the time is up. False then; else *state is its state. */
static bool wait_child(pid_t pid, uint64_t limit_ns, int *state)
{
    uint64_t start = clock_now_ns();
    for (;;) {
        pid_t done = waitpid(pid, state, WNOHANG);
        if (done == pid || (done < 0 && errno != EINTR))
            return done == pid;
        if (clock_now_ns() - start > limit_ns) {
            kill(pid, SIGKILL);
            while (waitpid(pid, state, 0) < 0 && errno == EINTR)
                continue;
            return false;
        }
        nanosleep(&(struct timespec){0, TRIAL_POLL_NS}, NULL);
    }
}

/* The last line the child wrote: an aborting compiler says why. */
static void read_last_line(FILE *output, char *line, size_t size)
{
    char tail[OUTPUT_TAIL + 1];
    long length = fseek(output, 0, SEEK_END) == 0 ? ftell(output) : 0;
    long from = length > OUTPUT_TAIL ? length - OUTPUT_TAIL : 0;
    size_t n = fseek(output, from, SEEK_SET) == 0 ? fread(tail, 1, OUTPUT_TAIL, output) : 0;
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == ' '))
        n--;
    tail[n] = '\0';
    const char *last = strrchr(tail, '\n');
    snprintf(line, size, "%s", last != NULL ? last + 1 : tail);
}

/* Runs one child over the jobs. True when it ended by itself with status 0; else why not. */
static bool run_child(struct device *d, const struct strbuf *job, uint32_t n, bool *started,
                      char *reason, size_t size)
{
    FILE *input = tmpfile(), *output = tmpfile();
    pid_t pid = 0;
    int state = 0, code = ENOMEM;
    *started = false;
    if (input != NULL && output != NULL &&
        fwrite(job->data, 1, job->length, input) == job->length && fflush(input) == 0 &&
        fseek(input, 0, SEEK_SET) == 0)
        code = start_child(d->trial_command, fileno(input), fileno(output), &pid);
    bool ended = false;
    if (code == 0) {
        ended = wait_child(pid, TRIAL_LIMIT_NS * n, &state);
        *started = !(ended && WIFEXITED(state) &&
                     (WEXITSTATUS(state) == EXIT_NO_DEVICE || WEXITSTATUS(state) == 127));
    }
    bool good = code == 0 && ended && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    if (!good) {
        char line[OUTPUT_TAIL + 1] = "";
        if (output != NULL)
            read_last_line(output, line, sizeof line);
        if (code != 0)
            snprintf(reason, size, "cannot start: %s", strerror(code));
        else if (!ended)
            snprintf(reason, size, "took too long");
        else if (WIFSIGNALED(state))
            snprintf(reason, size, "signal %d: %s", WTERMSIG(state), line);
        else
            snprintf(reason, size, "exit status %d: %s", WEXITSTATUS(state), line);
    }
    if (input != NULL)
        fclose(input);
    if (output != NULL)
        fclose(output);
    return good;
}

/* One child over jobs [0, n), none of which the cache knows. Returns how many of the first jobs
 * need no more trying: all of them, or up to and including the one that the child died on. */
static uint32_t try_jobs(struct device *d, const struct trial_job *jobs, uint32_t n)
{
    struct strbuf job;
    char reason[OUTPUT_TAIL + 64] = "out of memory";
    bool started = false;
    strbuf_init(&job, TRIAL_MAX_BYTES);
    bool good =
        write_job(&job, d, jobs, n) && run_child(d, &job, n, &started, reason, sizeof reason);
    strbuf_free(&job);
    if (good)
        return n;
    if (!started) {
        d->trial_broken = true;
        char quoted[OUTPUT_TAIL + 64];
        log_warn("trial builds do not work device=%s reason=%s", d->info.name,
                 log_quote(quoted, sizeof quoted, reason));
        return n;
    }
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
