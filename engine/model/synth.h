/* Synthetic models: a deterministic llama GGUF of any shape, for tests, benchmarks and tuning.
 *
 * The weights are random quantised blocks with scales such that activations stay near 1 and logits
 * have a spread of a few units; the vocabulary is a small SPM one that other engines load too.
 * Same shape, dtype and version: same bytes. Written as a stream: memory does not grow with the
 * model. Any thread; no state.
 */
#ifndef OINFER_MODEL_SYNTH_H
#define OINFER_MODEL_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/tensor/dtype.h"

#define SYNTH_NAME_BYTES 32

struct synth_shape {
    char name[SYNTH_NAME_BYTES]; /* of the preset, or "custom" */
    uint32_t n_layer, n_embd, n_ff;
    uint32_t n_head, n_head_kv;
    uint32_t head_dim; /* 0: n_embd / n_head */
    uint32_t n_vocab;  /* at least 260: specials, bytes and one piece */
    uint32_t n_ctx;
    uint32_t rope_base;
    uint32_t window;     /* sliding window in tokens; 0: none */
    uint32_t tied;       /* 1: no output.weight, token_embd is used again */
    uint32_t rope_freqs; /* 1: a rope_freqs.weight tensor */
    uint32_t seed;
};

/* A dtype for all matrices, or a mix: `mix` gives some of them more bits, as files called
 * ..._K_M do. Rows that do not divide by the block fall back to a dtype whose block fits. */
struct synth_dtype {
    enum dtype dtype;
    bool mix;
};

/* Reads "PRESET", "PRESET,key=value,..." or "key=value,..." (which starts from preset tiny).
 * ST_INVALID naming the word, its value and the range; the shape is checked as a whole. */
enum status synth_shape_parse(const char *text, struct synth_shape *out, struct err *e);
/* A weight dtype ("q4_0", "f16", ...), "q4_k_m" or "q5_k_m". ST_INVALID naming the known ones. */
enum status synth_dtype_parse(const char *text, struct synth_dtype *out, struct err *e);

/* Writes FILE: temporary beside it, then rename. ST_INVALID (shape), ST_IO, ST_NO_MEMORY. */
enum status synth_write(const struct synth_shape *shape, struct synth_dtype dtype, const char *path,
                        struct err *e);

/* "135m 1.1b 7b tiny" and "n_layer n_embd ...", for help texts. */
const char *synth_preset_names(void);
const char *synth_key_names(void);

#endif
