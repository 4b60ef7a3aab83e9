/* A growing byte string with a ceiling. Always NUL-terminated; may hold NULs (length counts).
 *
 * Once an append would pass the ceiling or memory runs out, `failed` is set and stays; the content
 * stays as it was before the failing append. One owner at a time.
 */
#ifndef OINFER_BASE_STRBUF_H
#define OINFER_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

struct strbuf {
    char *data; /* NULL until the first append; use strbuf_text */
    size_t length, capacity, ceiling;
    bool failed;
};

void strbuf_init(struct strbuf *s, size_t ceiling_bytes);
void strbuf_free(struct strbuf *s); /* keeps the ceiling; usable again */
void strbuf_clear(struct strbuf *s);
const char *strbuf_text(const struct strbuf *s); /* never NULL; borrowed until the next change */
bool strbuf_append(struct strbuf *s, const void *bytes, size_t n);
bool strbuf_puts(struct strbuf *s, const char *text);
bool strbuf_putc(struct strbuf *s, char c);
bool strbuf_printf(struct strbuf *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Removes the first n bytes. */
void strbuf_consume(struct strbuf *s, size_t n);
/* Shortens to n bytes (n <= length). */
void strbuf_truncate(struct strbuf *s, size_t n);
/* Hands the block to the caller (mem_free) and leaves s empty; NULL when out of memory. */
char *strbuf_take(struct strbuf *s);

#endif
