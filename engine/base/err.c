/* Error text: formatting, cutting and prefixing. No state. */
#include "engine/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const char *message;
} statuses[] = {
#define X(id, name, message) [id] = {name, message},
#include "engine/base/status.def"
#undef X
};

const char *status_name(enum status status)
{
    return (unsigned)status < ST_COUNT ? statuses[status].name : "unknown";
}

const char *status_message(enum status status)
{
    return (unsigned)status < ST_COUNT ? statuses[status].message : "unknown status";
}

/* Cuts a string that filled its buffer so that it does not end inside a UTF-8 sequence, and keeps
 * it one line. */
static void tidy_text(char *text)
{
    size_t n = strlen(text);
    size_t start = n;
    while (start > 0 && n - start < 4 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start > 0 && (unsigned char)text[start - 1] >= 0xC0) {
        unsigned char lead = (unsigned char)text[start - 1];
        size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        if (n - (start - 1) < need)
            text[start - 1] = '\0';
    }
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20)
            *p = ' ';
}

enum status err_set(struct err *e, enum status status, const char *format, ...)
{
    if (e == NULL)
        return status;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    tidy_text(e->text);
    e->status = status;
    return status;
}

enum status err_prefix(struct err *e, const char *format, ...)
{
    if (e == NULL)
        return ST_INTERNAL;
    char head[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(head, sizeof head, format, args);
    va_end(args);
    size_t head_length = strlen(head);
    size_t text_length = strlen(e->text);
    if (head_length + text_length >= sizeof e->text)
        text_length = sizeof e->text - 1 - head_length;
    memmove(e->text + head_length, e->text, text_length);
    memcpy(e->text, head, head_length);
    e->text[head_length + text_length] = '\0';
    tidy_text(e->text);
    return e->status;
}

void err_clear(struct err *e)
{
    if (e == NULL)
        return;
    e->status = ST_OK;
    e->text[0] = '\0';
}

void assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
