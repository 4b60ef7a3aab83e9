/* Rows of the registry as plain values. */
#include "engine/ops/catalogue.h"

#include "engine/ops/config.h"

bool catalogue_at(uint32_t i, struct catalogue_row *out)
{
    if (i >= variant_row_count + OP_COUNT)
        return false;
    const struct variant *v = i < variant_row_count
                                  ? &variant_rows[i]
                                  : variant_reference((enum op_id)(i - variant_row_count));
    *out = (struct catalogue_row){.variant = v->name,
                                  .op = v->op,
                                  .dtype = v->dtype,
                                  .reference = v->ref != NULL,
                                  .act = v->act,
                                  .needs = v->needs};
    out->n_tunables = variant_tunable_list(v, out->tunables);
    return true;
}

bool catalogue_runs_on(const struct catalogue_row *row, bool host, uint32_t caps)
{
    return host ? row->reference : !row->reference && (row->needs & ~caps) == 0;
}
