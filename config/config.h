/* Configuration: built-in defaults < INI file < environment (OINFER_*) < command line.
 *
 * options.def is the only list of options; everything here walks it. Reading never stops at the
 * first problem: all of them are collected, each naming its source (file and line, variable, flag),
 * and an unknown name comes with the nearest known one (an unknown variable of the environment
 * counts only if there is such a one: the environment is not ours alone). A config is written at
 * start and read by any thread afterwards; only rows that are live change later, when it is
 * reloaded. Sizes are bytes, durations milliseconds.
 */
#ifndef OINFER_CONFIG_CONFIG_H
#define OINFER_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/strbuf.h"

#define CONFIG_LIST_MAX 16

struct config_list {
    char *items[CONFIG_LIST_MAX]; /* owned by the config */
    uint32_t count;
};

enum config_type {
    CONFIG_TEXT,
    CONFIG_PATH,
    CONFIG_LIST,
    CONFIG_NUMBER,
    CONFIG_SIZE,
    CONFIG_DURATION,
    CONFIG_SWITCH,
    CONFIG_CHOICE
};

#define CONFIG_C_TEXT     char *
#define CONFIG_C_PATH     char *
#define CONFIG_C_LIST     struct config_list
#define CONFIG_C_NUMBER   int64_t
#define CONFIG_C_SIZE     int64_t
#define CONFIG_C_DURATION int64_t
#define CONFIG_C_SWITCH   bool
#define CONFIG_C_CHOICE   int

/* The values: one field for each row, of the type that its row says. Texts are never NULL. */
struct config {
#define OPTION(section, name, field, type, fallback, min, max, unit, help) CONFIG_C_##type field;
#include "config/options.def"
#undef OPTION
    /* variables of the environment that begin like ours and are like no option: to be warned of */
    struct config_list unknown_variables;
};

/* A row of the table, for whoever lists options. Static lifetime. */
struct config_option {
    const char *section, *name, *fallback, *unit, *help;
    enum config_type type;
    int64_t min, max;
    size_t offset; /* of the field in struct config */
    bool live;     /* a reload takes it over */
};
extern const struct config_option config_options[];
extern const uint32_t config_option_count;

/* What the command line asks for. */
enum config_action {
    CONFIG_RUN,
    CONFIG_SHOW_HELP,
    CONFIG_SHOW_VERSION,
    CONFIG_SHOW_DEFAULTS,
    CONFIG_CHECK /* read everything, report, do not serve */
};

/* Reads defaults, the file of --config or OINFER_CONFIG, `environment` ("NAME=value" strings ended
 * by NULL; may be NULL) and the arguments (argv[0] is skipped). ST_OK: *out is the configuration,
 * freed with config_close. ST_INVALID: `problems` holds one line for each problem; *out is NULL.
 * ST_NO_MEMORY. *action is set in every case; after SHOW_* the rest is not looked at and *out is
 * NULL. */
enum status config_load(int argc, char *const *argv, char *const *environment, struct config **out,
                        enum config_action *action, struct strbuf *problems);
void config_close(struct config *c); /* accepts NULL */

/* A SIZE as the table's rows take it ("8MiB", "4096") in bytes; false for anything else. */
bool config_parse_size(const char *text, uint64_t *bytes);

/* Moves the live rows of `from` whose values differ into `into`; `from` gets the old ones. Appends
 * the names of these rows to `taken`, and those of rows that differ but are fixed at start to
 * `fixed`, separated by commas. Never fails: a name that finds no memory is missing from the list.
 */
void config_reload(struct config *into, struct config *from, struct strbuf *taken,
                   struct strbuf *fixed);

/* Appends the value of a row as the file would spell it; LIST rows one item a line. */
void config_print_value(const struct config *c, const struct config_option *option,
                        struct strbuf *out);
/* Appends the commented default file: exactly config/oinferd.conf. */
void config_print_defaults(struct strbuf *out);
/* Appends the text of --help, made from the table. */
void config_print_help(const char *program, struct strbuf *out);

#endif
