/* Filling the weights: from the file to the device, in pieces of some MiB.
 *
 * A chunk in the file's layout is uploaded to its place. Any other is repacked on the compute queue
 * from a piece in the file's layout: from the mapping itself where the device can read it, else
 * from one of two buffers that the transfer queue fills, so that a piece is uploaded while the one
 * before it is repacked. Devices with memory of their own are sent what several threads read from
 * the file; for the others pages of the mapping are copied, and dropped as soon as they have been
 * used: what is resident is never much more than the weights themselves.
 *
 * A layer that streams is loaded into its slot like any other weight, and from there, as the device
 * wants it, copied to its host memory while the next one is loaded into another slot.
 */
#include <string.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/model/weights_internal.h"
#include "engine/tensor/quant.h"

/* of rows at a time; the most where a bus is to be kept busy */
#define PIECE_BYTES_MAX (32ull << 20)
#define PIECE_BYTES     (8ull << 20)
/* pieces begin at multiples of it: a whole group of rows in every layout */
#define ROW_STEP 32

/* What is loaded at once: n rows of a segment from `row` on, or all of a vector. */
struct part {
    const struct weight_chunk *chunk;
    struct weight_segment segment;
    const struct variant *repacker; /* NULL: as in the file */
    uint64_t row, n_rows;
    bool is_vector;
    int32_t whole; /* the layer that streams and is complete after this part; else -1 */
};

/* One upload or repack in progress. */
struct piece {
    struct op_call repack;
    const struct variant *variant; /* NULL: nothing pending */
};

struct loader {
    struct weights *w;
    const struct gguf *file;
    bool (*progress)(void *user, uint64_t bytes_done);
    void *user;
    uint64_t bytes_done, upload_bytes;
    uint64_t rows_max;    /* of a tensor; later rows are left out */
    bool reads_file;      /* several threads do, for a device with memory of its own */
    uint64_t piece_bytes; /* of rows at a time, at most */
    struct part *parts;   /* in the order of loading: vectors first */
    size_t n_parts, parts_capacity;
    struct buffer *io[2]; /* pieces being uploaded and repacked; opened when first needed */
    uint32_t next_io;
    struct piece pending; /* uploaded, its repack not yet enqueued */
    struct err *e;
};

static enum status advance(struct loader *l, uint64_t n_bytes)
{
    l->bytes_done += n_bytes;
    if (l->progress && !l->progress(l->user, l->bytes_done))
        return err_set(l->e, ST_CANCELLED, "loading was cancelled after %llu bytes",
                       (unsigned long long)l->bytes_done);
    return ST_OK;
}

/* Vectors are small: converted to float on the host and written at once. */
static enum status load_vector(struct loader *l, const struct part *p)
{
    const struct weight_segment *s = &p->segment;
    const struct weight_chunk *chunk = p->chunk;
    float *values = mem_array(s->n_rows, sizeof *values);
    if (!values)
        return err_set(l->e, ST_NO_MEMORY, "tensor %s: %llu floats", s->tensor->name,
                       (unsigned long long)s->n_rows);
    enum status status = quant_to_f32(s->tensor->dtype, s->tensor->data, values, s->n_rows, l->e);
    if (status == ST_OK)
        status = staging_upload(l->w->device, chunk->tensor.buffer,
                                chunk->tensor.offset + s->dst_row0 * sizeof *values, values,
                                s->n_rows * sizeof *values, "upload", l->e);
    mem_free(values);
    l->upload_bytes += s->n_rows * sizeof(float);
    return status == ST_OK ? advance(l, s->tensor->n_bytes) : status;
}

/* The call that repacks rows [row, row + n) of a segment; its source tensor has no buffer yet. */
static struct op_call repack_call(const struct weight_segment *s, const struct weight_chunk *chunk,
                                  uint64_t row, uint64_t n, uint64_t row_bytes)
{
    uint64_t done = row / s->group * s->group_stride; /* row is a multiple of group */
    return (struct op_call){.op = OP_REPACK,
                            .tensors = {{.bytes = n * row_bytes,
                                         .dtype = chunk->tensor.dtype,
                                         .layout = LAYOUT_FILE,
                                         .ne = {chunk->tensor.ne[0], n, 1, 1}},
                                        chunk->tensor},
                            .params.repack = {.n_rows = (uint32_t)n,
                                              .k = (uint32_t)chunk->tensor.ne[0],
                                              .m_total = chunk->n_rows,
                                              .row0 = s->dst_row0 + (uint32_t)done,
                                              .group = s->group,
                                              .group_stride = s->group_stride}};
}

