/* The reference forward pass. Matrices are [rows][columns], activations [token][column]. */
#include "tests/golden/reference.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/tensor/quant.h"

#define PI 3.14159265358979323846

struct shape {
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, window;
    double eps, base, factor, ctx_orig;
    bool linear, yarn;
};

static double real_or(const struct gguf *g, const char *key, float absent)
{
    gguf_get_f32(g, key, &absent, NULL);
    return absent;
}

static uint32_t count_or(const struct gguf *g, const char *key, uint32_t absent)
{
    gguf_get_u32(g, key, &absent, NULL);
    return absent;
}

static struct shape read_shape(const struct gguf *g)
{
    struct shape s = {
        .n_layer = count_or(g, "llama.block_count", 0),
        .n_embd = count_or(g, "llama.embedding_length", 0),
        .n_ff = count_or(g, "llama.feed_forward_length", 0),
        .n_head = count_or(g, "llama.attention.head_count", 1),
        .window = count_or(g, "llama.attention.sliding_window", 0),
        .eps = real_or(g, "llama.attention.layer_norm_rms_epsilon", 0.0f),
        .base = real_or(g, "llama.rope.freq_base", 10000.0f),
        .factor = real_or(g, "llama.rope.scaling.factor", 1.0f),
        .ctx_orig = count_or(g, "llama.rope.scaling.original_context_length",
                             count_or(g, "llama.context_length", 0)),
    };
    s.n_head_kv = count_or(g, "llama.attention.head_count_kv", s.n_head);
    s.head_dim = count_or(g, "llama.attention.key_length", s.n_embd / s.n_head);
    struct gguf_string type;
    if (gguf_get_string(g, "llama.rope.scaling.type", &type, NULL) == ST_OK) {
        s.linear = type.length == 6 && memcmp(type.data, "linear", 6) == 0;
        s.yarn = type.length == 4 && memcmp(type.data, "yarn", 4) == 0;
    }
    return s;
}

/* A tensor as doubles, or NULL if the file has none of that name. */
static double *load(const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t)
        return NULL;
    uint64_t n = t->ne[0] * t->ne[1];
    float *f = malloc(n * sizeof *f);
    double *d = malloc(n * sizeof *d);
    if (!f || !d || quant_to_f32(t->dtype, t->data, f, n, NULL) != ST_OK)
        abort();
    for (uint64_t i = 0; i < n; i++)
        d[i] = f[i];
    free(f);
    return d;
}

/* The same of blk.LAYER.NAME.SUFFIX. */
static double *load_of_layer(const struct gguf *g, uint32_t layer, const char *name,
                             const char *suffix)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s.%s", layer, name, suffix);
    return load(g, full);
}

/* y[t][r] (+)= sum_c w[r][c] x[t][c] + bias[r], where w and bias are blk.LAYER.NAME's. */
static void linear(const struct gguf *g, uint32_t layer, const char *name, const double *x,
                   uint32_t n, uint32_t columns, uint32_t rows, bool add, double *y)
{
    double *w = load_of_layer(g, layer, name, "weight");
    double *b = load_of_layer(g, layer, name, "bias");
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t r = 0; r < rows; r++) {
            double sum = b ? b[r] : 0.0;
            for (uint32_t c = 0; c < columns; c++)
                sum += w[(size_t)r * columns + c] * x[(size_t)t * columns + c];
            double *out = &y[(size_t)t * rows + r];
            *out = add ? *out + sum : sum;
        }
    }
    free(w);
    free(b);
}

static void rms_norm(const double *x, const double *w, uint32_t n, uint32_t len, double eps,
                     double *y)
{
    for (uint32_t t = 0; t < n; t++) {
        double squares = 0.0;
        for (uint32_t i = 0; i < len; i++)
            squares += x[(size_t)t * len + i] * x[(size_t)t * len + i];
        for (uint32_t i = 0; i < len; i++)
            y[(size_t)t * len + i] = x[(size_t)t * len + i] / sqrt(squares / len + eps) * w[i];
    }
}

/* Angle of pair i at a position, and the magnitude that YaRN gives q and k. */
static double angle(const struct shape *s, const double *factors, uint32_t i, uint32_t position,
                    double *magnitude)
{
    double plain = position * pow(s->base, -2.0 * i / s->head_dim);
    *magnitude = 1.0;
    if (factors)
        plain /= factors[i];
    if (s->linear)
        return plain / s->factor;
    if (!s->yarn)
        return plain;
    double d = s->head_dim;
    double low = floor(d * log(s->ctx_orig / (32.0 * 2.0 * PI)) / (2.0 * log(s->base)));
    double high = ceil(d * log(s->ctx_orig / (1.0 * 2.0 * PI)) / (2.0 * log(s->base)));
    low = fmax(low, 0.0);
    high = fmin(high, d - 1.0);
    double kept = 1.0 - fmin(1.0, fmax(0.0, (i - low) / fmax(0.001, high - low)));
    *magnitude = 1.0 + 0.1 * log(s->factor);
    return plain * kept + plain / s->factor * (1.0 - kept);
}

