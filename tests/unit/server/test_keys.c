/* API keys: found by their whole text, in a time that says nothing about how much of it was right.
 */
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

#include "engine/base/clock.h"
#include "server/keys.h"

#define N_KEYS    64
#define KEY_BYTES 200
#define ROUNDS    1000
#define CALLS     10
/* An early end would take a tenth of the time, or a sixtieth. */
#define MOST_RATIO 1.5

static struct keys *keys;

/* Key number i: they differ in their last byte but one group of letters, so that all of a wrong one
 * but the end may be right. */
static void key_text(uint32_t i, char out[KEY_BYTES + 1])
{
    memset(out, 'k', KEY_BYTES);
    out[KEY_BYTES - 2] = (char)('a' + i / 26);
    out[KEY_BYTES - 1] = (char)('a' + i % 26);
    out[KEY_BYTES] = '\0';
}

static void only_whole_keys_are_found(void **state)
{
    (void)state;
    char text[KEY_BYTES + 2];
    assert_int_equal(keys_count(keys), N_KEYS);
    for (uint32_t i = 0; i < N_KEYS; i++) {
        key_text(i, text);
        assert_int_equal(keys_find(keys, text), (int)i + 1);
        for (size_t b = 0; b < KEY_BYTES; b += 33) {
            text[b] ^= 0x40;
            assert_int_equal(keys_find(keys, text), -1);
            text[b] ^= 0x40;
        }
        text[KEY_BYTES - 1] = '\0';
        assert_int_equal(keys_find(keys, text), -1);
    }
    assert_int_equal(keys_find(keys, ""), -1);
}

/* The shortest of many: what else the machine does makes a round longer, never shorter. */
static uint64_t time_of(const char *given, uint64_t shortest)
{
    const uint64_t start = clock_now_ns();
    for (int i = 0; i < CALLS; i++)
        keys_find(keys, given);
    const uint64_t took = clock_now_ns() - start;
    return took < shortest ? took : shortest;
}

static void the_time_tells_nothing(void **state)
{
    (void)state;
    char given[5][KEY_BYTES + 1];
    uint64_t times[5], least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < 5; i++) {
        key_text(0, given[i]);
        times[i] = UINT64_MAX;
    }
    given[0][0] = 'x';              /* wrong from the first byte */
    given[1][KEY_BYTES / 2] = 'x';  /* from the middle */
    given[2][KEY_BYTES - 2] = 'x';  /* at the end */
    key_text(N_KEYS - 1, given[4]); /* 3 and 4: the first and the last key */
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < 5; i++)
            times[i] = time_of(given[i], times[i]);
    for (size_t i = 0; i < 5; i++) {
        least = times[i] < least ? times[i] : least;
        most = times[i] > most ? times[i] : most;
    }
    print_message("%d keys: %llu to %llu ns\n", N_KEYS, (unsigned long long)(least / CALLS),
                  (unsigned long long)(most / CALLS));
    assert_true((double)most <= MOST_RATIO * (double)least);
}

static int open_keys(void **state)
{
    char path[] = "/tmp/test_keys_XXXXXX", text[KEY_BYTES + 1];
    (void)state;
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL)
        return -1;
    for (uint32_t i = 0; i < N_KEYS; i++) {
        key_text(i, text);
        fprintf(file, "%s\n", text);
    }
    struct err e = {0};
    const bool opened = fclose(file) == 0 && keys_open(path, &keys, &e) == ST_OK;
    unlink(path);
    return opened ? 0 : -1;
}

static int close_keys(void **state)
{
    (void)state;
    keys_close(keys);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_keys_are_found),
        cmocka_unit_test(the_time_tells_nothing),
    };
    return cmocka_run_group_tests(tests, open_keys, close_keys);
}
