/* The table of architectures. */
#include "engine/model/arch.h"

#include <string.h>

static const struct arch archs[] = {
#define X(id, name, build, rope_mode) {name, build, rope_mode},
#include "engine/model/arch.def"
#undef X
};

const struct arch *arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i].name, name) == 0)
            return &archs[i];
    return NULL;
}
