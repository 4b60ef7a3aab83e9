/* What the golden tests that run SmolLM2 share: finding the file, opening a device with it. The
 * file is OINFER_SMOLLM2, or the one that the quickstart keeps in the user's cache. */
#ifndef OINFER_TESTS_GOLDEN_SMOLLM2_H
#define OINFER_TESTS_GOLDEN_SMOLLM2_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/assert_ok.h"

#define SKIPPED 77 /* tests.cmake: SKIP_RETURN_CODE */

struct smollm2 {
    struct device_list *devices;
    struct engine *engine;
    struct model_file *file;
    struct model *model;
};

static inline bool smollm2_find(char *path, size_t n)
{
    const char *file = getenv("OINFER_SMOLLM2"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME"), *name = "oinfer/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (file != NULL)
        snprintf(path, n, "%s", file);
    else if (cache != NULL && cache[0] != '\0')
        snprintf(path, n, "%s/%s", cache, name);
    else
        snprintf(path, n, "%s/.cache/%s", home != NULL ? home : "", name);
    if (access(path, R_OK) == 0)
        return true;
    printf("skipped: no model at %s (set OINFER_SMOLLM2)\n", path);
    return false;
}

/* device: "" for the best one. Compiled kernels are kept in the folder that OINFER_TEST_CACHE
 * names, if it is set. */
static inline void smollm2_open(struct smollm2 *s, const char *path, const char *device,
                                const struct load_options *load)
{
    const struct engine_options options = {.device = {.cache_dir = getenv("OINFER_TEST_CACHE")}};
    uint32_t index = 0, n = 1;
    memset(s, 0, sizeof *s);
    ASSERT_OK(device_list_open(0, &s->devices, e));
    ASSERT_OK(device_select(s->devices, device, &index, &n, e));
    ASSERT_OK(engine_open(s->devices, index, &options, &s->engine, e));
    ASSERT_OK(model_file_open(path, &s->file, e));
    ASSERT_OK(model_load(s->engine, s->file, load, &s->model, e));
}

static inline void smollm2_close(struct smollm2 *s)
{
    model_close(s->model);
    model_file_close(s->file);
    engine_close(s->engine);
    device_list_close(s->devices);
}

#endif
