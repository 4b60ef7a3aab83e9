/* Device memory: buffers with a usage, a label and an account.
 *
 * On `host` a buffer is host memory. A buffer belongs to its device's thread. No buffer is larger
 * than the device's max allocation: ask buffer_max_bytes and split.
 */
#ifndef OINFER_CL_BUFFER_H
#define OINFER_CL_BUFFER_H

#include "engine/cl/device.h"

/* BUFFER_STAGING is pinned memory of the host; all others count as used memory of the device. */
enum buffer_usage { BUFFER_WEIGHTS, BUFFER_KV, BUFFER_SCRATCH, BUFFER_STAGING, BUFFER_IO };

struct buffer;
/* n bytes (> 0), uninitialised, aligned to at least 64 bytes (a float16). The label (copied, at
 * most 47 bytes) appears in errors and logs. ST_NO_DEVICE_MEMORY with the need, the use and the
 * limit. */
enum status buffer_open(struct device *d, uint64_t n_bytes, enum buffer_usage usage,
                        const char *label, struct buffer **out, struct err *e);
/* Wraps n bytes of host memory in place, read-only (CL_MEM_USE_HOST_PTR): CPU devices and host
 * only, else ST_UNSUPPORTED. `memory` must outlive the buffer and be aligned to page size. */
enum status buffer_wrap(struct device *d, const void *memory, uint64_t n_bytes,
                        enum buffer_usage usage, const char *label, struct buffer **out,
                        struct err *e);
/* The same for memory that kernels and queues may write. */
enum status buffer_wrap_writable(struct device *d, void *memory, uint64_t n_bytes,
                                 enum buffer_usage usage, const char *label, struct buffer **out,
                                 struct err *e);
/* Images instead of plain bytes, an array of them, each texel four floats: for kernels alone, which
 * write (write_only) and read (read_only) it as image2d_array_t. Needs CAP_IMAGES; ST_UNSUPPORTED
 * names size and limit. Its bytes count as scratch. */
struct image_size {
    uint32_t width, height, layers;
};
enum status buffer_open_image(struct device *d, struct image_size size, const char *label,
                              struct buffer **out, struct err *e);
/* Host memory that a GPU reads and writes at the rate of its bus (pinned), for what is copied to
 * and from the device again and again: *memory is n_bytes of it until the buffer is closed. Plain
 * memory for CPU devices and host. Some drivers keep a copy of it on the device, however it is
 * mapped. */
enum status buffer_open_pinned(struct device *d, uint64_t n_bytes, const char *label,
                               struct buffer **out, void **memory, struct err *e);
void buffer_close(struct buffer *b); /* accepts NULL */
uint64_t buffer_bytes(const struct buffer *b);
uint64_t buffer_max_bytes(const struct device *d);
/* The memory itself on the host device (and of a wrapped buffer); NULL on others. */
void *buffer_host(const struct buffer *b);

#endif
