/* `oinfer mkmodel`: a synthetic GGUF of a given shape. */
#include <stdio.h>
#include <string.h>

#include "engine/model/synth.h"
#include "server/cli/cli.h"

static void print_usage(FILE *out)
{
    fprintf(out,
            "usage: oinfer mkmodel --shape SHAPE --dtype DTYPE -o FILE\n"
            "  --shape  a preset (%s), key=value pairs after one (135m,n_layer=4),\n"
            "           or pairs alone, which start from tiny; keys:\n"
            "           %s\n"
            "  --dtype  f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k, or a mix: q4_k_m "
            "q5_k_m\n"
            "  -o       the file to write\n"
            "The same arguments always give the same bytes.\n",
            synth_preset_names(), synth_key_names());
}

int cli_mkmodel(int argc, char **argv)
{
    const char *shape_text = NULL, *dtype_text = NULL, *path = NULL;
    for (int i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--shape") == 0   ? &shape_text
                             : strcmp(argv[i], "--dtype") == 0 ? &dtype_text
                             : strcmp(argv[i], "-o") == 0      ? &path
                                                               : NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_usage(stdout);
            return 0;
        }
        if (value == NULL || i + 1 == argc) {
            fprintf(stderr, "oinfer mkmodel: %s \"%s\"\n",
                    value == NULL ? "unknown argument" : "no value after", argv[i]);
            print_usage(stderr);
            return CLI_USAGE;
        }
        *value = argv[++i];
    }
    if (shape_text == NULL || dtype_text == NULL || path == NULL) {
        fprintf(stderr, "oinfer mkmodel: %s is missing\n",
                shape_text == NULL   ? "--shape"
                : dtype_text == NULL ? "--dtype"
                                     : "-o");
        print_usage(stderr);
        return CLI_USAGE;
    }
    struct synth_shape shape;
    struct synth_dtype dtype;
    struct err e = {0};
    if (synth_shape_parse(shape_text, &shape, &e) != ST_OK ||
        synth_dtype_parse(dtype_text, &dtype, &e) != ST_OK) {
        fprintf(stderr, "oinfer mkmodel: %s\n", e.text);
        return CLI_USAGE;
    }
    if (synth_write(&shape, dtype, path, &e) != ST_OK) {
        fprintf(stderr, "oinfer mkmodel: %s\n", e.text);
        return CLI_FAILED;
    }
    return 0;
}
