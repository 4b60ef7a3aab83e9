/* Bounds of a call's dimensions and their messages: "op: name is value, expected ...". Shared by
 * the checks of all ops. Dimensions are bounded by DIM_MAX, which keeps products of two of them and
 * a dtype's size in 64 bits.
 */
#ifndef OINFER_OPS_CHECK_DIMS_H
#define OINFER_OPS_CHECK_DIMS_H

#include <inttypes.h>

#include "engine/base/err.h"

#define DIM_MAX      (1u << 26)
#define ELEMENTS_MAX ((uint64_t)1 << 40) /* of one tensor */

/* One dimension of a call, for the checks and their messages. */
struct dim {
    const char *name;
    uint64_t value;
};

static inline enum status check_dims(const char *op, const struct dim *dims, uint32_t n,
                                     struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (dims[i].value == 0 || dims[i].value > DIM_MAX)
            return err_set(e, ST_INVALID, "%s: %s is %" PRIu64 ", expected 1 to %u", op,
                           dims[i].name, dims[i].value, DIM_MAX);
    return ST_OK;
}

/* value >= limit, for strides; and value <= limit, for positions inside something. */
static inline enum status check_at_least(const char *op, const char *name, uint64_t value,
                                         uint64_t limit, struct err *e)
{
    if (value >= limit)
        return ST_OK;
    return err_set(e, ST_INVALID, "%s: %s is %" PRIu64 ", expected at least %" PRIu64, op, name,
                   value, limit);
}

static inline enum status check_at_most(const char *op, const char *name, uint64_t value,
                                        uint64_t limit, struct err *e)
{
    if (value <= limit)
        return ST_OK;
    return err_set(e, ST_INVALID, "%s: %s is %" PRIu64 ", expected at most %" PRIu64, op, name,
                   value, limit);
}

static inline enum status check_multiple(const char *op, const char *name, uint64_t value,
                                         uint64_t of, struct err *e)
{
    if (of > 0 && value % of == 0)
        return ST_OK;
    return err_set(e, ST_INVALID, "%s: %s is %" PRIu64 ", expected a multiple of %" PRIu64, op,
                   name, value, of);
}

#define CHECK(call)               \
    do {                          \
        enum status st_ = (call); \
        if (st_ != ST_OK)         \
            return st_;           \
    } while (0)
#define CHECK_DIMS(...)                                                            \
    do {                                                                           \
        const struct dim dims_[] = {__VA_ARGS__};                                  \
        CHECK(check_dims(op, dims_, (uint32_t)(sizeof dims_ / sizeof *dims_), e)); \
    } while (0)

#endif
