/* The inside of this folder: struct device and what its modules share. Nothing outside includes it.
 *
 * Every field belongs to the device's thread. On `host` the CL handles are NULL and the functions
 * that would use them do the work in place.
 */
#ifndef OINFER_CL_IMPL_H
#define OINFER_CL_IMPL_H

#include "engine/cl/cache.h"
#include "engine/cl/cl.h"
#include "engine/cl/device.h"
#include "engine/cl/kernel.h"
#include "engine/cl/prof.h"
#include "engine/cl/queue.h"

#define QUEUE_COUNT    2
#define PROF_EVENTS    1024 /* event slots held at most */
#define PROF_BATCH     128  /* of them, the oldest, are read when there is no room */
#define PROF_PARTS     1024 /* parts of divided launches held at most */
#define PEAKS_MEASURED 3    /* processes that measure the peaks; the best is kept */
/* The ring holds no more than the processor's cache: what is read into it then leaves for the
 * device from there, at about twice the rate. */
#define STAGING_SLOTS 16                /* pieces in flight */
#define STAGING_BYTES ((size_t)2 << 20) /* bytes of a piece */
#define STAGING_READS 8                 /* pieces being read from their source; the others leave */

/* One of the pair. enqueued counts commands; a count remembered elsewhere tells what has been
 * ordered or waited for already, so that doing it twice costs nothing. */
struct queue {
    cl_command_queue cl;
    uint64_t enqueued;
    uint64_t waited;  /* commands known to be done */
    uint64_t ordered; /* commands of the OTHER queue that this one already waits for */
    uint64_t last_wait_ns;
};

/* A command being timed; name and variant are static strings. */
struct prof_slot {
    cl_event event; /* NULL for a row measured elsewhere: then start and end are given */
    enum queue_id queue;
    bool launch; /* a kernel, not a copy */
    const char *name, *variant;
    uint64_t start_ns, end_ns, bytes, flops;
    uint32_t first_part, n_parts; /* of prof.parts */
};

struct interval {
    uint64_t start_ns, end_ns;
};

struct prof {
    bool on;
    uint32_t n_slots;
    struct prof_slot slots[PROF_EVENTS];
    uint64_t last_end_ns[QUEUE_COUNT]; /* of the commands read so far */
    uint32_t n_parts;
    struct prof_row parts[PROF_PARTS];                   /* of slots that were divided */
    struct interval intervals[QUEUE_COUNT][PROF_EVENTS]; /* of one drain */
    struct prof_report pending;                          /* drained, not yet collected */
};

/* A piece of pinned memory; `busy` is the event of the write that reads it, or NULL. */
struct staging_slot {
    struct buffer *buffer;
    void *memory;
    cl_event busy;
};

/* A piece of a source on its way into a slot. */
struct staging_read {
    struct staging_slot *slot;
    struct upload_part part;
};

struct staging {
    bool open;
    struct readers *readers; /* NULL before the first part */
    uint32_t next;
    struct staging_slot slots[STAGING_SLOTS];
    struct staging_read reads[STAGING_READS]; /* a ring; what they bring is not written yet */
    uint32_t first_read, n_reads;
};

struct buffer {
    struct device *device;
    cl_mem cl;    /* NULL on host */
    void *memory; /* host memory of the host device or of a wrapped or pinned buffer */
    bool owned;   /* memory is ours to free */
    bool mapped;  /* memory is the driver's, to be unmapped */
    bool accounted, read_only;
    uint64_t n_bytes;
    enum buffer_usage usage;
    char label[48];
};

struct program;

struct device {
    struct device_info info;
    bool host, lost;
    bool hangs;              /* lost because a command did not end */
    unsigned char check[64]; /* what device_check reads back; here, for it may come late */
    bool probed;             /* caps are complete */
    bool vex_only;           /* 256-bit VNNI in its VEX form alone */
    bool trial_broken;       /* the trial command cannot be run */
    bool risky;              /* programs are tried in a child first */
    bool dies_on_asm;        /* a child that probed inline assembly failed */
    uint32_t caps;
    char driver_stamp[48]; /* see cl_driver_stamp */
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    struct queue queues[QUEUE_COUNT];
    uint64_t pair; /* counts the queue pairs: a queue_mark belongs to one */
    struct device_memory memory;
    struct device_peaks peaks; /* valid while peaks_known; they outlive a cache that cannot keep */
    bool peaks_known;
    struct prof prof;
    struct staging staging;
    char *cache_dir, *kernel_dir, *trial_command; /* NULL: none */
    struct program *programs; /* the registry: a list, most recently used first */
    struct kernel_stats kernel_stats;
    uint8_t marks[DEVICE_MARKS]; /* of the ops layer */
    void *kept;                  /* the same */
    void (*close_kept)(void *thing);
    struct kernel *fill_kernel; /* queue_fill on GPUs; opened on first use */
};

/* device.c: ST_DEVICE_LOST with the device's name if it was lost; ST_OK otherwise. */
enum status device__usable(const struct device *d, struct err *e);
/* Opens without probing the caps. */
enum status device__open_bare(const struct device_list *l, uint32_t index,
                              const struct device_options *options, struct device **out,
                              struct err *e);
bool device__is_pocl(const struct device *d);
/* The key of something that belongs to this device, driver, options and text. */
struct cache_key device__key(const struct device *d, const char *text, size_t length,
                             const char *options);

/* queue.c: creates or releases both queues, with profiling as d->prof.on says. Idle only. */
enum status queue__open_pair(struct device *d, struct err *e);
void queue__close_pair(struct device *d);
/* Waits for one command; on a GPU it sleeps unless that is over at once. A CL error code where it
 * failed, or hangs: then d->hangs. */
cl_int queue__wait_event(struct device *d, cl_event done);

/* prof.c: the address to give an enqueue call for its event: NULL when measuring is off. Call
 * prof__commit when the enqueue succeeded, nothing when it failed. May drain, so may wait. */
enum status prof__slot(struct device *d, cl_event **out, struct err *e);
void prof__commit(struct device *d, const struct prof_slot *what);
/* Adds a slot whose start and end are given. */
void prof__add(struct device *d, const struct prof_slot *what);
/* Forgets what is held, releasing the events without reading them. */
void prof__discard(struct device *d);

/* buffer.c: ST_INVALID unless n bytes at offset lie inside a buffer (that may be written). */
enum status buffer__check_read(const struct buffer *b, uint64_t offset, uint64_t n, struct err *e);
enum status buffer__check_write(const struct buffer *b, uint64_t offset, uint64_t n, struct err *e);

/* staging.c: waits for what leaves the ring, which then is no longer bound to a queue. */
enum status staging__settle(struct device *d, struct err *e);

/* kernel.c, program.c: a launch on either queue; closing the registry. */
enum status kernel__launch_on(struct kernel *k, enum queue_id q, const size_t gws[3],
                              const size_t lws[3], const char *name, const char *variant,
                              uint64_t bytes, uint64_t flops, struct err *e);
void program__close_all(struct device *d);

/* caps.c: the macro that tells kernels of a capability ("CAP_HALF"); NULL for an unknown bit. */
const char *caps__macro(enum device_cap cap);

#endif
