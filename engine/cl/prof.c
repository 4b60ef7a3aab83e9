/* Timings: event slots filled by every enqueue, drained into rows, busy times and overlap.
 *
 * Invariant: a held event is released when it is read, at the latest when PROF_EVENTS are held;
 * drivers slow down, and memory grows, with events that live on.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cl/impl.h"

#define DIVIDE_SLOTS 16 /* commands between two launches that are divided */

static int compare_intervals(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

/* Sorts and joins overlapping intervals in place; returns how many are left. */
static uint32_t unite(struct interval *list, uint32_t n)
{
    if (n == 0)
        return 0;
    qsort(list, n, sizeof *list, compare_intervals);
    uint32_t last = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (list[i].start_ns > list[last].end_ns)
            list[++last] = list[i];
        else if (list[i].end_ns > list[last].end_ns)
            list[last].end_ns = list[i].end_ns;
    }
    return last + 1;
}

static uint64_t total_ns(const struct interval *list, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += list[i].end_ns - list[i].start_ns;
    return sum;
}

/* Time that two united lists share. */
static uint64_t shared_ns(const struct interval *a, uint32_t n_a, const struct interval *b,
                          uint32_t n_b)
{
    uint64_t sum = 0;
    for (uint32_t i = 0, j = 0; i < n_a && j < n_b;) {
        uint64_t start = a[i].start_ns > b[j].start_ns ? a[i].start_ns : b[j].start_ns;
        uint64_t end = a[i].end_ns < b[j].end_ns ? a[i].end_ns : b[j].end_ns;
        if (end > start)
            sum += end - start;
        if (a[i].end_ns < b[j].end_ns)
            i++;
        else
            j++;
    }
    return sum;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || strcmp(a, b) == 0;
}

static struct prof_row *find_row(struct prof_report *report, const char *name, const char *variant)
{
    for (uint32_t i = 0; i < report->n_rows; i++)
        if (same_text(report->rows[i].name, name) && same_text(report->rows[i].variant, variant))
            return &report->rows[i];
    return NULL;
}

/* Adds a row. The last place is kept for "other", which takes the names that no longer fit. */
static void add_row(struct prof_report *report, const struct prof_row *row)
{
    struct prof_row added = *row;
    struct prof_row *to = find_row(report, row->name, row->variant);
    if (to == NULL && report->n_rows >= PROF_MAX_ROWS - 1) {
        added.name = "other";
        added.variant = "";
        to = find_row(report, added.name, added.variant);
    }
    if (to == NULL) {
        report->rows[report->n_rows++] = added;
        return;
    }
    to->calls += row->calls;
    to->total_ns += row->total_ns;
    to->min_ns = row->min_ns < to->min_ns ? row->min_ns : to->min_ns;
    to->max_ns = row->max_ns > to->max_ns ? row->max_ns : to->max_ns;
    to->bytes += row->bytes;
    to->flops += row->flops;
}

/* Descending total, "other" behind all. */
static int compare_rows(const void *a, const void *b)
{
    const struct prof_row *x = a, *y = b;
    bool x_other = same_text(x->name, "other"), y_other = same_text(y->name, "other");
    if (x_other != y_other)
        return x_other ? 1 : -1;
    return x->total_ns > y->total_ns ? -1 : x->total_ns < y->total_ns;
}

static void sort_rows(struct prof_report *report)
{
    if (report->n_rows > 1)
        qsort(report->rows, report->n_rows, sizeof report->rows[0], compare_rows);
}

void prof_merge(struct prof_report *into, const struct prof_report *from)
{
    for (uint32_t i = 0; i < from->n_rows; i++)
        add_row(into, &from->rows[i]);
    into->compute_busy_ns += from->compute_busy_ns;
    into->transfer_busy_ns += from->transfer_busy_ns;
    into->overlap_ns += from->overlap_ns;
    into->launches += from->launches;
    sort_rows(into);
}

/* Start and end of a command. The queues are in order, so a command cannot have begun before the
 * one ahead of it ended (*last_end_ns), whatever the driver's timestamps say. */
