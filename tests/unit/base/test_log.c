/* log: levels, one line for each write, quoting of values. Reads what is written through a pipe in
 * place of stderr. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/log.h"

static int pipe_ends[2], saved_stderr;

static void capture_begin(void)
{
    assert_int_equal(pipe(pipe_ends), 0);
    saved_stderr = dup(STDERR_FILENO);
    assert_true(saved_stderr >= 0);
    assert_int_equal(dup2(pipe_ends[1], STDERR_FILENO), STDERR_FILENO);
}

/* Puts stderr back and gives the captured text; a pipe holds more than the longest line. */
static size_t capture_end(char *text, size_t size)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(pipe_ends[1]);
    size_t n = 0;
    ssize_t got;
    while (n + 1 < size && (got = read(pipe_ends[0], text + n, size - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(pipe_ends[0]);
    return n;
}

static void words_name_the_levels(void **state)
{
    (void)state;
    enum log_level level = LOG_DEBUG;
    assert_int_equal(log_level_parse("error", &level), 0);
    assert_int_equal(level, LOG_ERROR);
    assert_int_equal(log_level_parse("warn", &level), 0);
    assert_int_equal(level, LOG_WARN);
    assert_int_equal(log_level_parse("info", &level), 0);
    assert_int_equal(level, LOG_INFO);
    assert_int_equal(log_level_parse("debug", &level), 0);
    assert_int_equal(level, LOG_DEBUG);
    assert_int_equal(log_level_parse("Debug", &level), -1);
    assert_int_equal(log_level_parse("", &level), -1);
    assert_int_equal(level, LOG_DEBUG);
}

static void lines_over_the_level_are_dropped(void **state)
{
    (void)state;
    char text[256];
    log_init(LOG_WARN, 0);
    assert_int_equal(log_level_get(), LOG_WARN);
    capture_begin();
    log_info("hidden");
    log_debug("hidden");
    log_warn("shown n=%d", 7);
    log_error("shown too");
    capture_end(text, sizeof text);
    assert_string_equal(text, "warn shown n=7\nerror shown too\n");
}

static void journal_prefix_is_the_syslog_priority(void **state)
{
    (void)state;
    char text[256];
    log_init(LOG_DEBUG, 1);
    capture_begin();
    log_error("a");
    log_warn("b");
    log_info("c");
    log_debug("d");
    capture_end(text, sizeof text);
    log_init(LOG_INFO, 0);
    assert_string_equal(text, "<3>error a\n<4>warn b\n<6>info c\n<7>debug d\n");
}

static void line_is_one_line_and_bounded(void **state)
{
    (void)state;
    char text[8192], value[4096];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    value[3] = '\n';
    log_init(LOG_INFO, 0);
    capture_begin();
    log_info("%s", value);
    size_t n = capture_end(text, sizeof text);
    assert_int_equal(n, 2047);
    assert_int_equal(strcspn(text, "\n"), n - 1);
    assert_memory_equal(text, "info vvv vv", 11);
}

static void assert_quoted(const char *text, const char *expected)
{
    char buffer[64];
    assert_ptr_equal(log_quote(buffer, sizeof buffer, text), buffer);
    assert_string_equal(buffer, expected);
}

static void values_are_quoted_only_where_needed(void **state)
{
    (void)state;
    assert_quoted("plain-1.0/x", "plain-1.0/x");
    assert_quoted("", "\"\"");
    assert_quoted("a b", "\"a b\"");
    assert_quoted("k=v", "\"k=v\"");
    assert_quoted("say \"x\" \\", "\"say \\\"x\\\" \\\\\"");
    assert_quoted("a\nb\x7F", "\"a\\x0ab\\x7f\"");
    assert_quoted("\xC3\xA9", "\xC3\xA9");
}

/* Whatever the size, the result fits, is terminated, and a quoted one stays closed. */
static void quote_never_overruns(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "plain", "a b \"\n\\ c = d", "\n\n\n\n\n\n\n\n"};
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        for (size_t size = 1; size < 48; size++) {
            char buffer[64];
            memset(buffer, '#', sizeof buffer);
            log_quote(buffer, size, texts[t]);
            size_t n = strnlen(buffer, sizeof buffer);
            assert_true(n < size);
            assert_int_equal(buffer[size], '#');
            if (n > 0 && buffer[0] == '"')
                assert_true(n >= 2 && buffer[n - 1] == '"');
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_name_the_levels),
        cmocka_unit_test(lines_over_the_level_are_dropped),
        cmocka_unit_test(journal_prefix_is_the_syslog_priority),
        cmocka_unit_test(line_is_one_line_and_bounded),
        cmocka_unit_test(values_are_quoted_only_where_needed),
        cmocka_unit_test(quote_never_overruns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
