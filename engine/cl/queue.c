/* The queue pair: copies and fills, order between the two, and waiting without burning a core.
 *
 * Invariant: queue.enqueued counts the commands of a queue; what is already waited for or ordered
 * is remembered as such a count, so asking again costs no call.
 */
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "engine/base/clock.h"
#include "engine/cl/impl.h"

#define FILL_WORD_BYTES 16
#define FILL_GROUP      256 /* work-items of a group of the fill kernel */
#define FILL_MAX_GROUPS 4096

/* Polling on GPUs: the first sleep is a share of what the last wait took, then steps grow. */
#define POLL_MIN_NS    ((uint64_t)20 * 1000)
#define POLL_MAX_NS    ((uint64_t)2 * 1000 * 1000)
#define WAIT_LIMIT_NS  ((uint64_t)120 * 1000 * 1000 * 1000) /* a command that takes longer hangs */
#define CHECK_BYTE     0x5Au
#define TIMER_SLACK_NS 1000UL
#define SPIN_NS        ((uint64_t)30 * 1000) /* waits as short as this are polled without sleep */

enum status queue__open_pair(struct device *d, struct err *e)
{
    cl_command_queue_properties properties = d->prof.on ? CL_QUEUE_PROFILING_ENABLE : 0;
    d->pair++;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        cl_int code = CL_SUCCESS;
        memset(&d->queues[q], 0, sizeof d->queues[q]);
        d->queues[q].cl = clCreateCommandQueue(d->context, d->id, properties, &code);
        enum status status = cl_check(d, code, "clCreateCommandQueue", "", e);
        if (status != ST_OK) {
            d->queues[q].cl = NULL;
            queue__close_pair(d);
            return status;
        }
    }
    return ST_OK;
}

void queue__close_pair(struct device *d)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (d->queues[q].cl != NULL)
            clReleaseCommandQueue(d->queues[q].cl);
        d->queues[q].cl = NULL;
    }
}

/* After an enqueue call: reports its failure, or counts the command and keeps its event. */
static enum status finish_enqueue(struct device *d, enum queue_id q, cl_int code, const char *call,
                                  const char *tag, uint64_t bytes, struct err *e)
{
    if (code != CL_SUCCESS)
        return cl_check(d, code, call, tag, e);
    d->queues[q].enqueued++;
    prof__commit(d, &(struct prof_slot){.queue = q, .name = tag, .variant = "", .bytes = bytes});
    return ST_OK;
}

/* The row of a copy that `host` made in place from start_ns until now. */
static void add_host_row(struct device *d, enum queue_id q, const char *tag, uint64_t start_ns,
                         uint64_t bytes)
{
    prof__add(d, &(struct prof_slot){.queue = q,
                                     .name = tag,
                                     .variant = "",
                                     .start_ns = start_ns,
                                     .end_ns = clock_now_ns(),
                                     .bytes = bytes});
}

/* What each command asks first: device alive, range inside; and the place of its event. */
static enum status begin(struct device *d, cl_event **event, struct err *e)
{
    enum status status = device__usable(d, e);
    if (status == ST_OK)
        status = prof__slot(d, event, e);
    return status;
}

enum status queue_write(struct device *d, enum queue_id q, struct buffer *dst, uint64_t offset,
                        const void *src, uint64_t n, const char *tag, struct err *e)
{
    enum status status = buffer__check_write(dst, offset, n, e);
    if (status != ST_OK || n == 0)
        return status;
    if (d->host) {
        uint64_t start = clock_now_ns();
        memcpy((char *)dst->memory + offset, src, (size_t)n);
        add_host_row(d, q, tag, start, n);
        return ST_OK;
    }
    cl_event *event;
    status = begin(d, &event, e);
    if (status != ST_OK)
        return status;
    cl_int code = clEnqueueWriteBuffer(d->queues[q].cl, dst->cl, CL_FALSE, (size_t)offset,
                                       (size_t)n, src, 0, NULL, event);
    return finish_enqueue(d, q, code, "clEnqueueWriteBuffer", tag, n, e);
}

enum status queue_read(struct device *d, enum queue_id q, struct buffer *src, uint64_t offset,
                       void *dst, uint64_t n, const char *tag, struct err *e)
{
    enum status status = buffer__check_read(src, offset, n, e);
    if (status != ST_OK || n == 0)
        return status;
    if (d->host) {
        uint64_t start = clock_now_ns();
        memcpy(dst, (const char *)src->memory + offset, (size_t)n);
        add_host_row(d, q, tag, start, n);
        return ST_OK;
    }
    cl_event *event;
    status = begin(d, &event, e);
    if (status != ST_OK)
        return status;
    cl_int code = clEnqueueReadBuffer(d->queues[q].cl, src->cl, CL_FALSE, (size_t)offset, (size_t)n,
                                      dst, 0, NULL, event);
    return finish_enqueue(d, q, code, "clEnqueueReadBuffer", tag, n, e);
}

