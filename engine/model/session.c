/* Sessions: a timeline of tokens in a slot of the model's cache. */
#include "engine/base/mem.h"
#include "engine/model/model.h"

enum status session_open(struct model *m, struct session **out, struct err *e)
{
    uint32_t slot = 0;
    while (slot < m->n_slots && m->sessions[slot])
        slot++;
    if (slot == m->n_slots)
        return err_set(e, ST_BUSY, "all %u slots are in use", m->n_slots);
    struct session *s = mem_zalloc(sizeof *s);
    token_id *tokens = mem_array(m->n_ctx, sizeof *tokens);
    if (!s || !tokens) {
        mem_free(s);
        mem_free(tokens);
        return err_set(e, ST_NO_MEMORY, "session: %u tokens", m->n_ctx);
    }
    s->model = m;
    s->slot = slot;
    s->tokens = tokens;
    m->sessions[slot] = s;
    *out = s;
    return ST_OK;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    s->model->sessions[s->slot] = NULL;
    mem_free(s->tokens);
    mem_free(s);
}

uint32_t session_length(const struct session *s)
{
    return s->length;
}

const token_id *session_tokens(const struct session *s)
{
    return s->tokens;
}

void session_rewind(struct session *s, uint32_t n_keep)
{
    ASSERT(n_keep <= s->length);
    s->length = n_keep;
}
