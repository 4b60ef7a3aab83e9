/* UTF-8 by table 3-7 of the Unicode standard: the second byte's range depends on the first. */
#include "engine/text/utf8.h"

#include <string.h>

int utf8_decode(const char *text, size_t n, uint32_t *cp)
{
    if (n == 0)
        return -1;
    unsigned char first = (unsigned char)text[0];
    if (first < 0x80) {
        if (cp != NULL)
            *cp = first;
        return 1;
    }
    if (first < 0xC2 || first > 0xF4)
        return 0;
    int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    uint32_t value = first & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n)
            return -1;
        unsigned char byte = (unsigned char)text[i];
        if (byte < low || byte > high)
            return 0;
        low = 0x80;
        high = 0xBF;
        value = value << 6 | (byte & 0x3Fu);
    }
    if (cp != NULL)
        *cp = value;
    return length;
}

size_t utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80u | (cp & 0x3Fu));
        cp >>= 6;
    }
    out[0] = (char)((0xF00u >> length & 0xF0u) | cp);
    return length;
}

size_t utf8_repair(const char *text, size_t n, char *out)
{
    size_t written = 0;
    for (size_t at = 0; at < n;) {
        int length = utf8_decode(text + at, n - at, NULL);
        if (length > 0) {
            memcpy(out + written, text + at, (size_t)length);
            written += (size_t)length;
            at += (size_t)length;
        } else {
            written += utf8_encode(UTF8_REPLACEMENT, out + written);
            at++;
        }
    }
    return written;
}

size_t utf8_announced_length(char first)
{
    unsigned char byte = (unsigned char)first;
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
