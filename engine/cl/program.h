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
    bool created;   /* a kernel of it was created */
    bool saved;     /* its binary is on disk, or is not to be */
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
/* The same after a kernel was created, unless making the binary is slow on this device: then it is
 * left for kernel_save_next. */
void program__created(struct device *d, struct program *p);

/* The first error in the log of a failed build, or what can be said instead. */
void program__read_log(struct device *d, cl_program program, char *out, size_t size);

/* What the disk cache knows of a build: a binary, that it works, or a failure. */
bool program__is_stored(const struct device *d, struct cache_key key);
void program__store_failure(struct device *d, struct cache_key key, const char *text);
/* Builds with exactly these options, creates all kernels, stores the binary or the failure under
 * the key, and lets go of it: what the child of a trial build does. */
void program__build_stored(struct device *d, const struct program_source *source,
                           const char *options, struct cache_key key);

/* Tries programs in a child process where the device wants that; see trial.h. */
enum status program__try(struct device *d, const struct program_source *sources, uint32_t n,
                         struct err *e);

#endif
