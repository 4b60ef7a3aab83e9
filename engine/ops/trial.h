/* Trials: a variant run once on generated data and compared with the reference.
 *
 * The one check behind the self-test, the op tests and the tuner. Inputs are made from a seed, are
 * quantised on the host and repacked or re-formatted on the device where the variant wants it so;
 * every tensor lies between canaries. Needs memory for a few copies of the tensors. Belongs to the
 * device's thread; waits for the queues.
 */
#ifndef OINFER_OPS_TRIAL_H
#define OINFER_OPS_TRIAL_H

#include "engine/ops/op.h"

struct trial_result {
    bool passed;
    double error, bound; /* of the worst output: NMSE, or its share of the bound (see reason) */
    double max_abs, max_rel, nmse; /* over all outputs, whatever the bound speaks of */
    char reason[160];              /* "" when passed */
};

/* Runs v on params. dtype: of the weight or cache (variant_dtype(v), or one to pick where that is
 * -1). The status is about the trial itself (memory, device); a wrong result is ST_OK with passed
 * false. ST_UNSUPPORTED: the variant's inputs cannot be made on this device (no repack kernel). */
enum status trial_run(struct device *d, const struct variant *v, const union op_params *params,
                      enum dtype dtype, uint64_t seed, struct trial_result *out, struct err *e);
/* The same with all tensors in one buffer of the device, in a row from byte `first` on (a multiple
 * of 256), for offsets of any size. ST_INVALID: they pass its end. */
enum status trial_run_in(struct device *d, const struct variant *v, const union op_params *params,
                         enum dtype dtype, uint64_t seed, struct buffer *place, uint64_t first,
                         struct trial_result *out, struct err *e);

#endif