/* Rotates neighbours (2i, 2i + 1) of every head. */
static void rope(const struct shape *s, const double *factors, double *x, uint32_t n,
                 uint32_t n_head)
{
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < s->head_dim / 2; i++) {
            double magnitude, a = angle(s, factors, i, t, &magnitude);
            for (uint32_t h = 0; h < n_head; h++) {
                double *pair = x + ((size_t)t * n_head + h) * s->head_dim + 2 * i;
                double x0 = pair[0], x1 = pair[1];
                pair[0] = (x0 * cos(a) - x1 * sin(a)) * magnitude;
                pair[1] = (x0 * sin(a) + x1 * cos(a)) * magnitude;
            }
        }
    }
}

static void attention(const struct shape *s, const double *q, const double *k, const double *v,
                      uint32_t n, double *out)
{
    double *p = malloc(n * sizeof *p);
    uint32_t d = s->head_dim, kv_stride = s->n_head_kv * d;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t h = 0; h < s->n_head; h++) {
            uint32_t kv_head = h / (s->n_head / s->n_head_kv);
            uint32_t first = s->window && t + 1 > s->window ? t + 1 - s->window : 0;
            double sum = 0.0, most = -INFINITY;
            for (uint32_t c = first; c <= t; c++) {
                p[c] = 0.0;
                for (uint32_t i = 0; i < d; i++)
                    p[c] += q[((size_t)t * s->n_head + h) * d + i] *
                            k[(size_t)c * kv_stride + kv_head * d + i];
                p[c] /= sqrt(d);
                most = fmax(most, p[c]);
            }
            for (uint32_t c = first; c <= t; c++)
                sum += p[c] = exp(p[c] - most);
            for (uint32_t i = 0; i < d; i++) {
                double o = 0.0;
                for (uint32_t c = first; c <= t; c++)
                    o += p[c] / sum * v[(size_t)c * kv_stride + kv_head * d + i];
                out[((size_t)t * s->n_head + h) * d + i] = o;
            }
        }
    }
    free(p);
}

static void run_layer(const struct gguf *g, const struct shape *s, uint32_t layer,
                      const double *factors, double *x, uint32_t n)
{
    uint32_t q_width = s->n_head * s->head_dim, kv_width = s->n_head_kv * s->head_dim;
    uint32_t widest = s->n_ff > q_width ? s->n_ff : q_width;
    double *h = calloc((size_t)n * s->n_embd, sizeof *h);
    double *q = calloc((size_t)n * widest, sizeof *q), *k = calloc((size_t)n * kv_width, sizeof *k);
    double *v = calloc((size_t)n * kv_width, sizeof *v), *o = calloc((size_t)n * widest, sizeof *o);
    double *norm = load_of_layer(g, layer, "attn_norm", "weight");
    rms_norm(x, norm, n, s->n_embd, s->eps, h);
    linear(g, layer, "attn_q", h, n, s->n_embd, q_width, false, q);
    linear(g, layer, "attn_k", h, n, s->n_embd, kv_width, false, k);
    linear(g, layer, "attn_v", h, n, s->n_embd, kv_width, false, v);
    rope(s, factors, q, n, s->n_head);
    rope(s, factors, k, n, s->n_head_kv);
    attention(s, q, k, v, n, o);
    linear(g, layer, "attn_output", o, n, q_width, s->n_embd, true, x);
    free(norm);
    norm = load_of_layer(g, layer, "ffn_norm", "weight");
    rms_norm(x, norm, n, s->n_embd, s->eps, h);
    linear(g, layer, "ffn_gate", h, n, s->n_embd, s->n_ff, false, q);
    linear(g, layer, "ffn_up", h, n, s->n_embd, s->n_ff, false, o);
    for (size_t i = 0; i < (size_t)n * s->n_ff; i++)
        q[i] = q[i] / (1.0 + exp(-q[i])) * o[i];
    linear(g, layer, "ffn_down", q, n, s->n_ff, s->n_embd, true, x);
    free(norm);
    free(h);
    free(q);
    free(k);
    free(v);
    free(o);
}

double *reference_logits(const char *path, const int32_t *tokens, uint32_t n, uint32_t *n_vocab)
{
    struct gguf *g;
    if (gguf_open(path, &g, NULL) != ST_OK)
        return NULL;
    struct shape s = read_shape(g);
    double *table = load(g, "token_embd.weight");
    double *head = load(g, "output.weight");
    double *norm = load(g, "output_norm.weight");
    double *factors = load(g, "rope_freqs.weight");
    *n_vocab = (uint32_t)gguf_tensor_find(g, "token_embd.weight")->ne[1];
    double *x = calloc((size_t)n * s.n_embd, sizeof *x);
    double *h = calloc((size_t)n * s.n_embd, sizeof *h);
    double *logits = calloc((size_t)n * *n_vocab, sizeof *logits);
    for (uint32_t t = 0; t < n; t++)
        memcpy(x + (size_t)t * s.n_embd, table + (size_t)tokens[t] * s.n_embd,
               s.n_embd * sizeof *x);
    for (uint32_t layer = 0; layer < s.n_layer; layer++)
        run_layer(g, &s, layer, factors, x, n);
    rms_norm(x, norm, n, s.n_embd, s.eps, h);
    const double *w = head ? head : table;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t r = 0; r < *n_vocab; r++)
            for (uint32_t c = 0; c < s.n_embd; c++)
                logits[(size_t)t * *n_vocab + r] +=
                    w[(size_t)r * s.n_embd + c] * h[(size_t)t * s.n_embd + c];
    free(table);
    free(head);
    free(norm);
    free(factors);
    free(x);
    free(h);
    gguf_close(g);
    return logits;
}
