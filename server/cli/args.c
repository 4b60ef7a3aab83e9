/* Parsing of a command's arguments by its table. */
#include "server/cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "server/cli/cli.h"

static void print_help(FILE *out, const char *command, const char *purpose, const struct arg *args,
                       size_t n)
{
    fprintf(out, "usage: oinfer %s", command);
    for (size_t i = 0; i < n; i++)
        if (args[i].required)
            fprintf(out, " %s %s", args[i].name, args[i].value);
    fprintf(out, " [options]\n%s\n", purpose);
    for (size_t i = 0; i < n; i++) {
        char left[48];
        snprintf(left, sizeof left, "%s%s%s%s%s", args[i].name, args[i].other ? ", " : "",
                 args[i].other ? args[i].other : "", args[i].type == ARG_FLAG ? "" : " ",
                 args[i].type == ARG_FLAG ? "" : args[i].value);
        fprintf(out, "  %-24s %s\n", left, args[i].help);
    }
}

static const struct arg *find(const struct arg *args, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(args[i].name, name) == 0 || (args[i].other && strcmp(args[i].other, name) == 0))
            return &args[i];
    return NULL;
}

/* What store() takes for a row of this type. */
static const char *expected(enum arg_type type)
{
    return type == ARG_REAL   ? "a number"
           : type == ARG_SEED ? "a whole number"
           : type == ARG_SIZE ? "a size such as 8MiB"
                              : "a whole number from 0 to 4294967295";
}

/* True when the whole of `text` is a value of the row's type, which is then stored. */
static bool store(const struct arg *a, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (a->type) {
    case ARG_TEXT: *(const char **)a->target = text; return true;
    case ARG_TEXTS: {
        struct arg_texts *list = a->target;
        if (list->count == ARG_MAX_TEXTS)
            return false;
        list->items[list->count++] = text;
        return true;
    }
    case ARG_COUNT: {
        unsigned long long value = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno || value > UINT32_MAX)
            return false;
        *(uint32_t *)a->target = (uint32_t)value;
        return true;
    }
    case ARG_SEED: {
        unsigned long long value = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno)
            return false;
        *(uint64_t *)a->target = value;
        return true;
    }
    case ARG_SIZE: return config_parse_size(text, a->target);
    case ARG_REAL: {
        float value = strtof(text, &end);
        if (!*text || *end || errno || !isfinite(value))
            return false;
        *(float *)a->target = value;
        return true;
    }
    case ARG_FLAG: break;
    }
    return false;
}

int args_parse(const char *command, const char *purpose, const struct arg *args, size_t n, int argc,
               char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(stdout, command, purpose, args, n);
            return 0;
        }
        const struct arg *a = find(args, n, argv[i]);
        const char *name = argv[i];
        if (a && a->type == ARG_FLAG) {
            *(bool *)a->target = true;
            continue;
        }
        if (a && i + 1 < argc && store(a, argv[++i]))
            continue;
        if (!a)
            fprintf(stderr, "oinfer %s: unknown argument \"%s\"\n", command, name);
        else if (name == argv[i])
            fprintf(stderr, "oinfer %s: no value after \"%s\"\n", command, name);
        else
            fprintf(stderr, "oinfer %s: %s \"%s\" is not %s\n", command, name, argv[i],
                    expected(a->type));
        print_help(stderr, command, purpose, args, n);
        return CLI_USAGE;
    }
    for (size_t i = 0; i < n; i++) {
        if (args[i].required && *(const char **)args[i].target == NULL) {
            fprintf(stderr, "oinfer %s: %s is missing\n", command, args[i].name);
            print_help(stderr, command, purpose, args, n);
            return CLI_USAGE;
        }
    }
    return -1;
}
