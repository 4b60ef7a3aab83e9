/* The staging ring: STAGING_SLOTS pieces of pinned memory through which any host memory streams to
 * the device on the transfer queue.
 *
 * A slot is free when its `busy` event, that of the write reading it, is NULL or complete. CPU
 * devices copy straight: their memory is the host's.
 */
#include <string.h>

#include "engine/cl/impl.h"

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
        staging__close(d);
    return status;
}

void staging__close(struct device *d)
{
    for (int i = 0; i < STAGING_SLOTS; i++) {
        struct staging_slot *slot = &d->staging.slots[i];
        if (slot->busy != NULL)
            clReleaseEvent(slot->busy);
        if (slot->memory != NULL) {
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
    cl_int code = clWaitForEvents(1, &slot->busy);
    clReleaseEvent(slot->busy);
    slot->busy = NULL;
    return cl_check(d, code, "clWaitForEvents", "staging", e);
}

static enum status upload_piece(struct device *d, struct buffer *dst, uint64_t offset,
                                const void *src, size_t n, const char *tag, struct err *e)
{
    struct staging_slot *slot = &d->staging.slots[d->staging.next];
    d->staging.next = (d->staging.next + 1) % STAGING_SLOTS;
    enum status status = wait_slot(d, slot, e);
    if (status != ST_OK)
        return status;
    memcpy(slot->memory, src, n);
    cl_event *event;
    status = prof__slot(d, &event, e);
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

enum status staging_upload(struct device *d, struct buffer *dst, uint64_t offset, const void *src,
                           uint64_t n, const char *tag, struct err *e)
{
    if (d->host || d->info.kind == DEVICE_CPU) {
        enum status copied = queue_write(d, QUEUE_TRANSFER, dst, offset, src, n, tag, e);
        return copied != ST_OK ? copied : queue_wait(d, QUEUE_TRANSFER, e);
    }
    enum status status = device__usable(d, e);
    if (status == ST_OK)
        status = buffer__check_write(dst, offset, n, e);
    if (status == ST_OK && n > 0 && !d->staging.open)
        status = open_ring(d, e);
    const char *from = src;
    while (status == ST_OK && n > 0) {
        size_t piece = n < STAGING_BYTES ? (size_t)n : STAGING_BYTES;
        status = upload_piece(d, dst, offset, from, piece, tag, e);
        offset += piece;
        from += piece;
        n -= piece;
    }
    return status;
}
