/* Growing strings. Capacity doubles, never over the ceiling. */
#include "engine/base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/err.h"
#include "engine/base/mem.h"

void strbuf_init(struct strbuf *s, size_t ceiling_bytes)
{
    *s = (struct strbuf){.ceiling = ceiling_bytes};
}

void strbuf_free(struct strbuf *s)
{
    mem_free(s->data);
    strbuf_init(s, s->ceiling);
}

void strbuf_clear(struct strbuf *s)
{
    s->length = 0;
    s->failed = false;
    if (s->data != NULL)
        s->data[0] = '\0';
}

const char *strbuf_text(const struct strbuf *s)
{
    return s->data != NULL ? s->data : "";
}

/* Makes room for n more bytes and the NUL. */
static bool reserve(struct strbuf *s, size_t n)
{
    if (s->failed)
        return false;
    if (n > s->ceiling || s->length > s->ceiling - n) {
        s->failed = true;
        return false;
    }
    size_t need = s->length + n + 1;
    if (need <= s->capacity)
        return true;
    size_t capacity = s->capacity > 0 ? s->capacity : 64;
    while (capacity < need)
        capacity =
            capacity > s->ceiling / 2 ? need > s->ceiling ? need : s->ceiling + 1 : capacity * 2;
    char *data = mem_realloc(s->data, capacity);
    if (data == NULL) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->capacity = capacity;
    return true;
}

bool strbuf_append(struct strbuf *s, const void *bytes, size_t n)
{
    if (!reserve(s, n))
        return false;
    if (n > 0)
        memcpy(s->data + s->length, bytes, n);
    s->length += n;
    s->data[s->length] = '\0';
    return true;
}

bool strbuf_puts(struct strbuf *s, const char *text)
{
    return strbuf_append(s, text, strlen(text));
}

bool strbuf_putc(struct strbuf *s, char c)
{
    return strbuf_append(s, &c, 1);
}

bool strbuf_printf(struct strbuf *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(s, (size_t)n)) {
        s->failed = true;
        return false;
    }
    va_start(args, format);
    vsnprintf(s->data + s->length, (size_t)n + 1, format, args);
    va_end(args);
    s->length += (size_t)n;
    return true;
}

void strbuf_consume(struct strbuf *s, size_t n)
{
    ASSERT(n <= s->length);
    if (n == 0)
        return;
    memmove(s->data, s->data + n, s->length - n + 1);
    s->length -= n;
}

void strbuf_truncate(struct strbuf *s, size_t n)
{
    ASSERT(n <= s->length);
    s->length = n;
    if (s->data != NULL)
        s->data[n] = '\0';
}

char *strbuf_take(struct strbuf *s)
{
    if (!reserve(s, 0))
        return NULL;
    s->data[s->length] = '\0';
    char *data = s->data;
    s->data = NULL;
    strbuf_init(s, s->ceiling);
    return data;
}
