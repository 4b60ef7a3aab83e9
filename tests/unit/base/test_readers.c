/* readers: pieces of a file or of memory arrive whole and in order with any number of threads; a
 * file that ends or gives an error is one error that names the place, and the other pieces are not
 * lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/readers.h"
#include "tests/assert_ok.h"

#define N_BYTES ((size_t)3 * 1000 * 1000 + 7) /* no multiple of what is read at once */

static unsigned char byte_at(uint64_t i)
{
    return (unsigned char)((i * 2654435761u) >> 13);
}

static unsigned char *make_bytes(void)
{
    unsigned char *bytes = malloc(N_BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < N_BYTES; i++)
        bytes[i] = byte_at(i);
    return bytes;
}

/* The descriptor of a file of N_BYTES that has no name. */
static int make_file(void)
{
    char name[] = "/tmp/oinfer-readers-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    unlink(name);
    unsigned char *bytes = make_bytes();
    assert_int_equal(write(fd, bytes, N_BYTES), (ssize_t)N_BYTES);
    free(bytes);
    return fd;
}

static void assert_bytes(const unsigned char *got, uint64_t offset, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != byte_at(offset + i))
            fail_msg("byte %zu of the piece at %llu", i, (unsigned long long)offset);
}

static void pieces_arrive_in_order(void **state)
{
    (void)state;
    static const uint32_t threads[] = {0, 1, 2, 7};
    static const struct {
        uint64_t offset;
        size_t n;
    } pieces[READERS_PENDING] = {{0, N_BYTES},      {5, 1},      {N_BYTES - 1, 1}, {100, 0},
                                 {77, 1500 * 1000}, {3, 262144}, {1, 262145},      {0, 1000}};
    int fd = make_file();
    unsigned char *bytes = make_bytes();
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        struct readers *r = NULL;
        unsigned char *to[READERS_PENDING];
        ASSERT_OK(readers_open(threads[t], &r, e));
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < READERS_PENDING; i++) {
                to[i] = calloc(pieces[i].n + 1, 1);
                assert_non_null(to[i]);
                const bool memory = (i + round) % 2 != 0;
                readers_begin(r, (struct readers_source){memory ? -1 : fd, memory ? bytes : NULL},
                              pieces[i].offset, to[i], pieces[i].n);
            }
            for (int i = 0; i < READERS_PENDING; i++) {
                ASSERT_OK(readers_wait(r, e));
                assert_bytes(to[i], pieces[i].offset, pieces[i].n);
                assert_int_equal(to[i][pieces[i].n], 0);
                free(to[i]);
            }
        }
        readers_close(r);
    }
    free(bytes);
    close(fd);
}

static void the_end_of_the_file_is_named(void **state)
{
    (void)state;
    int fd = make_file();
    unsigned char *to = malloc(N_BYTES), *all = malloc(N_BYTES);
    assert_true(to != NULL && all != NULL);
    struct readers *r = NULL;
    struct err why = {0};
    char place[64];
    snprintf(place, sizeof place, "the file ends at byte %zu", N_BYTES);
    for (uint32_t threads = 0; threads < 5; threads += 2) {
        ASSERT_OK(readers_open(threads, &r, e));
        readers_begin(r, (struct readers_source){fd, NULL}, 1000 * 1000, to, N_BYTES - 1000);
        readers_begin(r, (struct readers_source){fd, NULL}, 0, all, N_BYTES);
        assert_int_equal(readers_wait(r, &why), ST_IO);
        assert_non_null(strstr(why.text, place));
        ASSERT_OK(readers_wait(r, e));
        assert_bytes(all, 0, N_BYTES);
        readers_close(r);
    }
    free(to);
    free(all);
    close(fd);
}

static void an_error_of_the_file_is_named(void **state)
{
    (void)state;
    char to[100];
    int ends[2];
    struct readers *r = NULL;
    struct err why = {0};
    assert_int_equal(pipe(ends), 0); /* cannot be read at an offset */
    ASSERT_OK(readers_open(2, &r, e));
    readers_begin(r, (struct readers_source){ends[0], NULL}, 0, to, sizeof to);
    assert_int_equal(readers_wait(r, &why), ST_IO);
    assert_non_null(strstr(why.text, "cannot read 100 bytes from byte 0 on: "));
    assert_null(strstr(why.text, "the file ends"));
    readers_begin(r, (struct readers_source){-1, NULL}, 12, to, sizeof to);
    assert_int_equal(readers_wait(r, &why), ST_IO);
    assert_non_null(strstr(why.text, "at byte 12"));
    readers_close(r);
    close(ends[0]);
    close(ends[1]);
}

/* Memory is not given up while threads still write to it. */
static void closing_waits_for_what_is_read(void **state)
{
    (void)state;
    int fd = make_file();
    for (int i = 0; i < 20; i++) {
        struct readers *r = NULL;
        unsigned char *to = malloc(N_BYTES);
        assert_non_null(to);
        ASSERT_OK(readers_open(3, &r, e));
        readers_begin(r, (struct readers_source){fd, NULL}, 0, to, N_BYTES);
        readers_close(r);
        assert_bytes(to, 0, N_BYTES);
        free(to);
    }
    readers_close(NULL);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_arrive_in_order),
        cmocka_unit_test(the_end_of_the_file_is_named),
        cmocka_unit_test(an_error_of_the_file_is_named),
        cmocka_unit_test(closing_waits_for_what_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
