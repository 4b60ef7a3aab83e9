/* This program run again as a child for one job: compilers may die in it, and what they leave in
 * memory goes with it.
 *
 * The child is `COMMAND ARGUMENT`, reads its job from standard input and answers by its exit
 * status; what it makes it leaves in the disk cache. A job is a sequence of little-endian numbers
 * and strings (u32 length, bytes); it is written by put_*, and read with span.h and job_text.
 * Stateless; any thread.
 */
#ifndef OINFER_CL_CHILD_H
#define OINFER_CL_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/span.h"
#include "engine/base/strbuf.h"

#define CHILD_JOB_BYTES ((size_t)64 << 20) /* of a job */
#define CHILD_UNFIT     3 /* exit status: the job cannot be understood or has no device here */

void job_put_u32(struct strbuf *s, uint32_t value);
void job_put_u64(struct strbuf *s, uint64_t value);
void job_put_text(struct strbuf *s, const char *text);
/* A NUL-terminated copy of the next string, to be freed by mem_free; NULL at the end of the span or
 * of memory. */
char *job_text(struct span *s);
/* In the child: reads standard input to its end. False when that fails or memory ends. */
bool job_read(struct strbuf *out);

struct child {
    const char *command, *argument;
    uint64_t limit_ns;        /* then it is killed */
    bool (*tick)(void *user); /* called now and then while it runs; false kills it; NULL */
    void *user;
};

enum child_end {
    CHILD_GOOD,   /* exit status 0 */
    CHILD_BROKEN, /* could not be started, or was no child of this kind (status CHILD_UNFIT, 127) */
    CHILD_FAILED  /* died, took too long, was killed, or another exit status */
};

/* Runs the child over a job and waits. Unless CHILD_GOOD, `reason` says why, with the last line it
 * wrote. */
enum child_end child_run(const struct child *c, const struct strbuf *job, char *reason,
                         size_t size);
/* Starts a child over a job and leaves it alone; what it writes is lost. False: it did not start.
 */
bool child_leave(const char *command, const char *argument, const struct strbuf *job);

/* In the child: when memory runs out, this process goes before its parent; and none of it lies in
 * huge pages: of large buffers it touches a few rows here and there. */
void child_yield_memory(void);
/* In a child: takes the lock file until the process ends. False: another process has it, or the
 * file cannot be made. */
bool child_lock(const char *path);
/* In a child that is left alone: out of the parent's session, and behind other work. */
void child_step_back(void);

#endif
