/* Placement of weights: layouts, chunks, arenas. No tensor data is read here.
 *
 * Arenas are the device buffers that hold uploaded chunks one after another; none is larger than
 * the device allows. A chunk in the file's mapping gets a wrapped buffer of its own; those of a
 * layer that streams share the slot it comes to.
 */
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/model/weights_internal.h"

#define ARENA_BYTES    (1ull << 34)
#define WEIGHT_ALIGN   128 /* of offsets in arenas */
#define IN_PLACE_ALIGN 32  /* of tensors in a mapping: the format's default */

static uint64_t round_up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static enum status out_of_memory(struct err *e)
{
    return err_set(e, ST_NO_MEMORY, "weights: a list of chunks does not grow");
}

bool weight_wrappable(const struct weights *w, const struct gguf_tensor *t)
{
    return w->can_wrap && (uintptr_t)t->data % IN_PLACE_ALIGN == 0;
}

/* Reserves n bytes (at most arena_limit) in the last arena or a new one. */
static enum status reserve_in_arena(struct weights *w, uint64_t n, uint32_t *arena,
                                    uint64_t *offset, struct err *e)
{
    if (w->n_arenas == 0 || w->arena_bytes[w->n_arenas - 1] + n > w->arena_limit) {
        if (w->n_arenas == w->arenas_capacity) {
            uint32_t capacity = w->arenas_capacity ? w->arenas_capacity * 2 : 16;
            uint64_t *bytes = mem_array_resize(w->arena_bytes, capacity, sizeof *bytes);
            if (!bytes)
                return out_of_memory(e);
            w->arena_bytes = bytes;
            w->arenas_capacity = capacity;
        }
        w->arena_bytes[w->n_arenas++] = 0;
    }
    *arena = w->n_arenas - 1;
    *offset = w->arena_bytes[*arena];
    w->arena_bytes[*arena] = round_up(*offset + n, WEIGHT_ALIGN);
    return ST_OK;
}

static struct weight_chunk *append_chunk(struct weights *w)
{
    if (w->n_chunks == w->chunks_capacity) {
        uint32_t capacity = w->chunks_capacity ? w->chunks_capacity * 2 : 256;
        struct weight_chunk *bigger = mem_array_resize(w->chunks, capacity, sizeof *bigger);
        if (!bigger)
            return NULL;
        w->chunks = bigger;
        w->chunks_capacity = capacity;
    }
    return &w->chunks[w->n_chunks++];
}

/* Rows of one graph weight that lie together, before they are cut to the size of buffers. */
struct run {
    uint32_t row0, n_rows, k;
    enum dtype dtype;
    enum weight_layout layout;
    uint32_t row_step; /* cuts are made at multiples of it */
    bool in_place;
};

static enum status place_run(struct weights *w, const struct run *r, struct err *e)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE); /* wrapped buffers begin at a page */
    uint64_t limit = r->in_place ? buffer_max_bytes(w->device) - page : w->arena_limit;
    uint64_t step_bytes = layout_bytes(r->dtype, r->layout, r->row_step, r->k);
    uint64_t most = limit / step_bytes * r->row_step;
    if (most == 0)
        return err_set(e, ST_NO_DEVICE_MEMORY,
                       "weights: %u rows of %u %s take %llu bytes, the largest buffer of %s has "
                       "%llu",
                       r->row_step, r->k, dtype_name(r->dtype), (unsigned long long)step_bytes,
                       device_info(w->device)->name, (unsigned long long)limit);
    for (uint32_t done = 0; done < r->n_rows;) {
        uint32_t n_rows = r->n_rows - done < most ? r->n_rows - done : (uint32_t)most;
        struct weight_chunk *chunk = append_chunk(w);
        if (!chunk)
            return out_of_memory(e);
        *chunk = (struct weight_chunk){
            .row0 = r->row0 + done,
            .n_rows = n_rows,
            .arena = r->in_place ? WEIGHT_IN_PLACE : 0,
            .tensor = {.bytes = layout_bytes(r->dtype, r->layout, n_rows, r->k),
                       .dtype = r->dtype,
                       .layout = r->layout,
                       .ne = {r->k, n_rows, 1, 1}},
        };
        if (r->in_place)
            w->in_place_bytes += chunk->tensor.bytes;
        done += n_rows;
    }
    return ST_OK;
}

