/* The engine: model files, devices, loaded models and sessions. The one header servers include.
 *
 * Nouns and threads:
 *   model_file  a GGUF file with its hyper-parameters and tokenizer; immutable, any thread.
 *   engine      one device with its queue pair and kernels; belongs to the thread that uses it
 *               (it may be opened on one thread and then used by another, never by two at once).
 *   model       a model_file's weights on an engine's device, the KV cache for n_slots sequences of
 *               n_ctx tokens, and the plans; immutable but for its slots; same thread as its
 * engine. session     one mutable timeline of tokens: a slot of the model's KV cache; same thread.
 * Nothing here knows HTTP, JSON or an event loop; there are no globals. Every call that can fail
 * returns enum status and fills struct err. Units are in the names.
 */
#ifndef OINFER_ENGINE_H
#define OINFER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/cl/device.h"
#include "engine/cl/prof.h"
#include "engine/ops/catalogue.h"
#include "engine/ops/op.h"
#include "engine/ops/opbench.h"
#include "engine/text/tokenizer.h"
#include "engine/tune/job.h"

/* ---- model files ---- */

struct model_file;

struct model_file_info {
    char name[128];            /* general.name, else the file's base name without .gguf */
    char architecture[32];     /* "llama" */
    char quantisation[16];     /* most common weight dtype by bytes, e.g. "q4_1" */
    const char *path;          /* as given; borrowed until close */
    const char *chat_template; /* NUL-terminated copy, or NULL; borrowed until close */
    uint32_t n_ctx_train, n_vocab, n_embd, n_layer, n_head, n_head_kv;
    uint64_t n_params, file_bytes, weight_bytes;
    uint64_t identity; /* of the content: for caches and system_fingerprint */
};

/* Opens and checks a GGUF file completely (header, hyper-parameters, tensor shapes, vocabulary)
 * without reading tensor data. ST_UNSUPPORTED names the architecture or feature. */
enum status model_file_open(const char *path, struct model_file **out, struct err *e);
void model_file_close(struct model_file *f); /* all models loaded from it must be closed before */
const struct model_file_info *model_file_info(const struct model_file *f);
const struct tokenizer *model_file_tokenizer(const struct model_file *f);

/* ---- engines ---- */

struct engine_options {
    struct device_options device;
    uint32_t n_threads; /* of CPU devices; 0: all usable; the same as given to device_list_open */
    bool stepwise;      /* never use one-launch plans */
    const char *force;  /* "op=variant,op=variant" forced choices for debugging; NULL */
    const struct tune_store *tuned; /* what was tuned, on this device or others; NULL. Not kept */
};

struct engine;
enum status engine_open(const struct device_list *devices, uint32_t index,
                        const struct engine_options *options, struct engine **out, struct err *e);
void engine_close(struct engine *g);            /* accepts NULL; models must be closed before */
struct device *engine_device(struct engine *g); /* borrowed */
/* Programs that set device_options.trial_command call this first in main, before any thread: it
 * returns -1 when the arguments do not ask for a child's work, else the exit status. */
int engine_child_main(int argc, char **argv);

/* Kernel timing on or off (off at start unless options say so); collects what was measured since
 * the last collect. Collecting waits for the device. */
enum status engine_profile(struct engine *g, bool on, struct err *e);
enum status engine_collect(struct engine *g, struct prof_report *report, struct err *e);

/* ---- models ---- */

enum kv_dtype { KV_F16, KV_F32, KV_Q8_0 };

struct load_options {
    uint32_t n_ctx;   /* tokens per slot; 0: min(n_ctx_train, 4096); over n_ctx_train: ST_INVALID */
    uint32_t n_slots; /* sequences at once; 0: 1 */
    uint32_t n_batch; /* most tokens of one step; 0: 512 */
    enum kv_dtype kv;
    /* Called now and then on the loading thread; returning false cancels (ST_CANCELLED). */
    bool (*progress)(void *user, uint64_t bytes_done, uint64_t bytes_total, uint32_t kernels_built);
    void *user;
};

/* What loading did and what the model occupies. */
struct load_report {
    uint64_t weights_bytes, kv_bytes, scratch_bytes; /* on the device */
    uint64_t in_place_bytes;                         /* weights used in the file's mapping */
    uint64_t upload_bytes;
    double upload_gb_s; /* while the transfer queue was busy */
    /* load_ms is the sum of these: choosing kernels and allocating; weights from the file to where
     * they are used, repacked; binding, first runs and self-tests. build_ms is within the first and
     * the last. */
    double place_ms, weights_ms, bind_ms;
    double overlap_ms, load_ms, build_ms;
    uint32_t kernels_built, kernels_cached;
    /* Layers that do not fit the device stream to it in every run of the model, that is for every
     * token of decoding and every n_batch tokens of a prompt. */
    uint32_t n_layer, n_streamed;
    uint64_t stream_bytes; /* of one run */
    double stream_gb_s;    /* of their writes with nothing else to do, measured */
    /* Of those that stream: in pinned memory; in ordinary memory and through the staging ring. The
     * others, of CPU devices, are copied from ordinary memory. */
    uint32_t n_pinned, n_staged;
    uint32_t n_replaced; /* variants that failed their self-test */
    struct selftest_row replaced[16];
};

