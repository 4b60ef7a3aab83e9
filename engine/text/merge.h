/* Pair merging: the loop that SPM and BPE share.
 *
 * A text is cut into symbols; the adjacent pair of the lowest rank (the leftmost of equals) is
 * merged until no pair has a rank. A priority queue of candidate pairs and a linked list of
 * symbols make it O(n log n); stale candidates are recognised by their length. A merge_work is
 * scratch of one encode call, reused for all its words; one thread.
 */
#ifndef OINFER_TEXT_MERGE_H
#define OINFER_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERGE_NO_RANK UINT32_MAX

struct merge_symbol {
    uint32_t start, length; /* bytes of the text; length 0: merged into a symbol on its left */
    int32_t previous, next; /* -1: none */
};

struct merge_candidate {
    uint64_t order;  /* rank << 32 | index of the left symbol */
    uint32_t right;  /* index of the right symbol */
    uint32_t length; /* of both together when it was queued */
};

struct merge_work {
    struct merge_symbol *symbols;
    uint32_t n_symbols, symbol_capacity;
    struct merge_candidate *heap; /* min-heap on order */
    uint32_t n_heap, heap_capacity;
};

/* Rank of joining text[0..left) and text[left..length): lower first, MERGE_NO_RANK for never. */
typedef uint32_t merge_rank_fn(const void *context, const char *text, uint32_t left,
                               uint32_t length);

void merge_work_free(struct merge_work *work);
/* Starts a new text. */
void merge_begin(struct merge_work *work);
/* Appends the next symbol of the text; false when out of memory. */
bool merge_push(struct merge_work *work, uint32_t start, uint32_t length);
/* Merges. Afterwards the symbols of the result are symbols[0] and its chain of `next`.
 * False when out of memory. */
bool merge_run(struct merge_work *work, const char *text, merge_rank_fn *rank, const void *context);

#endif
