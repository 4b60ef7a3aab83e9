/* What of a model can be tuned, and the tuned values that its file carries. */
#include "engine/tune/tuned.h"

#include <string.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/model/gguf_embed.h"
#include "engine/model/model.h"

static bool is_listed(const struct tune_call *list, uint32_t n, const struct tune_call *call)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i].dtype == call->dtype && shape_distance(&list[i].shape, &call->shape) == 0)
            return true;
    return false;
}

uint32_t model_tune_calls(const struct model *m, struct tune_call *out, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->n_plans; i++)
        for (uint32_t k = 0; k < m->plans[i]->n_steps && count < n; k++) {
            const struct plan_step *s = &m->plans[i]->steps[k];
            const int dtype = variant_dtype(s->variant);
            const struct shape shape = shape_of(s->call.op, &s->call.params);
            if (s->call.op != OP_LINEAR || (dtype < 0 && s->operands[0].fixed == NULL))
                continue; /* the others are not chosen by shape */
            struct tune_call call = {.shape = shape};
            call.dtype = dtype < 0 ? s->operands[0].fixed->dtype : (enum dtype)dtype;
            if (!is_listed(out, count, &call))
                out[count++] = call;
        }
    return count;
}

enum status model_file_tuned(const struct model_file *f, struct tune_store *s, struct err *e)
{
    uint64_t n;
    const struct gguf *g = f->gguf;
    if (gguf_array(g, TUNE_RECORDS_KEY, GGUF_STRING, &n, NULL) != ST_OK)
        return ST_OK;
    for (uint64_t i = 0; i < n && i < STORE_MAX_RECORDS; i++) {
        const struct gguf_string text = gguf_array_string(g, TUNE_RECORDS_KEY, i);
        char line[RECORD_TEXT_BYTES];
        struct tune_record r;
        struct err why = {0};
        if (text.length >= sizeof line || memchr(text.data, '\0', text.length)) {
            log_warn(
                "tuned values of the model file ignored from record=%llu reason=\"not a line\"",
                (unsigned long long)i);
            break;
        }
        memcpy(line, text.data, text.length);
        line[text.length] = '\0';
        enum status st = record_read(line, &r, &why);
        if (st == ST_OK)
            st = store_add(s, &r, &why);
        if (st == ST_NO_MEMORY)
            return err_set(e, st, "%s", why.text);
        if (st != ST_OK) {
            log_warn("tuned values of the model file ignored from record=%llu reason=\"%s\"",
                     (unsigned long long)i, why.text);
            break; /* one warning */
        }
    }
    return ST_OK;
}

/* Does the record speak of a product with weights as one of the file's? */
static bool speaks_of(const struct model_file *f, const struct tune_record *r)
{
    if (r->shape.op != OP_LINEAR)
        return false;
    for (size_t i = 0; i < gguf_tensor_count(f->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->gguf, i);
        if (t->n_dims == 2 && t->dtype == r->dtype && t->ne[0] == r->shape.dims[1])
            return true;
    }
    return false;
}

static enum status write_records(const struct model_file *f, const struct tune_store *s,
                                 const char *out, struct err *e)
{
    char(*lines)[RECORD_TEXT_BYTES] = mem_array(STORE_MAX_RECORDS, sizeof *lines);
    const char **texts = mem_array(STORE_MAX_RECORDS, sizeof *texts);
    enum status status =
        lines && texts ? ST_OK : err_set(e, ST_NO_MEMORY, "tuned values: out of memory");
    const struct tune_record *r;
    uint32_t n = 0;
    for (; status == ST_OK && (r = store_at(s, n)) != NULL; n++) {
        status = record_write(r, lines[n], e);
        texts[n] = lines[n];
    }
    if (status == ST_OK)
        status = gguf_embed(f->gguf, out, TUNE_RECORDS_KEY, texts, n, e);
    mem_free(texts);
    mem_free(lines);
    return status;
}

enum status model_file_embed(const struct model_file *f, const struct tune_store *s,
                             const char *out, uint32_t *n, struct err *e)
{
    struct tune_store *all;
    const struct tune_record *r;
    enum status status = store_open(&all, e);
    *n = 0;
    if (status != ST_OK)
        return status;
    status = model_file_tuned(f, all, e);
    for (uint32_t i = 0; status == ST_OK && (r = store_at(s, i)) != NULL; i++)
        if (speaks_of(f, r)) {
            status = store_add(all, r, e);
            ++*n;
        }
    if (status == ST_OK && *n == 0)
        status = err_set(e, ST_NOT_FOUND, "%s: nothing was tuned for weights like its own",
                         gguf_path(f->gguf));
    if (status == ST_OK)
        status = write_records(f, all, out, e);
    store_close(all);
    return status;
}
