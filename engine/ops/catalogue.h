/* The catalogue of variants as others may show it: rows of kernels.def with their tunables, and the
 * references that run on `host`. Constant; any thread. */
#ifndef OINFER_OPS_CATALOGUE_H
#define OINFER_OPS_CATALOGUE_H

#include "engine/ops/op.h"
#include "engine/ops/setting.h"

struct catalogue_row {
    const char *variant; /* static */
    enum op_id op;
    int dtype;      /* enum dtype; -1: any, or none */
    bool reference; /* runs on `host`, and only there */
    uint32_t act;   /* ACT_* it reads (linear) or writes */
    uint32_t needs; /* CAP_* bits that the device must have */
    uint32_t n_tunables;
    struct tunable tunables[CONFIG_MAX_TUNABLES];
};

/* The i-th row; false past the end. */
bool catalogue_at(uint32_t i, struct catalogue_row *out);
/* Does it run on a device with these caps? */
bool catalogue_runs_on(const struct catalogue_row *row, bool host, uint32_t caps);

#endif