/* Norm weights and biases: float, in an arena, whatever the file has. */
static enum status place_vector(struct weights *w, const struct graph_weight *g, struct err *e)
{
    const struct run run = {
        .n_rows = g->m, .k = 1, .dtype = DT_F32, .layout = LAYOUT_FILE, .row_step = g->m};
    return place_run(w, &run, e);
}

/* The counts of tokens that a matrix must have kernels for. */
struct token_counts {
    const uint32_t *n_tokens;
    uint32_t n;
};

/* The layout of a matrix that is this very table (tied embeddings), if embed reads it too: one copy
 * serves both. Else, and where there is no such matrix, the file's. */
static enum status choose_table_layout(struct weights *w, const struct graph_weight *table,
                                       const struct token_counts *counts,
                                       enum weight_layout *layout, struct err *e)
{
    const struct gguf_tensor *t = table->parts[0];
    *layout = LAYOUT_FILE;
    for (uint32_t i = 0; i < w->graph->n_weights; i++) {
        const struct graph_weight *g = &w->graph->weights[i];
        if (g->kind != WEIGHT_MATRIX || g->n_parts != 1 || g->parts[0] != t)
            continue;
        enum weight_layout wanted;
        const struct variant *reader = NULL;
        enum status status = choose_weight_layout(w->chooser, t->dtype, (uint32_t)t->ne[1], g->k,
                                                  counts->n_tokens, counts->n, &wanted, e);
        const struct variant_query embed = {
            .op = OP_EMBED, .dtype = (int)t->dtype, .act = -1, .layout = (int)wanted, .k = g->k};
        if (status == ST_OK)
            status = choose_variant(w->chooser, &embed, &reader, e);
        if (reader)
            *layout = wanted;
        return status;
    }
    return ST_OK;
}

static enum status place_table(struct weights *w, const struct graph_weight *g,
                               const struct token_counts *counts, struct err *e)
{
    enum weight_layout layout;
    enum status status = choose_table_layout(w, g, counts, &layout, e);
    const struct run run = {.n_rows = g->m,
                            .k = g->k,
                            .dtype = g->parts[0]->dtype,
                            .layout = layout,
                            .row_step = layout_rows(layout),
                            .in_place = layout == LAYOUT_FILE && weight_wrappable(w, g->parts[0])};
    return status == ST_OK ? place_run(w, &run, e) : status;
}

/* The number of parts from `first` on that are stacked in one run of this layout: same dtype, each
 * beginning at a whole group of rows, and not read from the mapping. */
static uint32_t stackable(const struct weights *w, const struct graph_weight *g, uint32_t first,
                          enum weight_layout layout)
{
    uint32_t n = 1;
    if (layout == LAYOUT_FILE && weight_wrappable(w, g->parts[first]))
        return n;
    while (first + n < g->n_parts && g->parts[first + n]->dtype == g->parts[first]->dtype &&
           g->parts[first + n - 1]->ne[1] % layout_rows(layout) == 0)
        n++;
    return n;
}

/* The table that is this very tensor (tied embeddings), or GRAPH_NONE. */
static uint32_t find_table(const struct weights *w, const struct graph_weight *g, uint32_t n_placed)
{
    for (uint32_t i = 0; i < n_placed; i++) {
        const struct graph_weight *other = &w->graph->weights[i];
        if (other->kind == WEIGHT_TABLE && g->n_parts == 1 && other->parts[0] == g->parts[0])
            return i;
    }
    return GRAPH_NONE;
}

