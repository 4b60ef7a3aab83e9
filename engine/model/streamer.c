/* The rotation of streamed layers through the slots, their host memory, and the choice of them.
 *
 * Invariant: n_written and n_used count layers since the first run began; layer number i of the
 * list is count n where n % n_layers is i. A slot is taken from the moment its write is enqueued
 * until its layer's launches all are; at most STREAMER_SLOTS writes are ahead of the layer that
 * runs, and of staged layers one.
 */
#include "engine/model/streamer.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#define HOST_ALIGN      4096
#define PINNED_MARGIN   8 /* this share of the device's memory is not used up by pinning */
#define MEASURED_BYTES  (1ull << 30) /* of one round, at least one layer */
#define MEASURED_ROUNDS 3            /* the best counts: other load only slows down */

struct streamer_layer {
    uint32_t layer; /* of the model */
    uint64_t n_bytes;
    void *memory;          /* [n_bytes] */
    struct buffer *pinned; /* what memory belongs to; NULL: it is ordinary */
    bool staged;           /* written through the staging ring */
};

struct streamer_slot {
    struct buffer *buffer;
    struct queue_mark written; /* on the transfer queue: its layer is there */
    struct queue_mark used;    /* on the compute queue: it may be written again */
    bool taken;
};

struct streamer {
    struct device *device;
    uint32_t n_layers;
    struct streamer_layer *layers; /* [n_layers] in the order of the model */
    struct streamer_slot slots[STREAMER_SLOTS];
    uint64_t slot_bytes;
    uint64_t n_written, n_used;
    uint64_t total_bytes;
};

/* ---- which layers ---- */

/* Spreads `count` of n: every n / count th layer, and the last of all. */
static bool is_chosen(uint32_t layer, uint32_t count, uint32_t n)
{
    return (uint64_t)(layer + 1) * count / n > (uint64_t)layer * count / n;
}

uint32_t streamer_choose(const uint64_t *bytes, uint32_t n, uint64_t room, bool *streams)
{
    for (uint32_t count = 1; count <= n; count++) {
        uint64_t largest = 0, resident = 0;
        for (uint32_t i = 0; i < n; i++) {
            streams[i] = is_chosen(i, count, n);
            if (!streams[i])
                resident += bytes[i];
            else if (bytes[i] > largest)
                largest = bytes[i];
        }
        if (resident + STREAMER_SLOTS * largest <= room)
            return count;
    }
    return 0;
}

/* ---- the list ---- */

enum status streamer_open(struct device *d, const uint64_t *bytes, const bool *streams, uint32_t n,
                          struct streamer **out, struct err *e)
{
    struct streamer *s = mem_zalloc(sizeof *s);
    struct streamer_layer *layers = mem_array(n, sizeof *layers);
    if (!s || !layers) {
        mem_free(s);
        mem_free(layers);
        return err_set(e, ST_NO_MEMORY, "streaming: a list of %u layers", n);
    }
    s->device = d;
    s->layers = layers;
    for (uint32_t i = 0; i < n; i++) {
        if (!streams[i])
            continue;
        layers[s->n_layers++] = (struct streamer_layer){.layer = i, .n_bytes = bytes[i]};
        if (bytes[i] > s->slot_bytes)
            s->slot_bytes = bytes[i];
    }
    ASSERT(s->n_layers > 0 && s->slot_bytes > 0);
    *out = s;
    return ST_OK;
}

static void forget_marks(struct streamer *s)
{
    for (uint32_t i = 0; i < STREAMER_SLOTS; i++) {
        queue_unmark(&s->slots[i].written);
        queue_unmark(&s->slots[i].used);
        s->slots[i].taken = false;
    }
    s->n_written = s->n_used = 0;
}

void streamer_close(struct streamer *s)
{
    if (!s)
        return;
    staging_release(s->device); /* whose threads may read a layer */
    forget_marks(s);
    for (uint32_t i = 0; i < STREAMER_SLOTS; i++)
        buffer_close(s->slots[i].buffer);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        if (s->layers[i].pinned)
            buffer_close(s->layers[i].pinned);
        else
            mem_free(s->layers[i].memory);
    }
    mem_free(s->layers);
    mem_free(s);
}

/* The layer's number in the list; n_layers when it does not stream. */
static uint32_t number_of(const struct streamer *s, uint32_t layer)
{
    uint32_t i = 0;
    while (i < s->n_layers && s->layers[i].layer != layer)
        i++;
    return i;
}

uint32_t streamer_layers(const struct streamer *s)
{
    return s->n_layers;
}

bool streamer_has(const struct streamer *s, uint32_t layer)
{
    return number_of(s, layer) < s->n_layers;
}

uint64_t streamer_device_bytes(const struct streamer *s)
{
    return STREAMER_SLOTS * s->slot_bytes;
}

uint64_t streamer_run_bytes(const struct streamer *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        n += s->layers[i].n_bytes;
    return n;
}

