/* The option table and its four sources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"
#include "engine/base/mem.h"

#define CEILING (1 << 20)

static struct strbuf problems;

/* Loads with the given arguments (argv[0] added) and environment. */
static enum status load(char *const *arguments, char *const *environment, struct config **out,
                        enum config_action *action)
{
    char *argv[32] = {(char *)"oinferd"};
    int argc = 1;
    for (; arguments != NULL && *arguments != NULL; arguments++)
        argv[argc++] = *arguments;
    strbuf_free(&problems);
    strbuf_init(&problems, CEILING);
    return config_load(argc, argv, environment, out, action, &problems);
}

#define ARGS(...)         \
    (char *const[])       \
    {                     \
        __VA_ARGS__, NULL \
    }

static void write_file(char *path, const char *text)
{
    memcpy(path, "/tmp/oinfer-config-XXXXXX", sizeof "/tmp/oinfer-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void defaults_are_the_tables(void **state)
{
    (void)state;
    struct config *c;
    enum config_action action;
    assert_int_equal(load(NULL, NULL, &c, &action), ST_OK);
    assert_int_equal(action, CONFIG_RUN);
    assert_int_equal(c->port, 8080);
    assert_string_equal(c->host, "127.0.0.1");
    assert_int_equal(c->body_bytes, 8 << 20);
    assert_int_equal(c->ping_interval_ms, 10000);
    assert_int_equal(c->model.count, 0);
    assert_false(c->profiling);
    for (uint32_t i = 0; i < config_option_count; i++) {
        struct strbuf text;
        strbuf_init(&text, CEILING);
        config_print_value(c, &config_options[i], &text);
        assert_string_equal(strbuf_text(&text), config_options[i].fallback);
        strbuf_free(&text);
    }
    config_close(c);
}

static void later_sources_win(void **state)
{
    (void)state;
    struct config *c;
    enum config_action action;
    char path[64];
    write_file(path, "[server]\nport = 1000\nhost = file.example ; a comment\n[model]\n"
                     "model = a.gguf\nmodel = b.gguf\n[limits]\nqueue = 7\nbody = 2MiB\n");
    char *env[] = {(char *)"OINFER_PORT=2000", (char *)"OINFER_QUEUE=8",
                   (char *)"OINFER_QWERTZUIOP=1", NULL};
    char *args[] = {(char *)"--config", path, (char *)"--port=3000", NULL};
    assert_int_equal(load(args, env, &c, &action), ST_OK);
    assert_int_equal(c->port, 3000);
    assert_int_equal(c->queue_jobs, 8);
    assert_int_equal(c->body_bytes, 2 << 20);
    assert_string_equal(c->host, "file.example");
    assert_int_equal(c->model.count, 2);
    assert_string_equal(c->model.items[1], "b.gguf");
    assert_int_equal(c->unknown_variables.count, 1); /* another program's, or a mistake */
    assert_string_equal(c->unknown_variables.items[0], "OINFER_QWERTZUIOP");
    config_close(c);

    char *empty_env[] = {(char *)"OINFER_PORT=", (char *)"OINFER_MODEL=", (char *)"OINFER_KV=",
                         (char *)"OINFER_SLTOS=", NULL};
    assert_int_equal(load(ARGS((char *)"--config", path), empty_env, &c, &action), ST_OK);
    assert_int_equal(c->port, 1000); /* set but empty is not set */
    assert_int_equal(c->model.count, 2);
    config_close(c);

    /* A list of a later source replaces that of an earlier one. */
    char *list_env[] = {(char *)"OINFER_MODEL=c.gguf:d.gguf", (char *)"OINFER_CONFIG=", NULL};
    char *list_args[] = {(char *)"--config", path, NULL};
    assert_int_equal(load(list_args, list_env, &c, &action), ST_OK);
    assert_int_equal(c->model.count, 2);
    assert_string_equal(c->model.items[0], "c.gguf");
    config_close(c);
    unlink(path);
}

static void every_problem_is_named(void **state)
{
    (void)state;
    struct config *c;
    enum config_action action;
    char path[64], want[192];
    write_file(path, "[server]\nprot = 1\nport = 1\nport = 2\nqueue = 3\nnonsense\n");
    char *env[] = {(char *)"OINFER_SLTOS=2", (char *)"OINFER_PORT=99999", NULL};
    char *args[] = {(char *)"--config",
                    path,
                    (char *)"--body",
                    (char *)"12parsecs",
                    (char *)"--log-level=loud",
                    (char *)"stray",
                    (char *)"--host",
                    (char *)"--no-such-thing-at-all=1",
                    (char *)"--profiling=maybe",
                    NULL};
    assert_int_equal(load(args, env, &c, &action), ST_INVALID);
    assert_null(c);
    const char *text = strbuf_text(&problems);
    snprintf(want, sizeof want, "%s:2: unknown option \"prot\"; did you mean \"port\"?\n", path);
    assert_non_null(strstr(text, want));
    snprintf(want, sizeof want, "%s:4: \"port\" was already set in line 3\n", path);
    assert_non_null(strstr(text, want));
    snprintf(want, sizeof want, "%s:5: \"queue\" belongs in section [limits], not [server]\n",
             path);
    assert_non_null(strstr(text, want));
    snprintf(want, sizeof want, "%s:6: neither a [section] nor name = value\n", path);
    assert_non_null(strstr(text, want));
    assert_non_null(
        strstr(text, "OINFER_SLTOS: unknown option \"sltos\"; did you mean \"slots\"?\n"));
    assert_non_null(strstr(text, "OINFER_PORT: 99999 is out of range 0 to 65535\n"));
    assert_non_null(strstr(text, "--body: \"12parsecs\" is not a size such as 8MiB\n"));
    assert_non_null(strstr(text, "--log-level: \"loud\" is none of error|warn|info|debug"));
    assert_non_null(strstr(text, "argument \"stray\" is no option"));
    assert_non_null(strstr(text, "--host: needs a value (ADDRESS)\n"));
    assert_non_null(strstr(text, "command line: unknown option \"no-such-thing-at-all\"\n"));
    assert_non_null(strstr(text, "\"maybe\" is neither yes nor no"));
    unlink(path);

    write_file(path, "[nope]\nport = 1\nfoo = 2\n [limits] ; known\nqueue = 3\n[also nope]\n");
    assert_int_equal(load(ARGS((char *)"--config", path), NULL, &c, &action), ST_INVALID);
    snprintf(want, sizeof want,
             "%s:1: there is no section [nope]; there are [model] [device] [server] [limits] "
             "[log]\n",
             path);
    text = strbuf_text(&problems);
    assert_ptr_equal(strstr(text, want), text);
    assert_non_null(strstr(text, ":6: there is no section [also nope]"));
    assert_null(strstr(text, "port"));
    assert_null(strstr(text, "queue"));
    unlink(path);

    assert_int_equal(load(ARGS((char *)"--model", (char *)""), NULL, &c, &action), ST_INVALID);
    assert_string_equal(strbuf_text(&problems), "--model: is empty, expected a value (FILE)\n");
    assert_int_equal(load(ARGS((char *)"--config", (char *)""), NULL, &c, &action), ST_INVALID);
    assert_string_equal(strbuf_text(&problems), "--config: needs a value (FILE)\n");

    char *missing[] = {(char *)"--config=/nonexistent/oinferd.conf", NULL};
    assert_int_equal(load(missing, NULL, &c, &action), ST_INVALID);
    assert_non_null(strstr(strbuf_text(&problems), "/nonexistent/oinferd.conf: cannot be opened"));
}

static void units_and_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *flag;
        int64_t value; /* -1: refused */
    } sizes[] = {{"--body=1024", 1024},       {"--body=1KiB", 1024}, {"--body=2m", 2 << 20},
                 {"--body=1GiB", 1 << 30},    {"--body=2GiB", -1},   {"--body=1023", -1},
                 {"--body=-1", -1},           {"--body=", -1},       {"--body=1e3", -1},
                 {"--body=99999999999G", -1}, {"--body= 2048", -1},  {"--body=0x800", -1}},
      times[] = {{"--deadline=1s", 1000},     {"--deadline=90s", 90000},
                 {"--deadline=2h", 7200000},  {"--deadline=1500ms", 1500},
                 {"--deadline=5min", 300000}, {"--deadline=10", -1},
                 {"--deadline=1.5s", -1},     {"--deadline=99999999999999999999s", -1}};
    struct config *c;
    enum config_action action;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum status s = load(ARGS((char *)sizes[i].flag), NULL, &c, &action);
        assert_int_equal(s, sizes[i].value < 0 ? ST_INVALID : ST_OK);
        if (s == ST_OK)
            assert_int_equal(c->body_bytes, sizes[i].value);
        config_close(c);
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        enum status s = load(ARGS((char *)times[i].flag), NULL, &c, &action);
        assert_int_equal(s, times[i].value < 0 ? ST_INVALID : ST_OK);
        if (s == ST_OK)
            assert_int_equal(c->deadline_ms, times[i].value);
        config_close(c);
    }
}

