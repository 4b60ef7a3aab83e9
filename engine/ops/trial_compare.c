/* Comparison of a trial's outputs with the reference: which number counts, and its bound.
 *
 *   f32 results of element-wise ops   NMSE <= 1e-12
 *   attention (softmax)               NMSE <= 1e-10, with halves inside 1e-6
 *   softmax                           NMSE <= 1e-10
 *   f16 storage                       NMSE <= 1e-6
 *   int8 blocks in or out             NMSE <= 5e-4
 *   products of f32                   |err| <= 4 sqrt(k) eps |a||b| per element
 *                                     (linear, matmul, conv2d, sparse_gemv; what is
 *                                     added, a bias, a residual or beta c, counts as |a||b| does)
 *   linear, quantised weights         NMSE <= 1e-9
 *   linear, f16 activations           NMSE <= 1e-6: the weights become halves too
 *   argmax, top_k                     equal
 *
 * NMSE = sum (got - want)^2 / sum want^2.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/ops/act.h"
#include "engine/ops/ref/ref.h"
#include "engine/ops/rules.h"
#include "engine/ops/trial_impl.h"
#include "engine/tensor/quant.h"

#define BOUND_F32  1e-12
#define BOUND_SOFT 1e-10
#define BOUND_DOT  1e-9
#define BOUND_F16  1e-6
#define BOUND_INT8 5e-4

/* A worse or failing output replaces what is known so far. */
static void report(struct trial_result *out, bool passed, double error, double bound,
                   const char *tensor, const char *what)
{
    if (passed && (!out->passed || error / bound <= out->error / out->bound))
        return;
    if (!passed && !out->passed)
        return;
    out->error = error;
    out->bound = bound;
    out->passed = passed;
    if (!passed)
        snprintf(out->reason, sizeof out->reason, "%s: %s %.3g, allowed %.3g", tensor, what, error,
                 bound);
}

/* The plain figures of an output, for reports. */
static void measure(const float *got, const float *want, uint64_t n, struct trial_result *out)
{
    for (uint64_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - (double)want[i]), size = fabs((double)want[i]);
        if (isinf(size) && got[i] == want[i])
            continue;
        out->max_abs = fmax(out->max_abs, error);
        if (size > 0)
            out->max_rel = fmax(out->max_rel, error / size);
    }
    out->nmse = fmax(out->nmse, ref_nmse(got, want, n));
}

static void compare_nmse(const float *got, const float *want, uint64_t n, double bound,
                         const char *tensor, struct trial_result *out)
{
    double error = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        size += (double)want[i] * (double)want[i];
    }
    const double nmse = size > 0 ? error / size : error;
    measure(got, want, n, out);
    report(out, nmse <= bound, isnan(nmse) ? INFINITY : nmse, bound, tensor, "NMSE");
}

/* Elements of an i32 or f32 tensor must be the same, bit by bit (any NaN equals any other). */
static void compare_equal(const struct trial *t, uint32_t i, const void *got,
                          struct trial_result *out)
{
    const struct tensor *x = &t->ref_call.tensors[i];
    uint64_t wrong = 0;
    for (uint64_t j = 0; j < x->bytes / 4; j++) {
        uint32_t a, b;
        memcpy(&a, (const char *)got + 4 * j, 4);
        memcpy(&b, (const char *)t->host[i] + 4 * j, 4);
        const bool nan_a = x->dtype == DT_F32 && (a & 0x7fffffffu) > 0x7f800000u;
        const bool nan_b = x->dtype == DT_F32 && (b & 0x7fffffffu) > 0x7f800000u;
        wrong += a != b && !(nan_a && nan_b);
    }
    report(out, wrong == 0, (double)wrong, 0.5, op_tensor_name(t->call.op, i), "wrong elements");
}

static double norm_of(const float *x, uint32_t n)
{
    return sqrt(ref_dot(x, x, n));
}

/* Each element of y against the rounding error that a sum of k products may have. */
static void compare_products(const struct trial *t, const float *got, struct trial_result *out)
{
    const struct linear_params *p = &t->ref_call.params.linear;
    const float *w = t->host[0], *x = t->host[1], *want = t->host[3];
    const float *bias = p->has_bias ? t->host[2] : NULL;
    double worst = 0;
    measure(got, want, t->ref_call.tensors[3].bytes / 4, out);
    for (uint64_t r = 0; r < p->m; r++) {
        const double w_norm = norm_of(w + r * p->k, p->k);
        for (uint64_t row = 0; row < p->n_tokens; row++) {
            const uint64_t i = row * p->y_stride + r;
            const double residual = p->epilogue == LINEAR_ADD ? fabs((double)want[i]) : 0;
            const double size = w_norm * norm_of(x + row * p->k, p->k) + residual +
                                (bias ? fabs((double)bias[r]) : 0);
            const double error = fabs((double)got[i] - (double)want[i]);
            const double share = error / (4 * sqrt((double)p->k) * (double)FLT_EPSILON * size);
            worst = isnan(error) ? INFINITY : fmax(worst, share);
        }
    }
    report(out, worst <= 1, worst, 1, "y", "share of the rounding bound");
}

static double linear_bound(const struct trial *t)
{
    const uint32_t act = t->call.tensors[1].layout;
    if (act == ACT_F16)
        return BOUND_F16;
    return t->ref_call.tensors[1].layout == act ? BOUND_DOT : BOUND_INT8;
}