uint64_t streamer_total_bytes(const struct streamer *s)
{
    return s->total_bytes;
}

uint32_t streamer_pinned(const struct streamer *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        n += s->layers[i].pinned ? 1 : 0;
    return n;
}

uint32_t streamer_staged(const struct streamer *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        n += s->layers[i].staged ? 1 : 0;
    return n;
}

/* ---- memory ---- */

static enum status check_host(const struct streamer *s, struct err *e)
{
    const uint64_t need = streamer_run_bytes(s), left = mem_available_bytes();
    if (left == 0 || need <= left)
        return ST_OK;
    return err_set(e, ST_NO_MEMORY,
                   "streaming: %u layers need %.3f GB of host memory, the machine has %.3f GB left",
                   s->n_layers, (double)need / 1e9, (double)left / 1e9);
}

/* CPU devices and `host`. */
static bool copies_itself(const struct streamer *s)
{
    const enum device_kind kind = device_info(s->device)->kind;
    return kind == DEVICE_CPU || kind == DEVICE_HOST;
}

/* Whether n more bytes may be pinned, where loading still takes others. */
static bool may_pin(const struct streamer *s, uint64_t n_bytes, uint64_t loading_bytes)
{
    const struct device_info *info = device_info(s->device);
    const struct device_memory m = device_memory(s->device);
    const uint64_t most = info->global_bytes - info->global_bytes / PINNED_MARGIN;
    return !copies_itself(s) && info->unified_memory &&
           m.used_bytes + m.staging_bytes + loading_bytes + n_bytes <= most;
}

/* Pinned memory where the layer may have that, unless the driver has had enough of it: `refused`
 * says so from then on. */
static enum status allocate_layer(const struct streamer *s, struct streamer_layer *l,
                                  uint64_t loading_bytes, bool *refused, struct err *e)
{
    struct err why;
    if (!*refused && may_pin(s, l->n_bytes, loading_bytes)) {
        const enum status status = buffer_open_pinned(s->device, l->n_bytes, "streamed layer",
                                                      &l->pinned, &l->memory, &why);
        if (status == ST_OK)
            return ST_OK;
        if (status == ST_DEVICE_LOST) {
            if (e)
                *e = why;
            return status;
        }
        log_warn("streamed layers lie in memory that is not pinned device=\"%s\" from_layer=%u "
                 "reason=\"%s\"",
                 device_info(s->device)->name, l->layer, why.text);
        *refused = true;
    }
    l->staged = !copies_itself(s);
    l->memory = l->n_bytes >= MEM_HUGE_PAGE_BYTES ? mem_huge(l->n_bytes)
                                                  : mem_aligned(HOST_ALIGN, l->n_bytes);
    if (!l->memory)
        return err_set(
            e, ST_NO_MEMORY,
            "streaming: layer %u needs %llu bytes of host memory, of %.3f GB for %u layers",
            l->layer, (unsigned long long)l->n_bytes, (double)streamer_run_bytes(s) / 1e9,
            s->n_layers);
    return ST_OK;
}

enum status streamer_allocate(struct streamer *s, struct err *e)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < STREAMER_SLOTS && status == ST_OK; i++)
        status = buffer_open(s->device, s->slot_bytes, BUFFER_WEIGHTS, "slot of streamed layers",
                             &s->slots[i].buffer, e);
    for (uint32_t i = 0; i < STREAMER_SLOTS && status == ST_OK; i++)
        status = queue_touch(s->device, QUEUE_COMPUTE, s->slots[i].buffer, e);
    return status;
}

enum status streamer_allocate_host(struct streamer *s, uint64_t loading_bytes, struct err *e)
{
    loading_bytes += staging_bytes_to_come(s->device);
    bool refused = false;
    enum status status = check_host(s, e);
    for (uint32_t i = 0; i < s->n_layers && status == ST_OK; i++)
        status = allocate_layer(s, &s->layers[i], loading_bytes, &refused, e);
    return status;
}

struct buffer *streamer_slot(const struct streamer *s, uint32_t layer)
{
    const uint32_t i = number_of(s, layer);
    ASSERT(i < s->n_layers);
    return s->slots[i % STREAMER_SLOTS].buffer;
}

enum status streamer_keep(struct streamer *s, uint32_t layer, struct err *e)
{
    const struct streamer_layer *l = &s->layers[number_of(s, layer)];
    enum status status = queue_order(s->device, QUEUE_COMPUTE, QUEUE_TRANSFER, e);
    if (status == ST_OK)
        status = queue_read(s->device, QUEUE_TRANSFER, streamer_slot(s, layer), 0, l->memory,
                            l->n_bytes, "keep", e);
    return status == ST_OK ? queue_order(s->device, QUEUE_TRANSFER, QUEUE_COMPUTE, e) : status;
}

/* ---- running ---- */