static void sizes_are_read_outside_the_table_too(void **state)
{
    (void)state;
    uint64_t bytes = 7;
    assert_true(config_parse_size("3GiB", &bytes) && bytes == 3ull << 30);
    assert_true(config_parse_size("4096", &bytes) && bytes == 4096);
    assert_false(config_parse_size("-1", &bytes));
    assert_false(config_parse_size("8parsecs", &bytes));
    assert_false(config_parse_size("", &bytes));
    assert_int_equal(bytes, 4096);
}

static void lists_are_bounded(void **state)
{
    (void)state;
    char *args[2 * CONFIG_LIST_MAX + 3];
    int n = 0;
    for (int i = 0; i <= CONFIG_LIST_MAX; i++)
        args[n++] = (char *)"--model=x.gguf";
    args[n] = NULL;
    struct config *c;
    enum config_action action;
    assert_int_equal(load(args, NULL, &c, &action), ST_INVALID);
    assert_non_null(strstr(strbuf_text(&problems), "given more than 16 times"));
    args[n - 1] = NULL;
    assert_int_equal(load(args, NULL, &c, &action), ST_OK);
    assert_int_equal(c->model.count, CONFIG_LIST_MAX);
    config_close(c);
}

static void long_lines_are_reported(void **state)
{
    (void)state;
    char text[1024], path[64];
    snprintf(text, sizeof text, "[server]\nhost = %0600d\nport = 81\n", 1);
    write_file(path, text);
    char *args[] = {(char *)"--config", path, NULL};
    struct config *c;
    enum config_action action;
    assert_int_equal(load(args, NULL, &c, &action), ST_INVALID);
    assert_non_null(strstr(strbuf_text(&problems), ":2: line is longer than"));
    assert_null(strstr(strbuf_text(&problems), ":3:"));
    unlink(path);
}

