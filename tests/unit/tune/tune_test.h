/* What the tests of engine/tune share: spaces without a device. */
#ifndef OINFER_TESTS_TUNE_TEST_H
#define OINFER_TESTS_TUNE_TEST_H

#include "../ops/ops_test.h"
#include "engine/ops/config.h"
#include "engine/tune/space.h"

/* A space of the tunables in text ("A=1,2 B=4,8"), all first values being the standard. */
static inline struct space *tune_space(const char *tunables, const char *require,
                                       struct space_limits limits)
{
    const struct variant v = {.tunables = tunables};
    struct tunable dims[CONFIG_MAX_TUNABLES];
    const uint32_t n = variant_tunable_list(&v, dims);
    struct space *s;
    struct err e = {0};
    for (uint32_t i = 0; i < n; i++)
        dims[i].standard = dims[i].values[0];
    if (space_make(dims, n, require, &limits, &s, &e) != ST_OK)
        fail_msg("%s", e.text);
    return s;
}

#endif
