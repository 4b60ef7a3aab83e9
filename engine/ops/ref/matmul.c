/* Reference of matmul: three loops, the innermost summed in double. */
#include "engine/ops/ref/ref.h"

enum status ref_matmul_params(const struct op_call *call, void *const *data, struct err *e)
{
    (void)e;
    const struct matmul_params *p = &call->params.matmul;
    const enum dtype dtype = call->tensors[0].dtype;
    const uint64_t m = p->m, n = p->n, k = p->k;
    for (uint64_t batch = 0; batch < p->batch; batch++)
        for (uint64_t r = 0; r < m; r++)
            for (uint64_t col = 0; col < n; col++) {
                double sum = 0;
                for (uint64_t i = 0; i < k; i++) {
                    const uint64_t a = batch * m * k + (p->trans_a ? i * m + r : r * k + i);
                    const uint64_t b = batch * n * k + (p->trans_b ? col * k + i : i * n + col);
                    sum +=
                        (double)ref_load(dtype, data[0], a) * (double)ref_load(dtype, data[1], b);
                }
                const uint64_t at = (batch * m + r) * n + col;
                sum *= (double)p->alpha;
                if (p->beta != 0)
                    sum += (double)p->beta * (double)ref_load(dtype, data[2], at);
                ref_store(dtype, data[3], at, (float)sum);
            }
    return ST_OK;
}
