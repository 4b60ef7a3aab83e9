/* Open addressing with linear probing; 32 bits of the hash are kept to skip most comparisons. */
#include "engine/text/text_map.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/base/err.h"
#include "engine/base/mem.h"

bool text_map_open(struct text_map *map, uint32_t n)
{
    ASSERT(n < 1u << 30);
    uint32_t count = 16;
    while (count < 2 * n)
        count *= 2;
    map->slots = mem_array(count, sizeof *map->slots);
    map->mask = count - 1;
    map->longest_bytes = 0;
    return map->slots != NULL;
}

void text_map_close(struct text_map *map)
{
    mem_free(map->slots);
    map->slots = NULL;
}

/* The slot of the key, or the free one where it would go. */
static struct text_slot *find(const struct text_map *map, const char *text, uint32_t length,
                              uint32_t split, uint32_t *tag)
{
    uint64_t hash = XXH3_64bits_withSeed(text, length, split);
    *tag = (uint32_t)(hash >> 32);
    for (uint32_t i = (uint32_t)hash & map->mask;; i = (i + 1) & map->mask) {
        struct text_slot *slot = &map->slots[i];
        if (slot->text == NULL || (slot->tag == *tag && slot->length == length &&
                                   slot->split == split && memcmp(slot->text, text, length) == 0))
            return slot;
    }
}

void text_map_put(struct text_map *map, const char *text, uint32_t length, uint32_t split,
                  uint32_t value, bool replace)
{
    uint32_t tag;
    struct text_slot *slot = find(map, text, length, split, &tag);
    if (slot->text != NULL && !replace)
        return;
    *slot = (struct text_slot){
        .text = text, .length = length, .split = split, .tag = tag, .value = value};
    if (length > map->longest_bytes)
        map->longest_bytes = length;
}

uint32_t text_map_get(const struct text_map *map, const char *text, uint32_t length, uint32_t split)
{
    if (length > map->longest_bytes)
        return TEXT_MAP_NONE;
    uint32_t tag;
    const struct text_slot *slot = find(map, text, length, split, &tag);
    return slot->text != NULL ? slot->value : TEXT_MAP_NONE;
}
