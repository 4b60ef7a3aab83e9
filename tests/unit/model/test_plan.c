/* Graph and plan of a tiny model on `host`: the nodes of llama, tensors of the wrong shape, and
 * scratch in which no step's operands overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/log.h"
#include "engine/model/model.h"
#include "tests/assert_ok.h"
#include "tests/golden/tiny.h"

static char path[64];
static struct device_list *devices;
static struct engine *engine;
static struct model_file *file;
static struct model *model;

static void graph_is_the_architecture_s(void **state)
{
    (void)state;
    static const enum op_id layer[] = {OP_NORM, OP_LINEAR, OP_ROPE_KV, OP_ATTENTION, OP_LINEAR,
                                       OP_NORM, OP_LINEAR, OP_SWIGLU,  OP_LINEAR};
    const uint32_t n_layer_nodes = sizeof layer / sizeof layer[0];
    const struct graph *g = file->graph;
    assert_int_equal(g->n_nodes, 1 + tiny_default.n_layer * n_layer_nodes + 3);
    assert_int_equal(g->nodes[0].op, OP_EMBED);
    for (uint32_t l = 0; l < tiny_default.n_layer; l++) {
        for (uint32_t i = 0; i < n_layer_nodes; i++) {
            const struct graph_node *n = &g->nodes[1 + l * n_layer_nodes + i];
            assert_int_equal(n->op, layer[i]);
            assert_int_equal(n->layer, l);
            /* from the last layer's attention on, only outputs are computed */
            assert_int_equal(n->rows,
                             l + 1 == tiny_default.n_layer && i >= 3 ? ROWS_OUTPUTS : ROWS_TOKENS);
        }
    }
    assert_int_equal(g->nodes[g->n_nodes - 1].op, OP_ARGMAX);
    const struct graph_weight *qkv = &g->weights[g->nodes[2].weight];
    assert_int_equal(qkv->n_parts, 3);
    assert_int_equal(qkv->m, (4 + 2 * 2) * 64);
    assert_int_equal(qkv->k, 256);
}

/* [begin, end) of an operand that lies in scratch; false for others. */
static bool scratch_range(const struct plan *p, const struct plan_step *s, uint32_t i,
                          uint64_t *begin, uint64_t *end)
{
    if (s->operands[i].value == PLAN_NO_VALUE)
        return false;
    *begin = p->values[s->operands[i].value].offset;
    *end = *begin + p->values[s->operands[i].value].bytes;
    return true;
}

static void operands_of_a_step_do_not_overlap(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < model->n_plans; n++) {
        const struct plan *p = model->plans[n];
        for (uint32_t i = 0; i < p->n_steps; i++) {
            const struct plan_step *s = &p->steps[i];
            for (uint32_t a = 0; a < OP_MAX_TENSORS; a++) {
                for (uint32_t b = a + 1; b < OP_MAX_TENSORS; b++) {
                    uint64_t a0, a1, b0, b1;
                    if (!scratch_range(p, s, a, &a0, &a1) || !scratch_range(p, s, b, &b0, &b1) ||
                        s->operands[a].value == s->operands[b].value)
                        continue;
                    assert_true(a1 <= b0 || b1 <= a0);
                    assert_true(a1 <= p->scratch_bytes && b1 <= p->scratch_bytes);
                }
            }
        }
    }
}

/* x is read by every layer: nothing may be written over it between the embedding and the head. */
static void residual_stream_is_never_overwritten(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < model->n_plans; n++) {
        const struct plan *p = model->plans[n];
        const uint8_t x = p->steps[0].operands[2].value;
        uint32_t last = 0;
        for (uint32_t i = 0; i < p->n_steps; i++)
            for (uint32_t t = 0; t < OP_MAX_TENSORS; t++)
                if (p->steps[i].operands[t].value == x)
                    last = i;
        assert_true(last > 0);
        const uint64_t x0 = p->values[x].offset, x1 = x0 + p->values[x].bytes;
        for (uint32_t i = 1; i < last; i++) {
            for (uint32_t t = 0; t < OP_MAX_TENSORS; t++) {
                uint64_t begin, end;
                if (p->steps[i].operands[t].value != x &&
                    scratch_range(p, &p->steps[i], t, &begin, &end))
                    assert_true(end <= x0 || x1 <= begin);
            }
        }
    }
}

static void plans_grow_by_class(void **state)
{
    (void)state;
    assert_int_equal(model->n_plans, 3);
    assert_ptr_equal(model__plan_for(model, 1), model->plans[0]);
    assert_ptr_equal(model__plan_for(model, 2), model->plans[1]);
    assert_ptr_equal(model__plan_for(model, 8), model->plans[1]);
    assert_ptr_equal(model__plan_for(model, 9), model->plans[2]);
    assert_int_equal(model->plans[2]->max_outputs, 32);
}