static enum status place_matrix(struct weights *w, uint32_t weight,
                                const struct token_counts *counts, struct err *e)
{
    const struct graph_weight *g = &w->graph->weights[weight];
    uint32_t row0 = 0;
    for (uint32_t part = 0; part < g->n_parts;) {
        const struct gguf_tensor *t = g->parts[part];
        enum weight_layout layout;
        enum status status = choose_weight_layout(w->chooser, t->dtype, (uint32_t)t->ne[1], g->k,
                                                  counts->n_tokens, counts->n, &layout, e);
        if (status != ST_OK)
            return status;
        uint32_t table = find_table(w, g, weight);
        if (table != GRAPH_NONE && w->chunks[w->first[table]].tensor.layout == layout) {
            w->first[weight] = w->first[table];
            w->list[weight].n_chunks = w->list[table].n_chunks;
            w->shared[weight] = true;
            return ST_OK;
        }
        uint32_t group = layout_rows(layout), n_parts = stackable(w, g, part, layout);
        struct run run = {.row0 = row0,
                          .k = g->k,
                          .dtype = t->dtype,
                          .layout = layout,
                          .row_step = group,
                          .in_place = layout == LAYOUT_FILE && weight_wrappable(w, t)};
        for (uint32_t i = 0; i < n_parts; i++)
            run.n_rows += (uint32_t)g->parts[part + i]->ne[1];
        if (g->pairs && n_parts == 2 && group > 1) {
            w->list[weight].paired = true;
            run.row_step = 2 * group;
        }
        status = place_run(w, &run, e);
        if (status != ST_OK)
            return status;
        row0 += run.n_rows;
        part += n_parts;
    }
    return ST_OK;
}

static enum status place_weight(struct weights *w, uint32_t weight,
                                const struct token_counts *counts, struct err *e)
{
    const struct graph_weight *g = &w->graph->weights[weight];
    w->first[weight] = w->n_chunks;
    enum status status = ST_OK;
    switch (g->kind) {
    case WEIGHT_VECTOR: status = place_vector(w, g, e); break;
    case WEIGHT_TABLE: status = place_table(w, g, counts, e); break;
    case WEIGHT_MATRIX: status = place_matrix(w, weight, counts, e); break;
    }
    if (!w->shared[weight])
        w->list[weight].n_chunks = w->n_chunks - w->first[weight];
    return status;
}

/* ---- buffers ---- */

/* The layer of the nodes that use a weight, if it is one. */
static int32_t layer_of(const struct graph *g, uint32_t weight)
{
    bool found = false;
    int32_t layer = -1;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const struct graph_node *node = &g->nodes[n];
        if (node->weight != weight && node->bias != weight)
            continue;
        if (found && node->layer != layer)
            return -1;
        layer = node->layer;
        found = true;
    }
    return layer;
}

/* Of each layer, in one piece, what is not in place. */
static void count_layers(const struct weights *w, uint64_t *bytes)
{
    for (uint32_t i = 0; i < w->graph->n_weights; i++)
        for (uint32_t c = 0; c < w->list[i].n_chunks && !w->shared[i] && w->layer[i] >= 0; c++)
            if (w->list[i].chunks[c].arena != WEIGHT_IN_PLACE)
                bytes[w->layer[i]] += round_up(w->list[i].chunks[c].tensor.bytes, WEIGHT_ALIGN);
}

/* Gives every chunk that is not in place its arena, or its place among the layer's in a slot. */
static enum status assign_arenas(struct weights *w, struct err *e)
{
    const uint32_t n_layer = w->graph->hparams->n_layer;
    uint64_t *end = mem_array(n_layer, sizeof *end);
    if (!end)
        return out_of_memory(e);
    enum status status = ST_OK;
    w->n_arenas = 0;
    for (uint32_t i = 0; i < w->graph->n_weights; i++) {
        const int32_t layer = w->layer[i];
        const bool streams =
            w->streamer && layer >= 0 && streamer_has(w->streamer, (uint32_t)layer);
        for (uint32_t c = 0; c < w->list[i].n_chunks && !w->shared[i] && status == ST_OK; c++) {
            struct weight_chunk *chunk = &w->list[i].chunks[c];
            if (chunk->arena == WEIGHT_IN_PLACE)
                continue;
            if (!streams) {
                status = reserve_in_arena(w, chunk->tensor.bytes, &chunk->arena,
                                          &chunk->tensor.offset, e);
                continue;
            }
            chunk->arena = WEIGHT_STREAMED;
            chunk->tensor.offset = end[layer];
            end[layer] += round_up(chunk->tensor.bytes, WEIGHT_ALIGN);
        }
    }
    mem_free(end);
    return status;
}

