/* The graph: WHAT a model computes for a batch of tokens, whatever the device.
 *
 * A list of nodes in the order of execution, over values (matrices of activations, float in
 * meaning, of any ACT_* format in memory) and weights (one or more tensors of the file, stacked).
 * Shape-free in the number of tokens: plan.c turns it into launches for a class of shapes. Built
 * once per model file by the architecture's builder, immutable afterwards; any thread may read.
 *
 * Rows: a value has a row per token of the batch (ROWS_TOKENS) or per requested output
 * (ROWS_OUTPUTS). The tokens whose output is requested are the LAST ones of a batch, in order, so
 * the rows of outputs are the tail of the rows of tokens: a node that works on outputs may read and
 * write a value of tokens, and then touches its tail.
 */
#ifndef OINFER_MODEL_GRAPH_H
#define OINFER_MODEL_GRAPH_H

#include "engine/model/gguf.h"
#include "engine/model/hparams.h"
#include "engine/ops/op.h"

#define GRAPH_NONE       UINT32_MAX
#define GRAPH_MAX_VALUES 32
#define WEIGHT_MAX_PARTS 3

enum graph_rows { ROWS_TOKENS, ROWS_OUTPUTS };

struct graph_value {
    const char *name; /* static */
    uint32_t columns;
    enum graph_rows rows;
};

enum weight_kind {
    WEIGHT_MATRIX, /* of a linear node: [m][k], any layout */
    WEIGHT_TABLE,  /* of an embed node: [m][k]; as in the file, unless a matrix shares it */
    WEIGHT_VECTOR  /* norm weights and biases: float [m] */
};

/* Tensors of the file that one node uses as one weight: their rows follow one another. */
struct graph_weight {
    const char *role; /* static: "qkv", "o", "gate_up", ... */
    enum weight_kind kind;
    uint32_t m, k; /* rows in all, columns (1 for a vector) */
    uint32_t n_parts;
    const struct gguf_tensor *parts[WEIGHT_MAX_PARTS]; /* borrowed from the file */
    bool pairs; /* two parts, gate and up, whose rows may be interleaved by the layout */
};

/* One operation. Which fields count:
 *   embed      weight (table), output
 *   norm       input, weight (vector), output; params.norm.eps, kind
 *   linear     input, weight, bias (vector or none), output; params.linear.epilogue STORE or ADD
 *   rope_kv    input (qkv, rotated in place), layer; params.rope_kv
 *   attention  input (qkv), layer, output; params.attention
 *   swiglu     input (gate_up), output; params.swiglu.act
 *   argmax     input
 * The params' counts of tokens, strides and sizes are filled in by the plan. */
struct graph_node {
    enum op_id op;
    const char *role;     /* static; of the weight, or the op's name */
    int32_t layer;        /* -1: outside the layers */
    enum graph_rows rows; /* the rows it works on */
    uint32_t input, output, weight, bias;
    union op_params params;
};

struct graph {
    const struct hparams *hparams; /* borrowed */
    uint32_t rope_mode;
    uint32_t n_values, n_weights, n_nodes;
    struct graph_value values[GRAPH_MAX_VALUES];
    struct graph_weight *weights;
    struct graph_node *nodes;
    uint32_t logits;                        /* the value that holds them */
    const struct gguf_tensor *rope_factors; /* rope_freqs.weight [n_rot / 2], or NULL */
    /* private to graph.c */
    uint32_t weights_capacity, nodes_capacity;
};

typedef enum status (*graph_builder)(struct graph *g, const struct hparams *h, const struct gguf *f,
                                     struct err *e);

/* Builds the graph of a file. Every tensor it needs is there and has the shape that the
 * hyper-parameters say: else ST_FORMAT naming tensor, size and expected size (missing tensors are
 * named too); a dtype that cannot be a weight is ST_UNSUPPORTED. */
enum status graph_open(const struct hparams *h, const struct gguf *f, struct graph **out,
                       struct err *e);
void graph_close(struct graph *g); /* accepts NULL */

/* ---- for the builders ---- */

/* Adds a value; there are at most GRAPH_MAX_VALUES. */
uint32_t graph_value(struct graph *g, const char *name, uint32_t columns, enum graph_rows rows);

/* Finds tensor `name` in f and checks that its shape is [k][m] in the file's order (ne[0] = k).
 * NULL *out when it is absent and `optional`. */
enum status graph_tensor(const struct gguf *f, const char *name, uint64_t k, uint64_t m,
                         bool optional, const struct gguf_tensor **out, struct err *e);

/* Adds a weight made of the parts given and returns its number; GRAPH_NONE if memory is short. */
uint32_t graph_weight(struct graph *g, const char *role, enum weight_kind kind,
                      const struct gguf_tensor *const *parts, uint32_t n_parts, bool pairs);

/* Appends a node with everything but op, role and layer unset; NULL if memory is short. Valid until
 * the next append. */
struct graph_node *graph_node(struct graph *g, enum op_id op, const char *role, int32_t layer);

#endif
