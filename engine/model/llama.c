/* The graph of architecture "llama": Llama 1 to 3, Mistral, SmolLM and what shares their shape.
 *
 *   x = embed(ids)
 *   per layer:  h = rms(x) * w;  q|k|v = W h (+ b);  rope(q, k), store k, v
 *               x += Wo attention(q) (+ b)
 *               h = rms(x) * w;  x += Wdown (silu(Wgate h) * (Wup h))
 *   logits = Whead (rms(x) * w)          Whead: output.weight, else token_embd.weight
 *
 * From the last layer's attention on, only the rows whose output was asked for are computed.
 * Source: Touvron et al. 2023 (LLaMA), Jiang et al. 2023 (Mistral: sliding window).
 */
#include <stdio.h>

#include "engine/model/arch.h"

#define NAME_BYTES 64

/* What the builder passes around; the values are reused by every layer. */
struct llama {
    struct graph *g;
    const struct hparams *h;
    const struct gguf *f;
    uint32_t x, h_attn, qkv, att, h_ffn, gate_up, act;
    struct err *e;
};

/* One tensor that a weight is made of: blk.LAYER.NAME.weight (or .bias), [m][k]. */
struct part {
    const char *name;
    uint32_t m, k;
};

static enum status out_of_memory(struct err *e)
{
    return err_set(e, ST_NO_MEMORY, "graph: a list of nodes does not grow");
}

/* Makes a weight of the parts' tensors. An optional one whose tensors are all absent gives
 * GRAPH_NONE; some but not all is an error. layer < 0: names without "blk.N.". */
static enum status add_weight(struct llama *l, int32_t layer, const char *role, const char *suffix,
                              enum weight_kind kind, const struct part *parts, uint32_t n_parts,
                              bool optional, uint32_t *out)
{
    const struct gguf_tensor *tensors[WEIGHT_MAX_PARTS] = {0};
    uint32_t n_found = 0;
    *out = GRAPH_NONE;
    for (uint32_t i = 0; i < n_parts; i++) {
        char name[NAME_BYTES];
        if (layer < 0)
            snprintf(name, sizeof name, "%s.%s", parts[i].name, suffix);
        else
            snprintf(name, sizeof name, "blk.%d.%s.%s", layer, parts[i].name, suffix);
        uint64_t k = kind == WEIGHT_VECTOR ? parts[i].m : parts[i].k;
        uint64_t m = kind == WEIGHT_VECTOR ? 1 : parts[i].m;
        enum status status =
            graph_tensor(l->f, name, k, m, optional && n_found == 0, &tensors[i], l->e);
        if (status != ST_OK)
            return status;
        if (!tensors[i] && n_found > 0)
            return err_set(l->e, ST_FORMAT, "tensor %s is missing", name);
        n_found += tensors[i] != NULL;
    }
    if (n_found == 0)
        return ST_OK;
    if (!tensors[0])
        return err_set(l->e, ST_FORMAT, "tensor blk.%d.%s.%s is missing, others of its kind exist",
                       layer, parts[0].name, suffix);
    *out = graph_weight(l->g, role, kind, tensors, n_parts, false);
    return *out == GRAPH_NONE ? out_of_memory(l->e) : ST_OK;
}

static enum status add_norm(struct llama *l, int32_t layer, const char *role, const char *tensor,
                            uint32_t input, uint32_t output, enum graph_rows rows)
{
    struct part part = {tensor, l->h->n_embd, 1};
    uint32_t weight;
    enum status status =
        add_weight(l, layer, role, "weight", WEIGHT_VECTOR, &part, 1, false, &weight);
    if (status != ST_OK)
        return status;
    struct graph_node *n = graph_node(l->g, OP_NORM, role, layer);
    if (!n)
        return out_of_memory(l->e);
    n->input = input;
    n->output = output;
    n->weight = weight;
    n->rows = rows;
    n->params.norm.eps = l->h->norm_eps;
    return ST_OK;
}

