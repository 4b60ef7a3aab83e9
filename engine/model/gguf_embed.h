/* A copy of a GGUF file with one more key-value: an array of strings.
 *
 * Everything else stays byte for byte: the other key-values, the tensor table, and the tensor data,
 * which begin at the next multiple of the alignment. Written to a temporary file beside the target,
 * with the source's mode, that is then renamed. Any thread.
 */
#ifndef OINFER_MODEL_GGUF_EMBED_H
#define OINFER_MODEL_GGUF_EMBED_H

#include "engine/model/gguf.h"

/* key replaces one of the same name. out may be the file itself (a mapping of it stays valid).
 * ST_UNSUPPORTED: a split file; ST_IO names path and reason. */
enum status gguf_embed(const struct gguf *g, const char *out, const char *key,
                       const char *const *values, uint32_t n, struct err *e);

#endif
