/* The merge loop and its binary heap. Each merge takes one candidate away and adds at most two, so
 * twice the number of symbols bounds the heap, which is why it is sized before the loop. */
#include "engine/text/merge.h"

#include "engine/base/mem.h"

void merge_work_free(struct merge_work *work)
{
    mem_free(work->symbols);
    mem_free(work->heap);
    *work = (struct merge_work){0};
}

void merge_begin(struct merge_work *work)
{
    work->n_symbols = 0;
    work->n_heap = 0;
}

bool merge_push(struct merge_work *work, uint32_t start, uint32_t length)
{
    if (work->n_symbols == work->symbol_capacity) {
        uint32_t capacity = work->symbol_capacity > 0 ? 2 * work->symbol_capacity : 64;
        void *grown = mem_array_resize(work->symbols, capacity, sizeof *work->symbols);
        if (grown == NULL)
            return false;
        work->symbols = grown;
        work->symbol_capacity = capacity;
    }
    int32_t index = (int32_t)work->n_symbols++;
    work->symbols[index] =
        (struct merge_symbol){.start = start, .length = length, .previous = index - 1, .next = -1};
    if (index > 0)
        work->symbols[index - 1].next = index;
    return true;
}

static void heap_add(struct merge_work *work, struct merge_candidate item)
{
    uint32_t at = work->n_heap++;
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;
        if (work->heap[parent].order <= item.order)
            break;
        work->heap[at] = work->heap[parent];
        at = parent;
    }
    work->heap[at] = item;
}

static struct merge_candidate heap_take(struct merge_work *work)
{
    struct merge_candidate top = work->heap[0];
    struct merge_candidate last = work->heap[--work->n_heap];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= work->n_heap)
            break;
        if (child + 1 < work->n_heap && work->heap[child + 1].order < work->heap[child].order)
            child++;
        if (last.order <= work->heap[child].order)
            break;
        work->heap[at] = work->heap[child];
        at = child;
    }
    if (work->n_heap > 0)
        work->heap[at] = last;
    return top;
}

static void consider(struct merge_work *work, const char *text, int32_t left, int32_t right,
                     merge_rank_fn *rank, const void *context)
{
    if (left < 0 || right < 0)
        return;
    const struct merge_symbol *a = &work->symbols[left];
    uint32_t length = a->length + work->symbols[right].length;
    uint32_t r = rank(context, text + a->start, a->length, length);
    if (r != MERGE_NO_RANK)
        heap_add(work, (struct merge_candidate){.order = (uint64_t)r << 32 | (uint32_t)left,
                                                .right = (uint32_t)right,
                                                .length = length});
}

bool merge_run(struct merge_work *work, const char *text, merge_rank_fn *rank, const void *context)
{
    if (work->heap_capacity < 2 * work->n_symbols) {
        uint32_t capacity = 2 * work->symbol_capacity;
        void *grown = mem_array_resize(work->heap, capacity, sizeof *work->heap);
        if (grown == NULL)
            return false;
        work->heap = grown;
        work->heap_capacity = capacity;
    }
    for (int32_t i = 1; i < (int32_t)work->n_symbols; i++)
        consider(work, text, i - 1, i, rank, context);
    while (work->n_heap > 0) {
        struct merge_candidate top = heap_take(work);
        int32_t at = (int32_t)(uint32_t)top.order;
        struct merge_symbol *left = &work->symbols[at];
        struct merge_symbol *right = &work->symbols[top.right];
        if (left->length == 0 || right->length == 0 || left->length + right->length != top.length)
            continue;
        left->length += right->length;
        right->length = 0;
        left->next = right->next;
        if (right->next >= 0)
            work->symbols[right->next].previous = at;
        consider(work, text, left->previous, at, rank, context);
        consider(work, text, at, left->next, rank, context);
    }
    return true;
}
