/* `oinfer inspect`: header, key-values, tensors and totals of a GGUF file. */
#include <stdio.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "server/cli/cli.h"

#define TEXT_BYTES       80
#define ELEMENTS_SHOWN   4
#define SHAPE_TEXT_BYTES 96

static void print_usage(FILE *out)
{
    fprintf(out, "usage: oinfer inspect FILE\n"
                 "Shows the header, the key-values (long ones cut), the tensors and their totals.\n"
                 "The first file of a split model stands for all of them.\n");
}

static void print_value(const struct gguf *g, size_t i)
{
    const char *key = gguf_kv_key(g, i);
    enum gguf_type type = GGUF_U8;
    bool is_array = false;
    uint64_t n = 0;
    gguf_kv_type(g, key, &type, &is_array, &n);
    const char *quote = type == GGUF_STRING ? "\"" : "";
    char text[TEXT_BYTES];
    if (!is_array) {
        printf("  %-42s %-7s %s%s%s\n", key, gguf_type_name(type), quote,
               gguf_kv_text(g, i, 0, text, sizeof text), quote);
        return;
    }
    printf("  %-42s %s[%llu]", key, gguf_type_name(type), (unsigned long long)n);
    for (uint64_t k = 0; k < n && k < ELEMENTS_SHOWN; k++)
        printf(" %s%s%s", quote, gguf_kv_text(g, i, k, text, sizeof text), quote);
    printf("%s\n", n > ELEMENTS_SHOWN ? " ..." : "");
}

static uint64_t count_elements(const struct gguf_tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; /* checked not to overflow at open */
}

static void print_tensor(const struct gguf_tensor *t)
{
    char shape[SHAPE_TEXT_BYTES];
    size_t length = 0;
    for (uint32_t d = 0; d < t->n_dims; d++)
        length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%llu",
                                   d > 0 ? " x " : "", (unsigned long long)t->ne[d]);
    printf("  %-36s %-8s %-22s %12llu bytes at %llu", t->name, dtype_name((uint32_t)t->dtype),
           shape, (unsigned long long)t->n_bytes, (unsigned long long)t->file_offset);
    printf(t->shard > 0 ? " of shard %u\n" : "\n", t->shard + 1);
}

static void print_totals(const struct gguf *g)
{
    struct {
        uint64_t tensors, elements, bytes;
    } totals[DT_COUNT] = {{0, 0, 0}}, all = {0, 0, 0};
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        totals[t->dtype].tensors++;
        totals[t->dtype].elements += count_elements(t);
        totals[t->dtype].bytes += t->n_bytes;
        all.elements += count_elements(t);
        all.bytes += t->n_bytes;
    }
    printf("totals\n");
    for (uint32_t d = 0; d < DT_COUNT; d++)
        if (totals[d].tensors > 0)
            printf("  %-8s %6llu tensors %16llu weights %16llu bytes\n", dtype_name(d),
                   (unsigned long long)totals[d].tensors, (unsigned long long)totals[d].elements,
                   (unsigned long long)totals[d].bytes);
    if (all.elements > 0)
        printf("  %llu weights in %llu bytes: %.2f bits per weight\n",
               (unsigned long long)all.elements, (unsigned long long)all.bytes,
               8.0 * (double)all.bytes / (double)all.elements);
}

int cli_inspect(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_usage(stdout);
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        if (argc > 1)
            fprintf(stderr, "oinfer inspect: unknown argument \"%s\"\n",
                    argv[1][0] == '-' ? argv[1] : argv[2]);
        else
            fprintf(stderr, "oinfer inspect: FILE is missing\n");
        print_usage(stderr);
        return CLI_USAGE;
    }
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_open(argv[1], &g, &e) != ST_OK) {
        fprintf(stderr, "oinfer inspect: %s\n", e.text);
        return CLI_FAILED;
    }
    printf("%s: GGUF version %u, %llu bytes, %zu key-values, %zu tensors, identity %016llx\n",
           gguf_path(g), gguf_version(g), (unsigned long long)gguf_file_bytes(g), gguf_kv_count(g),
           gguf_tensor_count(g), (unsigned long long)gguf_identity(g));
    printf("key-values\n");
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        print_value(g, i);
    printf("tensors\n");
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        print_tensor(gguf_tensor_at(g, i));
    print_totals(g);
    gguf_close(g);
    return 0;
}