enum status weights_place(struct chooser *c, const struct graph *g, const uint32_t *n_tokens,
                          uint32_t n, struct weights **out, struct err *e)
{
    struct weights *w = mem_zalloc(sizeof *w);
    if (!w)
        return err_set(e, ST_NO_MEMORY, "weights: %zu bytes", sizeof *w);
    w->chooser = c;
    w->device = c->device;
    w->graph = g;
    enum device_kind kind = device_info(w->device)->kind;
    w->can_wrap = kind == DEVICE_CPU || kind == DEVICE_HOST;
    w->arena_limit = buffer_max_bytes(w->device);
    if (w->arena_limit > ARENA_BYTES)
        w->arena_limit = ARENA_BYTES;
    w->list = mem_array(g->n_weights, sizeof *w->list);
    w->first = mem_array(g->n_weights, sizeof *w->first);
    w->shared = mem_array(g->n_weights, sizeof *w->shared);
    w->layer = mem_array(g->n_weights, sizeof *w->layer);
    enum status status = ST_OK;
    if (!w->list || !w->first || !w->shared || !w->layer)
        status = out_of_memory(e);
    const struct token_counts counts = {n_tokens, n};
    for (uint32_t i = 0; i < g->n_weights && status == ST_OK; i++)
        status = place_weight(w, i, &counts, e);
    for (uint32_t i = 0; i < g->n_weights && status == ST_OK; i++) {
        w->list[i].chunks = w->chunks + w->first[i];
        w->layer[i] = layer_of(g, i);
    }
    if (status == ST_OK)
        status = assign_arenas(w, e);
    if (status != ST_OK) {
        weights_close(w);
        return status;
    }
    *out = w;
    return ST_OK;
}

/* What weights_stream decides, with memory[n_layer] of its own for bytes and choice. */
static enum status choose_streams(struct weights *w, uint64_t *bytes, bool *streams, uint64_t room,
                                  uint64_t *least, struct err *e)
{
    const uint32_t n_layer = w->graph->hparams->n_layer;
    uint64_t largest = 0, others = weights_device_bytes(w);
    count_layers(w, bytes);
    for (uint32_t i = 0; i < n_layer; i++) {
        others -= bytes[i];
        largest = bytes[i] > largest ? bytes[i] : largest;
    }
    *least = others + STREAMER_SLOTS * largest;
    if (room < others || largest > buffer_max_bytes(w->device) ||
        streamer_choose(bytes, n_layer, room - others, streams) == 0)
        return err_set(e, ST_NO_DEVICE_MEMORY,
                       "weights: %llu bytes with all layers streaming, there is room for %llu",
                       (unsigned long long)*least, (unsigned long long)room);
    enum status status = streamer_open(w->device, bytes, streams, n_layer, &w->streamer, e);
    return status == ST_OK ? assign_arenas(w, e) : status;
}

enum status weights_stream(struct weights *w, uint64_t room, uint64_t *least, struct err *e)
{
    const uint32_t n_layer = w->graph->hparams->n_layer;
    uint64_t *bytes = mem_array(n_layer, sizeof *bytes);
    bool *streams = mem_array(n_layer, sizeof *streams);
    enum status status =
        bytes && streams ? choose_streams(w, bytes, streams, room, least, e) : out_of_memory(e);
    mem_free(bytes);
    mem_free(streams);
    return status;
}

struct streamer *weights_streamer(const struct weights *w)
{
    return w->streamer;
}

uint64_t weights_device_bytes(const struct weights *w)
{
    uint64_t total = w->streamer ? streamer_device_bytes(w->streamer) : 0;
    for (uint32_t i = 0; i < w->n_arenas; i++)
        total += w->arena_bytes[i];
    return total;
}

uint64_t weights_in_place_bytes(const struct weights *w)
{
    return w->in_place_bytes;
}

uint64_t weights_load_bytes(const struct weights *w)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < w->graph->n_weights; i++)
        for (uint32_t part = 0; part < w->graph->weights[i].n_parts && !w->shared[i]; part++)
            total += w->graph->weights[i].parts[part]->n_bytes;
    return total;
}

const struct weight *weights_at(const struct weights *w, uint32_t graph_weight)
{
    return &w->list[graph_weight];
}

