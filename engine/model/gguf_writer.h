/* Writing a GGUF (version 3) as a stream: key-values, then the tensor table, then the data.
 *
 *     open -> key-values and tensors in any order -> begin_data -> data of the tensors in the order
 *     they were declared, in pieces of any size -> commit
 * The file appears under its name only at commit (temporary beside it, then rename); close without
 * commit removes the temporary. Only the head is held in memory. One thread per writer.
 * The calls that declare return nothing: the first that fails is remembered for begin_data.
 */
#ifndef OINFER_MODEL_GGUF_WRITER_H
#define OINFER_MODEL_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/tensor/dtype.h"

struct gguf_writer;

/* ST_IO (path and reason named), ST_NO_MEMORY. */
enum status gguf_writer_open(const char *path, struct gguf_writer **out, struct err *e);
void gguf_writer_close(struct gguf_writer *w); /* accepts NULL; also after commit */

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_string(struct gguf_writer *w, const char *key, const char *value);
/* Arrays are begun with their type's element count, then filled with exactly so many elements. */
void gguf_writer_strings(struct gguf_writer *w, const char *key, uint64_t n);
void gguf_writer_add_string(struct gguf_writer *w, const char *text, size_t length);
void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *values, uint64_t n);
void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *values, uint64_t n);

/* Declares a tensor of ne[0] x ne[1] (ne[1] = 1: one dimension). Returns false, and makes
 * begin_data fail, if ne[0] is not a multiple of the block. */
bool gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype dtype,
                        const uint64_t ne[2]);

/* Writes head and table. ST_IO (ENOSPC and the like, named), ST_NO_MEMORY, ST_INVALID. */
enum status gguf_writer_begin_data(struct gguf_writer *w, struct err *e);
/* The next n bytes of the data; a tensor's padding is added when it is complete. A piece must not
 * reach over the end of its tensor. ST_IO, ST_INVALID. */
enum status gguf_writer_data(struct gguf_writer *w, const void *bytes, size_t n, struct err *e);
/* Checks that every tensor is complete, flushes to the disk and renames. ST_IO, ST_INVALID. */
enum status gguf_writer_commit(struct gguf_writer *w, struct err *e);

#endif
