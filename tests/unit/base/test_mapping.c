/* Mappings of files that are cut while they are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/mapping.h"

#define N_BYTES 100000u

static int make_file(void)
{
    static unsigned char bytes[N_BYTES];
    char path[] = "/tmp/mapping_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    memset(bytes, 7, sizeof bytes);
    assert_int_equal(write(fd, bytes, N_BYTES), N_BYTES);
    return fd;
}

static struct mapping *open_whole(int fd)
{
    struct mapping *m = NULL;
    struct err e = {0};
    if (mapping_open(fd, N_BYTES, &m, &e) != ST_OK)
        fail_msg("%s", e.text);
    assert_int_equal(mapping_check(m, &e), ST_OK);
    return m;
}

static unsigned sum(const struct mapping *m)
{
    const volatile unsigned char *bytes = mapping_bytes(m);
    unsigned total = 0;
    for (size_t i = 0; i < N_BYTES; i++)
        total += bytes[i];
    return total;
}

static void a_cut_file_reads_as_zeros_and_is_told(void **state)
{
    static const off_t sizes[] = {0, 1, 4096, 50000, N_BYTES - 1};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char expected[32];
        struct err e = {0};
        int fd = make_file();
        struct mapping *m = open_whole(fd), *other = open_whole(fd);
        assert_int_equal(sum(m), 7 * N_BYTES);
        assert_int_equal(ftruncate(fd, sizes[i]), 0);
        close(fd); /* it has its own */
        assert_int_equal(sum(m), 7 * sizes[i]);
        assert_int_equal(mapping_check(m, &e), ST_IO);
        snprintf(expected, sizeof expected, "cut to %lld bytes", (long long)sizes[i]);
        assert_non_null(strstr(e.text, expected));
        mapping_close(m);
        assert_int_equal(sum(other), 7 * sizes[i]); /* each on its own */
        assert_int_equal(mapping_check(other, &e), ST_IO);
        mapping_close(other);
    }
}

/* A file that was cut, read and is whole again was not read as it is. */
static void a_file_that_grows_again_stays_damaged(void **state)
{
    (void)state;
    struct err e = {0};
    int fd = make_file();
    struct mapping *m = open_whole(fd);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(sum(m), 7 * 4096);
    assert_int_equal(ftruncate(fd, N_BYTES), 0);
    assert_int_equal(mapping_check(m, &e), ST_IO);
    assert_non_null(strstr(e.text, "could not be read"));
    mapping_close(m);
    close(fd);
}

static void *read_again_and_again(void *user)
{
    for (int i = 0; i < 200; i++)
        sum(user);
    return NULL;
}

static void many_threads_may_meet_the_end_at_once(void **state)
{
    (void)state;
    struct err e = {0};
    pthread_t threads[4];
    int fd = make_file();
    struct mapping *m = open_whole(fd);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_again_and_again, m), 0);
    assert_int_equal(ftruncate(fd, 5000), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(mapping_check(m, &e), ST_IO);
    mapping_close(m);
    close(fd);
}

/* What is not ours ends the process as it would without a handler. */
static void other_mappings_are_left_alone(void **state)
{
    (void)state;
    const struct sigaction none = {.sa_handler = SIG_DFL};
    int fd = make_file(), status;
    sigaction(SIGBUS, &none, NULL);
    struct mapping *m = open_whole(fd);
    mapping_close(m);
    volatile unsigned char *bytes = mmap(NULL, N_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(bytes != MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(bytes[N_BYTES - 1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    munmap((void *)(uintptr_t)bytes, N_BYTES);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_file_reads_as_zeros_and_is_told),
        cmocka_unit_test(a_file_that_grows_again_stays_damaged),
        cmocka_unit_test(many_threads_may_meet_the_end_at_once),
        cmocka_unit_test(other_mappings_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
