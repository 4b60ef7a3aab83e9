/* Log lines on stderr: `level message key=value ...`, one write(2) a line.
 *
 * Values that hold spaces, quotes, '=' or control characters are quoted and escaped by the log_str
 * helper of the caller's format: write `key=%s` with log_quote(). Prompts are never logged above
 * debug. Thread-safe; the level is process-wide.
 */
#ifndef OINFER_BASE_LOG_H
#define OINFER_BASE_LOG_H

#include <stddef.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Sets the most verbose level that is written; LOG_INFO before the first call. `journal` puts the
 * systemd priority prefix (<3> .. <7>) before each line. */
void log_init(enum log_level level, int journal);
void log_level_set(enum log_level level);
enum log_level log_level_get(void);
/* "error" "warn" "info" "debug" -> *out; returns 0, or -1 for another word. */
int log_level_parse(const char *word, enum log_level *out);

/* Writes one line; at most 2 KiB, the rest is cut. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Quotes `text` into `buffer` if it needs it, and returns `buffer`; cut to `size` - 1 bytes. */
const char *log_quote(char *buffer, size_t size, const char *text);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                         \
    do {                                       \
        if (log_level_get() >= LOG_DEBUG)      \
            log_write(LOG_DEBUG, __VA_ARGS__); \
    } while (0)

#endif