static void wrong_tensors_are_named(void **state)
{
    (void)state;
    const struct gguf *g = file->gguf;
    const struct gguf_tensor *t;
    struct err e;
    assert_int_equal(graph_tensor(g, "blk.0.attn_q.weight", 256, 512, false, &t, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "tensor blk.0.attn_q.weight: 256 x 256"));
    assert_non_null(strstr(e.text, "expected 256 x 512"));
    assert_int_equal(graph_tensor(g, "blk.9.attn_q.weight", 256, 256, false, &t, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "blk.9.attn_q.weight is missing"));
    assert_int_equal(graph_tensor(g, "output.bias", 288, 1, true, &t, &e), ST_OK);
    assert_null(t);
    struct hparams h = file->hparams;
    struct graph *graph;
    h.n_ff = 544;
    assert_int_equal(graph_open(&h, g, &graph, &e), ST_FORMAT);
    assert_non_null(strstr(e.text, "blk.0.ffn_gate.weight"));
    h = file->hparams;
    h.n_expert = 8;
    assert_int_equal(graph_open(&h, g, &graph, &e), ST_UNSUPPORTED);
    snprintf(h.arch, sizeof h.arch, "mamba");
    assert_int_equal(graph_open(&h, g, &graph, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.text, "mamba"));
}

/* A tied table is kept once: by the output matrix, in its layout, wherever embed reads that. */
static void tied_table_is_kept_once(void **state)
{
    (void)state;
    const struct engine_options options = {0};
    const uint32_t n_tokens[] = {1, 8, 32};
    struct tiny tied = tiny_default;
    char tied_path[72];
    struct model_file *f;
    uint32_t n_cpus = 0;
    tied.tied = true;
    snprintf(tied_path, sizeof tied_path, "%s.tied", path);
    ASSERT_OK(tiny_write(&tied, tied_path, e));
    ASSERT_OK(model_file_open(tied_path, &f, e));
    const uint32_t table = f->graph->nodes[0].weight;
    const uint32_t head = f->graph->nodes[f->graph->n_nodes - 2].weight;
    const uint64_t head_bytes = f->graph->weights[head].parts[0]->n_bytes;
    assert_int_equal(f->graph->weights[table].kind, WEIGHT_TABLE);
    assert_int_equal(f->graph->weights[head].kind, WEIGHT_MATRIX);
    for (uint32_t i = 0; i < device_list_count(devices); i++) {
        const struct device_info *info = device_list_at(devices, i);
        struct engine *g;
        struct weights *w;
        if (info->kind != DEVICE_CPU || !info->available)
            continue;
        n_cpus++;
        ASSERT_OK(engine_open(devices, i, &options, &g, e));
        ASSERT_OK(weights_place(&g->chooser, f->graph, n_tokens, 3, &w, e));
        const struct weight *rows = weights_at(w, table), *matrix = weights_at(w, head);
        assert_ptr_equal(rows->chunks, matrix->chunks);
        assert_int_equal(rows->n_chunks, matrix->n_chunks);
        if (device_caps(engine_device(g)) & CAP_CPU) {
            assert_int_equal(rows->chunks[0].tensor.layout, LAYOUT_R16);
            assert_int_equal(weights_in_place_bytes(w), 0);
            assert_true(weights_device_bytes(w) >= head_bytes);
        }
        weights_close(w);
        engine_close(g);
    }
    if (n_cpus == 0)
        print_message("no OpenCL CPU device: only the host's layout was seen\n");
    model_file_close(f);
    unlink(tied_path);
}

static int open_model(void **state)
{
    (void)state;
    const struct engine_options options = {0};
    const struct load_options load = {.n_ctx = 64, .n_batch = 32};
    uint32_t host, n = 1;
    log_init(LOG_ERROR, 0);
    snprintf(path, sizeof path, "/tmp/oinfer-plan-%ld.gguf", (long)getpid());
    return tiny_write(&tiny_default, path, NULL) == ST_OK &&
                   device_list_open(0, &devices, NULL) == ST_OK &&
                   device_select(devices, "host", &host, &n, NULL) == ST_OK &&
                   engine_open(devices, host, &options, &engine, NULL) == ST_OK &&
                   model_file_open(path, &file, NULL) == ST_OK &&
                   model_load(engine, file, &load, &model, NULL) == ST_OK
               ? 0
               : -1;
}

static int close_model(void **state)
{
    (void)state;
    model_close(model);
    model_file_close(file);
    engine_close(engine);
    device_list_close(devices);
    unlink(path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_is_the_architecture_s),
        cmocka_unit_test(operands_of_a_step_do_not_overlap),
        cmocka_unit_test(residual_stream_is_never_overwritten),
        cmocka_unit_test(plans_grow_by_class),
        cmocka_unit_test(wrong_tensors_are_named),
        cmocka_unit_test(tied_table_is_kept_once),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
