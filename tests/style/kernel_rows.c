/* Prints, for every variant of kernels.def that has a kernel file, `file:build options`, as the
 * engine builds it on a device that has just the capabilities the row needs. For
 * kernel_syntax.cmake.
 */
#include <stdio.h>

#include "engine/ops/variant.h"

static const struct variant rows[] = {
#define X(op_, name_, file_, dtype_, ...) \
    {.op = op_, .name = name_, .file = file_, .dtype = dtype_, __VA_ARGS__},
#include "kernels/kernels.def"
#undef X
};

static const struct {
    uint32_t bit;
    const char *macro;
} caps[] = {
#define CAP(name)   \
    {               \
        name, #name \
    }
    CAP(CAP_HALF),        CAP(CAP_FP64),        CAP(CAP_SUBGROUPS),  CAP(CAP_ASM_X86),
    CAP(CAP_ASM_VNNI512), CAP(CAP_ASM_VNNI256), CAP(CAP_ASM_BF16),   CAP(CAP_ASM_AVX2),
    CAP(CAP_ASM_F16C512), CAP(CAP_PTX),         CAP(CAP_PTX_DP4A),   CAP(CAP_PTX_MMA),
    CAP(CAP_PTX_WGMMA),   CAP(CAP_BIG_LOCAL),   CAP(CAP_PERSISTENT), CAP(CAP_ASM_SDOT),
    CAP(CAP_LONG_LOOPS),
#undef CAP
};

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct variant *v = &rows[i];
        if (v->file == NULL)
            continue;
        uint32_t rows_of = 0, tokens_of = 0; /* the largest of the stages */
        for (int s = 0; s < VARIANT_MAX_STAGES; s++) {
            rows_of = v->stages[s].rows > rows_of ? v->stages[s].rows : rows_of;
            tokens_of = v->stages[s].tokens > tokens_of ? v->stages[s].tokens : tokens_of;
        }
        printf("%s:-DOP_ACT=%u -DOP_LAYOUT=%u -DROWS=%u -DTOKENS=%u -DLWS=%u -DLWS2=%u -DLWS3=%u "
               "-DLWS4=%u",
               v->file, v->act, v->layout, rows_of, tokens_of, v->stages[0].lws, v->stages[1].lws,
               v->stages[2].lws, v->stages[3].lws);
        if (v->dtype != DT_ANY)
            printf(" -DOP_DTYPE=%d", v->dtype);
        for (size_t c = 0; c < sizeof caps / sizeof *caps; c++)
            if ((v->needs & caps[c].bit) != 0)
                printf(" -D%s=1", caps[c].macro);
        printf("%s%s\n", v->defines != NULL ? " " : "", v->defines != NULL ? v->defines : "");
    }
    return 0;
}
