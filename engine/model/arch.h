/* Architectures: the rows of arch.def, by the name a file gives in general.architecture.
 *
 * Constant data; any thread. A new architecture is a row of arch.def and a file with its builder.
 */
#ifndef OINFER_MODEL_ARCH_H
#define OINFER_MODEL_ARCH_H

#include "engine/model/graph.h"

struct arch {
    const char *name;
    graph_builder build;
    uint32_t rope_mode; /* rope_kv_params.mode */
};

/* The builders, each in its own file. */
#define X(id, name, build, rope_mode)                                                 \
    enum status build(struct graph *g, const struct hparams *h, const struct gguf *f, \
                      struct err *e);
#include "engine/model/arch.def"
#undef X

/* NULL for an unknown name. */
const struct arch *arch_find(const char *name);

#endif
