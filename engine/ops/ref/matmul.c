/* Reference of matmul: rows of a and columns of b side by side, their dot products summed in
 * double. */
#include <inttypes.h>

#include "engine/base/mem.h"
#include "engine/ops/ref/ref.h"

enum status ref_matmul_params(const struct op_call *call, void *const *data, struct err *e)
{
    const struct matmul_params *p = &call->params.matmul;
    const enum dtype dtype = call->tensors[0].dtype;
    const uint64_t m = p->m, n = p->n, k = p->k;
    float *row = mem_array(k, sizeof *row), *columns = mem_array(n * k, sizeof *columns);
    const bool room = row && columns;
    for (uint64_t batch = 0; room && batch < p->batch; batch++) {
        for (uint64_t col = 0; col < n; col++)
            for (uint64_t i = 0; i < k; i++)
                columns[col * k + i] = ref_load(
                    dtype, data[1], batch * n * k + (p->trans_b ? col * k + i : i * n + col));
        for (uint64_t r = 0; r < m; r++) {
            for (uint64_t i = 0; i < k; i++)
                row[i] =
                    ref_load(dtype, data[0], batch * m * k + (p->trans_a ? i * m + r : r * k + i));
            for (uint64_t col = 0; col < n; col++) {
                const uint64_t at = (batch * m + r) * n + col;
                double y = (double)p->alpha * ref_dot(row, columns + col * k, p->k);
                if (p->beta != 0)
                    y += (double)p->beta * (double)ref_load(dtype, data[2], at);
                ref_store(dtype, data[3], at, (float)y);
            }
        }
    }
    mem_free(columns);
    mem_free(row);
    return room ? ST_OK
                : err_set(e, ST_NO_MEMORY, "matmul ref: no memory for %" PRIu64 " numbers", n * k);
}
