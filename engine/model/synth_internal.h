/* What synth.c (shapes, tensor list), synth_blocks.c (random weights) and synth_vocab.c share. */
#ifndef OINFER_MODEL_SYNTH_INTERNAL_H
#define OINFER_MODEL_SYNTH_INTERNAL_H

#include "engine/model/gguf_writer.h"

#define SYNTH_VOCAB_MIN 260 /* <unk> <s> </s>, 256 bytes, one piece */

/* Adds the tokenizer's key-values for n tokens. ST_NO_MEMORY. */
enum status synth__add_vocab(struct gguf_writer *w, uint32_t n, struct err *e);

/* Writes a tensor's data: n values with mean `mean` (only for F32) and root mean square deviation
 * `spread`, drawn from the stream of `seed` and `name`. n is a multiple of the block. ST_IO,
 * ST_NO_MEMORY. */
struct synth_weights {
    const char *name;
    enum dtype dtype;
    uint64_t n;
    float mean, spread;
    uint64_t seed;
};
enum status synth__write_weights(struct gguf_writer *w, const struct synth_weights *weights,
                                 struct err *e);

#endif
