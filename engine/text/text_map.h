/* A hash map from texts (and a split position) to numbers: vocabularies and merge tables.
 *
 * Keys are borrowed: the owner of the map keeps their bytes alive. Sized once at open, filled by
 * one thread, then only read: any thread.
 */
#ifndef OINFER_TEXT_TEXT_MAP_H
#define OINFER_TEXT_TEXT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#define TEXT_MAP_NONE UINT32_MAX

struct text_slot {
    const char *text; /* NULL: free */
    uint32_t length, split, tag, value;
};

struct text_map {
    struct text_slot *slots; /* power of two, at most half full */
    uint32_t mask;
    uint32_t longest_bytes;
};

/* Room for n keys (n < 2^30); false when out of memory. */
bool text_map_open(struct text_map *map, uint32_t n);
void text_map_close(struct text_map *map);
/* Sets (text, split) -> value. An earlier value stays unless `replace`. */
void text_map_put(struct text_map *map, const char *text, uint32_t length, uint32_t split,
                  uint32_t value, bool replace);
/* TEXT_MAP_NONE when absent. */
uint32_t text_map_get(const struct text_map *map, const char *text, uint32_t length,
                      uint32_t split);

#endif
