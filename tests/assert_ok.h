/* ASSERT_OK(call): the call, which may name `e` as its struct err *, gives ST_OK; else the test
 * fails with the error's name and text. Behind <cmocka.h>. */
#ifndef OINFER_TESTS_ASSERT_OK_H
#define OINFER_TESTS_ASSERT_OK_H

#include "engine/base/err.h"

#define ASSERT_OK(call)                                          \
    do {                                                         \
        struct err e_ = {0};                                     \
        struct err *const e = &e_;                               \
        if ((call) != ST_OK)                                     \
            fail_msg("%s: %s", status_name(e->status), e->text); \
    } while (0)

#endif