/* Files without an end, with bytes that are no text, with names that a terminal would obey. */
static void odd_files_are_reported(void **state)
{
    (void)state;
    char path[64];
    char *endless[] = {(char *)"--config", (char *)"/dev/zero", NULL};
    char *file[] = {(char *)"--config", path, NULL};
    struct config *c;
    enum config_action action;
    assert_int_equal(load(endless, NULL, &c, &action), ST_INVALID);
    assert_string_equal(strbuf_text(&problems), "/dev/zero:1: byte 1 is NUL, expected text\n");

    write_file(path, "[server]\n\x1b[2J\x7f = 1\n");
    assert_int_equal(load(file, NULL, &c, &action), ST_INVALID);
    assert_non_null(strstr(strbuf_text(&problems), ":2: unknown option \"?[2J?\""));
    unlink(path);

    char *lines = malloc(10001 * 2 + 1);
    assert_non_null(lines);
    for (int i = 0; i <= 10001 * 2; i++)
        lines[i] = i % 2 == 0 ? ';' : '\n';
    lines[10001 * 2] = '\0';
    write_file(path, lines);
    assert_int_equal(load(file, NULL, &c, &action), ST_INVALID);
    assert_non_null(strstr(strbuf_text(&problems), ": more than 10000 lines\n"));
    unlink(path);
    lines[10000 * 2] = '\0';
    write_file(path, lines);
    assert_int_equal(load(file, NULL, &c, &action), ST_OK);
    config_close(c);
    unlink(path);
    free(lines);
}

static void actions_stop_reading(void **state)
{
    (void)state;
    struct config *c;
    enum config_action action;
    assert_int_equal(load(ARGS((char *)"--help", (char *)"--bad"), NULL, &c, &action), ST_OK);
    assert_int_equal(action, CONFIG_SHOW_HELP);
    assert_int_equal(load(ARGS((char *)"--version"), NULL, &c, &action), ST_OK);
    assert_int_equal(action, CONFIG_SHOW_VERSION);
    assert_int_equal(load(ARGS((char *)"--print-defaults"), NULL, &c, &action), ST_OK);
    assert_int_equal(action, CONFIG_SHOW_DEFAULTS);
    assert_int_equal(
        load(ARGS((char *)"--check", (char *)"--port", (char *)"1"), NULL, &c, &action), ST_OK);
    assert_int_equal(action, CONFIG_CHECK);
    assert_int_equal(c->port, 1);
    config_close(c);
}

