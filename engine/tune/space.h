/* Spaces: the configurations of a variant that a device can be asked for.
 *
 * A space is the product of the tunables' values, less the points that the row's `.require` or the
 * device's limits rule out. Points are numbered 0 .. n_points - 1 in the order of the tunables, the
 * last running fastest. What only a build can tell (registers, a kernel's own limit on its groups)
 * is left to the tuner. Immutable once open; any thread.
 */
#ifndef OINFER_TUNE_SPACE_H
#define OINFER_TUNE_SPACE_H

#include "engine/ops/op.h"
#include "engine/ops/setting.h"

#define SPACE_MAX_POINTS      4096 /* of the product */
#define SPACE_NONE            UINT32_MAX
#define SPACE_TEXT_BYTES      160 /* of the text of a point's settings */
#define SPACE_MAX_COORDINATES (CONFIG_MAX_TUNABLES + 1)

struct space {
    uint32_t n_dims, n_points;
    uint32_t n_coordinates; /* n_dims, and one where it has the outputs of an item */
    struct tunable dims[CONFIG_MAX_TUNABLES];
    uint32_t standard; /* the point with the row's own values; SPACE_NONE: it is ruled out */
    uint16_t *codes;   /* [n_points] place in the product; ascending */
};

struct config; /* engine/ops/config.h */

/* What of a device limits a space; 0: no limit. */
struct space_limits {
    uint64_t local_bytes;
    uint32_t max_work_group;
};

/* From tunables, for what has no device. require: engine/tune/condition.h; NULL: none. ST_INVALID:
 * the condition, or more than SPACE_MAX_POINTS points; ST_UNSUPPORTED: no valid point. */
enum status space_make(const struct tunable *dims, uint32_t n_dims, const char *require,
                       const struct space_limits *limits, struct space **out, struct err *e);
/* Of a variant on a device. A variant without tunables has a space of one point. */
enum status space_open(struct device *d, const struct variant *v, struct space **out,
                       struct err *e);
void space_close(struct space *s); /* accepts NULL */

/* Place of the point's value in each tunable's list. */
void space_places(const struct space *s, uint32_t point, uint32_t places[CONFIG_MAX_TUNABLES]);
/* The point at these places; SPACE_NONE: ruled out. */
uint32_t space_at(const struct space *s, const uint32_t places[CONFIG_MAX_TUNABLES]);
/* Settings of every tunable; names are borrowed from the space. Returns how many. */
uint32_t space_settings(const struct space *s, uint32_t point,
                        struct setting out[CONFIG_MAX_TUNABLES]);
/* The point with these settings, in any order; SPACE_NONE: ruled out, or not a full set. */
uint32_t space_find(const struct space *s, const struct setting *settings, uint32_t n);
/* "ROWS=2 LWS=64"; returns `out`. */
const char *space_text(const struct space *s, uint32_t point, char out[SPACE_TEXT_BYTES]);
/* The variant configured as the point says. */
enum status space_configure(const struct space *s, uint32_t point, const struct variant *v,
                            struct config *out, struct err *e);
/* How far two points are apart: places in the tunables' lists, summed. */
uint32_t space_steps(const struct space *s, uint32_t a, uint32_t b);
/* The n_coordinates of a point, for distances. One per tunable, in [0, 1]: the logarithm of the
 * value where the list ascends from above 0 (it doubles, mostly), else its place in the list. Where
 * a block (ROWS, TOKENS) and a local size (LWS, LWS2, ..) can both be tuned, then the doublings of
 * outputs that an item makes, a third each: the ridge that speed follows runs across those
 * tunables. */
void space_coordinates(const struct space *s, uint32_t point, double out[SPACE_MAX_COORDINATES]);

#endif
