/* Model files: a GGUF with everything derived from it that needs no device. Immutable once open. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "engine/model/vocab.h"

#define TEMPLATE_MAX_BYTES (1u << 20)

/* Copies at most n - 1 bytes of a string of the file. */
static void copy_string(char *out, size_t n, const char *data, size_t length)
{
    if (length > n - 1)
        length = n - 1;
    memcpy(out, data, length);
    out[length] = '\0';
}

static void set_name(struct model_file *f)
{
    struct model_file_info *info = &f->info;
    struct gguf_string name;
    if (gguf_get_string(f->gguf, "general.name", &name, NULL) == ST_OK && name.length > 0) {
        copy_string(info->name, sizeof info->name, name.data, name.length);
        return;
    }
    const char *slash = strrchr(f->path, '/'), *base = slash ? slash + 1 : f->path;
    size_t length = strlen(base);
    if (length > 5 && strcmp(base + length - 5, ".gguf") == 0)
        length -= 5;
    copy_string(info->name, sizeof info->name, base, length);
}

static void count_tensors(struct model_file *f)
{
    struct model_file_info *info = &f->info;
    uint64_t by_dtype[DT_COUNT] = {0}, most = 0;
    for (size_t i = 0; i < gguf_tensor_count(f->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->gguf, i);
        info->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        info->weight_bytes += t->n_bytes;
        by_dtype[t->dtype] += t->n_bytes;
    }
    for (uint32_t i = 0; i < DT_COUNT; i++) {
        if (by_dtype[i] > most) {
            most = by_dtype[i];
            copy_string(info->quantisation, sizeof info->quantisation, dtype_name(i),
                        strlen(dtype_name(i)));
        }
    }
}

static enum status copy_template(struct model_file *f, struct err *e)
{
    struct gguf_string text;
    enum status status = gguf_get_string(f->gguf, "tokenizer.chat_template", &text, e);
    if (status == ST_NOT_FOUND)
        return ST_OK;
    if (status != ST_OK)
        return status;
    if (text.length > TEMPLATE_MAX_BYTES)
        return err_set(e, ST_FORMAT, "key tokenizer.chat_template: %zu bytes, at most %u",
                       text.length, TEMPLATE_MAX_BYTES);
    f->chat_template = mem_strndup(text.data, text.length);
    if (!f->chat_template)
        return err_set(e, ST_NO_MEMORY, "chat template: %zu bytes", text.length);
    return ST_OK;
}

static void fill_info(struct model_file *f)
{
    struct model_file_info *info = &f->info;
    const struct hparams *h = &f->hparams;
    set_name(f);
    count_tensors(f);
    copy_string(info->architecture, sizeof info->architecture, h->arch, strlen(h->arch));
    info->path = f->path;
    info->chat_template = f->chat_template;
    info->n_ctx_train = h->n_ctx_train;
    info->n_vocab = h->n_vocab;
    info->n_embd = h->n_embd;
    info->n_layer = h->n_layer;
    info->n_head = h->n_head;
    info->n_head_kv = h->n_head_kv;
    info->file_bytes = gguf_file_bytes(f->gguf);
    info->identity = gguf_identity(f->gguf);
}

/* Says when the file has blocks that the model will not run: block_count is below what is there. */
static void warn_unused_blocks(const struct model_file *f)
{
    unsigned long most = 0;
    for (size_t i = 0; i < gguf_tensor_count(f->gguf); i++) {
        const char *name = gguf_tensor_at(f->gguf, i)->name;
        char *end = NULL;
        if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
            continue;
        const unsigned long block = strtoul(name + 4, &end, 10);
        if (*end == '.' && block >= most)
            most = block + 1;
    }
    if (most > f->hparams.n_layer)
        log_warn("model has unused blocks path=\"%s\" block_count=%u blocks=%lu", f->path,
                 f->hparams.n_layer, most);
}

enum status model_file_open(const char *path, struct model_file **out, struct err *e)
{
    struct model_file *f = mem_zalloc(sizeof *f);
    if (!f)
        return err_set(e, ST_NO_MEMORY, "%s: %zu bytes", path, sizeof *f);
    enum status status = ST_OK;
    f->path = mem_strdup(path);
    if (!f->path)
        status = err_set(e, ST_NO_MEMORY, "%s: a copy of the path", path);
    if (status == ST_OK)
        status = gguf_open(path, &f->gguf, e);
    if (status == ST_OK)
        status = hparams_read(f->gguf, &f->hparams, e);
    if (status == ST_OK)
        status = graph_open(&f->hparams, f->gguf, &f->graph, e);
    if (status == ST_OK)
        status = vocab_open(f->gguf, &f->tokenizer, e);
    if (status == ST_OK)
        status = copy_template(f, e);
    if (f->gguf) { /* if it was cut meanwhile, that is why the others found zeros */
        enum status file = gguf_check(f->gguf, e);
        status = file != ST_OK ? file : status;
    }
    if (status != ST_OK) {
        model_file_close(f);
        return status;
    }
    fill_info(f);
    warn_unused_blocks(f);
    *out = f;
    return ST_OK;
}

void model_file_close(struct model_file *f)
{
    if (!f)
        return;
    tokenizer_close(f->tokenizer);
    graph_close(f->graph);
    gguf_close(f->gguf);
    mem_free(f->chat_template);
    mem_free(f->path);
    mem_free(f);
}

const struct model_file_info *model_file_info(const struct model_file *f)
{
    return &f->info;
}

const struct tokenizer *model_file_tokenizer(const struct model_file *f)
{
    return f->tokenizer;
}
