/* One step: the items' tokens become rows of batches, batches run by a plan, results are read.
 *
 * Rows whose output is wanted go last in a batch, arg-max rows before logits rows, so that outputs
 * are the tail of the rows and logits are the tail of the outputs. Rows of one item stay in order.
 * Timelines grow only when everything has succeeded.
 */
#include <math.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/model/model.h"

struct stepper {
    struct model *m;
    struct step_item *items;
    uint32_t n_items;
    struct err *e;
};

/* ---- checks ---- */

static enum status check_item(const struct stepper *s, uint32_t i)
{
    const struct step_item *item = &s->items[i];
    const struct model *m = s->m;
    uint32_t n_vocab = m->file->hparams.n_vocab;
    if (!item->session || item->session->model != m)
        return err_set(s->e, ST_INVALID, "step item %u: its session is not of this model", i);
    for (uint32_t j = 0; j < i; j++)
        if (s->items[j].session == item->session)
            return err_set(s->e, ST_INVALID, "step items %u and %u have the same session", j, i);
    if (item->n_tokens == 0)
        return err_set(s->e, ST_INVALID, "step item %u: no tokens", i);
    for (uint32_t t = 0; t < item->n_tokens; t++)
        if (item->tokens[t] < 0 || (uint32_t)item->tokens[t] >= n_vocab)
            return err_set(s->e, ST_INVALID, "step item %u: token %u is %d, expected 0 to %u", i, t,
                           item->tokens[t], n_vocab - 1);
    uint64_t more = 0;
    if (item->want == STEP_GREEDY) {
        if (item->n_greedy < 1 || item->n_greedy > STEP_MAX_GREEDY)
            return err_set(s->e, ST_INVALID, "step item %u: %u greedy tokens, expected 1 to %d", i,
                           item->n_greedy, STEP_MAX_GREEDY);
        more = item->n_greedy - 1;
    }
    uint64_t length = (uint64_t)item->session->length + item->n_tokens + more;
    if (length > m->n_ctx)
        return err_set(s->e, ST_CONTEXT_FULL, "step item %u: %llu tokens, the context holds %u", i,
                       (unsigned long long)length, m->n_ctx);
    return ST_OK;
}

static enum status check_items(const struct stepper *s)
{
    uint64_t n_tokens = 0, n_logits = 0;
    if (s->n_items == 0 || s->n_items > STEP_MAX_ITEMS)
        return err_set(s->e, ST_INVALID, "step: %u items, expected 1 to %d", s->n_items,
                       STEP_MAX_ITEMS);
    for (uint32_t i = 0; i < s->n_items; i++) {
        enum status status = check_item(s, i);
        if (status != ST_OK)
            return status;
        const struct step_item *item = &s->items[i];
        n_tokens += item->n_tokens;
        n_logits += item->want == STEP_ALL_LOGITS ? item->n_tokens : item->want == STEP_LOGITS;
    }
    if (n_tokens > s->m->n_batch)
        return err_set(s->e, ST_INVALID, "step: %llu tokens, at most %u",
                       (unsigned long long)n_tokens, s->m->n_batch);
    if (n_logits > STEP_MAX_LOGITS)
        return err_set(s->e, ST_INVALID, "step: %llu rows of logits, at most %d",
                       (unsigned long long)n_logits, STEP_MAX_LOGITS);
    return ST_OK;
}

/* ---- batches ---- */

static enum row_output output_of(const struct step_item *item, uint32_t token)
{
    bool last = token + 1 == item->n_tokens;
    if (item->want == STEP_ALL_LOGITS || (item->want == STEP_LOGITS && last))
        return ROW_LOGITS;
    return item->want == STEP_GREEDY && last ? ROW_GREEDY : ROW_NONE;
}

/* Lists the rows of all items: without output, then arg-max, then logits. */
static uint32_t list_rows(const struct stepper *s, struct step_row *rows)
{
    uint32_t n = 0;
    for (int output = ROW_NONE; output <= ROW_LOGITS; output++) {
        for (uint32_t i = 0; i < s->n_items; i++) {
            const struct step_item *item = &s->items[i];
            for (uint32_t t = 0; t < item->n_tokens; t++)
                if (output_of(item, t) == (enum row_output)output)
                    rows[n++] = (struct step_row){.item = i,
                                                  .position = item->session->length + t,
                                                  .token = item->tokens[t],
                                                  .output = (enum row_output)output};
        }
    }
    return n;
}