static cl_int read_times(struct prof_slot *slot, uint64_t *last_end_ns)
{
    cl_ulong start = 0, end = 0;
    cl_int code = clGetEventProfilingInfo(slot->event, CL_PROFILING_COMMAND_START, sizeof start,
                                          &start, NULL);
    if (code == CL_SUCCESS)
        code =
            clGetEventProfilingInfo(slot->event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    slot->start_ns = start < *last_end_ns ? *last_end_ns : start;
    slot->end_ns = end < slot->start_ns ? slot->start_ns : end;
    if (code == CL_SUCCESS)
        *last_end_ns = slot->end_ns;
    return code;
}

/* Adds the rows of a slot: of its parts, which get no more than its time, and of what they leave.
 */
static void add_slot_rows(struct prof *p, const struct prof_slot *slot)
{
    const struct prof_row *parts = p->parts + slot->first_part;
    uint64_t ns = slot->end_ns - slot->start_ns, bytes = slot->bytes, sum = 0;
    for (uint32_t i = 0; i < slot->n_parts; i++)
        sum += parts[i].total_ns;
    const double scale = sum > ns ? (double)ns / (double)sum : 1.0;
    for (uint32_t i = 0; i < slot->n_parts; i++) {
        struct prof_row part = parts[i];
        part.total_ns = (uint64_t)((double)part.total_ns * scale);
        part.min_ns = (uint64_t)((double)part.min_ns * scale);
        part.max_ns = (uint64_t)((double)part.max_ns * scale);
        ns -= part.total_ns < ns ? part.total_ns : ns;
        bytes -= part.bytes < bytes ? part.bytes : bytes;
        add_row(&p->pending, &part);
    }
    const struct prof_row row = {slot->name, slot->variant, 1, ns, ns, ns, bytes, slot->flops};
    add_row(&p->pending, &row);
}

/* Adds the busy times of both queues and what they share to the pending report. */
static void add_busy(struct prof *p, struct interval lists[QUEUE_COUNT][PROF_EVENTS],
                     const uint32_t counts[QUEUE_COUNT])
{
    uint32_t n_compute = unite(lists[QUEUE_COMPUTE], counts[QUEUE_COMPUTE]);
    uint32_t n_transfer = unite(lists[QUEUE_TRANSFER], counts[QUEUE_TRANSFER]);
    p->pending.compute_busy_ns += total_ns(lists[QUEUE_COMPUTE], n_compute);
    p->pending.transfer_busy_ns += total_ns(lists[QUEUE_TRANSFER], n_transfer);
    p->pending.overlap_ns +=
        shared_ns(lists[QUEUE_COMPUTE], n_compute, lists[QUEUE_TRANSFER], n_transfer);
}

/* Turns the n oldest slots, whose commands have ended, into rows of the pending report and releases
 * them. */
static enum status read_slots(struct device *d, uint32_t n, struct err *e)
{
    struct prof *p = &d->prof;
    enum status status = ST_OK;
    struct interval(*lists)[PROF_EVENTS] = p->intervals;
    uint32_t counts[QUEUE_COUNT] = {0, 0};
    for (uint32_t i = 0; i < n; i++) {
        struct prof_slot *slot = &p->slots[i];
        cl_int code =
            slot->event != NULL ? read_times(slot, &p->last_end_ns[slot->queue]) : CL_SUCCESS;
        if (slot->event != NULL)
            clReleaseEvent(slot->event);
        if (code != CL_SUCCESS && status == ST_OK)
            status = cl_check(d, code, "clGetEventProfilingInfo", slot->name, e);
        if (code != CL_SUCCESS)
            continue;
        add_slot_rows(p, slot);
        p->pending.launches += slot->launch;
        lists[slot->queue][counts[slot->queue]++] = (struct interval){slot->start_ns, slot->end_ns};
    }
    add_busy(p, lists, counts);
    p->n_slots -= n;
    memmove(p->slots, p->slots + n, p->n_slots * sizeof p->slots[0]);
    if (p->n_slots == 0)
        p->n_parts = 0;
    return status;
}

/* Waits for both queues and reads all slots. */
static enum status drain(struct device *d, struct err *e)
{
    struct prof *p = &d->prof;
    enum status status = queue_wait(d, QUEUE_TRANSFER, e);
    if (status == ST_OK)
        status = queue_wait(d, QUEUE_COMPUTE, e);
    if (status == ST_OK)
        status = read_slots(d, p->n_slots, e);
    else
        prof__discard(d);
    memset(p->last_end_ns, 0, sizeof p->last_end_ns);
    return status;
}

/* Have the n oldest commands ended? */
static bool have_ended(const struct prof *p, uint32_t n)
{
    cl_event last[QUEUE_COUNT] = {NULL, NULL};
    for (uint32_t i = 0; i < n; i++)
        if (p->slots[i].event != NULL)
            last[p->slots[i].queue] = p->slots[i].event;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        cl_int state = CL_QUEUED;
        if (last[q] != NULL && (clGetEventInfo(last[q], CL_EVENT_COMMAND_EXECUTION_STATUS,
                                               sizeof state, &state, NULL) != CL_SUCCESS ||
                                state != CL_COMPLETE))
            return false;
    }
    return true;
}

