/* Pre-tokenisers: cut text into words by a list of regular expressions chosen by name.
 *
 * Each expression cuts every piece that the one before left; what it does not match stays a piece
 * of its own. Compiled once (PCRE2, JIT where allowed), immutable: any thread may split.
 */
#ifndef OINFER_TEXT_PRETOK_H
#define OINFER_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

struct pretok;
struct pretok_pieces { /* scratch and result; zero-initialise, free with pretok_pieces_free */
    uint32_t *ends;    /* piece i is [ends[i - 1], ends[i]), the first begins at 0 */
    uint32_t count, capacity;
    uint32_t *spare;
    uint32_t spare_capacity;
};

/* name NULL: "default". jit: machine code where the system allows it; without, the interpreter
 * matches, as it does where it does not. ST_UNSUPPORTED for a name not in pretok.def, ST_INTERNAL,
 * ST_NO_MEMORY. */
enum status pretok_open(const char *name, bool jit, struct pretok **out, struct err *e);
void pretok_close(struct pretok *p); /* accepts NULL */
/* What models with this pre-tokeniser do unless their file says otherwise. */
bool pretok_ignores_merges(const struct pretok *p);
bool pretok_adds_bos(const struct pretok *p);
/* text: n bytes of valid UTF-8, n < 2^31. Pieces cover it without holes. */
enum status pretok_split(const struct pretok *p, const char *text, size_t n,
                         struct pretok_pieces *pieces, struct err *e);
void pretok_pieces_free(struct pretok_pieces *pieces);

#endif
