/* Variants: the rows of kernels.def and what the rest of engine/ops knows about an op.
 *
 * Private to engine/ops. Rows are static and constant; per-device facts (a failed self-test) are
 * marks of the device. Everything here belongs to the device's thread.
 */
#ifndef OINFER_OPS_VARIANT_H
#define OINFER_OPS_VARIANT_H

#include "engine/ops/op.h"

#define DT_ANY                (-1)
#define VARIANT_MAX_STAGES    4
#define ATTENTION_SPLIT_CELLS 4096  /* depth_max of attention split: cells of one split */
#define VARIANT_DEPTH_MAX     60000 /* where a row of kernels.def has no depth_max */

enum grid_kind { GRID_NONE, GRID_ITEMS, GRID_GROUPS, GRID_SPLITS, GRID_UNITS };

/* Private memory that does not follow from the blocks of the first stage: sized by the op's rules.
 * SCRATCH_ROWS: operands converted to f32, each in the order in which it is read; SCRATCH_PANELS:
 * in panels of a tile's rows or columns; SCRATCH_COLUMNS: input patches as columns (im2col);
 * SCRATCH_TILES: transformed tiles (Winograd); SCRATCH_IMAGE: no buffer but an array of images;
 * SCRATCH_SCORES: attention, a float for each head, token and cell. */
enum scratch_kind {
    SCRATCH_BLOCKS,
    SCRATCH_ROWS,
    SCRATCH_PANELS,
    SCRATCH_COLUMNS,
    SCRATCH_TILES,
    SCRATCH_IMAGE,
    SCRATCH_SCORES
};
/* Shapes that a variant is made for; the op's rules know what each means. */
enum shape_kind {
    SHAPES_ALL,
    SHAPES_SMALL,     /* matmul: m or n under 128 */
    SHAPES_LINES,     /* matmul: lines of under 2^27 numbers */
    SHAPES_DEEP,      /* matmul: k of at least 2048 */
    SHAPES_LONG,      /* softmax: rows of over 8192 */
    SHAPES_KEPT,      /* softmax: rows of over 8192 and at most 32768 */
    SHAPES_GATHERED,  /* conv2d: a filter of kh + kw under 32, whose distances fit 32 bits */
    SHAPES_POINTWISE, /* conv2d: 1 x 1, stride 1, no padding */
    SHAPES_WINOGRAD,  /* conv2d: 3 x 3, stride and dilation 1 */
    SHAPES_WIDE,      /* conv2d: the same, with at least 32 channels in and out */
    SHAPES_DEPTHWISE, /* conv2d: a group per channel */
    SHAPES_CONSTANT,  /* conv2d: weights that fit in constant memory */
    SHAPES_IMAGES     /* conv2d: x that fits the smallest images a device may have */
};

/* One launch of a variant: kernels.def says how rows, tokens and lws make the grid. */
struct stage {
    const char *entry;
    enum grid_kind grid;
    uint32_t rows, tokens, lws;
};

/* data: where each tensor of the call lies in host memory; the call's buffers are not looked at. */
typedef enum status (*ref_fn)(const struct op_call *call, void *const *data, struct err *e);

struct variant {
    enum op_id op;
    const char *name, *file; /* file: NULL for a reference */
    int dtype;               /* enum dtype or DT_ANY */
    uint32_t act, layout, needs;
    uint32_t tokens_min, tokens_max, k_multiple, k_max, depth_max;
    uint32_t mflops_min;
    int priority;
    uint32_t block_cost; /* 0: not known */
    uint32_t k_splits;   /* groups that share a block; 0: one has it alone */
    const char *defines, *tunables;
    const char *require; /* what its tunables have to satisfy: engine/tune/condition.h */
    bool exact_lws;      /* the driver's word on the size of groups does not count */
    uint32_t scratch_bytes;
    enum scratch_kind scratch;
    enum shape_kind only;
    struct stage stages[VARIANT_MAX_STAGES];
    ref_fn ref; /* the C function of a reference, else NULL */
};

/* All rows of kernels.def, in its order. */
extern const struct variant variant_rows[];
extern const uint32_t variant_row_count;

/* The reference of an op: a row like the others, with `ref` set. */
const struct variant *variant_reference(enum op_id op);

/* Marks of a variant on a device. */
enum variant_mark { VARIANT_UNTESTED, VARIANT_PASSED, VARIANT_FAILED };
enum variant_mark variant_mark_get(struct device *d, const struct variant *v);
void variant_mark_set(struct device *d, const struct variant *v, enum variant_mark mark);

/* Hash of all that the variant is built from (its program's text and the row) on this device. */
enum status variant_source_hash(struct device *d, const struct variant *v, uint64_t *out,
                                struct err *e);

/* The order in which variants are preferred for an output of rows x tokens (0: not known) on a
 * device of so many compute units: below 0 when a goes before b, 0 when neither does. */
int variant_compare(const struct variant *a, const struct variant *b, uint64_t rows,
                    uint64_t tokens, uint32_t units);

bool variant_has_scratch(const struct variant *v);
/* Rows and tokens of its blocks, as the builds get them: the largest of its stages. */
uint32_t variant_rows_of(const struct variant *v);
uint32_t variant_tokens_of(const struct variant *v);

/* Names of an op's tensors, in order; NULL past the end. */
const char *op_tensor_name(enum op_id op, uint32_t i);
uint32_t op_tensor_count(enum op_id op);
bool op_tensor_is_output(enum op_id op, uint32_t i);
/* What a tensor of an op holds: it decides dtype, layout and alignment. KIND_BYTES: a weight in its
 * file layout, whatever the variant's. KIND_REAL: plain numbers of the variant's dtype. */
enum tensor_kind {
    KIND_NONE,
    KIND_F32,
    KIND_I32,
    KIND_WEIGHT,
    KIND_CACHE,
    KIND_ACT,
    KIND_BYTES,
    KIND_REAL
};
enum tensor_kind op_tensor_kind(enum op_id op, uint32_t i);
/* Bytes of the op's params struct. */
size_t op_params_bytes(enum op_id op);

/* Rows and tokens of the op's output, as kernels.def counts them. */
void op_extent(const struct op_call *call, uint64_t *rows, uint64_t *tokens);
/* The number of columns that k_multiple and k_max speak of; 0 if the op has none. */
uint32_t op_columns(const struct op_call *call);
/* Elements that an output element is made of, one after another (linear: k, norm: len, attention:
 * the cells of a split); 1 for what goes element by element. */
uint64_t op_depth(const struct op_call *call);
/* The op_depth up to which the variant is right on this device; UINT64_MAX: any. */
uint64_t variant_depth_max(struct device *d, const struct variant *v);
/* Bytes that tensor i of a call must have at least; 0: not used by this call. Only after op_check
 * found the params sound. */
uint64_t op_tensor_bytes(const struct op_call *call, uint32_t i);
/* Checks the params alone, before there are tensors. */
enum status op_check_params(const struct variant *v, const struct op_call *call, struct err *e);
/* Checks params, dtypes, layouts and bounds of a call of variant v. */
enum status op_check(const struct variant *v, const struct op_call *call, struct err *e);

#endif