/* output (= or +=) parts * input, with the parts' biases where the file has them. */
static enum status add_linear(struct llama *l, int32_t layer, const char *role,
                              const struct part *parts, uint32_t n_parts, uint32_t input,
                              uint32_t output, uint32_t epilogue, enum graph_rows rows)
{
    uint32_t weight, bias;
    enum status status =
        add_weight(l, layer, role, "weight", WEIGHT_MATRIX, parts, n_parts, false, &weight);
    if (status == ST_OK)
        status = add_weight(l, layer, role, "bias", WEIGHT_VECTOR, parts, n_parts, true, &bias);
    if (status != ST_OK)
        return status;
    struct graph_node *n = graph_node(l->g, OP_LINEAR, role, layer);
    if (!n)
        return out_of_memory(l->e);
    n->input = input;
    n->output = output;
    n->weight = weight;
    n->bias = bias;
    n->rows = rows;
    n->params.linear.epilogue = epilogue;
    return ST_OK;
}

static enum status add_attention(struct llama *l, int32_t layer, enum graph_rows rows)
{
    const struct hparams *h = l->h;
    uint32_t q = h->n_head * h->head_dim_k, kv = h->n_head_kv * h->head_dim_k;
    const struct part qkv[] = {
        {"attn_q", q, h->n_embd}, {"attn_k", kv, h->n_embd}, {"attn_v", kv, h->n_embd}};
    const struct part o[] = {{"attn_output", h->n_embd, q}};
    enum status status = add_norm(l, layer, "attn_norm", "attn_norm", l->x, l->h_attn, ROWS_TOKENS);
    if (status == ST_OK)
        status = add_linear(l, layer, "qkv", qkv, 3, l->h_attn, l->qkv, LINEAR_STORE, ROWS_TOKENS);
    if (status != ST_OK)
        return status;

    struct graph_node *n = graph_node(l->g, OP_ROPE_KV, "rope_kv", layer);
    if (!n)
        return out_of_memory(l->e);
    n->input = l->qkv;
    n->params.rope_kv = (struct rope_kv_params){.k_col = q,
                                                .v_col = q + kv,
                                                .n_head = h->n_head,
                                                .n_head_kv = h->n_head_kv,
                                                .head_dim = h->head_dim_k,
                                                .n_rot = h->n_rot,
                                                .mode = l->g->rope_mode,
                                                .rotate = 1};
    n = graph_node(l->g, OP_ATTENTION, "attention", layer);
    if (!n)
        return out_of_memory(l->e);
    n->input = l->qkv;
    n->output = l->att;
    n->rows = rows;
    n->params.attention = (struct attention_params){.n_head = h->n_head,
                                                    .n_head_kv = h->n_head_kv,
                                                    .head_dim = h->head_dim_k,
                                                    .window = h->sliding_window,
                                                    .scale = h->attn_scale};
    return add_linear(l, layer, "o", o, 1, l->att, l->x, LINEAR_ADD, rows);
}

static enum status add_ffn(struct llama *l, int32_t layer, enum graph_rows rows)
{
    const struct hparams *h = l->h;
    const struct part gate_up[] = {{"ffn_gate", h->n_ff, h->n_embd},
                                   {"ffn_up", h->n_ff, h->n_embd}};
    const struct part down[] = {{"ffn_down", h->n_embd, h->n_ff}};
    enum status status = add_norm(l, layer, "ffn_norm", "ffn_norm", l->x, l->h_ffn, rows);
    if (status == ST_OK)
        status =
            add_linear(l, layer, "gate_up", gate_up, 2, l->h_ffn, l->gate_up, LINEAR_STORE, rows);
    if (status != ST_OK)
        return status;
    const struct graph_node *linear = &l->g->nodes[l->g->n_nodes - 1];
    l->g->weights[linear->weight].pairs = linear->bias == GRAPH_NONE;

    struct graph_node *n = graph_node(l->g, OP_SWIGLU, "swiglu", layer);
    if (!n)
        return out_of_memory(l->e);
    n->input = l->gate_up;
    n->output = l->act;
    n->rows = rows;
    return add_linear(l, layer, "down", down, 1, l->act, l->x, LINEAR_ADD, rows);
}

