/* The program registry of a device: built once, shared, cached on disk as binaries.
 *
 * A program stays in the registry when its last kernel closes, until PROGRAMS_IDLE_MAX idle ones
 * are held; a build that failed stays too, with its error, and is remembered on disk. Belongs to
 * the device's thread.
 */
#ifndef OINFER_CL_PROGRAM_H
#define OINFER_CL_PROGRAM_H

#include "engine/cl/cache.h"
#include "engine/cl/impl.h"

#define PROGRAMS_IDLE_MAX 128

struct program {
    struct program *next;
    struct cache_key key;
    cl_program cl;  /* NULL: the build failed */
    uint32_t users; /* open kernels */
    bool saved;     /* its binary is on disk, or cannot be */
    char *error;    /* of a failed build */
};

/* What to build. text: the whole program text. risky: text that an LLVM-based driver may abort on:
 * tried in a child process first, where the device has a trial command. */
struct program_source {
    const char *name, *text, *defines;
    size_t length;
    bool risky;
};

/* Finds, loads or builds the program and takes a use of it. ST_BUILD with device, name, options
 * and the log's first error; also when the same build failed before. */
enum status program__take(struct device *d, const struct program_source *source,
                          struct program **out, struct err *e);
void program__release(struct device *d, struct program *p);
/* Stores the binary, once; call it after a kernel was created: some drivers compile only then. */
void program__save(struct device *d, struct program *p);

#endif
