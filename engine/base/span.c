/* The bounded reader. No state beyond the span itself. */
#include "engine/base/span.h"

#include <string.h>

struct span span_make(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    return (struct span){.at = p, .end = n > 0 ? p + n : p, .start = p, .failed = false};
}

size_t span_left(const struct span *s)
{
    return (size_t)(s->end - s->at);
}

size_t span_offset(const struct span *s)
{
    return (size_t)(s->at - s->start);
}

const void *span_take(struct span *s, uint64_t n)
{
    if (s->failed || n > span_left(s)) {
        s->failed = true;
        return NULL;
    }
    const void *p = s->at;
    if (n > 0)
        s->at += n;
    return p;
}

/* Reads an unsigned little-endian number of n <= 8 bytes. */
static uint64_t take_number(struct span *s, size_t n)
{
    const unsigned char *p = span_take(s, n);
    uint64_t value = 0;
    if (p != NULL)
        for (size_t i = 0; i < n; i++)
            value |= (uint64_t)p[i] << (8 * i);
    return value;
}

uint8_t span_u8(struct span *s)
{
    return (uint8_t)take_number(s, 1);
}

uint16_t span_u16(struct span *s)
{
    return (uint16_t)take_number(s, 2);
}

uint32_t span_u32(struct span *s)
{
    return (uint32_t)take_number(s, 4);
}

uint64_t span_u64(struct span *s)
{
    return take_number(s, 8);
}

float span_f32(struct span *s)
{
    uint32_t bits = span_u32(s);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double span_f64(struct span *s)
{
    uint64_t bits = span_u64(s);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
