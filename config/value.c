/* One parser and one printer for each option type. No state. */
#include "config/value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/mem.h"

struct unit {
    const char *suffix;
    int64_t factor;
};
/* In falling order, so that printing finds the largest that divides. */
static const struct unit size_units[] = {{"GiB", 1 << 30}, {"G", 1 << 30}, {"MiB", 1 << 20},
                                         {"M", 1 << 20},   {"KiB", 1024},  {"K", 1024},
                                         {"B", 1},         {"", 1},        {NULL, 0}};
static const struct unit duration_units[] = {
    {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0}};
static const struct unit plain_units[] = {{"", 1}, {NULL, 0}};

static void *field_of(struct config *c, const struct config_option *option)
{
    return (char *)c + option->offset;
}

static const void *const_field_of(const struct config *c, const struct config_option *option)
{
    return (const char *)c + option->offset;
}

static const struct unit *units_of(enum config_type type)
{
    return type == CONFIG_SIZE       ? size_units
           : type == CONFIG_DURATION ? duration_units
                                     : plain_units;
}

static const char *example_of(enum config_type type)
{
    return type == CONFIG_SIZE       ? "a size such as 8MiB"
           : type == CONFIG_DURATION ? "a time such as 500ms, 10s or 5min"
                                     : "a whole number";
}

/* Number with an optional unit to a count of the smallest unit, checked against min..max. */
static enum value_result parse_number(const struct config_option *option, const char *text,
                                      int64_t *out, char *reason, size_t size)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool digits = end != text && text[0] != ' ' && text[0] != '+';
    const struct unit *unit = units_of(option->type);
    while (unit->suffix != NULL && strcasecmp(unit->suffix, end) != 0)
        unit++;
    bool zero_without_unit = number == 0 && *end == '\0';
    if (!digits || (unit->suffix == NULL && !zero_without_unit)) {
        snprintf(reason, size, "\"%s\" is not %s", text, example_of(option->type));
        return VALUE_BAD;
    }
    int64_t factor = unit->suffix != NULL ? unit->factor : 1;
    int64_t value;
    if (errno == ERANGE || __builtin_mul_overflow((int64_t)number, factor, &value) ||
        value < option->min || value > option->max) {
        snprintf(reason, size, "%s is out of range %" PRId64 " to %" PRId64 "%s", text, option->min,
                 option->max,
                 option->type == CONFIG_SIZE       ? " bytes"
                 : option->type == CONFIG_DURATION ? " ms"
                                                   : "");
        return VALUE_BAD;
    }
    *out = value;
    return VALUE_OK;
}

bool config_parse_size(const char *text, uint64_t *bytes)
{
    const struct config_option any = {.type = CONFIG_SIZE, .max = INT64_MAX};
    char reason[1];
    int64_t value;
    if (parse_number(&any, text, &value, reason, sizeof reason) != VALUE_OK)
        return false;
    *bytes = (uint64_t)value;
    return true;
}

static enum value_result parse_switch(const char *text, bool *out, char *reason, size_t size)
{
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return VALUE_OK;
        }
    }
    snprintf(reason, size, "\"%s\" is neither yes nor no", text);
    return VALUE_BAD;
}

/* The place of `text` in "a|b|c". */
static enum value_result parse_choice(const struct config_option *option, const char *text,
                                      int *out, char *reason, size_t size)
{
    int place = 0;
    for (const char *word = option->unit;; place++) {
        size_t n = strcspn(word, "|");
        if (strlen(text) == n && strncmp(word, text, n) == 0) {
            *out = place;
            return VALUE_OK;
        }
        if (word[n] == '\0')
            break;
        word += n + 1;
    }
    snprintf(reason, size, "\"%s\" is none of %s", text, option->unit);
    return VALUE_BAD;
}

static enum value_result parse_text(const struct config_option *option, const char *text,
                                    char **out, char *reason, size_t size)
{
    size_t n = strlen(text);
    if (option->type == CONFIG_TEXT && (n < (size_t)option->min || n > (size_t)option->max)) {
        snprintf(reason, size, "%zu characters, allowed are %" PRId64 " to %" PRId64, n,
                 option->min, option->max);
        return VALUE_BAD;
    }
    char *copy = mem_strdup(text);
    if (copy == NULL)
        return VALUE_NO_MEMORY;
    mem_free(*out);
    *out = copy;
    return VALUE_OK;
}

static enum value_result append_item(const struct config_option *option, const char *text,
                                     struct config_list *list, char *reason, size_t size)
{
    if (text[0] == '\0')
        return VALUE_OK;
    if (list->count >= option->max || list->count >= CONFIG_LIST_MAX) {
        snprintf(reason, size, "given more than %" PRId64 " times", option->max);
        return VALUE_BAD;
    }
    char *copy = mem_strdup(text);
    if (copy == NULL)
        return VALUE_NO_MEMORY;
    list->items[list->count++] = copy;
    return VALUE_OK;
}

