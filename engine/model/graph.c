/* Graphs: growing lists of weights and nodes, and the checks of the tensors they name. */
#include "engine/model/graph.h"

#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/arch.h"

/* Room for one more element of a growing array; false when memory is short. */
static bool reserve(void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity ? *capacity * 2 : 64;
    void *bigger = mem_array_resize(*array, wanted, size);
    if (!bigger)
        return false;
    *array = bigger;
    *capacity = wanted;
    return true;
}

uint32_t graph_value(struct graph *g, const char *name, uint32_t columns, enum graph_rows rows)
{
    ASSERT(g->n_values < GRAPH_MAX_VALUES);
    g->values[g->n_values] = (struct graph_value){name, columns, rows};
    return g->n_values++;
}

enum status graph_tensor(const struct gguf *f, const char *name, uint64_t k, uint64_t m,
                         bool optional, const struct gguf_tensor **out, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_find(f, name);
    *out = t;
    if (!t)
        return optional ? ST_OK : err_set(e, ST_FORMAT, "tensor %s is missing", name);
    if (t->ne[0] != k || t->ne[1] != m || t->ne[2] != 1 || t->ne[3] != 1)
        return err_set(e, ST_FORMAT,
                       "tensor %s: %llu x %llu x %llu x %llu, expected %llu x %llu by the "
                       "hyper-parameters",
                       name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                       (unsigned long long)t->ne[2], (unsigned long long)t->ne[3],
                       (unsigned long long)k, (unsigned long long)m);
    if (!dtype_info(t->dtype)->compute)
        return err_set(e, ST_UNSUPPORTED, "tensor %s: weights of dtype %s are not supported", name,
                       dtype_name(t->dtype));
    return ST_OK;
}

uint32_t graph_weight(struct graph *g, const char *role, enum weight_kind kind,
                      const struct gguf_tensor *const *parts, uint32_t n_parts, bool pairs)
{
    if (!reserve((void **)&g->weights, g->n_weights, &g->weights_capacity, sizeof *g->weights))
        return GRAPH_NONE;
    struct graph_weight *w = &g->weights[g->n_weights];
    *w = (struct graph_weight){.role = role, .kind = kind, .n_parts = n_parts, .pairs = pairs};
    w->k = kind == WEIGHT_VECTOR ? 1 : (uint32_t)parts[0]->ne[0];
    for (uint32_t i = 0; i < n_parts; i++) {
        w->parts[i] = parts[i];
        w->m += (uint32_t)parts[i]->ne[kind == WEIGHT_VECTOR ? 0 : 1];
    }
    return g->n_weights++;
}

struct graph_node *graph_node(struct graph *g, enum op_id op, const char *role, int32_t layer)
{
    if (!reserve((void **)&g->nodes, g->n_nodes, &g->nodes_capacity, sizeof *g->nodes))
        return NULL;
    struct graph_node *n = &g->nodes[g->n_nodes++];
    *n = (struct graph_node){.op = op,
                             .role = role,
                             .layer = layer,
                             .input = GRAPH_NONE,
                             .output = GRAPH_NONE,
                             .weight = GRAPH_NONE,
                             .bias = GRAPH_NONE};
    return n;
}

enum status graph_open(const struct hparams *h, const struct gguf *f, struct graph **out,
                       struct err *e)
{
    const struct arch *arch = arch_find(h->arch);
    if (!arch)
        return err_set(e, ST_UNSUPPORTED, "architecture \"%s\" is not supported", h->arch);
    struct graph *g = mem_zalloc(sizeof *g);
    if (!g)
        return err_set(e, ST_NO_MEMORY, "graph: %zu bytes", sizeof *g);
    g->hparams = h;
    g->rope_mode = arch->rope_mode;
    enum status status = arch->build(g, h, f, e);
    if (status != ST_OK) {
        graph_close(g);
        return status;
    }
    *out = g;
    return ST_OK;
}

void graph_close(struct graph *g)
{
    if (!g)
        return;
    mem_free(g->weights);
    mem_free(g->nodes);
    mem_free(g);
}