/* Enqueues the write of layer number i of the list into its slot. */
static enum status write_layer(struct streamer *s, uint32_t i, const char *tag, struct err *e)
{
    const struct streamer_layer *l = &s->layers[i], *next = &s->layers[(i + 1) % s->n_layers];
    struct buffer *slot = s->slots[i % STREAMER_SLOTS].buffer;
    if (!l->staged)
        return queue_write(s->device, QUEUE_TRANSFER, slot, 0, l->memory, l->n_bytes, tag, e);
    const struct upload_part part = {{-1, l->memory}, 0, l->n_bytes};
    const struct upload_part then = {{-1, next->memory}, 0, next->n_bytes};
    return staging_upload_part(s->device, slot, 0, &part, next->staged ? &then : NULL, tag, e);
}

/* Enqueues the write of the next layer into its slot, which is not taken. */
static enum status write_next(struct streamer *s, struct err *e)
{
    const uint32_t i = (uint32_t)(s->n_written % s->n_layers);
    const struct streamer_layer *l = &s->layers[i];
    struct streamer_slot *slot = &s->slots[i % STREAMER_SLOTS];
    enum status status = queue_follow(s->device, QUEUE_TRANSFER, &slot->used, e);
    if (status == ST_OK)
        status = write_layer(s, i, "stream", e);
    if (status == ST_OK)
        status = queue_mark(s->device, QUEUE_TRANSFER, &slot->written, e);
    if (status != ST_OK)
        return status;
    slot->taken = true;
    s->n_written++;
    s->total_bytes += l->n_bytes;
    return ST_OK;
}

static bool is_next_due(const struct streamer *s)
{
    const uint32_t i = (uint32_t)(s->n_written % s->n_layers);
    return !s->slots[i % STREAMER_SLOTS].taken &&
           (!s->layers[i].staged || s->n_written == s->n_used);
}

static enum status write_ahead(struct streamer *s, struct err *e)
{
    enum status status = ST_OK;
    while (status == ST_OK && is_next_due(s))
        status = write_next(s, e);
    return status;
}

enum status streamer_enter(struct streamer *s, uint32_t layer, struct err *e)
{
    const uint32_t i = number_of(s, layer);
    if (i == s->n_layers)
        return ST_OK;
    ASSERT(s->n_used % s->n_layers == i);
    enum status status = write_ahead(s, e);
    return status == ST_OK
               ? queue_follow(s->device, QUEUE_COMPUTE, &s->slots[i % STREAMER_SLOTS].written, e)
               : status;
}

enum status streamer_leave(struct streamer *s, uint32_t layer, struct err *e)
{
    const uint32_t i = number_of(s, layer);
    if (i == s->n_layers)
        return ST_OK;
    struct streamer_slot *slot = &s->slots[i % STREAMER_SLOTS];
    enum status status = queue_mark(s->device, QUEUE_COMPUTE, &slot->used, e);
    if (status != ST_OK)
        return status;
    slot->taken = false;
    s->n_used++;
    const bool at_end = i + 1 == s->n_layers; /* launches after the layers come before a copy */
    return at_end && s->layers[0].staged ? ST_OK : write_ahead(s, e);
}

enum status streamer_finish(struct streamer *s, struct err *e)
{
    enum status status = queue_flush(s->device, QUEUE_COMPUTE, e);
    return status == ST_OK ? write_ahead(s, e) : status;
}

void streamer_restart(struct streamer *s)
{
    queue_wait(s->device, QUEUE_TRANSFER, NULL);
    queue_wait(s->device, QUEUE_COMPUTE, NULL);
    forget_marks(s);
}

/* Time of writing the first n layers, in ns. */
static enum status time_writes(struct streamer *s, uint32_t n, uint64_t *ns, struct err *e)
{
    const uint64_t start_ns = clock_now_ns();
    enum status status = ST_OK;
    for (uint32_t i = 0; i < n && status == ST_OK; i++)
        status = write_layer(s, i, "measure", e);
    enum status waited = queue_wait(s->device, QUEUE_TRANSFER, status == ST_OK ? e : NULL);
    *ns = clock_now_ns() - start_ns + 1;
    return status == ST_OK ? waited : status;
}

enum status streamer_measure(struct streamer *s, double *gb_s, struct err *e)
{
    uint32_t n = 0;
    uint64_t n_bytes = 0;
    *gb_s = 0.0;
    streamer_restart(s);
    while (n < s->n_layers && n_bytes < MEASURED_BYTES)
        n_bytes += s->layers[n++].n_bytes;
    enum status status = ST_OK;
    for (uint32_t round = 0; round < MEASURED_ROUNDS && status == ST_OK; round++) {
        uint64_t ns = 0;
        status = time_writes(s, n, &ns, e);
        if (status == ST_OK && (double)n_bytes / (double)ns > *gb_s)
            *gb_s = (double)n_bytes / (double)ns;
    }
    return status;
}
