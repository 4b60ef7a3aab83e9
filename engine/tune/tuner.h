/* The tuner: one call of one variant on one device, searched for its fastest configuration.
 *
 * A step measures one point: it is built (in a child process where the driver may die on it),
 * checked against the reference between canaries, and only then timed: the median of batches of at
 * least a millisecond each, host time from the first launch to the end of the last. Whatever is
 * wrong with a point is its result, not the tuner's. Between steps the device may do other work; a
 * tuner is cancelled by closing it. Belongs to the device's thread; waits for the queues.
 */
#ifndef OINFER_TUNE_TUNER_H
#define OINFER_TUNE_TUNER_H

#include "engine/tune/search.h"
#include "engine/tune/shape.h"

#define TUNER_VERSION 1 /* raised when older results should not be believed any more */

#define TUNER_MAX_PASSES 100

/* A point that was measured before. */
struct tune_known {
    enum op_id op;
    char variant[32], dtype[16], shape[SHAPE_TEXT_BYTES], settings[SPACE_TEXT_BYTES];
    double ns; /* 0: invalid */
};

struct tuner_options {
    enum search_kind search;
    uint32_t budget;
    uint64_t seed;
    uint32_t passes;    /* the least of the medians of so many rounds; 0: 1 */
    uint64_t max_bytes; /* of all tensors of a call; 0: what the device and the host have */
    const struct tune_known *known; /* points that the search is told of, not measured; borrowed */
    uint32_t n_known;
};

/* What came of one point. */
struct tune_point {
    uint32_t point; /* of the space */
    char settings[SPACE_TEXT_BYTES];
    double ns;        /* median time of a call; 0: invalid */
    char reason[160]; /* why it is invalid; "" */
    bool known;       /* one of the options' */
};

struct tuner;
/* Makes the data and the reference's result. v: a row of kernels.def; dtype as in opbench.h. The
 * search may be left out (SEARCH_KINDS): then points are measured by name only.
 * ST_INVALID, ST_UNSUPPORTED: the shape, or what the variant cannot do. */
enum status tuner_open(struct device *d, const struct variant *v, const struct shape *shape,
                       enum dtype dtype, const struct tuner_options *options, struct tuner **out,
                       struct err *e);
void tuner_close(struct tuner *t); /* accepts NULL */
const struct space *tuner_space(const struct tuner *t);
/* Measures the next point; *more false: the search was over before, *out is not set. Only what
 * concerns the device or memory as a whole is an error: ST_DEVICE_LOST, ST_NO_MEMORY, .. */
enum status tuner_step(struct tuner *t, struct tune_point *out, bool *more, struct err *e);
/* Measures any point of the space, beside the search. */
enum status tuner_measure(struct tuner *t, uint32_t point, struct tune_point *out, struct err *e);
/* The fastest point so far; SPACE_NONE, 0: none. standard_ns: of the row's own values; 0: unknown.
 */
uint32_t tuner_best(const struct tuner *t, double *ns, double *standard_ns);
/* Points measured and the most that there will be. */
void tuner_progress(const struct tuner *t, uint32_t *done, uint32_t *most);

#endif
