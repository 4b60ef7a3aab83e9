/* Output text of one sequence: pieces in, safe UTF-8 out.
 *
 * Holds back incomplete UTF-8 and the longest suffix that could begin a stop string; cuts before a
 * stop string wherever token boundaries fall; a stop string is never given out. The stop string
 * that is completed first counts, of those completed together the longest. Bytes that can never
 * become well-formed UTF-8 come out as U+FFFD, one for each longest beginning of a character
 * (Unicode standard, section 3.9). Joined output does not depend on how it was chunked. Belongs to
 * one sequence and one thread.
 */
#ifndef OINFER_TEXT_STOP_H
#define OINFER_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/strbuf.h"

#define STOP_MAX_STRINGS 16
#define STOP_MAX_BYTES   4096 /* of one stop string */

struct stop_filter;
/* strings: copied; each 1..STOP_MAX_BYTES bytes of well-formed UTF-8, else ST_INVALID. */
enum status stop_filter_open(const char *const *strings, const size_t *lengths, uint32_t n,
                             struct stop_filter **out, struct err *e);
void stop_filter_close(struct stop_filter *f);
/* Feeds bytes and appends what is safe to `out`. *hit: a stop string was completed, now or before
 * (nothing more will come out; later feeds are ignored). ST_NO_MEMORY when out cannot grow. */
enum status stop_filter_feed(struct stop_filter *f, const char *bytes, size_t n, struct strbuf *out,
                             bool *hit, struct err *e);
/* End of generation: what was held back comes out (incomplete UTF-8 as U+FFFD). */
enum status stop_filter_flush(struct stop_filter *f, struct strbuf *out, struct err *e);
/* Bytes held back now. */
size_t stop_filter_held(const struct stop_filter *f);
/* Characters taken so far, U+FFFDs among them, whether held back or given out; not the beginning of
 * one. */
uint32_t stop_filter_characters(const struct stop_filter *f);

#endif
