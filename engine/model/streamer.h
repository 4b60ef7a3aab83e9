/* Streaming: layers whose weights do not fit the device stay in host memory, laid out as the device
 * wants them, and each comes to a buffer of the device (a slot) shortly before its turn.
 *
 * The layers that stream take the slots in turn, so a layer is always found in the same one and
 * what is bound to it stays bound. A slot is written on the transfer queue once the layer that was
 * in it has computed: the next layer arrives while this one computes, that of the next run while
 * this one ends. Events order the queues against each other.
 *
 * Where the layers lie. A GPU with memory of its own takes them from ordinary memory through the
 * pinned staging ring, whose readers keep up with its bus: there are drivers that keep a copy of
 * all pinned memory on the device, so that whole layers in such memory would cost the very room
 * that they do not have, and nothing tells those drivers from others before it is gone. Where the
 * device's memory is the host's, there is no place for another copy and reading twice costs most:
 * there layers lie in pinned memory, as much as leaves the device an eighth of its memory beyond
 * what loading takes, and the rest is staged. CPU devices and `host` copy ordinary memory
 * themselves.
 *
 * Writing what is pinned is enqueued and done. What is staged keeps the device's thread until the
 * last piece of a layer is in the ring: so only one layer is brought ahead, after the launches of
 * the one before it were enqueued, or at the end of the run.
 *
 * A run enters every layer of the model in order and leaves each after its last launch; a run that
 * breaks off must be followed by streamer_restart. Belongs to the device's thread.
 */
#ifndef OINFER_MODEL_STREAMER_H
#define OINFER_MODEL_STREAMER_H

#include <stdbool.h>

#include "engine/cl/queue.h"

#define STREAMER_SLOTS 2

/* Which of n layers of `bytes` each must stream, so that the others and STREAMER_SLOTS of them fit
 * in `room` bytes: as few as possible, evenly spread. Fills streams[n]; returns how many, 0 when
 * not even all of them streaming fits. */
uint32_t streamer_choose(const uint64_t *bytes, uint32_t n, uint64_t room, bool *streams);

struct streamer;

/* Lists those of the n layers that stream, at least one; allocates nothing on the device. */
enum status streamer_open(struct device *d, const uint64_t *bytes, const bool *streams, uint32_t n,
                          struct streamer **out, struct err *e);
void streamer_close(struct streamer *s); /* accepts NULL; both queues are idle */

uint32_t streamer_layers(const struct streamer *s); /* how many stream */
bool streamer_has(const struct streamer *s, uint32_t layer);
uint64_t streamer_device_bytes(const struct streamer *s); /* of the slots */
uint64_t streamer_run_bytes(const struct streamer *s);    /* that one run writes to them */
uint64_t streamer_total_bytes(const struct streamer *s);  /* written so far */
uint32_t streamer_pinned(const struct streamer *s);       /* how many layers lie in pinned memory */
uint32_t streamer_staged(const struct streamer *s);       /* how many go through the staging ring */

/* Makes the slots and has the driver give them memory. ST_NO_DEVICE_MEMORY. */
enum status streamer_allocate(struct streamer *s, struct err *e);
/* Makes the layers' host memory: after all that must be on the device has its memory there, for
 * what is pinned may take of that. Where pinning is refused, the log says so and the layer and
 * those after it are staged. loading_bytes: of the device, that the weights' loading still takes.
 * ST_NO_MEMORY with the need and what there is. */
enum status streamer_allocate_host(struct streamer *s, uint64_t loading_bytes, struct err *e);
/* The slot of a layer that streams: its weights begin at byte 0. */
struct buffer *streamer_slot(const struct streamer *s, uint32_t layer);
/* Loading: what compute and transfer queue have put into the layer's slot so far is copied to its
 * host memory, before anything that is enqueued on either later. */
enum status streamer_keep(struct streamer *s, uint32_t layer, struct err *e);

/* Running: launches of the layer follow; they have been enqueued. Nothing for other layers. */
enum status streamer_enter(struct streamer *s, uint32_t layer, struct err *e);
enum status streamer_leave(struct streamer *s, uint32_t layer, struct err *e);
/* The last launch of the run has been enqueued. */
enum status streamer_finish(struct streamer *s, struct err *e);
/* Waits for both queues, lost or not; the next run begins with the first layer. */
void streamer_restart(struct streamer *s);
/* What the way to the device gives: layers written one after another with nothing else to do, in
 * GB/s. Waits. */
enum status streamer_measure(struct streamer *s, double *gb_s, struct err *e);

#endif