static enum status repack_in_place(struct loader *l, struct op_call *call, const struct variant *v,
                                   const void *rows, const char *label)
{
    struct device *d = l->w->device;
    enum status status = weight_wrap_rows(d, rows, &call->tensors[0], label, l->e);
    if (status != ST_OK)
        return status;
    status = op_call_once(d, v, call, l->e);
    enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? l->e : NULL);
    buffer_close(call->tensors[0].buffer);
    return status == ST_OK ? waited : status;
}

static enum status run_pending(struct loader *l)
{
    if (!l->pending.variant)
        return ST_OK;
    enum status status = op_call_once(l->w->device, l->pending.variant, &l->pending.repack, l->e);
    l->pending.variant = NULL;
    return status;
}

/* The rows have been read: their pages of the mapping may go. */
static void drop_rows(const struct loader *l, const struct gguf_tensor *t, const void *rows,
                      uint64_t n_bytes)
{
    struct gguf_tensor part = *t;
    part.data = rows;
    part.n_bytes = n_bytes;
    gguf_drop_pages(l->file, &part);
}

static const char *rows_of(const struct part *p)
{
    const struct gguf_tensor *t = p->segment.tensor;
    return (const char *)t->data + (p->segment.row0 + p->row) * (t->n_bytes / t->ne[1]);
}

static uint64_t bytes_of(const struct part *p)
{
    const struct gguf_tensor *t = p->segment.tensor;
    return p->is_vector ? t->n_bytes : p->n_rows * (t->n_bytes / t->ne[1]);
}

/* Where in the file a part lies; false where threads do not read it from there. */
static bool locate(const struct loader *l, const struct part *p, struct upload_part *out)
{
    if (!l->reads_file || p->is_vector ||
        !gguf_locate(l->file, p->segment.tensor, rows_of(p), &out->from.fd, &out->offset))
        return false;
    out->n = bytes_of(p);
    return true;
}

/* Uploads a part's rows to dst; p is one of l->parts. */
static enum status upload_rows(struct loader *l, struct buffer *dst, uint64_t offset,
                               const struct part *p)
{
    struct upload_part part = {0}, then = {0};
    const uint64_t n = bytes_of(p);
    l->upload_bytes += n;
    if (locate(l, p, &part)) {
        const bool more = p + 1 < l->parts + l->n_parts && locate(l, p + 1, &then);
        return staging_upload_part(l->w->device, dst, offset, &part, more ? &then : NULL, "upload",
                                   l->e);
    }
    enum status status = staging_upload(l->w->device, dst, offset, rows_of(p), n, "upload", l->e);
    drop_rows(l, p->segment.tensor, rows_of(p), n);
    return status;
}

/* Uploads a piece into a free buffer, enqueues the repack of the piece before it, and leaves this
 * one pending. The orders make an upload wait for the repack that last read its buffer, and a
 * repack for its own upload; nothing else waits. */
static enum status repack_uploaded(struct loader *l, struct op_call *call, const struct part *p)
{
    struct device *d = l->w->device;
    struct buffer **io = &l->io[l->next_io];
    l->next_io ^= 1;
    enum status status = ST_OK;
    if (!*io)
        status = buffer_open(d, l->piece_bytes, BUFFER_IO, "upload", io, l->e);
    if (status == ST_OK)
        status = queue_order(d, QUEUE_COMPUTE, QUEUE_TRANSFER, l->e);
    if (status == ST_OK)
        status = upload_rows(l, *io, 0, p);
    if (status == ST_OK)
        status = run_pending(l);
    if (status == ST_OK)
        status = queue_order(d, QUEUE_TRANSFER, QUEUE_COMPUTE, l->e);
    if (status != ST_OK)
        return status;
    call->tensors[0].buffer = *io;
    l->pending = (struct piece){.repack = *call, .variant = p->repacker};
    return ST_OK;
}