uint32_t weight_segments(const struct weights *w, uint32_t weight, const struct weight_chunk *chunk,
                         struct weight_segment segments[WEIGHT_MAX_PARTS])
{
    const struct graph_weight *g = &w->graph->weights[weight];
    uint32_t group = layout_rows((enum weight_layout)chunk->tensor.layout);
    if (w->list[weight].paired) { /* the same rows of both parts, a group of each in turn */
        for (uint32_t i = 0; i < 2; i++)
            segments[i] = (struct weight_segment){.tensor = g->parts[i],
                                                  .row0 = chunk->row0 / 2,
                                                  .n_rows = chunk->n_rows / 2,
                                                  .dst_row0 = i * group,
                                                  .group = group,
                                                  .group_stride = 2 * group};
        return 2;
    }
    uint64_t begin = chunk->row0, end = begin + chunk->n_rows, part0 = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_parts; i++) {
        uint64_t rows = g->parts[i]->ne[g->kind == WEIGHT_VECTOR ? 0 : 1];
        uint64_t from = part0 > begin ? part0 : begin;
        uint64_t to = part0 + rows < end ? part0 + rows : end;
        if (from < to)
            segments[n++] = (struct weight_segment){.tensor = g->parts[i],
                                                    .row0 = from - part0,
                                                    .n_rows = to - from,
                                                    .dst_row0 = (uint32_t)(from - begin),
                                                    .group = 1,
                                                    .group_stride = 1};
        part0 += rows;
    }
    return n;
}

/* Wraps the pages of the mapping that hold a chunk. */
static enum status wrap_chunk(struct weights *w, uint32_t weight, struct weight_chunk *chunk,
                              struct err *e)
{
    struct weight_segment s[WEIGHT_MAX_PARTS];
    ASSERT(weight_segments(w, weight, chunk, s) == 1);
    uint64_t row_bytes = s[0].tensor->n_bytes / s[0].tensor->ne[1];
    return weight_wrap_rows(w->device, (const char *)s[0].tensor->data + s[0].row0 * row_bytes,
                            &chunk->tensor, s[0].tensor->name, e);
}

enum status weight_wrap_rows(struct device *d, const void *rows, struct tensor *t,
                             const char *label, struct err *e)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)rows;
    t->offset = at % page;
    return buffer_wrap(d, (const void *)(at - t->offset), t->offset + t->bytes, BUFFER_WEIGHTS,
                       label, &t->buffer, e);
}

enum status weights_allocate(struct weights *w, struct err *e)
{
    w->arenas = mem_array(w->n_arenas, sizeof *w->arenas);
    if (!w->arenas)
        return out_of_memory(e);
    enum status status = ST_OK;
    for (uint32_t i = 0; i < w->n_arenas && status == ST_OK; i++)
        status =
            buffer_open(w->device, w->arena_bytes[i], BUFFER_WEIGHTS, "weights", &w->arenas[i], e);
    for (uint32_t i = 0; i < w->n_arenas && status == ST_OK && w->streamer; i++)
        status = queue_touch(w->device, QUEUE_COMPUTE, w->arenas[i], e);
    if (status == ST_OK && w->streamer)
        status = streamer_allocate(w->streamer, e);
    for (uint32_t i = 0; i < w->graph->n_weights && status == ST_OK; i++) {
        struct weight *weight = &w->list[i];
        for (uint32_t c = 0; c < weight->n_chunks && !w->shared[i] && status == ST_OK; c++) {
            struct weight_chunk *chunk = &weight->chunks[c];
            if (chunk->arena == WEIGHT_IN_PLACE)
                status = wrap_chunk(w, i, chunk, e);
            else if (chunk->arena == WEIGHT_STREAMED)
                chunk->tensor.buffer = streamer_slot(w->streamer, (uint32_t)w->layer[i]);
            else
                chunk->tensor.buffer = w->arenas[chunk->arena];
        }
    }
    return status;
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->n_chunks; i++)
        if (w->chunks[i].arena == WEIGHT_IN_PLACE)
            buffer_close(w->chunks[i].tensor.buffer);
    for (uint32_t i = 0; w->arenas && i < w->n_arenas; i++)
        buffer_close(w->arenas[i]);
    streamer_close(w->streamer);
    mem_free(w->arenas);
    mem_free(w->arena_bytes);
    mem_free(w->chunks);
    mem_free(w->list);
    mem_free(w->first);
    mem_free(w->shared);
    mem_free(w->layer);
    mem_free(w);
}
