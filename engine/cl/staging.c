/* The staging ring: STAGING_SLOTS pieces of pinned memory through which any host memory, or a file,
 * streams to the device on the transfer queue.
 *
 * A slot is free when its `busy` event, that of the write reading it, is NULL or complete. CPU
 * devices copy straight: their memory is the host's.
 */
#include <string.h>

#include "engine/base/readers.h"
#include "engine/cl/impl.h"
#include "engine/cl/threads.h"

#define READERS_MAX 12 /* threads that read: these keep up with a bus of 50 GB/s */

#if STAGING_READS > READERS_PENDING || STAGING_READS >= STAGING_SLOTS
#error "what is read waits among the readers' pieces and leaves slots for what is written"
#endif

static enum status open_slot(struct device *d, struct staging_slot *slot, struct err *e)
{
    enum status status = buffer_open(d, STAGING_BYTES, BUFFER_STAGING, "staging", &slot->buffer, e);
    if (status != ST_OK)
        return status;
    cl_int code = CL_SUCCESS;
    slot->memory =
        clEnqueueMapBuffer(d->queues[QUEUE_TRANSFER].cl, slot->buffer->cl, CL_TRUE,
                           CL_MAP_READ | CL_MAP_WRITE, 0, STAGING_BYTES, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        slot->memory = NULL;
    return cl_check(d, code, "clEnqueueMapBuffer", "staging", e);
}

static enum status open_ring(struct device *d, struct err *e)
{
    enum status status = ST_OK;
    for (int i = 0; i < STAGING_SLOTS && status == ST_OK; i++)
        status = open_slot(d, &d->staging.slots[i], e);
    d->staging.open = status == ST_OK;
    if (status != ST_OK)
        staging_release(d);
    return status;
}

uint64_t staging_bytes_to_come(const struct device *d)
{
    return d->staging.open ? 0 : (uint64_t)STAGING_SLOTS * STAGING_BYTES;
}

void staging_release(struct device *d)
{
    staging_forget(d);
    readers_close(d->staging.readers);
    for (int i = 0; i < STAGING_SLOTS; i++) {
        struct staging_slot *slot = &d->staging.slots[i];
        if (slot->busy != NULL)
            clReleaseEvent(slot->busy);
        if (slot->memory != NULL && !d->hangs) { /* such a queue would be waited for */
            clEnqueueUnmapMemObject(d->queues[QUEUE_TRANSFER].cl, slot->buffer->cl, slot->memory, 0,
                                    NULL, NULL);
            clFinish(d->queues[QUEUE_TRANSFER].cl);
        }
        buffer_close(slot->buffer);
    }
    memset(&d->staging, 0, sizeof d->staging);
}

/* Waits until the write that reads this slot is done. */
static enum status wait_slot(struct device *d, struct staging_slot *slot, struct err *e)
{
    if (slot->busy == NULL)
        return ST_OK;
    const cl_int code = queue__wait_event(d, slot->busy);
    clReleaseEvent(slot->busy);
    slot->busy = NULL;
    if (code == CL_SUCCESS)
        return ST_OK;
    d->lost = true; /* as in queue_wait */
    return err_set(e, ST_DEVICE_LOST, "%s: writing to the device failed: %s (%d)", d->info.name,
                   cl_error_name(code), code);
}

enum status staging__settle(struct device *d, struct err *e)
{
    enum status status = ST_OK;
    staging_forget(d);
    for (int i = 0; i < STAGING_SLOTS; i++) {
        const enum status waited = wait_slot(d, &d->staging.slots[i], status == ST_OK ? e : NULL);
        status = status == ST_OK ? waited : status;
    }
    return status;
}

static struct staging_slot *next_slot(struct device *d)
{
    struct staging_slot *slot = &d->staging.slots[d->staging.next];
    d->staging.next = (d->staging.next + 1) % STAGING_SLOTS;
    return slot;
}

/* Enqueues the write of n bytes of a slot to the device. */
static enum status write_slot(struct device *d, struct staging_slot *slot, struct buffer *dst,
                              uint64_t offset, size_t n, const char *tag, struct err *e)
{
    cl_event *event;
    enum status status = prof__slot(d, &event, e);
    if (status != ST_OK)
        return status;
    cl_int code = clEnqueueWriteBuffer(d->queues[QUEUE_TRANSFER].cl, dst->cl, CL_FALSE,
                                       (size_t)offset, n, slot->memory, 0, NULL, &slot->busy);
    if (code != CL_SUCCESS) {
        slot->busy = NULL;
        return cl_check(d, code, "clEnqueueWriteBuffer", tag, e);
    }
    if (event != NULL) {
        clRetainEvent(slot->busy);
        *event = slot->busy;
        prof__commit(d, &(struct prof_slot){
                            .queue = QUEUE_TRANSFER, .name = tag, .variant = "", .bytes = n});
    }
    d->queues[QUEUE_TRANSFER].enqueued++;
    return cl_check(d, clFlush(d->queues[QUEUE_TRANSFER].cl), "clFlush", tag, e);
}

static enum status prepare(struct device *d, struct buffer *dst, uint64_t offset, uint64_t n,
                           struct err *e)
{
    enum status status = device__usable(d, e);
    if (status == ST_OK)
        status = buffer__check_write(dst, offset, n, e);
    if (status == ST_OK && n > 0 && !d->staging.open)
        status = open_ring(d, e);
    return status;
}

/* Of the piece that begins at byte `at` of n. */
static size_t piece_bytes(uint64_t at, uint64_t n)
{
    return n - at < STAGING_BYTES ? (size_t)(n - at) : STAGING_BYTES;
}

enum status staging_upload(struct device *d, struct buffer *dst, uint64_t offset, const void *src,
                           uint64_t n, const char *tag, struct err *e)
{
    if (d->host || d->info.kind == DEVICE_CPU) {
        enum status copied = queue_write(d, QUEUE_TRANSFER, dst, offset, src, n, tag, e);
        return copied != ST_OK ? copied : queue_wait(d, QUEUE_TRANSFER, e);
    }
    enum status status = prepare(d, dst, offset, n, e);
    const char *from = src;
    staging_forget(d); /* of slots in order, none is left out */
    for (uint64_t at = 0; status == ST_OK && at < n; at += STAGING_BYTES) {
        struct staging_slot *slot = next_slot(d);
        status = wait_slot(d, slot, e);
        if (status == ST_OK) {
            memcpy(slot->memory, from + at, piece_bytes(at, n));
            status = write_slot(d, slot, dst, offset + at, piece_bytes(at, n), tag, e);
        }
    }
    return status;
}

static enum status open_readers(struct device *d, struct err *e)
{
    const uint32_t cpus = threads_usable(READERS_MAX + 1);
    return readers_open(cpus > 1 ? cpus - 1 : 0, &d->staging.readers, e);
}

/* ---- reading ---- */

static struct staging_read *oldest_read(struct staging *s)
{
    return &s->reads[s->first_read];
}

/* Takes the oldest piece off the ring, read or failed. */
static enum status finish_read(struct staging *s, struct err *e)
{
    s->first_read = (s->first_read + 1) % STAGING_READS;
    s->n_reads--;
    return readers_wait(s->readers, e);
}

void staging_forget(struct device *d)
{
    while (d->staging.n_reads > 0)
        (void)finish_read(&d->staging, NULL);
}

/* Begins to read the piece at byte `at` of a part into the next slot, which is not being read:
 * those that are, are fewer than the slots. */
static enum status begin_read(struct device *d, const struct upload_part *part, uint64_t at,
                              struct err *e)
{
    struct staging *s = &d->staging;
    struct staging_slot *slot = next_slot(d);
    const size_t n = piece_bytes(at, part->n);
    enum status status = wait_slot(d, slot, e);
    if (status != ST_OK)
        return status;
    s->reads[(s->first_read + s->n_reads++) % STAGING_READS] =
        (struct staging_read){slot, {part->from, part->offset + at, n}};
    readers_begin(s->readers, part->from, part->offset + at, slot->memory, n);
    return ST_OK;
}

/* Bytes of the part that are being read already. What else is, is forgotten. */
static uint64_t bytes_begun(struct device *d, const struct upload_part *part)
{
    const struct staging *s = &d->staging;
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_reads; i++) {
        const struct upload_part *read = &s->reads[(s->first_read + i) % STAGING_READS].part;
        if (read->from.fd != part->from.fd || read->from.memory != part->from.memory ||
            read->offset != part->offset + n || read->n != piece_bytes(n, part->n)) {
            staging_forget(d);
            return 0;
        }
        n += read->n;
    }
    return n;
}

enum status staging_upload_part(struct device *d, struct buffer *dst, uint64_t offset,
                                const struct upload_part *part, const struct upload_part *then,
                                const char *tag, struct err *e)
{
    struct staging *s = &d->staging;
    enum status status = prepare(d, dst, offset, part->n, e);
    if (status == ST_OK && part->n > 0 && s->readers == NULL)
        status = open_readers(d, e);
    uint64_t begun = status == ST_OK ? bytes_begun(d, part) : 0, ahead = 0;
    for (uint64_t written = 0; status == ST_OK && written < part->n;) {
        if (s->n_reads < STAGING_READS && begun < part->n) {
            status = begin_read(d, part, begun, e);
            begun += piece_bytes(begun, part->n);
        } else if (s->n_reads < STAGING_READS && then != NULL && ahead < then->n) {
            status = begin_read(d, then, ahead, e);
            ahead += piece_bytes(ahead, then->n);
        } else {
            const struct staging_read *read = oldest_read(s);
            status = finish_read(s, e);
            if (status == ST_OK)
                status = write_slot(d, read->slot, dst, offset + written, read->part.n, tag, e);
            written += read->part.n;
        }
    }
    if (status != ST_OK)
        staging_forget(d);
    return status;
}
