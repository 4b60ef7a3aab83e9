/* Self-test: a few small trials per variant, once per device, driver and kernel source.
 *
 * The verdict is a mark of the device in this process and a small file in the device's cache. A
 * trial that cannot be made (no memory, a missing helper kernel) is not a verdict and not cached; a
 * kernel that does not build is one, and so is a wrong result.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/cl/cache.h"
#include "engine/cl/source.h"
#include "engine/ops/trial.h"
#include "engine/ops/variant.h"

#define SELFTEST_FORMAT "5" /* counts changes of the trials themselves */
#define SELFTEST_SEED   20231u

/* What a self-test runs: a small and a ragged shape per op. k, head_dim and their like are
 * multiples of 256 where dtypes or layouts need it. */
struct selftest_case {
    enum op_id op;
    union op_params params;
};

static const struct selftest_case selftest_cases[] = {
    {OP_EMBED, {.embed = {.n_tokens = 5, .k = 512, .n_vocab = 70, .scale = 1.5f}}},
    {OP_NORM, {.norm = {.n_rows = 3, .len = 576, .x_stride = 600, .eps = 1e-5f}}},
    {OP_NORM,
     {.norm = {.n_rows = 2, .len = 256, .x_stride = 256, .kind = 1, .has_bias = 1, .eps = 1e-5f}}},
    {OP_QUANTIZE, {.quantize = {.n_rows = 3, .len = 576, .x_stride = 600}}},
    {OP_LINEAR, {.linear = {.m = 75, .k = 512, .n_tokens = 1, .y_stride = 75}}},
    {OP_LINEAR,
     {.linear = {.m = 96,
                 .k = 256,
                 .n_tokens = 21,
                 .y_stride = 97,
                 .epilogue = LINEAR_ADD,
                 .has_bias = 1}}},
    {OP_ROPE_KV,
     {.rope_kv = {.n_tokens = 5,
                  .stride = 384,
                  .k_col = 192,
                  .v_col = 256,
                  .n_head = 3,
                  .n_head_kv = 1,
                  .head_dim = 64,
                  .n_rot = 64,
                  .mode = 0,
                  .n_ctx = 48,
                  .rotate = 1}}},
    {OP_ROPE_KV,
     {.rope_kv = {.n_tokens = 3,
                  .stride = 512,
                  .k_col = 256,
                  .v_col = 384,
                  .n_head = 4,
                  .n_head_kv = 2,
                  .head_dim = 64,
                  .n_rot = 32,
                  .mode = 1,
                  .n_ctx = 16,
                  .rotate = 1}}},
    {OP_ATTENTION,
     {.attention = {.n_tokens = 3,
                    .q_stride = 384,
                    .n_head = 6,
                    .n_head_kv = 2,
                    .head_dim = 64,
                    .n_ctx = 160,
                    .kv_max = 150,
                    .n_splits = 1,
                    .scale = 0.125f}}},
    {OP_ATTENTION,
     {.attention = {.n_tokens = 40,
                    .q_stride = 256,
                    .n_head = 4,
                    .n_head_kv = 4,
                    .head_dim = 64,
                    .n_ctx = 96,
                    .window = 24,
                    .kv_max = 90,
                    .n_splits = 3,
                    .scale = 0.5f,
                    .softcap = 5.0f}}},
    {OP_SWIGLU, {.swiglu = {.n_tokens = 3, .n = 576, .x_stride = 1152}}},
    {OP_ADD, {.add = {.n = 1001}}},
    {OP_ARGMAX, {.argmax = {.n_rows = 6, .len = 9001, .x_stride = 9001}}},
    {OP_REPACK, {.repack = {.n_rows = 75, .k = 512, .m_total = 75, .group = 1, .group_stride = 1}}},
};

/* A verdict as it lies in the cache. */
struct verdict {
    uint32_t passed;
    char reason[sizeof((struct selftest_row *)0)->reason];
};

