/* Private to weights*.c: what placement (weights.c) leaves for loading (weights_load.c). */
#ifndef OINFER_MODEL_WEIGHTS_INTERNAL_H
#define OINFER_MODEL_WEIGHTS_INTERNAL_H

#include "engine/model/weights.h"

#define WEIGHT_IN_PLACE UINT32_MAX
#define WEIGHT_STREAMED (UINT32_MAX - 1)

struct weights {
    struct chooser *chooser;
    struct device *device;
    const struct graph *graph;
    bool can_wrap;       /* the device reads the file's mapping */
    struct weight *list; /* [graph->n_weights] */
    uint32_t *first;     /* [graph->n_weights]: number of each weight's first chunk */
    bool *shared;        /* [graph->n_weights]: the chunks are an earlier weight's */
    int32_t *layer;      /* [graph->n_weights]: whose weight it is; -1: of none, or of several */
    struct weight_chunk *chunks;
    uint32_t n_chunks, chunks_capacity;

    struct buffer **arenas; /* [n_arenas]; NULL before weights_allocate */
    uint64_t *arena_bytes;  /* [n_arenas], used */
    uint32_t n_arenas, arenas_capacity;
    uint64_t arena_limit;
    uint64_t in_place_bytes;
    struct streamer *streamer; /* NULL: every layer stays */
};

/* Rows of one tensor of the file that go to one chunk. */
struct weight_segment {
    const struct gguf_tensor *tensor;
    uint64_t row0, n_rows;        /* in the tensor */
    uint32_t dst_row0;            /* of the first of them, in the chunk */
    uint32_t group, group_stride; /* as in repack_params */
};

/* Can the device read this tensor where it lies in the file's mapping? */
bool weight_wrappable(const struct weights *w, const struct gguf_tensor *t);

/* Makes t->buffer and t->offset the t->bytes bytes at `rows`, which lie in a mapping. */
enum status weight_wrap_rows(struct device *d, const void *rows, struct tensor *t,
                             const char *label, struct err *e);

/* The segments of a chunk of graph weight number `weight`; returns how many. */
uint32_t weight_segments(const struct weights *w, uint32_t weight, const struct weight_chunk *chunk,
                         struct weight_segment segments[WEIGHT_MAX_PARTS]);

#endif
