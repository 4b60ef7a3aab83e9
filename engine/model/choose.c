/* Choosing variants: query, self-test, note what failed, ask again. */
#include "engine/model/choose.h"

#include <string.h>

#include "engine/base/log.h"

#define ANY (-1)

static bool op_by_name(const char *name, size_t n, enum op_id *op)
{
    for (int i = 0; i < OP_COUNT; i++) {
        const char *known = op_name((enum op_id)i);
        if (strlen(known) == n && memcmp(known, name, n) == 0) {
            *op = (enum op_id)i;
            return true;
        }
    }
    return false;
}

static bool has_variant(struct device *d, enum op_id op, const char *name)
{
    const struct variant *v;
    for (uint32_t i = 0; (v = variant_at(d, op, i)) != NULL; i++)
        if (strcmp(variant_name(v), name) == 0)
            return true;
    return false;
}

enum status chooser_init(struct chooser *c, struct device *d, const char *text, struct err *e)
{
    *c = (struct chooser){.device = d};
    while (text && *text) {
        size_t n = strcspn(text, ","), n_op = strcspn(text, "=,");
        struct forced_choice *row = &c->forced[c->n_forced];
        if (c->n_forced == CHOOSE_MAX_FORCED)
            return err_set(e, ST_INVALID, "forced variants: more than %d", CHOOSE_MAX_FORCED);
        if (n_op >= n)
            return err_set(e, ST_INVALID, "forced variant \"%.*s\": expected OP=VARIANT", (int)n,
                           text);
        if (!op_by_name(text, n_op, &row->op))
            return err_set(e, ST_INVALID, "forced variant \"%.*s\": there is no operator \"%.*s\"",
                           (int)n, text, (int)n_op, text);
        size_t n_name = n - n_op - 1;
        if (n_name >= sizeof row->variant)
            n_name = sizeof row->variant - 1;
        memcpy(row->variant, text + n_op + 1, n_name);
        row->variant[n_name] = '\0';
        if (!has_variant(d, row->op, row->variant))
            return err_set(e, ST_INVALID, "forced variant \"%.*s\": %s has no such variant here",
                           (int)n, text, device_info(d)->name);
        c->n_forced++;
        text += n + (text[n] == ',');
    }
    return ST_OK;
}

static void note_replaced(struct chooser *c, const struct selftest_row *row)
{
    log_warn("variant failed its self-test op=%s variant=%s reason=\"%s\"", row->op, row->variant,
             row->reason);
    if (c->n_replaced < CHOOSE_MAX_REPLACED)
        c->replaced[c->n_replaced++] = *row;
}

static enum status choose_tested(struct chooser *c, const struct variant_query *query,
                                 const struct variant **out, struct err *e)
{
    for (;;) {
        *out = variant_choose(c->device, query);
        if (!*out)
            return ST_OK;
        struct selftest_row row = {0};
        enum status status = variant_selftest(c->device, *out, &row, e);
        if (status != ST_OK || row.passed)
            return status;
        note_replaced(c, &row);
    }
}

enum status choose_variant(struct chooser *c, const struct variant_query *query,
                           const struct variant **out, struct err *e)
{
    for (uint32_t i = 0; i < c->n_forced; i++) {
        if (c->forced[i].op != query->op)
            continue;
        struct variant_query named = *query;
        named.name = c->forced[i].variant;
        enum status status = choose_tested(c, &named, out, e);
        if (status != ST_OK || *out)
            return status;
    }
    return choose_tested(c, query, out, e);
}

enum status need_variant(struct chooser *c, const struct variant_query *query,
                         const struct variant **out, struct err *e)
{
    enum status status = choose_variant(c, query, out, e);
    if (status == ST_OK && !*out)
        return err_set(e, ST_UNSUPPORTED, "%s: no kernel for %s%s on %s", op_name(query->op),
                       query->dtype >= 0 ? dtype_name((uint32_t)query->dtype) : "these shapes",
                       query->k > 0 ? " of this width" : "", device_info(c->device)->name);
    return status;
}

/* Is there a variant of `query` in `layout` for every count of tokens? */
static enum status layout_serves(struct chooser *c, struct variant_query query, int layout,
                                 const uint32_t *n_tokens, uint32_t n, bool *serves, struct err *e)
{
    query.layout = layout;
    *serves = true;
    for (uint32_t i = 0; i < n && *serves; i++) {
        const struct variant *v;
        query.n_tokens = n_tokens[i];
        enum status status = choose_variant(c, &query, &v, e);
        if (status != ST_OK)
            return status;
        *serves = v != NULL;
    }
    return ST_OK;
}

enum status choose_weight_layout(struct chooser *c, enum dtype dtype, uint32_t m, uint32_t k,
                                 const uint32_t *n_tokens, uint32_t n, enum weight_layout *layout,
                                 struct err *e)
{
    const struct variant_query linear = {
        .op = OP_LINEAR, .dtype = (int)dtype, .act = ANY, .layout = ANY, .m = m, .k = k};
    for (uint32_t i = 0; i <= n; i++) { /* the last round: the file's layout */
        const struct variant *v = NULL;
        struct variant_query query = linear;
        if (i < n) {
            query.n_tokens = n_tokens[i];
            enum status status = choose_variant(c, &query, &v, e);
            if (status != ST_OK)
                return status;
            if (!v)
                continue;
        }
        *layout = v ? variant_layout(v) : LAYOUT_FILE;
        if (*layout != LAYOUT_FILE) {
            const struct variant_query repack = {.op = OP_REPACK,
                                                 .dtype = (int)dtype,
                                                 .act = ANY,
                                                 .layout = (int)*layout,
                                                 .m = m,
                                                 .k = k};
            const struct variant *repacker;
            enum status status = choose_variant(c, &repack, &repacker, e);
            if (status != ST_OK)
                return status;
            if (!repacker || layout_bytes(dtype, *layout, m, k) == 0)
                continue;
        }
        bool serves;
        enum status status = layout_serves(c, linear, (int)*layout, n_tokens, n, &serves, e);
        if (status != ST_OK || serves)
            return status;
    }
    return err_set(e, ST_UNSUPPORTED, "linear: no kernel for %s weights of %u columns on %s",
                   dtype_name(dtype), k, device_info(c->device)->name);
}

enum status choose_kv_layout(struct chooser *c, enum dtype dtype, uint32_t head_dim,
                             const uint32_t *n_tokens, uint32_t n, uint32_t *layout, struct err *e)
{
    const struct variant_query attention = {
        .op = OP_ATTENTION, .dtype = (int)dtype, .act = ANY, .layout = ANY, .k = head_dim};
    for (uint32_t i = 0; i <= n; i++) { /* the last round: the plain layout */
        const struct variant *v = NULL;
        struct variant_query query = attention;
        if (i < n) {
            query.n_tokens = n_tokens[i];
            enum status status = choose_variant(c, &query, &v, e);
            if (status != ST_OK)
                return status;
            if (!v)
                continue;
        }
        *layout = v ? variant_layout(v) : KV_PLAIN;
        bool attends, stores = false;
        struct variant_query rope = attention;
        rope.op = OP_ROPE_KV;
        enum status status = layout_serves(c, attention, (int)*layout, n_tokens, n, &attends, e);
        if (status == ST_OK)
            status = layout_serves(c, rope, (int)*layout, n_tokens, n, &stores, e);
        if (status != ST_OK || (attends && stores))
            return status;
    }
    return err_set(e, ST_UNSUPPORTED,
                   "attention: no kernel for a %s cache with heads of %u dimensions on %s",
                   dtype_name(dtype), head_dim, device_info(c->device)->name);
}