enum status queue_copy(struct device *d, enum queue_id q, struct buffer *src, uint64_t src_offset,
                       struct buffer *dst, uint64_t dst_offset, uint64_t n, const char *tag,
                       struct err *e)
{
    enum status status = buffer__check_read(src, src_offset, n, e);
    if (status == ST_OK)
        status = buffer__check_write(dst, dst_offset, n, e);
    if (status != ST_OK || n == 0)
        return status;
    uint64_t gap = src_offset > dst_offset ? src_offset - dst_offset : dst_offset - src_offset;
    if (src == dst && gap < n)
        return err_set(e, ST_INVALID, "buffer %s: copy of %llu bytes overlaps itself", src->label,
                       (unsigned long long)n);
    if (d->host) {
        uint64_t start = clock_now_ns();
        memcpy((char *)dst->memory + dst_offset, (const char *)src->memory + src_offset, (size_t)n);
        add_host_row(d, q, tag, start, 2 * n);
        return ST_OK;
    }
    cl_event *event;
    status = begin(d, &event, e);
    if (status != ST_OK)
        return status;
    cl_int code = clEnqueueCopyBuffer(d->queues[q].cl, src->cl, dst->cl, (size_t)src_offset,
                                      (size_t)dst_offset, (size_t)n, 0, NULL, event);
    return finish_enqueue(d, q, code, "clEnqueueCopyBuffer", tag, 2 * n, e);
}

/* A fill command of the driver. Its pattern is as wide as offset and length allow. */
static enum status fill_by_driver(struct device *d, enum queue_id q, struct buffer *dst,
                                  uint64_t offset, uint64_t n, uint8_t byte, const char *tag,
                                  struct err *e)
{
    unsigned char word[FILL_WORD_BYTES];
    memset(word, byte, sizeof word);
    size_t width = (offset | n) % FILL_WORD_BYTES == 0 ? FILL_WORD_BYTES : 1;
    cl_event *event;
    enum status status = begin(d, &event, e);
    if (status != ST_OK)
        return status;
    cl_int code = clEnqueueFillBuffer(d->queues[q].cl, dst->cl, word, width, (size_t)offset,
                                      (size_t)n, 0, NULL, event);
    return finish_enqueue(d, q, code, "clEnqueueFillBuffer", tag, n, e);
}

/* Whole words by a kernel of ours: some GPU drivers' fill goes wrong on large buffers. */
static enum status fill_by_kernel(struct device *d, enum queue_id q, struct buffer *dst,
                                  uint64_t offset, uint64_t n, uint8_t byte, const char *tag,
                                  struct err *e)
{
    enum status status = ST_OK;
    if (d->fill_kernel == NULL)
        status = kernel_open(d, "memory/fill.cl", "", "fill_words", &d->fill_kernel, e);
    if (status != ST_OK)
        return status;
    cl_ulong first = offset / FILL_WORD_BYTES, n_words = n / FILL_WORD_BYTES;
    cl_uint value = byte * 0x01010101u;
    size_t group = kernel_max_work_group(d->fill_kernel);
    if (group > FILL_GROUP)
        group = FILL_GROUP;
    uint64_t n_groups = (n_words + group - 1) / group;
    if (n_groups > FILL_MAX_GROUPS)
        n_groups = FILL_MAX_GROUPS;
    status = kernel_set_buffer(d->fill_kernel, 0, dst, e);
    if (status == ST_OK)
        status = kernel_set_bytes(d->fill_kernel, 1, &first, sizeof first, e);
    if (status == ST_OK)
        status = kernel_set_bytes(d->fill_kernel, 2, &value, sizeof value, e);
    if (status == ST_OK)
        status = kernel_set_bytes(d->fill_kernel, 3, &n_words, sizeof n_words, e);
    if (status == ST_OK)
        status = kernel__launch_on(d->fill_kernel, q, (const size_t[]){n_groups * group, 1, 1},
                                   (const size_t[]){group, 1, 1}, tag, "", n, 0, e);
    return status;
}