/* An activation matrix in the variant's format. */
static enum status compare_act(const struct trial *t, uint32_t i, const void *got,
                               struct trial_result *out, struct err *e)
{
    const uint32_t act = t->call.tensors[i].layout;
    uint64_t columns, rows;
    op_extent(&t->ref_call, &columns, &rows);
    float *decoded = mem_array(columns * rows, sizeof *decoded);
    if (!decoded)
        return err_set(e, ST_NO_MEMORY, "trial: no memory for %" PRIu64 " activations",
                       columns * rows);
    for (uint64_t r = 0; r < rows; r++)
        ref_act_load(act, got, r, (uint32_t)columns, decoded + r * columns);
    const double bound = act == ACT_F32 ? BOUND_F32 : act == ACT_F16 ? BOUND_F16 : BOUND_INT8;
    compare_nmse(decoded, t->host[i], columns * rows, bound, op_tensor_name(t->call.op, i), out);
    mem_free(decoded);
    return ST_OK;
}

/* A cache: both sides hold the same dtype and may differ by its rounding. */
static enum status compare_cache(const struct trial *t, uint32_t i, const void *got,
                                 struct trial_result *out, struct err *e)
{
    const struct tensor *x = &t->ref_call.tensors[i];
    const struct dtype_info *info = dtype_info(x->dtype);
    const uint64_t n = x->bytes / info->block_bytes * info->block;
    float *a = mem_array(2 * n, sizeof *a);
    if (!a)
        return err_set(e, ST_NO_MEMORY, "trial: no memory for %" PRIu64 " cells", n);
    enum status st = quant_to_f32(x->dtype, got, a, n, e);
    if (st == ST_OK)
        st = quant_to_f32(x->dtype, t->host[i], a + n, n, e);
    const double bound = x->dtype == DT_F32   ? BOUND_F32
                         : x->dtype == DT_F16 ? BOUND_F16
                                              : BOUND_INT8;
    if (st == ST_OK)
        compare_nmse(a, a + n, n, bound, op_tensor_name(t->call.op, i), out);
    mem_free(a);
    return st;
}

/* An op with rules: its numbers as f32, judged by its own bound; or integers, which must be equal.
 */
static enum status compare_ruled(const struct trial *t, uint32_t i, const void *got,
                                 struct trial_result *out, struct err *e)
{
    const struct tensor *x = &t->ref_call.tensors[i];
    if (x->dtype == DT_I32 || t->call.op == OP_TOP_K) {
        compare_equal(t, i, got, out);
        return ST_OK;
    }
    const uint64_t n = x->bytes / dtype_info(x->dtype)->block_bytes;
    float *a = mem_array(2 * n, sizeof *a);
    if (!a)
        return err_set(e, ST_NO_MEMORY, "trial: no memory for %" PRIu64 " numbers", n);
    enum status st = quant_to_f32(x->dtype, got, a, n, e);
    if (st == ST_OK)
        st = quant_to_f32(x->dtype, t->host[i], a + n, n, e);
    if (st == ST_OK) {
        measure(a, a + n, n, out);
        const char *what = "NMSE";
        double bound = 1, error = 0;
        if (op_rules(t->call.op)->error && (x->dtype != DT_F16 || t->v->act == ACT_F16)) {
            st = op_rules(t->call.op)->error(t->v, &t->ref_call, t->host, a, a + n, &error, e);
            what = "share of the rounding bound";
        } else {
            bound = x->dtype == DT_F16         ? BOUND_F16
                    : t->call.op == OP_SOFTMAX ? BOUND_SOFT
                                               : BOUND_F32;
            error = ref_nmse(a, a + n, n);
        }
        if (st == ST_OK)
            report(out, error <= bound, isnan(error) ? INFINITY : error, bound,
                   op_tensor_name(t->call.op, i), what);
    }
    mem_free(a);
    return st;
}

enum status trial_compare(struct trial *t, uint32_t i, const void *got, struct trial_result *out,
                          struct err *e)
{
    const struct tensor *x = &t->ref_call.tensors[i];
    const char *name = op_tensor_name(t->call.op, i);
    const uint64_t n = x->bytes / 4;
    switch (t->call.op) {
    case OP_NORM:
    case OP_QUANTIZE:
    case OP_SWIGLU: return compare_act(t, i, got, out, e);
    case OP_ROPE_KV:
        if (i != 0)
            return compare_cache(t, i, got, out, e);
        break;
    case OP_LINEAR:
        if (x->dtype == DT_F32 && t->ref_call.tensors[0].dtype == DT_F32 &&
            t->call.tensors[1].layout == ACT_F32 && t->call.params.linear.epilogue != LINEAR_SWIGLU)
            compare_products(t, got, out);
        else
            compare_nmse(got, t->host[i], n, linear_bound(t), name, out);
        return ST_OK;
    case OP_ATTENTION:
        if (i == 5)
            compare_nmse(got, t->host[i], n, t->v->act == ACT_F16 ? BOUND_F16 : BOUND_SOFT, name,
                         out);
        return ST_OK;
    case OP_ARGMAX:
        compare_equal(t, i, got, out);
        return ST_OK;
    CASE_RULED:
        return compare_ruled(t, i, got, out, e);
    case OP_EMBED:
    case OP_ADD:
    case OP_REPACK:
    case OP_COUNT: break;
    }
    compare_nmse(got, t->host[i], n, BOUND_F32, name, out);
    return ST_OK;
}