/* Writes ids, positions and slots of the rows to the device. */
static enum status upload_rows(const struct stepper *s, const struct step_row *rows, uint32_t n)
{
    struct model *m = s->m;
    struct device *d = m->engine->device;
    const struct weight *table = weights_at(m->weights, m->file->graph->nodes[0].weight);
    for (uint32_t r = 0; r < n; r++) {
        const int32_t meta[4] = {(int32_t)rows[r].position,
                                 (int32_t)s->items[rows[r].item].session->slot, 0, 0};
        memcpy(m->batch.meta + 4 * (size_t)r, meta, sizeof meta);
    }
    enum status status = queue_write(d, QUEUE_COMPUTE, m->io, m->context.meta.offset, m->batch.meta,
                                     n * 4 * sizeof(int32_t), "batch", s->e);
    for (uint32_t c = 0; c < table->n_chunks && status == ST_OK; c++) {
        int32_t *ids = m->batch.ids + (size_t)c * m->n_batch;
        for (uint32_t r = 0; r < n; r++)
            ids[r] = rows[r].token - (int32_t)table->chunks[c].row0;
        status = queue_write(d, QUEUE_COMPUTE, m->io, m->context.ids[c].offset, ids,
                             n * sizeof(int32_t), "batch", s->e);
    }
    return status;
}

/* Room for n_rows rows of logits on the host. */
static enum status reserve_logits(struct model *m, uint32_t n_rows, struct err *e)
{
    if (n_rows <= m->batch.logits_rows)
        return ST_OK;
    uint32_t n_vocab = m->file->hparams.n_vocab;
    struct buffer *bigger;
    void *memory;
    enum status status =
        buffer_open_pinned(m->engine->device, (uint64_t)n_rows * n_vocab * sizeof(float), "logits",
                           &bigger, &memory, e);
    if (status != ST_OK)
        return status;
    buffer_close(m->batch.logits_memory);
    m->batch.logits_memory = bigger;
    m->batch.logits = memory;
    m->batch.logits_rows = n_rows;
    return ST_OK;
}

/* Names the step that first gave NaN or infinity, by running the batch again. */
static enum status report_numeric(struct model *m, struct plan *p, const struct plan_batch *batch,
                                  const struct step_row *row, struct err *e)
{
    uint32_t bad = p->n_steps;
    if (plan_find_bad(p, batch, &bad, NULL) != ST_OK || bad == p->n_steps)
        return err_set(e, ST_NUMERIC, "logits at position %u are NaN or infinite", row->position);
    const struct plan_step *s = &p->steps[bad];
    return err_set(e, ST_NUMERIC,
                   "logits at position %u are NaN or infinite: the first bad result is that of %s "
                   "%s (%s), layer %d, on %s",
                   row->position, op_name(s->call.op), s->role, variant_name(s->variant), s->layer,
                   device_info(m->engine->device)->name);
}

static bool all_finite(const float *values, uint32_t n)
{
    float sums[8] = {0}, sum = 0.0f; /* x * 0 is 0 for every finite x: one branch-free pass */
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t j = 0; j < 8; j++)
            sums[j] += values[i + j] * 0.0f;
    for (; i < n; i++)
        sum += values[i] * 0.0f;
    for (uint32_t j = 0; j < 8; j++)
        sum += sums[j];
    return sum == 0.0f;
}

