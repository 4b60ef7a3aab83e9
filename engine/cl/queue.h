/* The queue pair of a device: compute and transfer, in order each, ordered against each other only
 * where asked, by events that this module owns. Nothing here waits unless it says so.
 *
 * Belongs to the device's thread. On `host` everything happens at once, in the call.
 */
#ifndef OINFER_CL_QUEUE_H
#define OINFER_CL_QUEUE_H

#include "engine/base/readers.h"
#include "engine/cl/buffer.h"

enum queue_id { QUEUE_COMPUTE, QUEUE_TRANSFER };

/* Enqueues a copy of n bytes. The host memory must stay untouched until queue_wait (write, read).
 * tag: static string, the row under which prof counts it. Bounds are checked: ST_INVALID. */
enum status queue_write(struct device *d, enum queue_id q, struct buffer *dst, uint64_t offset,
                        const void *src, uint64_t n, const char *tag, struct err *e);
enum status queue_read(struct device *d, enum queue_id q, struct buffer *src, uint64_t offset,
                       void *dst, uint64_t n, const char *tag, struct err *e);
enum status queue_copy(struct device *d, enum queue_id q, struct buffer *src, uint64_t src_offset,
                       struct buffer *dst, uint64_t dst_offset, uint64_t n, const char *tag,
                       struct err *e);
enum status queue_fill(struct device *d, enum queue_id q, struct buffer *dst, uint64_t offset,
                       uint64_t n, uint8_t byte, const char *tag, struct err *e);
/* Everything enqueued on `before` so far happens before what is enqueued on `after` from now on. */
enum status queue_order(struct device *d, enum queue_id before, enum queue_id after, struct err *e);
/* A place in a queue: behind what was enqueued there when it was taken. Zeroed: none. Released by
 * queue_unmark, or by taking another; closing the device does not. */
struct queue_mark {
    void *event;
    uint64_t pair; /* number of the queue pair: an earlier one was waited for before it closed */
};
/* Takes the end of q as *m, instead of what *m was, and has q begin what it holds. */
enum status queue_mark(struct device *d, enum queue_id q, struct queue_mark *m, struct err *e);
/* What is enqueued on q from now on happens after the mark; at once where there is none. */
enum status queue_follow(struct device *d, enum queue_id q, const struct queue_mark *m,
                         struct err *e);
void queue_unmark(struct queue_mark *m);
/* Has q write to the buffer, for the sake of drivers that give it its memory only then. */
enum status queue_touch(struct device *d, enum queue_id q, struct buffer *b, struct err *e);
enum status queue_flush(struct device *d, enum queue_id q, struct err *e);
/* Waits until everything on q is done. On a GPU it sleeps instead of spinning a core. Marks the
 * device lost (ST_DEVICE_LOST) when the driver says so. */
enum status queue_wait(struct device *d, enum queue_id q, struct err *e);

/* The pinned staging ring: streams n bytes of host memory (any pages, e.g. a mapped file) to dst on
 * the transfer queue in pieces; returns once the source is no longer needed. Overlaps with compute.
 */
enum status staging_upload(struct device *d, struct buffer *dst, uint64_t offset, const void *src,
                           uint64_t n, const char *tag, struct err *e);
/* n bytes of a file or of memory from byte `offset` of it on. */
struct upload_part {
    struct readers_source from;
    uint64_t offset, n;
};
/* The same, read by several threads into the ring: one thread that copies is slower than the bus.
 * Returns when all is enqueued. `then`: the part that the next call is going to upload, of which it
 * begins to read; NULL: none is known. Not for `host`. ST_IO when the file ends before or gives an
 * error. */
enum status staging_upload_part(struct device *d, struct buffer *dst, uint64_t offset,
                                const struct upload_part *part, const struct upload_part *then,
                                const char *tag, struct err *e);
/* Gives the ring's memory and threads back, until the next use of it. The transfer queue is idle,
 * or lost. */
void staging_release(struct device *d);
/* What the ring will take of pinned memory at its next use; 0 where it has that. */
uint64_t staging_bytes_to_come(const struct device *d);
/* Forgets what was read for a call that does not come; its file may be closed then, its memory
 * freed. */
void staging_forget(struct device *d);

#endif