static enum status load_rows(struct loader *l, const struct part *p)
{
    const struct gguf_tensor *t = p->segment.tensor;
    const uint64_t row_bytes = t->n_bytes / t->ne[1];
    struct op_call call = repack_call(&p->segment, p->chunk, p->row, p->n_rows, row_bytes);
    enum status status;
    if (!p->repacker) {
        status =
            upload_rows(l, p->chunk->tensor.buffer,
                        p->chunk->tensor.offset + (p->segment.dst_row0 + p->row) * row_bytes, p);
    } else if (weight_wrappable(l->w, t)) {
        status = repack_in_place(l, &call, p->repacker, rows_of(p), t->name);
        drop_rows(l, t, rows_of(p), bytes_of(p));
    } else {
        status = repack_uploaded(l, &call, p);
    }
    return status == ST_OK ? advance(l, bytes_of(p)) : status;
}

/* ---- what is loaded, in order ---- */

static enum status append_part(struct loader *l, const struct part *p)
{
    if (l->n_parts == l->parts_capacity) {
        const size_t capacity = l->parts_capacity ? l->parts_capacity * 2 : 256;
        struct part *bigger = mem_array_resize(l->parts, capacity, sizeof *bigger);
        if (!bigger)
            return err_set(l->e, ST_NO_MEMORY, "weights: no memory for a list of %zu parts",
                           capacity);
        l->parts = bigger;
        l->parts_capacity = capacity;
    }
    l->parts[l->n_parts++] = *p;
    return ST_OK;
}

static enum status list_rows(struct loader *l, struct part p)
{
    const struct gguf_tensor *t = p.segment.tensor;
    const uint64_t row_bytes = t->n_bytes / t->ne[1];
    const uint64_t step = l->piece_bytes / row_bytes / ROW_STEP * ROW_STEP;
    if (step == 0)
        return err_set(l->e, ST_UNSUPPORTED, "tensor %s: rows of %llu bytes, at most %llu", t->name,
                       (unsigned long long)row_bytes,
                       (unsigned long long)(l->piece_bytes / ROW_STEP));
    const uint64_t n_rows = p.segment.n_rows < l->rows_max ? p.segment.n_rows : l->rows_max;
    enum status status = ST_OK;
    for (p.row = 0; p.row < n_rows && status == ST_OK; p.row += step) {
        p.n_rows = n_rows - p.row < step ? n_rows - p.row : step;
        status = append_part(l, &p);
    }
    return status;
}

static enum status list_chunk(struct loader *l, uint32_t weight, const struct weight_chunk *chunk)
{
    struct weight_segment segments[WEIGHT_MAX_PARTS];
    const uint32_t n = weight_segments(l->w, weight, chunk, segments);
    struct part p = {.chunk = chunk,
                     .whole = -1,
                     .is_vector = l->w->graph->weights[weight].kind == WEIGHT_VECTOR};
    if (chunk->arena == WEIGHT_IN_PLACE)
        return advance(l, chunk->tensor.bytes);
    if (chunk->tensor.layout != LAYOUT_FILE) {
        const struct variant_query query = {.op = OP_REPACK,
                                            .dtype = (int)chunk->tensor.dtype,
                                            .act = -1,
                                            .layout = (int)chunk->tensor.layout,
                                            .k = (uint32_t)chunk->tensor.ne[0]};
        enum status status = need_variant(l->w->chooser, &query, &p.repacker, l->e);
        if (status != ST_OK)
            return status;
    }
    enum status status = ST_OK;
    for (uint32_t i = 0; i < n && status == ST_OK; i++) {
        p.segment = segments[i];
        status = p.is_vector ? append_part(l, &p) : list_rows(l, p);
    }
    return status;
}