enum status queue_fill(struct device *d, enum queue_id q, struct buffer *dst, uint64_t offset,
                       uint64_t n, uint8_t byte, const char *tag, struct err *e)
{
    enum status status = buffer__check_write(dst, offset, n, e);
    if (status != ST_OK || n == 0)
        return status;
    if (d->host) {
        uint64_t start = clock_now_ns();
        memset((char *)dst->memory + offset, byte, (size_t)n);
        add_host_row(d, q, tag, start, n);
        return ST_OK;
    }
    uint64_t head = (FILL_WORD_BYTES - offset % FILL_WORD_BYTES) % FILL_WORD_BYTES;
    head = n < head ? n : head;
    uint64_t tail = (n - head) % FILL_WORD_BYTES, body = n - head - tail;
    if (head > 0)
        status = fill_by_driver(d, q, dst, offset, head, byte, tag, e);
    if (status == ST_OK && body > 0)
        status = d->info.kind == DEVICE_CPU
                     ? fill_by_driver(d, q, dst, offset + head, body, byte, tag, e)
                     : fill_by_kernel(d, q, dst, offset + head, body, byte, tag, e);
    if (status == ST_OK && tail > 0)
        status = fill_by_driver(d, q, dst, offset + n - tail, tail, byte, tag, e);
    return status;
}

enum status queue_touch(struct device *d, enum queue_id q, struct buffer *b, struct err *e)
{
    const uint64_t n = b->n_bytes < FILL_WORD_BYTES ? b->n_bytes : FILL_WORD_BYTES;
    return queue_fill(d, q, b, 0, n, 0, "touch", e);
}

enum status queue_order(struct device *d, enum queue_id before, enum queue_id after, struct err *e)
{
    if (d->host || before == after)
        return ST_OK;
    enum status status = device__usable(d, e);
    struct queue *first = &d->queues[before], *second = &d->queues[after];
    if (status != ST_OK || first->enqueued == first->waited || first->enqueued == second->ordered)
        return status;
    cl_event done = NULL;
    cl_int code = clEnqueueMarkerWithWaitList(first->cl, 0, NULL, &done);
    if (code != CL_SUCCESS)
        return cl_check(d, code, "clEnqueueMarkerWithWaitList", "", e);
    code = clFlush(first->cl);
    if (code == CL_SUCCESS)
        code = clEnqueueBarrierWithWaitList(second->cl, 1, &done, NULL);
    clReleaseEvent(done);
    if (code != CL_SUCCESS)
        return cl_check(d, code, "clEnqueueBarrierWithWaitList", "", e);
    second->ordered = first->enqueued;
    second->enqueued++;
    return ST_OK;
}

enum status queue_mark(struct device *d, enum queue_id q, struct queue_mark *m, struct err *e)
{
    queue_unmark(m);
    if (d->host)
        return ST_OK;
    enum status status = device__usable(d, e);
    if (status != ST_OK)
        return status;
    cl_event end = NULL;
    cl_int code = clEnqueueMarkerWithWaitList(d->queues[q].cl, 0, NULL, &end);
    if (code != CL_SUCCESS)
        return cl_check(d, code, "clEnqueueMarkerWithWaitList", "", e);
    *m = (struct queue_mark){end, d->pair};
    return cl_check(d, clFlush(d->queues[q].cl), "clFlush", "", e);
}

enum status queue_follow(struct device *d, enum queue_id q, const struct queue_mark *m,
                         struct err *e)
{
    if (m->event == NULL || m->pair != d->pair)
        return ST_OK;
    enum status status = device__usable(d, e);
    if (status != ST_OK)
        return status;
    const cl_event end = m->event;
    cl_int code = clEnqueueBarrierWithWaitList(d->queues[q].cl, 1, &end, NULL);
    if (code != CL_SUCCESS)
        return cl_check(d, code, "clEnqueueBarrierWithWaitList", "", e);
    d->queues[q].enqueued++;
    return ST_OK;
}

void queue_unmark(struct queue_mark *m)
{
    if (m->event != NULL)
        clReleaseEvent(m->event);
    *m = (struct queue_mark){0};
}

enum status queue_flush(struct device *d, enum queue_id q, struct err *e)
{
    if (d->host)
        return ST_OK;
    enum status status = device__usable(d, e);
    return status != ST_OK ? status : cl_check(d, clFlush(d->queues[q].cl), "clFlush", "", e);
}

static void sleep_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

/* Polls an event: first after most of what the last wait took, then in steps that grow. */
static cl_int poll_steps(struct device *d, uint64_t *last_wait_ns, cl_event done)
{
    uint64_t start = clock_now_ns();
    uint64_t pause = *last_wait_ns - *last_wait_ns / 16;
    for (;;) {
        cl_int state = CL_QUEUED;
        cl_int code =
            clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
        if (code != CL_SUCCESS || state < 0)
            return code != CL_SUCCESS ? code : state;
        uint64_t waited = clock_now_ns() - start;
        if (state == CL_COMPLETE) {
            *last_wait_ns = waited;
            return CL_SUCCESS;
        }
        if (waited > WAIT_LIMIT_NS) {
            d->hangs = true;
            return CL_DEVICE_NOT_AVAILABLE;
        }
        if (waited < SPIN_NS && *last_wait_ns < SPIN_NS)
            continue;
        sleep_ns(pause < POLL_MIN_NS ? POLL_MIN_NS : pause);
        pause = (clock_now_ns() - start) / 64;
        if (pause > POLL_MAX_NS)
            pause = POLL_MAX_NS;
    }
}