static enum status add_head(struct llama *l)
{
    const struct hparams *h = l->h;
    struct graph *g = l->g;
    uint32_t out = graph_value(g, "h_out", h->n_embd, ROWS_OUTPUTS);
    g->logits = graph_value(g, "logits", h->n_vocab, ROWS_OUTPUTS);
    enum status status = add_norm(l, -1, "output_norm", "output_norm", l->x, out, ROWS_OUTPUTS);
    if (status != ST_OK)
        return status;
    bool tied = !gguf_tensor_find(l->f, "output.weight");
    const struct part head = {tied ? "token_embd" : "output", h->n_vocab, h->n_embd};
    status = add_linear(l, -1, "head", &head, 1, out, g->logits, LINEAR_STORE, ROWS_OUTPUTS);
    if (status != ST_OK)
        return status;
    struct graph_node *n = graph_node(g, OP_ARGMAX, "argmax", -1);
    if (!n)
        return out_of_memory(l->e);
    n->input = g->logits;
    n->rows = ROWS_OUTPUTS;
    return ST_OK;
}

/* What the format can say and this builder does not do: better refused than wrong. */
static enum status check_supported(const struct hparams *h, struct err *e)
{
    if (h->n_expert > 0)
        return err_set(e, ST_UNSUPPORTED,
                       "llama.expert_count: %u, expected 0: experts are not "
                       "supported",
                       h->n_expert);
    if (h->head_dim_k != h->head_dim_v)
        return err_set(e, ST_UNSUPPORTED,
                       "llama.attention.key_length %u and value_length %u differ", h->head_dim_k,
                       h->head_dim_v);
    if (!h->norm_is_rms)
        return err_set(e, ST_UNSUPPORTED, "llama.attention.layer_norm_rms_epsilon is missing");
    if (h->rope_scaling == ROPE_SCALING_LONGROPE)
        return err_set(e, ST_UNSUPPORTED, "llama.rope.scaling.type: longrope is not supported");
    if (h->attn_logit_softcap != 0 || h->logit_softcap != 0 || h->embedding_scale != 1 ||
        h->residual_scale != 1 || h->logit_scale != 1)
        return err_set(e, ST_UNSUPPORTED,
                       "soft caps and scales of embeddings, residuals or logits are not part of "
                       "architecture llama");
    return ST_OK;
}

enum status graph_build_llama(struct graph *g, const struct hparams *h, const struct gguf *f,
                              struct err *e)
{
    enum status status = check_supported(h, e);
    if (status != ST_OK)
        return status;
    uint32_t q = h->n_head * h->head_dim_k, kv = h->n_head_kv * h->head_dim_k;
    struct llama l = {.g = g, .h = h, .f = f, .e = e};
    l.x = graph_value(g, "x", h->n_embd, ROWS_TOKENS);
    l.h_attn = graph_value(g, "h_attn", h->n_embd, ROWS_TOKENS);
    l.qkv = graph_value(g, "qkv", q + 2 * kv, ROWS_TOKENS);

    const struct part table = {"token_embd", h->n_vocab, h->n_embd};
    uint32_t weight;
    status = add_weight(&l, -1, "token_embd", "weight", WEIGHT_TABLE, &table, 1, false, &weight);
    if (status != ST_OK)
        return status;
    struct graph_node *n = graph_node(g, OP_EMBED, "token_embd", -1);
    if (!n)
        return out_of_memory(e);
    n->output = l.x;
    n->weight = weight;
    n->params.embed.scale = 1.0f;

    for (uint32_t layer = 0; layer < h->n_layer; layer++) {
        enum graph_rows rows = layer + 1 == h->n_layer ? ROWS_OUTPUTS : ROWS_TOKENS;
        if (layer == 0 || rows == ROWS_OUTPUTS) {
            l.att = graph_value(g, "att", q, rows);
            l.h_ffn = graph_value(g, "h_ffn", h->n_embd, rows);
            l.gate_up = graph_value(g, "gate_up", 2 * h->n_ff, rows);
            l.act = graph_value(g, "act", h->n_ff, rows);
        }
        status = add_attention(&l, (int32_t)layer, rows);
        if (status == ST_OK)
            status = add_ffn(&l, (int32_t)layer, rows);
        if (status != ST_OK)
            return status;
    }
    status = graph_tensor(f, "rope_freqs.weight", h->n_rot / 2, 1, true, &g->rope_factors, e);
    return status == ST_OK ? add_head(&l) : status;
}