/* Where all slots are taken, reads the oldest ones, so that the queues keep what came later to do;
 * all of them when those have not ended. What the oldest share with later ones is not counted as
 * overlap.
 */
static enum status make_room(struct device *d, struct err *e)
{
    struct prof *p = &d->prof;
    if (p->n_slots < PROF_EVENTS)
        return ST_OK;
    return have_ended(p, PROF_BATCH) ? read_slots(d, PROF_BATCH, e) : drain(d, e);
}

enum status prof__slot(struct device *d, cl_event **out, struct err *e)
{
    struct prof *p = &d->prof;
    *out = NULL;
    if (!p->on)
        return ST_OK;
    enum status status = make_room(d, e);
    if (status == ST_OK) {
        p->slots[p->n_slots].event = NULL;
        *out = &p->slots[p->n_slots].event;
    }
    return status;
}

void prof__commit(struct device *d, const struct prof_slot *what)
{
    struct prof *p = &d->prof;
    if (!p->on)
        return;
    struct prof_slot *slot = &p->slots[p->n_slots++];
    cl_event event = slot->event;
    *slot = *what;
    slot->event = event;
}

void prof__discard(struct device *d)
{
    struct prof *p = &d->prof;
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].event != NULL)
            clReleaseEvent(p->slots[i].event);
    p->n_slots = p->n_parts = 0;
}

void prof__add(struct device *d, const struct prof_slot *what)
{
    struct prof *p = &d->prof;
    if (!p->on)
        return;
    if (make_room(d, NULL) != ST_OK)
        return; /* the device is lost: the next call says so */
    p->slots[p->n_slots++] = *what;
}

void prof_add(struct device *d, const char *name, const char *variant, uint64_t start_ns,
              uint64_t end_ns, uint64_t bytes, uint64_t flops)
{
    struct prof_slot slot = {.queue = QUEUE_COMPUTE,
                             .name = name,
                             .variant = variant,
                             .start_ns = start_ns,
                             .end_ns = end_ns < start_ns ? start_ns : end_ns,
                             .bytes = bytes,
                             .flops = flops,
                             .launch = true};
    prof__add(d, &slot);
}

void prof_divide(struct device *d, const struct prof_row *parts, uint32_t n)
{
    struct prof *p = &d->prof;
    if (!p->on || p->n_parts + n > PROF_PARTS)
        return;
    for (uint32_t i = p->n_slots; i-- > 0;) {
        if (!p->slots[i].launch)
            continue;
        p->slots[i].first_part = p->n_parts;
        p->slots[i].n_parts = n;
        memcpy(p->parts + p->n_parts, parts, n * sizeof *parts);
        p->n_parts += n;
        if (p->n_parts + n > PROF_PARTS || p->n_slots + DIVIDE_SLOTS > PROF_EVENTS)
            drain(d, NULL); /* now, so that the next launch is still held when it is divided */
        return;
    }
}

enum status prof_enable(struct device *d, bool on, struct err *e)
{
    struct prof *p = &d->prof;
    if (p->on == on)
        return ST_OK;
    enum status status = drain(d, e);
    memset(&p->pending, 0, sizeof p->pending);
    if (status != ST_OK)
        return status;
    p->on = on;
    if (d->host)
        return ST_OK;
    status = staging__settle(d, e);
    queue__close_pair(d);
    const enum status opened = queue__open_pair(d, status == ST_OK ? e : NULL);
    if (opened != ST_OK)
        d->lost = true; /* without queues there is no device */
    return status == ST_OK ? opened : status;
}

bool prof_enabled(const struct device *d)
{
    return d->prof.on;
}

enum status prof_collect(struct device *d, struct prof_report *report, struct err *e)
{
    struct prof *p = &d->prof;
    enum status status = drain(d, e);
    prof_merge(report, &p->pending);
    memset(&p->pending, 0, sizeof p->pending);
    return status;
}
