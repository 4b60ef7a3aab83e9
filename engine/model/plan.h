/* The plan: HOW a graph runs on a device for a class of shapes, as a list of bound launches.
 *
 * Built once per class (decode of one, of a few, prefill), then run any number of times: a run only
 * changes params (counts of tokens, kv_max) and, where outputs are the tail of tokens, offsets.
 * Everything that varies per token (ids, positions, slots) lies in the batch buffers, so nothing
 * else is bound anew. Belongs to the device's thread.
 *
 * The list of steps is open to the rest of engine/model: a second executor (fused.h: several greedy
 * tokens in one launch) reads op, variant, tensors and params of every step from here. Steps come
 * in the order of the graph's nodes; `role` and `layer` say which node. A linear whose weight lies
 * in several chunks is several steps in a row with the same role and layer. The weights of a layer
 * that streams are where its steps say only while the plan runs them.
 *
 * Life: plan_open (decides the steps; needs placed weights and cache, no buffers), plan_scratch
 * (how much scratch the steps need), plan_bind (when all buffers are there), plan_run.
 */
#ifndef OINFER_MODEL_PLAN_H
#define OINFER_MODEL_PLAN_H

#include "engine/model/choose.h"
#include "engine/model/graph.h"
#include "engine/model/kv.h"
#include "engine/model/weights.h"

#define PLAN_MAX_OUTPUTS 64 /* rows of logits of one run */
#define PLAN_MAX_VALUES  64 /* graph values times the formats they are needed in */
#define PLAN_NO_VALUE    UINT8_MAX
#define PLAN_MAX_TABLES  8 /* chunks of an embedding table */

/* What all plans of a model share. Tensors without a buffer yet get one before plan_bind. */
struct plan_context {
    struct chooser *chooser;
    struct device *device;
    const struct graph *graph;
    const struct weights *weights;
    const struct kv *kv;
    struct tensor rope;                 /* float [kv->n_ctx][n_rot] */
    struct tensor meta;                 /* int4 [n_batch] {position, slot, 0, 0} */
    struct tensor ids[PLAN_MAX_TABLES]; /* int [n_batch] per table chunk: id - its first row */
    struct tensor index, found;         /* of argmax: int, float [PLAN_MAX_OUTPUTS] */
    struct buffer **scratch;            /* [n_scratch], shared by the plans: they run in turn */
    uint32_t n_scratch;
    uint64_t scratch_limit;    /* bytes of one scratch buffer at most */
    struct streamer *streamer; /* of the weights; NULL: every layer stays */
};

/* A value in memory: a graph value in one activation format. Its offset counts through the scratch
 * buffers, scratch_limit bytes each; no value crosses from one into the next. */
struct plan_value {
    uint32_t graph_value; /* or GRAPH_NONE: private to a step */
    uint32_t act;         /* ACT_* */
    uint32_t columns;
    enum graph_rows rows;
    uint64_t bytes, offset;
    bool fresh; /* while building: holds the graph value's present content */
};

/* Where tensor i of a step comes from: a fixed tensor of weights, cache or context, or a value. */
struct plan_operand {
    const struct tensor *fixed; /* NULL for a value or an unused tensor */
    uint8_t value;              /* number in plan.values, or PLAN_NO_VALUE */
    uint32_t column;            /* offset of its first column (ACT_F32 only) */
    uint32_t tail_bytes;        /* bytes of a row when the step works on the tail of it; else 0 */
};

struct plan_step {
    struct op_call call; /* as bound: params of the class's largest shape */
    const struct variant *variant;
    struct op_step *bound;
    const char *role; /* of the graph node, or "quantize", "add_table" */
    int32_t layer;    /* -1: outside the layers */
    enum graph_rows rows;
    struct plan_operand operands[OP_MAX_TENSORS];
    uint32_t bound_rows, bound_tail, bound_kv_max; /* present counts: set only when they change */
};

struct plan {
    const struct plan_context *context;
    uint32_t max_tokens, max_outputs; /* of one run */
    uint32_t n_steps, steps_capacity;
    struct plan_step *steps;
    uint32_t n_values;
    struct plan_value values[PLAN_MAX_VALUES];
    uint64_t scratch_bytes; /* end of the last value */
};

/* One run: the first n_tokens rows of the batch buffers, the last n_outputs of which want logits
 * (none: only the cache is filled). kv_max: largest position + 1. */
struct plan_batch {
    uint32_t n_tokens, n_outputs, kv_max;
};

/* Chooses variants for runs of about `typical_tokens` and at most max_tokens. c outlives the plan.
 * ST_UNSUPPORTED where no kernel fits, ST_NO_MEMORY. */
enum status plan_open(const struct plan_context *c, uint32_t typical_tokens, uint32_t max_tokens,
                      struct plan **out, struct err *e);
void plan_close(struct plan *p); /* accepts NULL */
/* Bytes of scratch, over all scratch buffers. */
uint64_t plan_scratch(const struct plan *p);
enum status plan_bind(struct plan *p, struct err *e);
/* Enqueues the run on the compute queue; does not wait. */
enum status plan_run(struct plan *p, const struct plan_batch *batch, struct err *e);
/* Runs again, waiting and reading after each step, to find the first whose float output holds NaN
 * or infinity: *step is its number, or n_steps. For reports of ST_NUMERIC. */
enum status plan_find_bad(struct plan *p, const struct plan_batch *batch, uint32_t *step,
                          struct err *e);
/* The tensor of operand i of a step in a full-size run, its buffer included. */
struct tensor plan_operand_tensor(const struct plan *p, const struct plan_step *s, uint32_t i);
/* Does the op write this operand (perhaps beside reading it)? */
bool plan_writes(enum op_id op, uint32_t operand);
/* Where the logits of the last run's outputs are: float [n_outputs][n_vocab], until the next. */
struct tensor plan_logits(const struct plan *p);
/* Line i of the plan for people, one for all steps that differ only in their layer: "linear qkv
 * rows q4_0 960 x 576, 30 a step"; false past the last. */
bool plan_line(const struct plan *p, uint32_t i, char *line, size_t n);

#endif