enum status variant_source_hash(struct device *d, const struct variant *v, uint64_t *out,
                                struct err *e)
{
    struct strbuf source;
    *out = 0;
    if (v->ref)
        return ST_OK;
    strbuf_init(&source, SOURCE_MAX_BYTES);
    enum status st = source_file(device_kernel_dir(d), v->file, &source, e);
    if (st == ST_OK) {
        char row[1024];
        size_t n = (size_t)snprintf(row, sizeof row, "%s %s %d %u %u %s", op_name(v->op), v->name,
                                    v->dtype, v->act, v->layout, v->defines ? v->defines : "");
        for (uint32_t k = 0; k < VARIANT_MAX_STAGES && v->stages[k].entry && n < sizeof row; k++)
            n += (size_t)snprintf(row + n, sizeof row - n, " %s %u %u %u", v->stages[k].entry,
                                  v->stages[k].rows, v->stages[k].tokens, v->stages[k].lws);
        const char *parts[] = {row, strbuf_text(&source)};
        const size_t lengths[] = {strlen(row), source.length};
        *out = cache_hash(parts, lengths, 2).low;
    }
    strbuf_free(&source);
    return st;
}

static enum status selftest_key(struct device *d, const struct variant *v, struct cache_key *key,
                                struct err *e)
{
    uint64_t source;
    enum status st = variant_source_hash(d, v, &source, e);
    if (st != ST_OK)
        return st;
    char text[48];
    snprintf(text, sizeof text, "selftest " SELFTEST_FORMAT " %016" PRIx64, source);
    *key = device_cache_key(d, text);
    return ST_OK;
}

/* Is the case one that the variant can be asked for? */
static bool suits(const struct variant *v, const struct op_call *call)
{
    if (v->op != call->op)
        return false;
    const uint32_t columns = op_columns(call);
    return (v->k_multiple == 0 || columns % v->k_multiple == 0) &&
           (v->k_max == 0 || columns <= v->k_max);
}

static enum status run_cases(struct device *d, const struct variant *v, struct verdict *verdict,
                             struct err *e)
{
    *verdict = (struct verdict){.passed = 1};
    for (size_t i = 0; i < sizeof selftest_cases / sizeof *selftest_cases; i++) {
        const struct op_call call = {.op = selftest_cases[i].op,
                                     .params = selftest_cases[i].params};
        if (!suits(v, &call))
            continue;
        struct trial_result result;
        struct err why = {0};
        const enum dtype dtype = v->dtype == DT_ANY ? DT_F32 : (enum dtype)v->dtype;
        enum status st = trial_run(d, v, &call.params, dtype, SELFTEST_SEED, &result, &why);
        if (st == ST_BUILD) {
            *verdict = (struct verdict){.passed = 0};
            snprintf(verdict->reason, sizeof verdict->reason, "%.383s", why.text);
            return ST_OK;
        }
        if (st != ST_OK) {
            if (e)
                *e = why;
            return st;
        }
        if (!result.passed) {
            *verdict = (struct verdict){.passed = 0};
            snprintf(verdict->reason, sizeof verdict->reason, "%s", result.reason);
            return ST_OK;
        }
    }
    return ST_OK;
}

static bool load_verdict(struct device *d, struct cache_key key, struct verdict *verdict)
{
    void *data;
    size_t length;
    if (!cache_load(device_cache_dir(d), "selftest", key, CACHE_SELFTEST, &data, &length))
        return false;
    const bool valid = length == sizeof *verdict;
    if (valid)
        memcpy(verdict, data, sizeof *verdict);
    verdict->reason[sizeof verdict->reason - 1] = '\0';
    mem_free(data);
    return valid;
}

enum status variant_selftest(struct device *d, const struct variant *v, struct selftest_row *row,
                             struct err *e)
{
    *row = (struct selftest_row){.op = op_name(v->op), .variant = v->name, .passed = true};
    if (v->ref)
        return ST_OK;
    if (variant_mark_get(d, v) == VARIANT_PASSED) {
        row->cached = true;
        return ST_OK;
    }
    struct cache_key key;
    struct verdict verdict = {0};
    enum status st = selftest_key(d, v, &key, e);
    if (st != ST_OK)
        return st;
    row->cached = load_verdict(d, key, &verdict);
    if (!row->cached) {
        st = run_cases(d, v, &verdict, e);
        if (st != ST_OK)
            return st;
        cache_store(device_cache_dir(d), "selftest", key, CACHE_SELFTEST, &verdict, sizeof verdict);
    }
    row->passed = verdict.passed != 0;
    memcpy(row->reason, verdict.reason, sizeof row->reason);
    variant_mark_set(d, v, row->passed ? VARIANT_PASSED : VARIANT_FAILED);
    if (!row->passed)
        log_warn("kernel failed its self-test op=%s variant=%s dtype=%s reason=\"%s\"", row->op,
                 row->variant, v->dtype == DT_ANY ? "any" : dtype_name((uint32_t)v->dtype),
                 row->reason);
    return ST_OK;
}
