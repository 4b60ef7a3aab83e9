/* Layouts: bytes of weights and activations as they lie in device memory. Pure functions. */
#include "engine/ops/act.h"
#include "engine/ops/op.h"
#include "kernels/cpu/q8t.h"

struct layout_row {
    enum weight_layout layout;
    enum dtype dtype;
    uint32_t rows, k, unit_bytes, align_bytes;
};

static const struct layout_row layout_rows_table[] = {
#define X(layout, dtype, rows, k, unit_bytes, align_bytes) \
    {layout, dtype, rows, k, unit_bytes, align_bytes},
#include "kernels/layouts.def"
#undef X
};

static uint64_t round_up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

uint64_t layout_bytes(enum dtype dtype, enum weight_layout layout, uint64_t m, uint64_t k)
{
    if (layout == LAYOUT_FILE) {
        uint64_t row_bytes = 0;
        return dtype_row_bytes(dtype, k, &row_bytes) ? m * row_bytes : 0;
    }
    for (size_t i = 0; i < sizeof layout_rows_table / sizeof *layout_rows_table; i++) {
        const struct layout_row *r = &layout_rows_table[i];
        if (r->layout != layout || r->dtype != dtype)
            continue;
        if (k % r->k != 0)
            return 0;
        uint64_t group_bytes = round_up(k / r->k * r->unit_bytes, r->align_bytes);
        return round_up(m, r->rows) / r->rows * group_bytes;
    }
    return 0;
}

uint32_t layout_rows(enum weight_layout layout)
{
    return layout == LAYOUT_R16 ? 16 : layout == LAYOUT_R4 ? 4 : 1;
}

uint64_t act_row_bytes(uint32_t act, uint64_t k)
{
    switch (act) {
    case ACT_F32: return k * 4;
    case ACT_F16: return k * 2;
    case ACT_Q8: return k % 32 == 0 ? round_up(k + k / 32 * 8, 64) : 0;
    default: return 0;
    }
}

uint64_t act_bytes(uint32_t act, uint64_t n_tokens, uint64_t k)
{
    if (act == ACT_Q8T)
        return k % 32 == 0 ? round_up((n_tokens + ACT_TILE - 1) / ACT_TILE * Q8T_TILE(k) * 4, 64)
                           : 0;
    return act_row_bytes(act, k) * n_tokens;
}
