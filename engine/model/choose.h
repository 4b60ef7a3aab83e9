/* Choice of kernel variants for a model: forced, tuned or by heuristic, and always self-tested.
 *
 * Every variant that is handed out has passed its self-test on this device (once per device, driver
 * and source: the result is cached); one that fails is noted and the next one is taken. A chooser
 * belongs to the device's thread and lives as long as its engine.
 */
#ifndef OINFER_MODEL_CHOOSE_H
#define OINFER_MODEL_CHOOSE_H

#include "engine/ops/op.h"

#define CHOOSE_MAX_FORCED   16
#define CHOOSE_MAX_REPLACED 16

struct forced_choice {
    enum op_id op;
    char variant[32];
};

struct chooser {
    struct device *device; /* borrowed */
    uint32_t n_forced;
    struct forced_choice forced[CHOOSE_MAX_FORCED];
    uint32_t n_replaced; /* variants that failed; the first ones are kept */
    struct selftest_row replaced[CHOOSE_MAX_REPLACED];
};

/* text: "op=variant,op=variant" or NULL. ST_INVALID names an unknown op or variant. */
enum status chooser_init(struct chooser *c, struct device *d, const char *text, struct err *e);

/* The best variant that passes its self-test; *out NULL when there is none (still ST_OK). A forced
 * variant that does not answer the query (another dtype, layout or format) is passed over. */
enum status choose_variant(struct chooser *c, const struct variant_query *query,
                           const struct variant **out, struct err *e);
/* As choose_variant, but none is ST_UNSUPPORTED naming op, dtype and device. */
enum status need_variant(struct chooser *c, const struct variant_query *query,
                         const struct variant **out, struct err *e);

/* The layout for a weight [m][k] that has a kernel for every count of tokens in n_tokens[n]: the
 * one that the variant for n_tokens[0] wants, else for the next, at last the file's. */
enum status choose_weight_layout(struct chooser *c, enum dtype dtype, uint32_t m, uint32_t k,
                                 const uint32_t *n_tokens, uint32_t n, enum weight_layout *layout,
                                 struct err *e);
/* The same for a KV cache: a layout that attention and rope_kv have for every count. */
enum status choose_kv_layout(struct chooser *c, enum dtype dtype, uint32_t head_dim,
                             const uint32_t *n_tokens, uint32_t n, uint32_t *layout, struct err *e);

#endif
