/* The log: a level and one writer. The level is an atomic, set at start and on reload. */
#include "engine/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINE_BYTES 2048

static _Atomic int current_level = LOG_INFO;
static _Atomic int journal_prefix = 0;

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const journal_prefixes[] = {"<3>", "<4>", "<6>", "<7>"};

void log_init(enum log_level level, int journal)
{
    atomic_store(&current_level, (int)level);
    atomic_store(&journal_prefix, journal);
}

void log_level_set(enum log_level level)
{
    atomic_store(&current_level, (int)level);
}

enum log_level log_level_get(void)
{
    return (enum log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

int log_level_parse(const char *word, enum log_level *out)
{
    for (int i = 0; i <= LOG_DEBUG; i++) {
        if (strcmp(word, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return -1;
}

void log_write(enum log_level level, const char *format, ...)
{
    if (level > log_level_get())
        return;
    char line[LOG_LINE_BYTES];
    int head =
        snprintf(line, sizeof line, "%s%s ",
                 atomic_load(&journal_prefix) ? journal_prefixes[level] : "", level_names[level]);
    va_list args;
    va_start(args, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, args);
    va_end(args);
    if (body < 0)
        return;
    size_t n = (size_t)head + (size_t)body;
    if (n > sizeof line - 2)
        n = sizeof line - 2;
    for (size_t i = (size_t)head; i < n; i++)
        if ((unsigned char)line[i] < 0x20)
            line[i] = ' ';
    line[n++] = '\n';
    /* A log that cannot be written must not stop the daemon: the result is ignored on purpose. */
    ssize_t written = write(STDERR_FILENO, line, n);
    (void)written;
}

const char *log_quote(char *buffer, size_t size, const char *text)
{
    int plain = text[0] != '\0';
    for (const char *p = text; *p != '\0' && plain; p++)
        plain = (unsigned char)*p > 0x20 && *p != '"' && *p != '=' && *p != '\\' && *p != 0x7F;
    if (plain) {
        snprintf(buffer, size, "%s", text);
        return buffer;
    }
    size_t n = 0;
    if (size < 3) {
        buffer[0] = '\0';
        return buffer;
    }
    buffer[n++] = '"';
    for (const char *p = text; *p != '\0' && n + 5 < size; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            buffer[n++] = '\\';
            buffer[n++] = (char)c;
        } else if (c < 0x20 || c == 0x7F) {
            n += (size_t)snprintf(buffer + n, size - n, "\\x%02x", c);
        } else {
            buffer[n++] = (char)c;
        }
    }
    buffer[n++] = '"';
    buffer[n] = '\0';
    return buffer;
}
