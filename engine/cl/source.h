/* Program text: from the embedded kernel files or from a folder, with includes expanded. */
#ifndef OINFER_CL_SOURCE_H
#define OINFER_CL_SOURCE_H

#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/strbuf.h"

#define SOURCE_MAX_BYTES ((size_t)4 << 20) /* of one program's text */

/* Appends the prelude (common.cl, quant.h, params.h: what there is of them; none for files below
 * probe/) and the file, each behind a #line naming it. `#include "x"` of a file below kernels/ is
 * replaced by its text, once per program (a file.inc every time); the compiler sees no #include.
 * kernel_dir: read files there instead of the embedded ones; NULL. ST_NOT_FOUND names the missing
 * file. Any thread. */
enum status source_file(const char *kernel_dir, const char *file, struct strbuf *out,
                        struct err *e);
/* Hash of all embedded files. */
uint64_t source_hash(void);
/* The same as source_file for text made at run time: `name` stands for the file in messages. */
enum status source_text(const char *kernel_dir, const char *name, const char *text,
                        struct strbuf *out, struct err *e);

#endif