/* The same with sleeps that end when they should: Linux ends those of most threads 50 us late. */
static cl_int poll_event(struct device *d, uint64_t *last_wait_ns, cl_event done)
{
#ifdef __linux__
    const int slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    if (slack_ns > 0)
        (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    const cl_int code = poll_steps(d, last_wait_ns, done);
    if (slack_ns > 0)
        (void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns, 0, 0, 0);
    return code;
#else
    return poll_steps(d, last_wait_ns, done);
#endif
}

cl_int queue__wait_event(struct device *d, cl_event done)
{
    uint64_t last_wait_ns = 0; /* what comes next may be much shorter than what came last */
    return d->info.kind != DEVICE_CPU ? poll_event(d, &last_wait_ns, done)
                                      : clWaitForEvents(1, &done);
}

/* Waits for a marker at the end of the queue. Not clFinish: GPU drivers keep a core busy in it,
 * and one CPU driver's returns early when everything was flushed before. It is the way out where no
 * marker can be had: memory that commands still use must not be given up. */
static cl_int wait_marker(struct device *d, struct queue *queue)
{
    cl_event done = NULL;
    cl_int code = clEnqueueMarkerWithWaitList(queue->cl, 0, NULL, &done);
    cl_int flushed = code == CL_SUCCESS ? clFlush(queue->cl) : code;
    if (flushed == CL_SUCCESS)
        code = d->info.kind != DEVICE_CPU ? poll_event(d, &queue->last_wait_ns, done)
                                          : clWaitForEvents(1, &done);
    else
        code = clFinish(queue->cl);
    if (done != NULL)
        clReleaseEvent(done);
    return code;
}

/* Lost or not, commands may still use memory that is given up next; only one that hangs is not
 * waited for. */
static void settle(struct device *d, struct queue *queue)
{
    if (queue->cl != NULL && !d->hangs && queue->enqueued != queue->waited)
        clFinish(queue->cl);
    queue->waited = queue->enqueued;
}

enum status queue_wait(struct device *d, enum queue_id q, struct err *e)
{
    if (d->host)
        return ST_OK;
    struct queue *queue = &d->queues[q];
    enum status status = device__usable(d, e);
    if (status != ST_OK) {
        settle(d, queue);
        return status;
    }
    if (queue->enqueued == queue->waited)
        return ST_OK;
    cl_int code = wait_marker(d, queue);
    if (code == CL_SUCCESS) {
        queue->waited = queue->enqueued;
        return ST_OK;
    }
    /* Whatever ran has failed: nothing in this context can be relied on any more. */
    d->lost = true;
    settle(d, queue);
    return err_set(e, ST_DEVICE_LOST, "%s: what ran on the device failed: %s (%d)", d->info.name,
                   cl_error_name(code), code);
}

/* ---- whether the device works ---- */

static enum status check_answer(struct device *d, struct buffer *b, struct err *e)
{
    memset(d->check, 0, sizeof d->check);
    enum status status =
        fill_by_kernel(d, QUEUE_COMPUTE, b, 0, sizeof d->check, CHECK_BYTE, "check", e);
    if (status == ST_OK)
        status = queue_read(d, QUEUE_COMPUTE, b, 0, d->check, sizeof d->check, "check", e);
    enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? e : NULL);
    if (status == ST_OK)
        status = waited;
    for (size_t i = 0; i < sizeof d->check && status == ST_OK; i++)
        if (d->check[i] != CHECK_BYTE)
            status = err_set(e, ST_DEVICE, "%s: a kernel wrote %u, expected %u", d->info.name,
                             d->check[i], CHECK_BYTE);
    return status;
}

enum status device_check(struct device *d, struct err *e)
{
    struct err why;
    struct buffer *b = NULL;
    if (d->host)
        return ST_OK;
    enum status status = buffer_open(d, sizeof d->check, BUFFER_IO, "check", &b, &why);
    if (status == ST_OK)
        status = check_answer(d, b, &why);
    buffer_close(b);
    if (status == ST_OK)
        return ST_OK;
    if (status == ST_NO_MEMORY || status == ST_NO_DEVICE_MEMORY) {
        if (e != NULL)
            *e = why;
        return status;
    }
    d->lost = true;
    return err_set(e, ST_DEVICE_LOST, "%s", why.text);
}
