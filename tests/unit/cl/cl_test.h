/* What the tests of engine/cl share: the device list, a cache folder, and a loop over devices.
 *
 * Each test program opens the list once; a device that cannot be opened fails the test.
 */
#ifndef OINFER_TESTS_CL_TEST_H
#define OINFER_TESTS_CL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka comes last: it needs the ones above */
#include <cmocka.h>

#include "engine/cl/device.h"
#include "engine/cl/kernel.h"
#include "engine/cl/prof.h"
#include "engine/cl/queue.h"

static struct device_list *test_list;
static char test_cache[64]; /* an empty folder of this test program */

#define assert_ok(call)                                      \
    do {                                                     \
        struct err e_ = {0};                                 \
        (void)e_;                                            \
        enum status status_ = (call);                        \
        if (status_ != ST_OK)                                \
            fail_msg("%s: %s", status_name(status_), #call); \
    } while (0)

static inline int test_open_list(void **state)
{
    (void)state;
    snprintf(test_cache, sizeof test_cache, "/tmp/oinfer-test-XXXXXX");
    if (mkdtemp(test_cache) == NULL)
        return -1;
    return device_list_open(0, &test_list, NULL) == ST_OK ? 0 : -1;
}

static inline int test_close_list(void **state)
{
    (void)state;
    device_list_close(test_list);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", test_cache);
    return system(command);
}

static inline struct device *test_open_device(uint32_t index)
{
    struct device_options options = {.cache_dir = test_cache};
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(test_list, index, &options, &d, &e) != ST_OK)
        fail_msg("device %u: %s", index, e.text);
    return d;
}

/* Runs body(device) on every usable device, host included. */
static inline void test_each_device(void (*body)(struct device *d))
{
    for (uint32_t i = 0; i < device_list_count(test_list); i++) {
        if (!device_list_at(test_list, i)->available)
            continue;
        struct device *d = test_open_device(i);
        body(d);
        assert_int_equal(device_memory(d).used_bytes, 0);
        device_close(d);
    }
}

#endif
