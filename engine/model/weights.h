/* The weights of a model on its device: where each row lies, in which layout.
 *
 * A graph weight is stored as one or more chunks: runs of its rows that lie together, in one
 * buffer, in one dtype and layout. There is more than one where tensors of different dtypes are
 * stacked, where the file's mapping is used in place, and where a weight is larger than the
 * device's largest buffer. Offsets are multiples of 128 bytes, except in a mapping (of 32 there).
 *
 * Layers that do not fit stream (streamer.h): the chunks of such a layer lie one after another in
 * the slot that it comes to, and while it is not there something else does.
 *
 * Three steps: weights_place decides and counts (and weights_stream, where that is too much),
 * weights_allocate makes the buffers (but not what
 * layers that stream need of the host: streamer_allocate_host), weights_load fills them (tensor
 * data is first read there). Belongs to the device's thread.
 */
#ifndef OINFER_MODEL_WEIGHTS_H
#define OINFER_MODEL_WEIGHTS_H

#include "engine/model/choose.h"
#include "engine/model/graph.h"
#include "engine/model/streamer.h"

struct weight_chunk {
    struct tensor tensor;  /* ne = {k, n_rows}; its buffer is known after weights_allocate */
    uint32_t row0, n_rows; /* the rows of the graph weight it holds */
    uint32_t arena;        /* private: number of its buffer, WEIGHT_IN_PLACE, WEIGHT_STREAMED */
};

struct weight {
    uint32_t n_chunks;
    struct weight_chunk *chunks; /* in the order of row0 */
    bool paired; /* gate and up interleaved by the layout: linear ends with LINEAR_SWIGLU */
};

struct weights;

/* What loading moved and took. */
struct weights_report {
    uint64_t upload_bytes; /* through the transfer queue */
};

/* Chooses layouts for the counts of tokens given (see choose_weight_layout) and places every
 * weight. c and g are borrowed until close, and so is the file that g was built from. */
enum status weights_place(struct chooser *c, const struct graph *g, const uint32_t *n_tokens,
                          uint32_t n, struct weights **out, struct err *e);
/* Has as few layers stream as leave weights_device_bytes at most `room`. ST_NO_DEVICE_MEMORY: all
 * of them would not do; *least is what the weights take then. Before weights_allocate. */
enum status weights_stream(struct weights *w, uint64_t room, uint64_t *least, struct err *e);
struct streamer *weights_streamer(const struct weights *w); /* NULL: every layer stays */
uint64_t weights_device_bytes(const struct weights *w);   /* to be allocated, the slots with them */
uint64_t weights_in_place_bytes(const struct weights *w); /* used in the mapping */
uint64_t weights_load_bytes(const struct weights *w);     /* of the file: progress goes up to it */
uint64_t weights_loading_bytes(const struct weights *w);  /* of the device, while it loads alone */
enum status weights_allocate(struct weights *w, struct err *e);
/* Uploads and repacks. progress (or NULL) is told bytes of the file that are done; when it returns
 * false: ST_CANCELLED. Waits for the device; on return the file is needed only in place. */
enum status weights_load(struct weights *w, const struct gguf *f,
                         bool (*progress)(void *user, uint64_t bytes_done), void *user,
                         struct weights_report *report, struct err *e);
/* The same for the first rows of every matrix alone; the others hold anything. */
enum status weights_load_first(struct weights *w, const struct gguf *f, struct err *e);
void weights_close(struct weights *w); /* accepts NULL */

const struct weight *weights_at(const struct weights *w, uint32_t graph_weight);

#endif
