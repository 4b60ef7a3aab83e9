/* What the tests of engine/ops share: devices, and tensors made from C arrays. */
#ifndef OINFER_TESTS_OPS_TEST_H
#define OINFER_TESTS_OPS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/mem.h"
#include "engine/ops/act.h"
#include "engine/ops/variant.h"

static struct device_list *ops_list;

static inline int ops_open_list(void **state)
{
    (void)state;
    return device_list_open(0, &ops_list, NULL) == ST_OK ? 0 : -1;
}

static inline int ops_close_list(void **state)
{
    (void)state;
    device_list_close(ops_list);
    return 0;
}

/* The `host` device. */
static inline struct device *ops_host(void)
{
    struct device *d;
    const struct device_options options = {0};
    assert_int_equal(device_open(ops_list, device_list_count(ops_list) - 1, &options, &d, NULL),
                     ST_OK);
    assert_true(device_is_host(d));
    return d;
}

/* The first OpenCL device of a kind (DEVICE_HOST: of any), or NULL, with a message, where there is
 * none. */
static inline struct device *ops_device_of(enum device_kind kind,
                                           const struct device_options *options)
{
    for (uint32_t i = 0; i < device_list_count(ops_list); i++) {
        const struct device_info *info = device_list_at(ops_list, i);
        struct device *d;
        if (info->kind == DEVICE_HOST || !info->available ||
            (kind != DEVICE_HOST && info->kind != kind))
            continue;
        assert_int_equal(device_open(ops_list, i, options, &d, NULL), ST_OK);
        return d;
    }
    print_message("skipped: no such device; %s\n", device_list_hint(ops_list));
    return NULL;
}

static inline struct device *ops_first_device(const struct device_options *options)
{
    return ops_device_of(DEVICE_HOST, options);
}

/* Calls `test` with each OpenCL device that works; says so if there is none. */
static inline void ops_on_devices(void (*test)(struct device *))
{
    uint32_t n = 0;
    for (uint32_t i = 0; i + 1 < device_list_count(ops_list); i++) {
        const struct device_options options = {0};
        struct device *d;
        if (!device_list_at(ops_list, i)->available)
            continue;
        assert_int_equal(device_open(ops_list, i, &options, &d, NULL), ST_OK);
        print_message("device %u: %s\n", i, device_list_at(ops_list, i)->name);
        test(d);
        device_close(d);
        n++;
    }
    if (n == 0)
        print_message("skipped: %s\n", device_list_hint(ops_list));
}

/* A tensor of n bytes that hold `from` (NULL: zeros). Close its buffer when done. */
static inline struct tensor ops_tensor(struct device *d, const void *from, uint64_t n,
                                       enum dtype dtype)
{
    struct buffer *b;
    assert_int_equal(buffer_open(d, n, BUFFER_IO, "test", &b, NULL), ST_OK);
    if (from)
        assert_int_equal(queue_write(d, QUEUE_COMPUTE, b, 0, from, n, "test", NULL), ST_OK);
    else
        assert_int_equal(queue_fill(d, QUEUE_COMPUTE, b, 0, n, 0, "test", NULL), ST_OK);
    assert_int_equal(queue_wait(d, QUEUE_COMPUTE, NULL), ST_OK);
    return (struct tensor){.buffer = b, .bytes = n, .dtype = dtype};
}

static inline void ops_close_tensors(struct op_call *call)
{
    for (uint32_t i = 0; i < OP_MAX_TENSORS; i++)
        buffer_close(call->tensors[i].buffer);
}

#define OPS_F32(d, array) ops_tensor(d, array, sizeof(array), DT_F32)
#define OPS_I32(d, array) ops_tensor(d, array, sizeof(array), DT_I32)

#endif
