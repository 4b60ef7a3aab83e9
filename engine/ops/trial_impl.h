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
    struct buffer *place; /* holds all tensors, in a row; borrowed. NULL: each has a buffer */
    uint64_t place_at;    /* where the next one goes */
};

/* The parts of a trial, in order; t is zeroed but for d, v and seed. */
void trial__describe(struct trial *t, const union op_params *params, enum dtype dtype);
/* Host memory of every tensor, zeroed. */
enum status trial__host(struct trial *t, struct err *e);
/* Device buffers between canaries, filled from the host's in the variant's formats. */
enum status trial__upload(struct trial *t, struct err *e);
/* Fills the buffer of tensor i, canaries and all, with the canaries' byte. */
enum status trial__blank(struct trial *t, uint32_t i, struct err *e);
/* Runs the reference: its outputs replace those in host memory. */
enum status trial__reference(struct trial *t, struct err *e);
enum status trial__check(struct trial *t, struct trial_result *out, struct err *e);
void trial__close_buffers(struct trial *t);
void trial__close(struct trial *t); /* buffers and host memory */

/* Fills the host memory of every tensor of ref_call with values that suit the op. */
enum status trial_fill(struct trial *t, struct err *e);
/* Compares tensor i as the variant left it (bytes in the variant's format) with the reference. */
enum status trial_compare(struct trial *t, uint32_t i, const void *got, struct trial_result *out,
                          struct err *e);

#endif
