/* Ops: one table of what can be computed, and how on each device.
 *
 * op: an const row of ops.def {name, tensors, check, ref, flops, bytes}. variant: a row of
 * kernels/kernels.def {op, name, file, entry, dtype, act, layout, needs, grid, tunables}.
 * A call is {op, tensors, params}; op_bind makes it a launch of one variant with its arguments set
 * (or of the C reference on `host`); op_run enqueues it. A plan binds once and runs often.
 * Belongs to the device's thread.
 */
#ifndef OINFER_OPS_OP_H
#define OINFER_OPS_OP_H

#include "engine/cl/kernel.h"
#include "engine/cl/prof.h"
#include "engine/tensor/tensor.h"
#include "kernels/params.h"

enum op_id {
#define X(id, name, params, n, ...) id,
#include "engine/ops/ops.def"
#undef X
    OP_COUNT
};

/* The ops that no model uses, for the switches over ops. */
#define CASE_RULED       \
    case OP_MATMUL:      \
    case OP_SOFTMAX:     \
    case OP_TOP_K:       \
    case OP_ELEMENTWISE: \
    case OP_SPARSE_GEMV: \
    case OP_CONV2D

#define OP_MAX_TENSORS       6
#define ATTENTION_MAX_SPLITS 64

union op_params {
    struct embed_params embed;
    struct norm_params norm;
    struct quantize_params quantize;
    struct linear_params linear;
    struct rope_kv_params rope_kv;
    struct attention_params attention;
    struct swiglu_params swiglu;
    struct add_params add;
    struct argmax_params argmax;
    struct repack_params repack;
    struct matmul_params matmul;
    struct softmax_params softmax;
    struct top_k_params top_k;
    struct elementwise_params elementwise;
    struct sparse_gemv_params sparse_gemv;
    struct conv2d_params conv2d;
};

struct op_call {
    enum op_id op;
    struct tensor tensors[OP_MAX_TENSORS]; /* in the order of ops.def */
    union op_params params;
};

/* Weight layouts: LAYOUT_FILE is the row-major block order of the file; the others are made by
 * OP_REPACK and described in the .cl file of their repack kernel. */
enum weight_layout {
    LAYOUT_FILE = 0,
    LAYOUT_R16 = 1, /* CPU: 16 rows interleaved, one stream per row group with its scales inside */
    LAYOUT_R4 = 2,  /* GPU: rows interleaved for coalescing, scales apart */
    LAYOUT_COUNT
};
/* Bytes of a weight [m][k] of `dtype` in `layout`, padding included; 0 if that pair does not exist
 * (e.g. k not a multiple of what the layout needs). */
uint64_t layout_bytes(enum dtype dtype, enum weight_layout layout, uint64_t m, uint64_t k);
/* Rows a layout interleaves (16, 4, 1): stacking starts at multiples of it. */
uint32_t layout_rows(enum weight_layout layout);

struct variant; /* opaque row of kernels.def; static lifetime */
const char *variant_name(const struct variant *v);
enum op_id variant_op(const struct variant *v);
int variant_dtype(const struct variant *v);    /* of its weight or cache; -1: any, or none */
uint32_t variant_act(const struct variant *v); /* ACT_* it reads (linear) or writes */
enum weight_layout variant_layout(const struct variant *v); /* of its weight, or KV_* */

/* "NAME=v,v,v ..." of what may be tuned; "" for nothing. */
const char *variant_tunables(const struct variant *v);

/* What a caller needs of a variant; fields it does not care about are -1. */
struct variant_query {
    enum op_id op;
    int dtype;  /* of the weight (linear, embed, repack) or of the cache (rope_kv, attention) */
    int act;    /* format read (linear) or written (norm, quantize, swiglu) */
    int layout; /* weight_layout or KV_* */
    uint32_t n_tokens, m, k; /* shape hints: rows of activations, weight rows, weight columns */
    const char *name;        /* a variant by name, or NULL */
};
/* The best variant for the device: forced by name, else tuned, else by heuristic on shape and caps
 * among those whose needs the device has and whose self-test passed. NULL: there is none. On `host`
 * the reference of the op (name "ref", LAYOUT_FILE, ACT_F32, KV_PLAIN). */
const struct variant *variant_choose(struct device *d, const struct variant_query *query);
/* The best variant for a whole call (dtype: of its tensors), judged by its shape as well. NULL:
 * none. Names one if name is not NULL. */
const struct variant *variant_for_call(struct device *d, const struct op_call *call,
                                       enum dtype dtype, const char *name);
/* The variants that variant_for_call chooses from without a name, best first; NULL past the end. */
const struct variant *variant_candidate(struct device *d, const struct op_call *call,
                                        enum dtype dtype, uint32_t i);
/* Why the variant cannot run a call of this shape (static text); NULL: it can. */
const char *variant_refuses(const struct variant *v, const struct op_call *call);
/* i-th variant of an op that the device could run; NULL past the end. */
const struct variant *variant_at(struct device *d, enum op_id op, uint32_t i);

struct op_step;
/* Checks the call (shapes, dtypes, bounds of every tensor) and binds it. The tensors' buffers must
 * outlive the step. ST_INVALID names op, tensor, value, limit. */
enum status op_bind(struct device *d, const struct variant *v, const struct op_call *call,
                    struct op_step **out, struct err *e);
void op_step_close(struct op_step *s); /* accepts NULL */
/* Changes the params (same struct) or one tensor of a bound step; cheap. */
enum status op_step_set_params(struct op_step *s, const union op_params *params, struct err *e);
enum status op_step_set_tensor(struct op_step *s, uint32_t index, const struct tensor *t,
                               struct err *e);
enum status op_run(struct op_step *s, struct err *e);
/* Does the step run as its row says? ST_UNSUPPORTED: a kernel's own limit on this device
 * (registers, local memory) had its groups made smaller, or they need more local memory than there
 * is. */
enum status op_step_check_fit(const struct op_step *s, struct err *e);
/* Binds, runs and closes: for loading and one-off work. */
enum status op_call_once(struct device *d, const struct variant *v, const struct op_call *call,
                         struct err *e);

const char *op_name(enum op_id op);
/* Work of a call, for rates: bytes each input once and each output once; flops as in api.md. */
uint64_t op_bytes(const struct op_call *call);
uint64_t op_flops(const struct op_call *call);
/* Bytes of private memory that a variant needs for a call of this shape; 0: none. */
uint64_t op_scratch_bytes(const struct variant *v, const struct op_call *call);
/* Scratch an attention call needs on this device (NULL: any device). */
uint64_t attention_scratch_bytes(struct device *d, const struct attention_params *p);
/* The n_splits that suits the device and the call; p->n_splits is not read. 1 means no split. */
uint32_t attention_splits(struct device *d, const struct attention_params *p);

/* Self-test: runs a variant on small known inputs against the reference. Results are cached on disk
 * by device, driver and source. A failed variant is never chosen again in this process. */
struct selftest_row {
    const char *op, *variant;
    bool passed, cached;
    char reason[384]; /* "" when passed */
};
enum status variant_selftest(struct device *d, const struct variant *v, struct selftest_row *row,
                             struct err *e);

#endif
