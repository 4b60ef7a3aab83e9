/* The one bounded reader of untrusted bytes: a cursor that can only fail, never overrun.
 *
 * Little-endian. The first failing read sets `failed`; all later reads give zeros and keep it set,
 * so a parser may read a group of fields and check once. A span borrows its bytes.
 */
#ifndef OINFER_BASE_SPAN_H
#define OINFER_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
    const unsigned char *at, *end;
    const unsigned char *start;
    bool failed;
};

struct span span_make(const void *bytes, size_t n);
size_t span_left(const struct span *s);   /* bytes not yet read */
size_t span_offset(const struct span *s); /* bytes read so far */
/* Borrowed pointer to the next n bytes, or NULL (and failed) when fewer are left. */
const void *span_take(struct span *s, uint64_t n);
uint8_t span_u8(struct span *s);
uint16_t span_u16(struct span *s);
uint32_t span_u32(struct span *s);
uint64_t span_u64(struct span *s);
float span_f32(struct span *s);
double span_f64(struct span *s);

#endif
