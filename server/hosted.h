/* The models that this daemon serves: opened files with what every thread may know about them.
 *
 * Opened once before the workers start, immutable afterwards: any thread.
 */
#ifndef OINFER_SERVER_HOSTED_H
#define OINFER_SERVER_HOSTED_H

#include <stdint.h>

#include "engine/engine.h"

#define HOSTED_MAX 16

struct hosted_model {
    uint32_t index;
    char id[128]; /* the file's base name without .gguf: what clients call it */
    struct model_file *file;
    const struct model_file_info *info;
    const struct tokenizer *tokenizer;
    token_id *eog; /* end-of-generation tokens, for ignore_eos and min_tokens */
    uint32_t n_eog;
    uint32_t n_ctx; /* tokens of each slot */
    int64_t created_s;
};

struct hosted_models {
    struct hosted_model items[HOSTED_MAX];
    uint32_t count;
};

/* Opens the files. n_ctx: 0 for what load_options says of 0. The error names the file. */
enum status hosted_open(char *const *paths, uint32_t n, uint32_t n_ctx, struct hosted_models *out,
                        struct err *e);
void hosted_close(struct hosted_models *m); /* after the workers; twice is allowed */
/* By id or by the file's own name (general.name); "" or NULL is the first. NULL: there is none. */
const struct hosted_model *hosted_find(const struct hosted_models *m, const char *name);

#endif