/* Runs rows[n] as one batch; its results go to the items and to row *n_logits on of the logits. */
static enum status run_batch(const struct stepper *s, const struct step_row *rows, uint32_t n,
                             uint32_t *n_logits)
{
    struct model *m = s->m;
    struct device *d = m->engine->device;
    uint32_t n_vocab = m->file->hparams.n_vocab, n_greedy = 0, n_full = 0;
    struct plan_batch batch = {.n_tokens = n};
    for (uint32_t r = 0; r < n; r++) {
        n_greedy += rows[r].output == ROW_GREEDY;
        n_full += rows[r].output == ROW_LOGITS;
        if (rows[r].position + 1 > batch.kv_max)
            batch.kv_max = rows[r].position + 1;
    }
    batch.n_outputs = n_greedy + n_full;
    struct plan *p = model__plan_for(m, n);
    enum status status = upload_rows(s, rows, n);
    if (status == ST_OK)
        status = plan_run(p, &batch, s->e);
    if (status == ST_OK && n_greedy > 0)
        status = queue_read(d, QUEUE_COMPUTE, m->io, m->context.index.offset, m->batch.index,
                            n_greedy * sizeof(int32_t), "arg-max", s->e);
    if (status == ST_OK && n_greedy > 0)
        status = queue_read(d, QUEUE_COMPUTE, m->io, m->context.found.offset, m->batch.found,
                            n_greedy * sizeof(float), "arg-max", s->e);
    float *logits = n_full > 0 ? m->batch.logits + (size_t)*n_logits * n_vocab : NULL;
    if (status == ST_OK && n_full > 0) {
        struct tensor t = plan_logits(p);
        status = queue_read(d, QUEUE_COMPUTE, t.buffer,
                            t.offset + (uint64_t)n_greedy * n_vocab * sizeof(float), logits,
                            (uint64_t)n_full * n_vocab * sizeof(float), "logits", s->e);
    }
    enum status waited = queue_wait(d, QUEUE_COMPUTE, status == ST_OK ? s->e : NULL);
    if (status == ST_OK)
        status = waited;
    const struct step_row *outputs = rows + n - batch.n_outputs;
    for (uint32_t r = 0; r < batch.n_outputs && status == ST_OK; r++) {
        struct step_item *item = &s->items[outputs[r].item];
        bool finite;
        if (r < n_greedy) {
            finite = isfinite(m->batch.found[r]);
            item->greedy[item->n_out++] = m->batch.index[r];
        } else {
            const float *row = logits + (size_t)(r - n_greedy) * n_vocab;
            finite = all_finite(row, n_vocab);
            if (item->n_out++ == 0)
                item->logits = row;
        }
        if (!finite)
            status = report_numeric(m, p, &batch, &outputs[r], s->e);
    }
    *n_logits += n_full;
    return status;
}

/* Runs rows in batches of at most n_batch rows and PLAN_MAX_OUTPUTS outputs. */
static enum status run_rows(const struct stepper *s, const struct step_row *rows, uint32_t n)
{
    uint32_t n_full = 0, n_logits = 0;
    for (uint32_t r = 0; r < n; r++)
        n_full += rows[r].output == ROW_LOGITS;
    enum status status = reserve_logits(s->m, n_full, s->e);
    for (uint32_t done = 0; done < n && status == ST_OK;) {
        uint32_t count = 0, outputs = 0;
        while (done + count < n && outputs < PLAN_MAX_OUTPUTS)
            outputs += rows[done + count++].output != ROW_NONE;
        status = run_batch(s, rows + done, count, &n_logits);
        done += count;
    }
    return status;
}

/* ---- one launch ---- */

static bool goes_on(const struct model *m, const struct step_item *item)
{
    return item->want == STEP_GREEDY && item->n_out < item->n_greedy &&
           (item->n_out == 0 ||
            !tokenizer_is_eog(m->file->tokenizer, item->greedy[item->n_out - 1]));
}

/* Several tokens for every item of `rows` in one launch, or one where rows at the end want logits.
 * *done is false when the executor does not take the call, or gives a result that is not a number:
 * step by step it has a name. */
