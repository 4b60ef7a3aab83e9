/* Reads the configuration from its four sources through one function, config__set: each source only
 * finds names and values, and says where it found them. */
#include "config/config.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/value.h"
#include "engine/base/mem.h"

#define ENV_PREFIX     "OINFER_"
#define NAME_MAX_BYTES 64
/* The system's inih cuts lines at this many bytes; a longer one is a problem that we report. */
#define INI_LINE_BYTES 196
/* Ends of files that have none, /dev/zero say. */
#define FILE_MAX_LINES 10000
#define FILE_MAX_SKIP  (1 << 20) /* bytes of one line */
#define AT(field)      offsetof(struct config, field)

const struct config_option config_options[] = {
#define OPTION(section, name, field, type, fallback, min, max, unit, help) \
    {#section, name, fallback, unit, help, CONFIG_##type, min, max, AT(field), false},
#define OPTION_LIVE(section, name, field, type, fallback, min, max, unit, help) \
    {#section, name, fallback, unit, help, CONFIG_##type, min, max, AT(field), true},
#include "config/options.def"
#undef OPTION
#undef OPTION_LIVE
};
const uint32_t config_option_count = sizeof config_options / sizeof config_options[0];

/* Flags that are not options: they have no place in a file. */
static const struct {
    const char *name;
    enum config_action action;
} actions[] = {{"help", CONFIG_SHOW_HELP},
               {"version", CONFIG_SHOW_VERSION},
               {"print-defaults", CONFIG_SHOW_DEFAULTS},
               {"check", CONFIG_CHECK}};

/* One reading: where values go, who set each row, and what went wrong. */
struct reader {
    struct config *config;
    struct strbuf *problems;
    const char *set_by[sizeof config_options / sizeof config_options[0]]; /* kind of source */
    bool out_of_memory;
    /* of the file */
    const char *path;
    int line;
    int line_set[sizeof config_options / sizeof config_options[0]]; /* line that set the row */
    FILE *file;
};

static const struct config_option *find_option(const char *name)
{
    for (uint32_t i = 0; i < config_option_count; i++)
        if (strcmp(config_options[i].name, name) == 0)
            return &config_options[i];
    return NULL;
}

/* Edits that turn a into b (insert, delete, replace), for names up to NAME_MAX_BYTES. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), row[NAME_MAX_BYTES + 1];
    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES)
        return NAME_MAX_BYTES;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

/* The known name nearest to `name`, or NULL when none is near. */
static const char *nearest_name(const char *name)
{
    const char *best = NULL;
    size_t best_distance = strlen(name) / 2 + 1;
    for (uint32_t i = 0; i < config_option_count; i++) {
        size_t distance = edit_distance(name, config_options[i].name);
        if (distance < best_distance) {
            best_distance = distance;
            best = config_options[i].name;
        }
    }
    return best;
}

static void report_unknown(struct reader *r, const char *where, const char *name)
{
    const char *near = nearest_name(name);
    strbuf_printf(r->problems, "%s: unknown option \"%s\"", where, name);
    if (near != NULL)
        strbuf_printf(r->problems, "; did you mean \"%s\"?", near);
    strbuf_putc(r->problems, '\n');
}

/* Stores one value. `source` is the kind of source, equal pointers for equal sources: a LIST row
 * collects values of one source, and the next source replaces them. `where` goes before a problem.
 */
static void set_option(struct reader *r, const char *source, const char *where,
                       const struct config_option *option, const char *value)
{
    size_t row = (size_t)(option - config_options);
    const bool in_file = strcmp(source, "file") == 0; /* elsewhere `where` is the option's name */
    char reason[256];
    if (option->type == CONFIG_LIST && r->set_by[row] != source)
        value__clear(r->config, option);
    r->set_by[row] = source;
    switch (value__parse(r->config, option, value, reason, sizeof reason)) {
    case VALUE_OK: break;
    case VALUE_NO_MEMORY: r->out_of_memory = true; break;
    case VALUE_BAD:
        strbuf_printf(r->problems, "%s: %s%s%s\n", where, in_file ? option->name : "",
                      in_file ? ": " : "", reason);
        break;
    }
}

/* ---- the file ---- */

static bool is_section(const char *name, size_t n)
{
    for (uint32_t i = 0; i < config_option_count; i++)
        if (strlen(config_options[i].section) == n &&
            strncmp(config_options[i].section, name, n) == 0)
            return true;
    return false;
}

/* A line that begins a section: says so when there is no such section. */
static void check_section(struct reader *r, const char *line)
{
    line += strspn(line, " \t");
    if (line[0] != '[')
        return;
    const size_t n = strcspn(line + 1, "]\r\n");
    if (line[1 + n] != ']' || is_section(line + 1, n))
        return;
    strbuf_printf(r->problems, "%s:%d: there is no section [%.*s]; there are", r->path, r->line,
                  (int)n, line + 1);
    const char *last = "";
    for (uint32_t i = 0; i < config_option_count; i++) {
        if (strcmp(config_options[i].section, last) != 0)
            strbuf_printf(r->problems, " [%s]", config_options[i].section);
        last = config_options[i].section;
    }
    strbuf_putc(r->problems, '\n');
}

/* Gives inih a line at a time, so that we know line numbers and see lines it would cut. */
static char *read_line(char *buffer, int size, void *user)
{
    struct reader *r = user;
    if (fgets(buffer, size, r->file) == NULL)
        return NULL;
    if (++r->line > FILE_MAX_LINES) {
        strbuf_printf(r->problems, "%s: more than %d lines\n", r->path, FILE_MAX_LINES);
        return NULL;
    }
    size_t n = strlen(buffer);
    check_section(r, buffer);
    if ((n > 0 && buffer[n - 1] == '\n') || (n > 0 && feof(r->file)))
        return buffer;
    if (n + 1 < (size_t)size) {
        strbuf_printf(r->problems, "%s:%d: byte %zu is NUL, expected text\n", r->path, r->line,
                      n + 1);
        return NULL;
    }
    strbuf_printf(r->problems, "%s:%d: line is longer than %d bytes\n", r->path, r->line,
                  INI_LINE_BYTES);
    int c = 0, skipped = 0;
    while (c != '\n' && c != EOF && skipped++ < FILE_MAX_SKIP)
        c = fgetc(r->file);
    buffer[0] = '\n';
    buffer[1] = '\0';
    return c == '\n' || c == EOF ? buffer : NULL;
}

static int take_file_value(void *user, const char *section, const char *name, const char *value)
{
    struct reader *r = user;
    char where[512];
    snprintf(where, sizeof where, "%s:%d", r->path, r->line);
    if (section[0] != '\0' && !is_section(section, strlen(section)))
        return 1; /* that was said at its head */
    const struct config_option *option = find_option(name);
    if (option == NULL) {
        report_unknown(r, where, name);
        return 1;
    }
    size_t row = (size_t)(option - config_options);
    if (strcmp(option->section, section) != 0) {
        strbuf_printf(r->problems, "%s: \"%s\" belongs in section [%s], not [%s]\n", where, name,
                      option->section, section);
        return 1;
    }
    if (r->line_set[row] != 0 && option->type != CONFIG_LIST)
        strbuf_printf(r->problems, "%s: \"%s\" was already set in line %d\n", where, name,
                      r->line_set[row]);
    r->line_set[row] = r->line;
    set_option(r, "file", where, option, value);
    return 1;
}

static void read_file(struct reader *r, const char *path)
{
    r->path = path;
    r->file = fopen(path, "re");
    if (r->file == NULL) {
        strbuf_printf(r->problems, "%s: cannot be opened: %s\n", path, strerror(errno));
        return;
    }
    int bad_line = ini_parse_stream(read_line, r, take_file_value, r);
    if (bad_line > 0)
        strbuf_printf(r->problems, "%s:%d: neither a [section] nor name = value\n", path, bad_line);
    if (ferror(r->file))
        strbuf_printf(r->problems, "%s: cannot be read: %s\n", path, strerror(errno));
    fclose(r->file);
    r->file = NULL;
}

/* ---- the environment ---- */

/* OINFER_LOG_LEVEL=... -> "log-level"; false if `entry` is not one of ours. */
static bool split_variable(const char *entry, char *name, size_t size, const char **value)
{
    const size_t prefix = sizeof ENV_PREFIX - 1;
    if (strncmp(entry, ENV_PREFIX, prefix) != 0)
        return false;
    const char *equals = strchr(entry, '=');
    if (equals == NULL)
        return false;
    size_t n = (size_t)(equals - entry) - prefix;
    if (n >= size)
        n = size - 1;
    for (size_t i = 0; i < n; i++) {
        char c = entry[prefix + i];
        name[i] = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    name[n] = '\0';
    *value = equals + 1;
    return true;
}

/* A LIST variable holds its items separated by colons. */
static void set_list_variable(struct reader *r, const char *where,
                              const struct config_option *option, const char *value)
{
    while (*value != '\0') {
        size_t n = strcspn(value, ":");
        char *item = mem_strndup(value, n);
        if (item == NULL) {
            r->out_of_memory = true;
            return;
        }
        set_option(r, "environment", where, option, item);
        mem_free(item);
        value += n + (value[n] == ':');
    }
}

/* A variable of our name that is like no option: another version's, or another program's. */
static void add_unknown(struct reader *r, const char *variable)
{
    struct config_list *list = &r->config->unknown_variables;
    char *copy = list->count < CONFIG_LIST_MAX ? mem_strdup(variable) : NULL;
    if (copy != NULL)
        list->items[list->count++] = copy;
}

static void read_environment(struct reader *r, char *const *environment)
{
    for (; environment != NULL && *environment != NULL; environment++) {
        char name[NAME_MAX_BYTES], where[NAME_MAX_BYTES + sizeof ENV_PREFIX];
        const char *value;
        if (!split_variable(*environment, name, sizeof name, &value) ||
            strcmp(name, "config") == 0 || value[0] == '\0') /* set but empty is not set */
            continue;
        snprintf(where, sizeof where, "%.*s", (int)strcspn(*environment, "="), *environment);
        const struct config_option *option = find_option(name);
        if (option == NULL && nearest_name(name) != NULL)
            report_unknown(r, where, name);
        else if (option == NULL)
            add_unknown(r, where);
        else if (option->type == CONFIG_LIST)
            set_list_variable(r, where, option, value);
        else
            set_option(r, "environment", where, option, value);
    }
}

/* ---- the command line ---- */

/* Splits "--name=value" or "--name value" at argv[*i]; moves *i past a value taken from the next
 * argument. Returns false for something that is no flag. */
static bool split_flag(int argc, char *const *argv, int *i, char *name, size_t size,
                       const char **value)
{
    const char *flag = argv[*i];
    if (strncmp(flag, "--", 2) != 0 || flag[2] == '\0')
        return false;
    size_t n = strcspn(flag + 2, "=");
    snprintf(name, size, "%.*s", (int)n, flag + 2);
    *value = NULL;
    if (flag[2 + n] == '=') {
        *value = flag + 2 + n + 1;
        return true;
    }
    const struct config_option *option = find_option(name);
    bool is_switch = option != NULL && option->type == CONFIG_SWITCH;
    bool known = option != NULL || strcmp(name, "config") == 0;
    bool next_is_value = *i + 1 < argc && strncmp(argv[*i + 1], "--", 2) != 0;
    if (known && !is_switch && next_is_value)
        *value = argv[++*i];
    else if (is_switch)
        *value = "yes";
    return true;
}

static bool find_action(const char *name, enum config_action *action)
{
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(name, actions[i].name) == 0) {
            *action = actions[i].action;
            return true;
        }
    }
    return false;
}

static void read_arguments(struct reader *r, int argc, char *const *argv)
{
    for (int i = 1; i < argc; i++) {
        char name[NAME_MAX_BYTES], where[NAME_MAX_BYTES + 2];
        const char *value;
        enum config_action action;
        if (!split_flag(argc, argv, &i, name, sizeof name, &value)) {
            strbuf_printf(r->problems, "argument \"%s\" is no option; options begin with --\n",
                          argv[i]);
            continue;
        }
        if (strcmp(name, "config") == 0 || find_action(name, &action))
            continue;
        snprintf(where, sizeof where, "--%s", name);
        const struct config_option *option = find_option(name);
        if (option == NULL)
            report_unknown(r, "command line", name);
        else if (value == NULL)
            strbuf_printf(r->problems, "%s: needs a value (%s)\n", where, option->unit);
        else if (option->type == CONFIG_LIST && value[0] == '\0')
            strbuf_printf(r->problems, "%s: is empty, expected a value (%s)\n", where,
                          option->unit);
        else
            set_option(r, "arguments", where, option, value);
    }
}

/* Finds what must be known before anything is read: the action and the file's name. */
static const char *scan_arguments(int argc, char *const *argv, char *const *environment,
                                  enum config_action *action, struct strbuf *problems)
{
    const char *path = NULL;
    char name[NAME_MAX_BYTES];
    const char *value;
    for (char *const *v = environment; v != NULL && *v != NULL; v++)
        if (split_variable(*v, name, sizeof name, &value) && strcmp(name, "config") == 0)
            path = value;
    for (int i = 1; i < argc; i++) {
        if (!split_flag(argc, argv, &i, name, sizeof name, &value))
            continue;
        if (strcmp(name, "config") == 0) {
            if (value == NULL || value[0] == '\0')
                strbuf_puts(problems, "--config: needs a value (FILE)\n");
            else
                path = value;
        }
        find_action(name, action);
    }
    return path;
}

/* A terminal would obey the control bytes of a name that a problem repeats. */
static void blank_controls(struct strbuf *problems)
{
    for (size_t i = 0; i < problems->length; i++) {
        const unsigned char c = (unsigned char)problems->data[i];
        if ((c < ' ' && c != '\n') || c == 0x7F)
            problems->data[i] = '?';
    }
}

enum status config_load(int argc, char *const *argv, char *const *environment, struct config **out,
                        enum config_action *action, struct strbuf *problems)
{
    *out = NULL;
    *action = CONFIG_RUN;
    const char *path = scan_arguments(argc, argv, environment, action, problems);
    if (*action == CONFIG_SHOW_HELP || *action == CONFIG_SHOW_VERSION ||
        *action == CONFIG_SHOW_DEFAULTS)
        return ST_OK;

    struct reader r = {.problems = problems};
    r.config = mem_zalloc(sizeof *r.config);
    if (r.config == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < config_option_count; i++)
        if (config_options[i].type != CONFIG_LIST)
            set_option(&r, "default", "built-in default", &config_options[i],
                       config_options[i].fallback);
    if (path != NULL && path[0] != '\0')
        read_file(&r, path);
    read_environment(&r, environment);
    read_arguments(&r, argc, argv);

    enum status status = ST_OK;
    blank_controls(problems);
    if (r.out_of_memory || problems->failed)
        status = ST_NO_MEMORY;
    else if (problems->length > 0)
        status = ST_INVALID;
    if (status != ST_OK) {
        config_close(r.config);
        return status;
    }
    *out = r.config;
    return ST_OK;
}

static void add_name(struct strbuf *list, const char *name)
{
    strbuf_printf(list, "%s%s", list->length > 0 ? "," : "", name);
}

void config_reload(struct config *into, struct config *from, struct strbuf *taken,
                   struct strbuf *fixed)
{
    for (uint32_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        if (value__equal(into, from, option))
            continue;
        if (option->live)
            value__swap(into, from, option);
        add_name(option->live ? taken : fixed, option->name);
    }
}

void config_close(struct config *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < config_option_count; i++)
        value__clear(c, &config_options[i]);
    for (uint32_t i = 0; i < c->unknown_variables.count; i++)
        mem_free(c->unknown_variables.items[i]);
    mem_free(c);
}