struct model;
/* Loads the weights, builds and self-tests the kernels, allocates the KV cache. Weights that do not
 * fit beside the rest stream from host memory, a layer at a time (on CPU devices and `host` only
 * where device_options.memory_limit_bytes says what fits). ST_NO_DEVICE_MEMORY carries the bill:
 * weights, KV, scratch, needed and available. */
enum status model_load(struct engine *g, const struct model_file *f,
                       const struct load_options *options, struct model **out, struct err *e);
void model_close(struct model *m); /* accepts NULL; its sessions are closed with it */
const struct model_file *model_file_of(const struct model *m);
const struct load_report *model_load_report(const struct model *m);
/* Bytes of layers that have streamed to the device so far, the loading's own runs included. */
uint64_t model_streamed_bytes(const struct model *m);
uint32_t model_n_ctx(const struct model *m);
uint32_t model_n_slots(const struct model *m);
uint32_t model_n_batch(const struct model *m);
/* One line per step kind of the decode (n_tokens 1) or prefill plan: "linear q4_1 r16_vnni512 ...".
 * Returns false past the last line. */
bool model_plan_line(const struct model *m, uint32_t n_tokens, uint32_t i, char *line, size_t n);

/* ---- tuned values (engine/tune) ---- */

#define TUNE_RECORDS_KEY "oinfer.tune.records" /* of a model file: record_write's lines */

/* Puts records to use, for models that are loaded from now on: those that hold on the device; *n,
 * if not NULL, is how many. ST_NO_MEMORY. */
enum status engine_tune(struct engine *g, const struct tune_store *s, uint32_t *n, struct err *e);
/* Adds what the model file carries; a malformed line ends it, with one warning. ST_NO_MEMORY. */
enum status model_file_tuned(const struct model_file *f, struct tune_store *s, struct err *e);
/* Copies the model file to `out` (which may be the file itself) with those records of the store
 * that speak of weights like its own added to what it carries; *n is how many. ST_NOT_FOUND: there
 * are none; ST_UNSUPPORTED: a split file; ST_IO. The tensor data stay as they are. */
enum status model_file_embed(const struct model_file *f, const struct tune_store *s,
                             const char *out, uint32_t *n, struct err *e);
/* The calls of the model's plans, of decoding and of prompts, that are chosen by shape, each class
 * once; at most n. Returns how many. */
uint32_t model_tune_calls(const struct model *m, struct tune_call *out, uint32_t n);

/* ---- sessions ---- */

struct session;
/* Takes a free slot; ST_BUSY when there is none. */
enum status session_open(struct model *m, struct session **out, struct err *e);
void session_close(struct session *s); /* accepts NULL; frees the slot */
/* Tokens in the timeline, whose KV is in the cache. Borrowed until the next call on s. */
uint32_t session_length(const struct session *s);
const token_id *session_tokens(const struct session *s);
/* Forgets everything from position n_keep (<= length) on. */
void session_rewind(struct session *s, uint32_t n_keep);

#define STEP_MAX_ITEMS  64
#define STEP_MAX_LOGITS 64 /* most rows of logits one step gives out */
#define STEP_MAX_GREEDY 32 /* most tokens one step may decode by itself */

enum step_want {
    STEP_NOTHING,   /* only fill the cache */
    STEP_GREEDY,    /* arg-max after the last token, on the device */
    STEP_LOGITS,    /* logits after the last token */
    STEP_ALL_LOGITS /* logits after each of the tokens (n_tokens <= STEP_MAX_LOGITS) */
};

struct step_item {
    struct session *session;
    const token_id *tokens; /* [n_tokens] appended to the session's timeline */
    uint32_t n_tokens;      /* >= 1; length + n_tokens (+ n_greedy - 1) <= n_ctx */
    enum step_want want;
    uint32_t
        n_greedy; /* STEP_GREEDY: decode up to this many tokens (1..STEP_MAX_GREEDY); the engine
                     may return fewer, at least 1; stops after an end-of-generation token */
    /* results */
    uint32_t n_out;                   /* tokens in `greedy`, or rows of logits */
    token_id greedy[STEP_MAX_GREEDY]; /* all but the last are in the timeline now */
    const float *logits;              /* [n_out][n_vocab], borrowed until the next step */
};

/* Runs one step for up to STEP_MAX_ITEMS items of the same model (sum of n_tokens <= n_batch); all
 * sessions distinct. On success every session's timeline has grown. On failure no timeline has
 * changed. ST_CONTEXT_FULL, ST_INVALID (bad token id: named), ST_NUMERIC (NaN in the logits; names
 * the first bad op where it can), ST_DEVICE, ST_DEVICE_LOST. */
enum status model_step(struct model *m, struct step_item *items, uint32_t n_items, struct err *e);

#endif
