/* Arguments of a command, as a table: one row per option drives parsing and --help.
 *
 * Pure functions over argv; every problem is one line on stderr.
 */
#ifndef OINFER_SERVER_CLI_ARGS_H
#define OINFER_SERVER_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>

enum arg_type {
    ARG_TEXT,  /* const char * */
    ARG_TEXTS, /* struct arg_texts; may be given several times */
    ARG_COUNT, /* uint32_t */
    ARG_SEED,  /* uint64_t */
    ARG_SIZE,  /* uint64_t, bytes: "8MiB" as in the daemon's options */
    ARG_REAL,  /* float */
    ARG_FLAG   /* bool; takes no value */
};

#define ARG_MAX_TEXTS 32
struct arg_texts {
    const char *items[ARG_MAX_TEXTS];
    unsigned count;
};

struct arg {
    const char *name;  /* "--ctx" or "-m" */
    const char *other; /* another spelling, or NULL */
    const char *value; /* what --help calls the value: "FILE" */
    enum arg_type type;
    void *target;  /* holds the default before args_parse */
    bool required; /* ARG_TEXT: must have been given */
    const char *help;
};

/* Fills the targets. Returns -1 when the command should go on, else its exit status: 0 after
 * --help, CLI_USAGE after a problem (an unknown argument, a value missing or out of range). */
int args_parse(const char *command, const char *purpose, const struct arg *args, size_t n, int argc,
               char **argv);

#endif
