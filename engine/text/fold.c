/* Folding by a table of ranges (fold.def) and, for Hangul, by the arithmetic of the Unicode
 * standard, section 3.12. */
#include "engine/text/fold.h"

#include <stdbool.h>
#include <stdint.h>

#include "engine/text/utf8.h"

#define MAX_FOLDED 3

struct fold_range {
    uint32_t first, last, step; /* first, first + step, ..., last */
    int32_t change;             /* added to the code point */
    bool vanishes;
};

/* Ascending; characters that become several are in pairs. */
static const struct fold_range ranges[] = {
#define FOLD(first, last, step, change) {first, last, step, change, false},
#define DROP(first, last, step)         {first, last, step, 0, true},
#define PAIR(cp, a, b)
#include "engine/text/fold.def"
#undef FOLD
#undef DROP
#undef PAIR
};

static const uint32_t pairs[][3] = {
#define FOLD(first, last, step, change)
#define DROP(first, last, step)
#define PAIR(cp, a, b) {cp, a, b},
#include "engine/text/fold.def"
#undef FOLD
#undef DROP
#undef PAIR
};

#define HANGUL_FIRST 0xAC00u
#define HANGUL_LAST  0xD7A3u
#define JAMO_LEAD    0x1100u
#define JAMO_VOWEL   0x1161u
#define JAMO_TRAIL   0x11A7u /* one before the first: index 0 is none */
#define TRAILS       28u
#define VOWEL_TRAILS (21u * TRAILS)

/* The range that may hold cp: the last whose first is not above it. NULL if there is none. */
static const struct fold_range *find_range(uint32_t cp)
{
    size_t low = 0, high = sizeof ranges / sizeof ranges[0];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].first <= cp)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &ranges[low - 1] : NULL;
}

static size_t fold_hangul(uint32_t cp, uint32_t *out)
{
    uint32_t index = cp - HANGUL_FIRST, trail = index % TRAILS;
    out[0] = JAMO_LEAD + index / VOWEL_TRAILS;
    out[1] = JAMO_VOWEL + index % VOWEL_TRAILS / TRAILS;
    out[2] = JAMO_TRAIL + trail;
    return trail > 0 ? 3 : 2;
}

/* What cp becomes: 0 to MAX_FOLDED code points. */
static size_t fold(uint32_t cp, uint32_t out[MAX_FOLDED])
{
    if (cp >= HANGUL_FIRST && cp <= HANGUL_LAST)
        return fold_hangul(cp, out);
    const struct fold_range *range = find_range(cp);
    if (range != NULL && cp <= range->last && (cp - range->first) % range->step == 0) {
        out[0] = (uint32_t)((int32_t)cp + range->change);
        return range->vanishes ? 0 : 1;
    }
    for (size_t i = 0; cp > 0x7F && i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i][0] != cp)
            continue;
        out[0] = pairs[i][1];
        out[1] = pairs[i][2];
        return 2;
    }
    out[0] = cp;
    return 1;
}

size_t fold_text(const char *text, size_t n, char *out)
{
    size_t written = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp, folded[MAX_FOLDED];
        int length = utf8_decode(text + at, n - at, &cp);
        if (length <= 0) {
            at++;
            continue;
        }
        size_t count = fold(cp, folded);
        for (size_t i = 0; i < count; i++)
            written += utf8_encode(folded[i], out + written);
        at += (size_t)length;
    }
    return written;
}
