/* Opens model files and answers questions about them. */
#include "server/hosted.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#define DEFAULT_CTX 4096

static void set_id(struct hosted_model *m, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base != NULL ? base + 1 : path;
    size_t n = strlen(base);
    if (n > 5 && strcasecmp(base + n - 5, ".gguf") == 0)
        n -= 5;
    snprintf(m->id, sizeof m->id, "%.*s", (int)n, base);
}

static enum status find_eog(struct hosted_model *m, struct err *e)
{
    uint32_t n = 0;
    uint32_t n_tokens = tokenizer_n_tokens(m->tokenizer);
    for (uint32_t id = 0; id < n_tokens; id++)
        n += tokenizer_is_eog(m->tokenizer, (token_id)id);
    m->eog = mem_array(n > 0 ? n : 1, sizeof *m->eog);
    if (m->eog == NULL)
        return err_set(e, ST_NO_MEMORY, "out of memory");
    for (uint32_t id = 0; id < n_tokens; id++)
        if (tokenizer_is_eog(m->tokenizer, (token_id)id))
            m->eog[m->n_eog++] = (token_id)id;
    return ST_OK;
}

static enum status open_model(struct hosted_models *all, const char *path, uint32_t n_ctx,
                              struct err *e)
{
    struct hosted_model *m = &all->items[all->count];
    *m = (struct hosted_model){.index = all->count, .created_s = clock_wall_s()};
    enum status status = model_file_open(path, &m->file, e);
    if (status != ST_OK)
        return status;
    all->count++; /* from here on hosted_close closes it */
    m->info = model_file_info(m->file);
    m->tokenizer = model_file_tokenizer(m->file);
    m->n_ctx = n_ctx;
    if (n_ctx == 0)
        m->n_ctx = m->info->n_ctx_train < DEFAULT_CTX ? m->info->n_ctx_train : DEFAULT_CTX;
    set_id(m, path);
    for (uint32_t i = 0; i < m->index; i++)
        if (strcmp(all->items[i].id, m->id) == 0)
            return err_set(e, ST_INVALID, "two models are called \"%s\"; rename one of the files",
                           m->id);
    return find_eog(m, e);
}

enum status hosted_open(char *const *paths, uint32_t n, uint32_t n_ctx, struct hosted_models *out,
                        struct err *e)
{
    *out = (struct hosted_models){0};
    if (n > HOSTED_MAX)
        return err_set(e, ST_INVALID, "%u models, the most is %d", n, HOSTED_MAX);
    for (uint32_t i = 0; i < n; i++) {
        enum status status = open_model(out, paths[i], n_ctx, e);
        if (status != ST_OK) {
            if (strstr(e->text, paths[i]) == NULL)
                err_prefix(e, "%s: ", paths[i]);
            hosted_close(out);
            return status;
        }
    }
    return ST_OK;
}

void hosted_close(struct hosted_models *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        mem_free(m->items[i].eog);
        model_file_close(m->items[i].file);
    }
    m->count = 0;
}

const struct hosted_model *hosted_find(const struct hosted_models *m, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return m->count > 0 ? &m->items[0] : NULL;
    for (uint32_t i = 0; i < m->count; i++)
        if (strcmp(m->items[i].id, name) == 0 || strcmp(m->items[i].info->name, name) == 0)
            return &m->items[i];
    return NULL;
}
