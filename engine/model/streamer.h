/* Streaming: layers whose weights do not fit the device stay in host memory, laid out as the device
 * wants them, and each comes to a buffer of the device (a slot) shortly before its turn.
 *
 * The layers that stream take the slots in turn, so a layer is always found in the same one and
 * what is bound to it stays bound. A slot is written on the transfer queue as soon as the layer
 * that was in it has computed: the next layers arrive while this one computes, those of the next
 * run while this one ends. Events order the queues against each other; the host waits for nothing.
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
bool streamer_pinned(const struct streamer *s);           /* all of its host memory is */

/* Makes the slots and the host memory: pinned, or what the machine has where that is refused (then
 * the log says so). ST_NO_DEVICE_MEMORY, ST_NO_MEMORY with the need and what there is. */
enum status streamer_allocate(struct streamer *s, struct err *e);
/* The slot of a layer that streams: its weights begin at byte 0. */
struct buffer *streamer_slot(const struct streamer *s, uint32_t layer);
/* Loading: what compute and transfer queue have put into the layer's slot so far is copied to its
 * host memory, before anything that is enqueued on either later. */
enum status streamer_keep(struct streamer *s, uint32_t layer, struct err *e);

/* Running: launches of the layer follow; they have been enqueued. Nothing for other layers. */
enum status streamer_enter(struct streamer *s, uint32_t layer, struct err *e);
enum status streamer_leave(struct streamer *s, uint32_t layer, struct err *e);
/* Waits for both queues, lost or not; the next run begins with the first layer. */
void streamer_restart(struct streamer *s);
/* What the bus gives: layers written one after another with nothing else to do, in GB/s. Waits. */
enum status streamer_measure(struct streamer *s, double *gb_s, struct err *e);

#endif
