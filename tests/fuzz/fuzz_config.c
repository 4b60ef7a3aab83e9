/* Fuzz target: the configuration. The first byte chooses where the rest comes from: a file, the
 * environment or the command line (an entry a line there). Whatever comes, reading ends in values
 * within their limits or in at least one line that says what is wrong. */
#define _GNU_SOURCE /* memfd_create */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"

#define ENTRIES_MAX 64
#define TEXT_BYTES  65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct config *c)
{
    for (uint32_t i = 0; i < config_option_count; i++) {
        const struct config_option *o = &config_options[i];
        const void *field = (const char *)c + o->offset;
        bool is_number =
            o->type == CONFIG_NUMBER || o->type == CONFIG_SIZE || o->type == CONFIG_DURATION;
        int64_t value = 0;
        if (is_number)
            memcpy(&value, field, sizeof value);
        if (is_number && (value < o->min || value > o->max))
            abort();
        if (o->type == CONFIG_LIST && ((const struct config_list *)field)->count > CONFIG_LIST_MAX)
            abort();
        if ((o->type == CONFIG_TEXT || o->type == CONFIG_PATH) && *(char *const *)field == NULL)
            abort();
    }
}

/* Each value as the file would spell it. */
static void print_all(const struct config *c)
{
    struct strbuf text;
    strbuf_init(&text, (size_t)1 << 22);
    for (uint32_t i = 0; i < config_option_count; i++)
        config_print_value(c, &config_options[i], &text);
    strbuf_free(&text);
}

static void load(int argc, char *const *argv, char *const *environment)
{
    struct strbuf problems;
    struct config *c = NULL;
    enum config_action action;
    strbuf_init(&problems, (size_t)1 << 22);
    enum status status = config_load(argc, argv, environment, &c, &action, &problems);
    if (status == ST_OK && c != NULL) {
        check(c);
        print_all(c);
    } else if (status != ST_OK && (c != NULL || (status == ST_INVALID && problems.length == 0))) {
        abort();
    }
    config_close(c);
    strbuf_free(&problems);
}

static void load_file(const char *text, size_t n)
{
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *argv[] = {(char *)(uintptr_t) "oinferd", (char *)(uintptr_t) "--config", path, NULL};
    load(3, argv, NULL);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[TEXT_BYTES];
    char *entries[ENTRIES_MAX + 2] = {(char *)(uintptr_t) "oinferd"}, *rest = NULL;
    int n = 1;
    if (size == 0 || size > sizeof text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 3 == 0) {
        load_file(text, size - 1);
        return 0;
    }
    for (char *entry = strtok_r(text, "\n", &rest); entry != NULL && n <= ENTRIES_MAX;
         entry = strtok_r(NULL, "\n", &rest))
        if (strstr(entry, "config") == NULL && strstr(entry, "CONFIG") == NULL) /* no other file */
            entries[n++] = entry;
    entries[n] = NULL;
    if (data[0] % 3 == 1)
        load(1, entries, entries + 1);
    else
        load(n, entries, NULL);
    return 0;
}