enum value_result value__parse(struct config *c, const struct config_option *option,
                               const char *text, char *reason, size_t size)
{
    void *field = field_of(c, option);
    switch (option->type) {
    case CONFIG_TEXT:
    case CONFIG_PATH: return parse_text(option, text, field, reason, size);
    case CONFIG_LIST: return append_item(option, text, field, reason, size);
    case CONFIG_NUMBER:
    case CONFIG_SIZE:
    case CONFIG_DURATION: return parse_number(option, text, field, reason, size);
    case CONFIG_SWITCH: return parse_switch(text, field, reason, size);
    case CONFIG_CHOICE: return parse_choice(option, text, field, reason, size);
    }
    return VALUE_BAD;
}

void value__clear(struct config *c, const struct config_option *option)
{
    if (option->type == CONFIG_TEXT || option->type == CONFIG_PATH) {
        char **text = field_of(c, option);
        mem_free(*text);
        *text = NULL;
    } else if (option->type == CONFIG_LIST) {
        struct config_list *list = field_of(c, option);
        for (uint32_t i = 0; i < list->count; i++)
            mem_free(list->items[i]);
        *list = (struct config_list){0};
    }
}

static void print_number(const struct config_option *option, int64_t value, struct strbuf *out)
{
    const struct unit *unit = units_of(option->type);
    while (unit->factor > 1 && (value == 0 || value % unit->factor != 0))
        unit++;
    strbuf_printf(out, "%" PRId64 "%s", value / unit->factor, value == 0 ? "" : unit->suffix);
}

void value__print(const struct config *c, const struct config_option *option, struct strbuf *out)
{
    const void *field = const_field_of(c, option);
    switch (option->type) {
    case CONFIG_TEXT:
    case CONFIG_PATH: strbuf_puts(out, *(char *const *)field); break;
    case CONFIG_LIST: {
        const struct config_list *list = field;
        for (uint32_t i = 0; i < list->count; i++)
            strbuf_printf(out, "%s%s", i > 0 ? "\n" : "", list->items[i]);
        break;
    }
    case CONFIG_NUMBER:
    case CONFIG_SIZE:
    case CONFIG_DURATION: print_number(option, *(const int64_t *)field, out); break;
    case CONFIG_SWITCH: strbuf_puts(out, *(const bool *)field ? "yes" : "no"); break;
    case CONFIG_CHOICE: {
        const char *word = option->unit;
        for (int i = 0; i < *(const int *)field; i++)
            word += strcspn(word, "|") + 1;
        strbuf_append(out, word, strcspn(word, "|"));
        break;
    }
    }
}

static size_t size_of(enum config_type type)
{
    switch (type) {
    case CONFIG_TEXT: return sizeof(CONFIG_C_TEXT);
    case CONFIG_PATH: return sizeof(CONFIG_C_PATH);
    case CONFIG_LIST: return sizeof(CONFIG_C_LIST);
    case CONFIG_NUMBER: return sizeof(CONFIG_C_NUMBER);
    case CONFIG_SIZE: return sizeof(CONFIG_C_SIZE);
    case CONFIG_DURATION: return sizeof(CONFIG_C_DURATION);
    case CONFIG_SWITCH: return sizeof(CONFIG_C_SWITCH);
    case CONFIG_CHOICE: return sizeof(CONFIG_C_CHOICE);
    }
    return 0;
}

static bool equal_lists(const struct config_list *a, const struct config_list *b)
{
    bool equal = a->count == b->count;
    for (uint32_t i = 0; i < a->count && equal; i++)
        equal = strcmp(a->items[i], b->items[i]) == 0;
    return equal;
}

bool value__equal(const struct config *a, const struct config *b,
                  const struct config_option *option)
{
    const void *left = const_field_of(a, option), *right = const_field_of(b, option);
    if (option->type == CONFIG_TEXT || option->type == CONFIG_PATH)
        return strcmp(*(char *const *)left, *(char *const *)right) == 0;
    if (option->type == CONFIG_LIST)
        return equal_lists(left, right);
    return memcmp(left, right, size_of(option->type)) == 0;
}

void value__swap(struct config *a, struct config *b, const struct config_option *option)
{
    char kept[sizeof(struct config_list)];
    size_t n = size_of(option->type);
    memcpy(kept, field_of(a, option), n);
    memcpy(field_of(a, option), field_of(b, option), n);
    memcpy(field_of(b, option), kept, n);
}