static enum status run_fused(const struct stepper *s, const struct step_row *rows, uint32_t n,
                             bool *done)
{
    struct model *m = s->m;
    const uint32_t n_vocab = m->file->hparams.n_vocab;
    *done = false;
    uint32_t n_greedy = n;
    while (n_greedy > 0 && rows[n_greedy - 1].output == ROW_LOGITS)
        n_greedy--;
    if (!m->executor || n > m->executor->max_rows)
        return ST_OK;
    enum status status = reserve_logits(m, n - n_greedy, s->e);
    if (status != ST_OK)
        return status;
    uint32_t slots[STEP_MAX_ITEMS], positions[STEP_MAX_ITEMS];
    uint32_t n_tokens = n_greedy < n ? 1 : m->executor->max_tokens;
    token_id first[STEP_MAX_ITEMS], out[STEP_MAX_ITEMS * STEP_MAX_GREEDY];
    float found[STEP_MAX_ITEMS * STEP_MAX_GREEDY];
    for (uint32_t r = 0; r < n; r++) {
        const struct step_item *item = &s->items[rows[r].item];
        slots[r] = item->session->slot;
        positions[r] = rows[r].position;
        first[r] = rows[r].token;
        if (r < n_greedy && item->n_greedy - item->n_out < n_tokens)
            n_tokens = item->n_greedy - item->n_out;
    }
    const struct fused_call call = {n,   n_tokens, slots,        positions,      first,
                                    out, found,    n - n_greedy, m->batch.logits};
    status = m->executor->run(m->fused, &call, s->e);
    if (status == ST_TIMEOUT) {
        log_warn("one-launch decoding is off executor=%s reason=\"%s\"", m->executor->name,
                 s->e ? s->e->text : "");
        m->executor->close(m->fused);
        m->executor = NULL;
        err_clear(s->e);
        return ST_OK;
    }
    if (status == ST_UNSUPPORTED) {
        err_clear(s->e);
        return ST_OK;
    }
    bool finite = status == ST_OK && all_finite(found, n * n_tokens);
    for (uint32_t r = n_greedy; r < n && finite; r++)
        finite = all_finite(call.logits + (size_t)(r - n_greedy) * n_vocab, n_vocab);
    if (!finite)
        return status;
    for (uint32_t r = 0; r < n_greedy; r++) {
        struct step_item *item = &s->items[rows[r].item];
        for (uint32_t t = 0; t < n_tokens && goes_on(m, item); t++)
            item->greedy[item->n_out++] = out[r * n_tokens + t];
    }
    for (uint32_t r = n_greedy; r < n; r++) {
        s->items[rows[r].item].logits = call.logits + (size_t)(r - n_greedy) * n_vocab;
        s->items[rows[r].item].n_out = 1;
    }
    *done = true;
    return ST_OK;
}

/* ---- the step ---- */

/* Decodes on, a token of each item at a time, until no item wants more. */
static enum status run_greedy(const struct stepper *s, struct step_row *rows)
{
    for (;;) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n_items; i++) {
            const struct step_item *item = &s->items[i];
            if (!goes_on(s->m, item))
                continue;
            rows[n++] = (struct step_row){
                .item = i,
                .position = item->session->length + item->n_tokens - 1 + item->n_out,
                .token = item->n_out > 0 ? item->greedy[item->n_out - 1] : item->tokens[0],
                .output = ROW_GREEDY};
        }
        if (n == 0)
            return ST_OK;
        bool done;
        enum status status = run_fused(s, rows, n, &done);
        if (status == ST_OK && !done)
            status = run_rows(s, rows, n);
        if (status != ST_OK)
            return status;
    }
}

/* Everything succeeded: the timelines grow by what is in the cache now. */
static void commit(const struct step_item *item)
{
    struct session *s = item->session;
    memcpy(s->tokens + s->length, item->tokens, item->n_tokens * sizeof *s->tokens);
    s->length += item->n_tokens;
    if (item->want != STEP_GREEDY)
        return;
    memcpy(s->tokens + s->length, item->greedy, (item->n_out - 1) * sizeof *s->tokens);
    s->length += item->n_out - 1;
}

enum status model_step(struct model *m, struct step_item *items, uint32_t n_items, struct err *e)
{
    const struct stepper s = {.m = m, .items = items, .n_items = n_items, .e = e};
    enum status status = check_items(&s);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < n_items; i++) {
        items[i].n_out = 0;
        items[i].logits = NULL;
    }
    bool decodes = true, greedy = true; /* one token each; nothing but greedy ones after it */
    for (uint32_t i = 0; i < n_items; i++) {
        greedy = greedy && items[i].want == STEP_GREEDY;
        decodes = decodes && items[i].n_tokens == 1 &&
                  (items[i].want == STEP_GREEDY || items[i].want == STEP_LOGITS);
    }
    if (!decodes || !greedy) {
        bool done = false;
        const uint32_t n = list_rows(&s, m->batch.rows);
        if (decodes)
            status = run_fused(&s, m->batch.rows, n, &done);
        if (status == ST_OK && !done)
            status = run_rows(&s, m->batch.rows, n);
    }
    if (status == ST_OK)
        status = run_greedy(&s, m->batch.rows);
    if (weights_in_place_bytes(m->weights) > 0) { /* also why numbers may have gone wrong */
        enum status file = gguf_check(m->file->gguf, e);
        status = file != ST_OK ? file : status;
    }
    for (uint32_t i = 0; i < n_items && status == ST_OK; i++)
        commit(&items[i]);
    return status;
}
