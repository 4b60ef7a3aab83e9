/* Private to engine/model and engine.c: the structs behind engine.h's opaque names. */
#ifndef OINFER_MODEL_MODEL_H
#define OINFER_MODEL_MODEL_H

#include "engine/engine.h"
#include "engine/model/fused.h"
#include "engine/model/plan.h"

#define MODEL_MAX_PLANS 3
#define MODEL_MAX_SLOTS STEP_MAX_ITEMS
#define MODEL_MAX_BATCH 8192

struct engine {
    struct device *device;
    struct chooser chooser;
    bool stepwise;
    char *force; /* engine_options.force; NULL */
    uint32_t n_threads;
    uint64_t memory_limit_bytes;
    struct cache_key rehearsal; /* of the model loaded last (rehearsal.h) */
    bool rehearsed_before;
};

struct model_file {
    char *path, *chat_template;
    struct gguf *gguf;
    struct hparams hparams;
    struct graph *graph;
    struct tokenizer *tokenizer;
    struct model_file_info info;
};

struct session {
    struct model *model;
    uint32_t slot, length;
    token_id *tokens; /* [n_ctx] */
};

enum row_output { ROW_NONE, ROW_GREEDY, ROW_LOGITS };

/* One token of a step: a row of its batch. */
struct step_row {
    uint32_t item, position;
    token_id token;
    enum row_output output;
};

/* What a step writes and reads on the host; the device's copies are the io buffer's. */
struct batch_memory {
    int32_t *meta;         /* [n_batch][4] */
    int32_t *ids;          /* [n_tables][n_batch] */
    struct step_row *rows; /* [n_batch] */
    int32_t index[PLAN_MAX_OUTPUTS];
    float found[PLAN_MAX_OUTPUTS];
    float *logits; /* [logits_rows][n_vocab], grown when first needed */
    struct buffer *logits_memory;
    uint32_t logits_rows;
};

struct model {
    struct engine *engine;
    const struct model_file *file;
    uint32_t n_ctx, n_slots, n_batch;
    struct weights *weights;
    struct kv kv;
    struct buffer *rope, *io;
    struct buffer **scratch; /* [context.n_scratch] */
    uint64_t scratch_bytes;
    struct plan_context context;
    uint32_t n_plans;
    struct plan *plans[MODEL_MAX_PLANS];   /* by growing max_tokens; the first decodes one token */
    const struct fused_executor *executor; /* NULL: stepwise only */
    struct fused_plan *fused;
    struct batch_memory batch;
    struct session **sessions; /* [n_slots]; NULL: free */
    struct load_report report;
};

/* Loads everything but most of the weights: for compiling and first launches. */
enum status model__open_empty(struct engine *g, const struct model_file *f,
                              const struct load_options *options, struct model **out,
                              struct err *e);
/* Runs a few tokens by the executor and by the plan, in a session of its own; why is "" when they
 * agree, or why the executor must not be used. Whatever makes a step fail, but for NaN. */
enum status model__check_fused(struct model *m, char *why, size_t why_bytes, struct err *e);
/* The smallest plan that holds a run of these counts. */
struct plan *model__plan_for(const struct model *m, uint32_t n_tokens);

#endif
