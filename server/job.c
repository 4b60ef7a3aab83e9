/* Jobs, their outputs and their outboxes. Ids come from one process-wide counter and the start
 * time. */
#include "server/job.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "server/op_job.h"
#include "server/sequence.h"

/* A choice's text has no other bound than the tokens of a context. */
#define OUTPUT_CEILING_BYTES ((size_t)256 << 20)

const char *finish_name(enum finish finish)
{
    static const char *const names[] = {NULL, "stop", "length"};
    return names[finish];
}

/* ---- outputs ---- */

bool token_records_push(struct token_records *list, const struct token_record *record)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity > 0 ? list->capacity * 2 : 16;
        struct token_record *items = mem_array_resize(list->items, capacity, sizeof *items);
        if (items == NULL)
            return false;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *record;
    return true;
}

void token_records_drop(struct token_records *list, uint32_t n)
{
    list->count -= n;
    if (n > 0 && list->count > 0)
        memmove(list->items, list->items + n, list->count * sizeof *list->items);
}

void token_records_free(struct token_records *list)
{
    mem_free(list->items);
    *list = (struct token_records){0};
}

void output_init(struct output *o)
{
    *o = (struct output){0};
    strbuf_init(&o->text, OUTPUT_CEILING_BYTES);
}

void output_free(struct output *o)
{
    strbuf_free(&o->text);
    token_records_free(&o->records);
}

bool output_move(struct output *into, struct output *from)
{
    uint32_t count = into->records.count;
    for (uint32_t i = 0; i < from->records.count; i++) {
        if (!token_records_push(&into->records, &from->records.items[i])) {
            into->records.count = count;
            return false;
        }
    }
    if (!strbuf_append(&into->text, strbuf_text(&from->text), from->text.length)) {
        into->records.count = count;
        return false;
    }
    if (from->finish != FINISH_NONE)
        into->finish = from->finish;
    strbuf_clear(&from->text);
    from->records.count = 0;
    from->finish = FINISH_NONE;
    return true;
}

static size_t output_bytes(const struct output *o)
{
    return o->text.length + o->records.count * sizeof *o->records.items;
}

bool outbox_put(struct outbox *o, uint32_t i, struct output *from)
{
    size_t bytes = output_bytes(from);
    uv_mutex_lock(&o->lock);
    bool ok = output_move(&o->outputs[i], from);
    if (ok)
        o->bytes += bytes;
    uv_mutex_unlock(&o->lock);
    return ok;
}

bool outbox_take(struct outbox *o, uint32_t i, struct output *into)
{
    uv_mutex_lock(&o->lock);
    size_t bytes = output_bytes(&o->outputs[i]);
    bool ok = output_move(into, &o->outputs[i]);
    if (ok)
        o->bytes -= bytes;
    uv_mutex_unlock(&o->lock);
    return ok;
}

bool outbox_is_full(struct outbox *o)
{
    uv_mutex_lock(&o->lock);
    bool full = o->bytes >= OUTBOX_BYTES;
    uv_mutex_unlock(&o->lock);
    return full;
}

/* ---- jobs ---- */

struct job *job_open(enum job_kind kind)
{
    static atomic_uint_fast64_t last_id;
    struct job *j = mem_zalloc(sizeof *j);
    if (j == NULL)
        return NULL;
    j->id = atomic_fetch_add(&last_id, 1) + 1;
    j->kind = kind;
    j->created_s = clock_wall_s();
    j->wanted_worker = JOB_ANY_WORKER;
    strbuf_init(&j->text, OUTPUT_CEILING_BYTES);
    strbuf_init(&j->body, 0);
    atomic_init(&j->cancelled, false);
    snprintf(j->public_id, sizeof j->public_id, "cmpl-%08llx%08llx",
             (unsigned long long)j->created_s & 0xFFFFFFFFu, (unsigned long long)j->id);
    return j;
}

static void close_outbox(struct outbox *o)
{
    if (o->outputs == NULL)
        return;
    for (uint32_t i = 0; i < o->n; i++)
        output_free(&o->outputs[i]);
    mem_free(o->outputs);
    uv_mutex_destroy(&o->lock);
}

void job_close(struct job *j)
{
    if (j == NULL)
        return;
    for (uint32_t i = 0; i < j->n_sequences; i++) {
        sequence_close(&j->sequences[i]);
        if (j->results != NULL)
            output_free(&j->results[i]);
    }
    mem_free(j->sequences);
    mem_free(j->results);
    strbuf_free(&j->body);
    uint32_t n_prompts = j->request == NULL          ? 0
                         : j->kind == JOB_COMPLETION ? j->request->prompt.count
                                                     : 1;
    for (uint32_t i = 0; i < n_prompts && j->prompts != NULL; i++)
        token_list_free(&j->prompts[i]);
    mem_free(j->prompts);
    strbuf_free(&j->text);
    close_outbox(&j->outbox);
    mem_free(j->timings.report);
    op_job_close(j->op);
    request_close(j->request);
    mem_free(j);
}

void job_cancel(struct job *j)
{
    atomic_store(&j->cancelled, true);
}

bool job_is_cancelled(const struct job *j)
{
    return atomic_load(&j->cancelled);
}

enum status job_open_outbox(struct job *j, uint32_t n)
{
    struct outbox *o = &j->outbox;
    struct output *outputs = mem_array(n, sizeof *outputs);
    if (outputs == NULL || uv_mutex_init(&o->lock) != 0) {
        mem_free(outputs);
        return ST_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++)
        output_init(&outputs[i]);
    o->outputs = outputs;
    o->n = n;
    return ST_OK;
}

void job_fail(struct job *j, const struct fault *f)
{
    if (j->failed)
        return;
    j->failed = true;
    j->fault = *f;
}
