/* tune.json under several processes that add to it at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/tune/tuner.h"
#include "server/tune_file.h"

#define N_PROCESSES 4
#define N_RECORDS   12

/* A record that no other call of this function gives the same. */
static struct tune_record record(uint32_t process, uint32_t i)
{
    struct tune_record r = {.variant = "rows",
                            .dtype = DT_Q4_0,
                            .driver = "1",
                            .version = TUNER_VERSION,
                            .settings = "ROWS=2",
                            .ns = 1000,
                            .standard_ns = 2000,
                            .work = 1e6};
    snprintf(r.device, sizeof r.device, "device %u of process %u", i, process);
    if (shape_parse(OP_LINEAR, "m=1000,k=512", &r.shape, NULL) != ST_OK)
        abort();
    return r;
}

static int add_records(const char *path, uint32_t process)
{
    for (uint32_t i = 0; i < N_RECORDS; i++) {
        struct tune_store *s;
        const struct tune_record r = record(process, i);
        if (store_open(&s, NULL) != ST_OK || store_add(s, &r, NULL) != ST_OK ||
            tune_file_add(path, s, NULL) != ST_OK)
            return 1;
        store_close(s);
    }
    return 0;
}

static void no_process_loses_what_another_adds(void **state)
{
    (void)state;
    char folder[] = "/tmp/tune_file_XXXXXX", path[64];
    pid_t pids[N_PROCESSES];
    assert_non_null(mkdtemp(folder));
    assert_non_null(tune_file_path(folder, path, sizeof path));
    for (uint32_t p = 0; p < N_PROCESSES; p++) {
        pids[p] = fork();
        if (pids[p] == 0)
            _exit(add_records(path, p));
    }
    for (uint32_t p = 0; p < N_PROCESSES; p++) {
        int status = 0;
        assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    struct tune_store *s;
    uint32_t n = 0;
    assert_int_equal(store_open(&s, NULL), ST_OK);
    tune_file_load(path, s);
    while (store_at(s, n) != NULL)
        n++;
    assert_int_equal(n, N_PROCESSES * N_RECORDS);
    store_close(s);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else is left there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_process_loses_what_another_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