/* The layer that a weight streams with, or -1. */
static int32_t streams_with(const struct weights *w, uint32_t weight)
{
    const int32_t layer = w->layer[weight];
    return w->streamer && layer >= 0 && streamer_has(w->streamer, (uint32_t)layer) ? layer : -1;
}

/* The chunks that stream with the layer given, or with none: those of vectors first, for between
 * rows what comes next is rows. */
static enum status list_chunks(struct loader *l, int32_t layer)
{
    const struct weights *w = l->w;
    enum status status = ST_OK;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < w->graph->n_weights && status == ST_OK; i++)
            if (!w->shared[i] && streams_with(w, i) == layer &&
                (w->graph->weights[i].kind == WEIGHT_VECTOR) == (pass == 0))
                for (uint32_t c = 0; c < w->list[i].n_chunks && status == ST_OK; c++)
                    status = list_chunk(l, i, &w->list[i].chunks[c]);
    return status;
}

/* Everything: what stays first, then layer by layer what streams. */
static enum status list_parts(struct loader *l)
{
    const uint32_t n_layer = l->w->streamer ? l->w->graph->hparams->n_layer : 0;
    enum status status = list_chunks(l, -1);
    for (uint32_t i = 0; i < n_layer && status == ST_OK; i++) {
        if (!streamer_has(l->w->streamer, i))
            continue;
        status = list_chunks(l, (int32_t)i);
        if (status == ST_OK)
            l->parts[l->n_parts - 1].whole = (int32_t)i; /* it has parts: bytes made it stream */
    }
    return status;
}

static enum status load_part(struct loader *l, const struct part *p)
{
    enum status status = p->is_vector ? load_vector(l, p) : load_rows(l, p);
    if (status != ST_OK || p->whole < 0)
        return status;
    status = run_pending(l);
    return status == ST_OK ? streamer_keep(l->w->streamer, (uint32_t)p->whole, l->e) : status;
}

static uint64_t piece_bytes(const struct device *d, bool *reads_file)
{
    const enum device_kind kind = device_info(d)->kind;
    *reads_file = kind == DEVICE_DISCRETE_GPU || kind == DEVICE_ACCELERATOR;
    const uint64_t piece = *reads_file ? PIECE_BYTES_MAX : PIECE_BYTES;
    /* a piece that is read where it lies in the mapping begins at a page */
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), most = buffer_max_bytes(d);
    return most > page && most - page < piece ? most - page : piece;
}

uint64_t weights_loading_bytes(const struct weights *w)
{
    bool reads_file;
    return w->can_wrap ? 0 : 2 * piece_bytes(w->device, &reads_file);
}

/* Loads every chunk and waits for the device. */
static enum status load_all(struct loader *l)
{
    struct weights *w = l->w;
    l->piece_bytes = piece_bytes(w->device, &l->reads_file);
    enum status status = list_parts(l);
    for (size_t i = 0; i < l->n_parts && status == ST_OK; i++)
        status = load_part(l, &l->parts[i]);
    staging_forget(w->device);
    if (status == ST_OK)
        status = run_pending(l);
    for (int q = QUEUE_COMPUTE; q <= QUEUE_TRANSFER; q++) { /* even after a failure */
        enum status waited = queue_wait(w->device, (enum queue_id)q, status == ST_OK ? l->e : NULL);
        status = status == ST_OK ? waited : status;
    }
    buffer_close(l->io[0]);
    buffer_close(l->io[1]);
    mem_free(l->parts);
    const enum status file = gguf_check(l->file, l->e);
    return file != ST_OK ? file : status;
}

enum status weights_load(struct weights *w, const struct gguf *f,
                         bool (*progress)(void *user, uint64_t bytes_done), void *user,
                         struct weights_report *report, struct err *e)
{
    struct loader l = {
        .w = w, .file = f, .progress = progress, .user = user, .rows_max = UINT64_MAX, .e = e};
    enum status status = load_all(&l);
    report->upload_bytes = l.upload_bytes;
    return status;
}

enum status weights_load_first(struct weights *w, const struct gguf *f, struct err *e)
{
    struct loader l = {.w = w, .file = f, .rows_max = ROW_STEP, .e = e};
    return load_all(&l);
}
