/* Jobs of child processes, and the parent that starts, watches and ends them. */
#include "engine/cl/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#define POLL_NS        (5 * 1000 * 1000)
#define OUTPUT_TAIL    256
#define STEP_BACK_NICE 15
#define EXIT_NO_FILE   127 /* of posix_spawn's child when the command cannot be run */

extern char **environ;

/* ---- jobs ---- */

void job_put_u32(struct strbuf *s, uint32_t value)
{
    unsigned char bytes[4] = {(unsigned char)value, (unsigned char)(value >> 8),
                              (unsigned char)(value >> 16), (unsigned char)(value >> 24)};
    strbuf_append(s, bytes, sizeof bytes);
}

void job_put_u64(struct strbuf *s, uint64_t value)
{
    job_put_u32(s, (uint32_t)value);
    job_put_u32(s, (uint32_t)(value >> 32));
}

void job_put_text(struct strbuf *s, const char *text)
{
    job_put_u32(s, (uint32_t)strlen(text));
    strbuf_append(s, text, strlen(text));
}

char *job_text(struct span *s)
{
    uint32_t length = span_u32(s);
    const char *bytes = span_take(s, length);
    return bytes != NULL ? mem_strndup(bytes, length) : NULL;
}

bool job_read(struct strbuf *out)
{
    char block[65536];
    ssize_t n;
    do {
        n = read(STDIN_FILENO, block, sizeof block);
        if (n > 0 && !strbuf_append(out, block, (size_t)n))
            return false;
    } while (n > 0 || (n < 0 && errno == EINTR));
    return n == 0;
}

/* ---- the child ---- */

/* Starts it with the job on its standard input and both outputs in `output`. */
static int start(const char *command, const char *argument, int job, int output, pid_t *pid)
{
    char *argv[] = {(char *)(uintptr_t)command, (char *)(uintptr_t)argument, NULL};
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

/* Waits for the child; false when it had to be killed. Else *state is its state. */
static bool wait_for(const struct child *c, pid_t pid, int *state)
{
    uint64_t begin = clock_now_ns();
    for (;;) {
        pid_t done = waitpid(pid, state, WNOHANG);
        if (done == pid || (done < 0 && errno != EINTR))
            return done == pid;
        if (clock_now_ns() - begin > c->limit_ns || (c->tick != NULL && !c->tick(c->user))) {
            kill(pid, SIGKILL);
            while (waitpid(pid, state, 0) < 0 && errno == EINTR)
                continue;
            return false;
        }
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
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

static enum child_end end_of(bool ended, int state, FILE *output, char *reason, size_t size)
{
    char line[OUTPUT_TAIL + 1] = "";
    if (ended && WIFEXITED(state) && WEXITSTATUS(state) == 0)
        return CHILD_GOOD;
    read_last_line(output, line, sizeof line);
    if (!ended)
        snprintf(reason, size, "took too long");
    else if (WIFSIGNALED(state))
        snprintf(reason, size, "signal %d: %s", WTERMSIG(state), line);
    else
        snprintf(reason, size, "exit status %d: %s", WEXITSTATUS(state), line);
    const bool unfit = ended && WIFEXITED(state) &&
                       (WEXITSTATUS(state) == CHILD_UNFIT || WEXITSTATUS(state) == EXIT_NO_FILE);
    return unfit ? CHILD_BROKEN : CHILD_FAILED;
}

/* The job as a file, to be read from its start; NULL when that fails. */
static FILE *job_file(const struct strbuf *job)
{
    FILE *f = tmpfile();
    if (f != NULL && fwrite(job->data, 1, job->length, f) == job->length && fflush(f) == 0 &&
        fseek(f, 0, SEEK_SET) == 0)
        return f;
    if (f != NULL)
        fclose(f);
    return NULL;
}

enum child_end child_run(const struct child *c, const struct strbuf *job, char *reason, size_t size)
{
    FILE *input = job_file(job), *output = tmpfile();
    pid_t pid = 0;
    int state = 0, code = ENOMEM;
    if (input != NULL && output != NULL)
        code = start(c->command, c->argument, fileno(input), fileno(output), &pid);
    enum child_end end = CHILD_BROKEN;
    if (code == 0) {
        const bool ended = wait_for(c, pid, &state);
        end = end_of(ended, state, output, reason, size);
    } else {
        snprintf(reason, size, "cannot start: %s", strerror(code));
    }
    if (input != NULL)
        fclose(input);
    if (output != NULL)
        fclose(output);
    return end;
}

bool child_leave(const char *command, const char *argument, const struct strbuf *job)
{
    FILE *input = job_file(job), *output = fopen("/dev/null", "re+");
    pid_t pid;
    bool started = input != NULL && output != NULL &&
                   start(command, argument, fileno(input), fileno(output), &pid) == 0;
    if (input != NULL)
        fclose(input);
    if (output != NULL)
        fclose(output);
    return started;
}

void child_yield_memory(void)
{
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* kept by children of its own */
    FILE *f = fopen("/proc/self/oom_score_adj", "we");
    if (f == NULL)
        return;
    fputs("1000", f);
    fclose(f);
}

bool child_lock(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return true; /* held by the open file */
    if (fd >= 0)
        close(fd);
    return false;
}

void child_step_back(void)
{
    (void)setsid();
    (void)setpriority(PRIO_PROCESS, 0, STEP_BACK_NICE);
}