/* config/oinferd.conf is the output of --print-defaults, and reads back as the defaults. */
static void default_file_is_current(void **state)
{
    (void)state;
    struct strbuf want;
    strbuf_init(&want, CEILING);
    config_print_defaults(&want);
    FILE *f = fopen(OINFER_SOURCE_DIR "/config/oinferd.conf", "re");
    assert_non_null(f);
    char *text = mem_zalloc(CEILING);
    size_t n = fread(text, 1, CEILING - 1, f);
    fclose(f);
    assert_int_equal(n, want.length);
    assert_string_equal(text, strbuf_text(&want));

    /* With the comment signs of the settings taken away it is a valid file with the same values. */
    struct strbuf open;
    strbuf_init(&open, CEILING);
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n") + 1;
        strbuf_append(&open, line + (line[0] == '#' && line[1] != ' '),
                      length - (line[0] == '#' && line[1] != ' '));
        line += length;
    }
    char path[64];
    write_file(path, strbuf_text(&open));
    char *args[] = {(char *)"--config", path, NULL};
    struct config *c;
    enum config_action action;
    assert_int_equal(load(args, NULL, &c, &action), ST_OK);
    assert_int_equal(c->queue_jobs, 64);
    config_close(c);
    unlink(path);
    mem_free(text);
    strbuf_free(&open);
    strbuf_free(&want);
}

static void help_names_every_option(void **state)
{
    (void)state;
    struct strbuf help;
    strbuf_init(&help, CEILING);
    config_print_help("oinferd", &help);
    for (uint32_t i = 0; i < config_option_count; i++) {
        char flag[80];
        snprintf(flag, sizeof flag, "--%s", config_options[i].name);
        assert_non_null(strstr(strbuf_text(&help), flag));
    }
    strbuf_free(&help);
}

static void out_of_memory_is_a_status(void **state)
{
    (void)state;
    char *env[] = {(char *)"OINFER_MODEL=a:b", NULL};
    bool succeeded = false;
    for (uint64_t n = 1; n < 200 && !succeeded; n++) {
        struct config *c;
        enum config_action action;
        strbuf_free(&problems);
        char *argv[] = {(char *)"oinferd", (char *)"--host=h", NULL};
        mem_fail_at(n, 0);
        enum status s = config_load(2, argv, env, &c, &action, &problems);
        mem_fail_at(0, 0);
        assert_true(s == ST_OK || s == ST_NO_MEMORY);
        assert_true((s == ST_OK) == (c != NULL));
        succeeded = s == ST_OK;
        config_close(c);
    }
    assert_true(succeeded);
}

/* Live rows are exchanged, others named and left alone; of either kind only those that differ. */
static void reload_takes_live_rows(void **state)
{
    (void)state;
    struct config *running, *next;
    enum config_action action;
    struct strbuf taken, fixed;
    strbuf_init(&taken, CEILING);
    strbuf_init(&fixed, CEILING);
    assert_int_equal(load(ARGS("--queue=3", "--port=1", "--api-key-file=a", "--model=m", "--kv=f16",
                               "--model=n", "--slots=2"),
                          NULL, &running, &action),
                     ST_OK);
    assert_int_equal(load(ARGS("--queue=4", "--port=2", "--api-key-file=b", "--model=m", "--kv=f32",
                               "--model=o", "--slots=2"),
                          NULL, &next, &action),
                     ST_OK);
    config_reload(running, next, &taken, &fixed);
    assert_string_equal(strbuf_text(&taken), "api-key-file,queue");
    assert_string_equal(strbuf_text(&fixed), "model,kv,port");
    assert_int_equal(running->queue_jobs, 4);
    assert_string_equal(running->api_key_file, "b");
    assert_string_equal(next->api_key_file, "a");
    assert_int_equal(running->port, 1);
    assert_string_equal(running->model.items[1], "n");
    strbuf_clear(&taken);
    config_reload(running, running, &taken, &fixed);
    assert_int_equal(taken.length, 0);
    config_close(running);
    config_close(next);
    strbuf_free(&taken);
    strbuf_free(&fixed);
}

int main(void)
{
    strbuf_init(&problems, CEILING);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_tables),
        cmocka_unit_test(later_sources_win),
        cmocka_unit_test(every_problem_is_named),
        cmocka_unit_test(units_and_ranges),
        cmocka_unit_test(sizes_are_read_outside_the_table_too),
        cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(long_lines_are_reported),
        cmocka_unit_test(odd_files_are_reported),
        cmocka_unit_test(actions_stop_reading),
        cmocka_unit_test(default_file_is_current),
        cmocka_unit_test(reload_takes_live_rows),
        cmocka_unit_test(help_names_every_option),
        cmocka_unit_test(out_of_memory_is_a_status),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    strbuf_free(&problems);
    return failed;
}
