/* The inside of trials: one trial's memory, its data and the comparison. */
#ifndef OINFER_OPS_TRIAL_IMPL_H
#define OINFER_OPS_TRIAL_IMPL_H

#include "engine/ops/trial.h"
#include "engine/ops/variant.h"

#define TRIAL_SLOTS 2 /* slots of the caches of a trial */

struct trial {
    struct device *d;
    const struct variant *v;
    uint64_t seed;
    struct op_call ref_call; /* the same work for the reference: file layout, decoded activations */
    struct op_call call;     /* what the variant gets */
    void *host[OP_MAX_TENSORS]; /* inputs of the reference, then its results; bytes as ref_call says
                                 */
    struct buffer *buffers[OP_MAX_TENSORS];
};

/* Fills the host memory of every tensor of ref_call with values that suit the op. */
enum status trial_fill(struct trial *t, struct err *e);
/* Compares tensor i as the variant left it (bytes in the variant's format) with the reference. */
enum status trial_compare(struct trial *t, uint32_t i, const void *got, struct trial_result *out,
                          struct err *e);

#endif
