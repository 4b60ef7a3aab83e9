/* One-launch executors: several greedy tokens of one or a few sequences in a single launch, or one
 * token whose logits are read.
 *
 * A second way to run the decode plan. An executor reads the plan's steps (plan.h: op, variant,
 * tensors, params, role, layer, in order), makes its own kernels and buffers from them, and from
 * then on is called instead of the plan for decoding; the plan stays as the fall-back, and
 * serves everything else. Both write the same KV cells, so calls can be mixed freely.
 *
 * To add one: a file with a `const struct fused_executor`, and its name as a row of fused.def.
 * open is called once at load with a bound plan (that for plan_tokens tokens), after the weights
 * are there; where it returns ST_UNSUPPORTED, the next row is tried. Its first tokens are compared
 * with the plan's (fused_check.c): one that is wrong is closed. Belongs to the device's thread.
 */
#ifndef OINFER_MODEL_FUSED_H
#define OINFER_MODEL_FUSED_H

#include "engine/model/plan.h"
#include "engine/text/tokenizer.h"

struct fused_plan; /* each executor defines its own */

/* One call: n_tokens forward passes for each of n_rows sequences, every token but the first being
 * the arg-max after the one before it. */
struct fused_call {
    uint32_t n_rows, n_tokens;
    const uint32_t *slots, *positions; /* [n_rows]: seat and position of the first token */
    const token_id *first;             /* [n_rows]: the first token, not yet in the cache */
    token_id *out;                     /* [n_rows][n_tokens]: arg-max after each token */
    float *found;                      /* [n_rows][n_tokens]: its logit, to be checked for NaN */
    uint32_t n_logits; /* the last rows whose logits are wanted: then of one token */
    float *logits;     /* [n_logits][n_vocab]: after it, to be checked for NaN */
};

struct fused_executor {
    const char *name;              /* shown by model_plan_line */
    uint32_t max_rows, max_tokens; /* of one call */
    uint32_t plan_tokens; /* of the plan that it reads, or all of a batch where that holds fewer */
    enum status (*open)(const struct plan *decode, struct fused_plan **out, struct err *e);
    /* Runs and waits. ST_UNSUPPORTED: it does not do that many rows of this model, the plan does
     * them. ST_TIMEOUT: its work-groups did not meet (not all resident); the engine then runs the
     * step by the plan and never calls the executor again. */
    enum status (*run)(struct fused_plan *f, const struct fused_call *call, struct err *e);
    void (*close)(struct fused_plan *f);
};

#define X(executor) extern const struct fused_executor executor;
#include "engine/model/fused.def"
#undef X

#endif
