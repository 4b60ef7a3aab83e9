/* Vocabulary-only GGUFs of other models with another engine's test vectors (NAME.gguf.inp, .out),
 * and llama.cpp's ids for one SPM vocabulary (tokens_llama_spm.txt). Needs the folder of those
 * files: OINFER_VOCAB_DIR, or ../shared/data/vocab beside the source tree. */
#include "tests/golden/tokens.h"

#include <unistd.h>

#define FILE_BYTES ((size_t)4 << 20)
#define SEPARATOR  "\n__ggml_vocab_test__\n"

static const char *folder;

/* The file's bytes and a NUL; *n without it. */
static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(FILE_BYTES);
    if (f == NULL || text == NULL)
        fail_msg("%s: cannot be read", path);
    *n = fread(text, 1, FILE_BYTES - 1, f);
    text[*n] = '\0';
    fclose(f);
    return text;
}

static struct tokenizer *open_named(const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/ggml-vocab-%s.gguf", folder, name);
    return open_vocabulary(path);
}

static void check_vectors(const char *name, enum tokenizer_kind kind)
{
    char path[4096], beside[4096 + 8];
    size_t n;
    struct tokenizer *t = open_named(name, path);
    snprintf(beside, sizeof beside, "%s.inp", path);
    char *inputs = read_file(beside, &n);
    snprintf(beside, sizeof beside, "%s.out", path);
    char *outputs = read_file(beside, &n);
    assert_int_equal(tokenizer_kind_of(t), kind);
    int count = 0, wrong = 0;
    char *line = outputs, *end;
    for (char *text = inputs; (end = strstr(text, SEPARATOR)) != NULL; count++) {
        line[strcspn(line, "\n")] = '\0';
        wrong += !same_tokens(t, text, (size_t)(end - text), false, line, kind != TOKENIZER_WPM);
        line += strlen(line) + 1;
        text = end + strlen(SEPARATOR);
    }
    assert_int_equal(wrong, 0);
    assert_true(count >= 40);
    free(inputs);
    free(outputs);
    tokenizer_close(t);
}

static void spm_llama(void **state)
{
    (void)state;
    check_vectors("llama-spm", TOKENIZER_SPM);
}

static void bpe_gpt2(void **state)
{
    (void)state;
    check_vectors("gpt-2", TOKENIZER_BPE);
}

static void bpe_starcoder(void **state)
{
    (void)state;
    check_vectors("starcoder", TOKENIZER_BPE);
}

static void bpe_deepseek_coder(void **state)
{
    (void)state;
    check_vectors("deepseek-coder", TOKENIZER_BPE);
}

static void bpe_falcon(void **state)
{
    (void)state;
    check_vectors("falcon", TOKENIZER_BPE);
}

static void wpm_bge(void **state)
{
    (void)state;
    check_vectors("bert-bge", TOKENIZER_WPM);
}

/* SPM keeps every byte, well-formed or not; only its own mark for a space cannot be told from one.
 */
static bool comes_back(const char *text, size_t n)
{
    for (size_t at = 0; at + 3 <= n; at++)
        if (memcmp(text + at, "\xE2\x96\x81", 3) == 0)
            return false;
    return true;
}

static void spm_ids_are_the_reference_s(void **state)
{
    (void)state;
    char path[4096];
    struct tokenizer *t = open_named("llama-spm", path);
    struct golden_vocabulary vocabulary = {t, comes_back, 0};
    each_golden_line("tokens_llama_spm.txt", same_line, &vocabulary);
    assert_true(vocabulary.n_exact >= 300);
    tokenizer_close(t);
}

/* The vocabulary file with another name as its pre-tokenizer, opened. */
static struct tokenizer *open_with_pre(const char *file, size_t n, const char *name)
{
    static const char key[] = "tokenizer.ggml.pre\x08\0\0"; /* and a NUL: the type, 4 bytes */
    struct err e = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    size_t at = 0;
    while (at + sizeof key < n && memcmp(file + at, key, sizeof key) != 0)
        at++;
    assert_true(at + sizeof key < n);
    at += sizeof key;
    uint64_t old, length = strlen(name);
    memcpy(&old, file + at, sizeof old);
    char *changed = malloc(n + length);
    assert_non_null(changed);
    memcpy(changed, file, at);
    memcpy(changed + at, &length, sizeof length);
    memcpy(changed + at + 8, name, length);
    memcpy(changed + at + 8 + length, file + at + 8 + old, n - at - 8 - old);
    if (gguf_open_bytes(changed, n - old + length, &g, &e) != ST_OK ||
        vocab_open(g, &t, &e) != ST_OK)
        fail_msg("%s: %s", name, e.text);
    assert_string_equal(tokenizer_pre(t), name);
    gguf_close(g);
    free(changed);
    return t;
}

struct id_hash {
    const struct tokenizer *t;
    uint64_t value; /* 64-bit FNV-1a */
};

static void hash_id(struct id_hash *hash, uint32_t id)
{
    for (int shift = 0; shift < 32; shift += 8)
        hash->value = (hash->value ^ (id >> shift & 0xFF)) * 0x100000001B3u;
}

static bool hash_line(void *context, const char *text, size_t n, bool parse_special,
                      const char *ids)
{
    struct id_hash *hash = context;
    struct token_list list = {0};
    const struct tokenize_options options = {0};
    (void)ids; /* of another vocabulary */
    if (parse_special)
        return true;
    assert_int_equal(tokenizer_encode(hash->t, text, n, &options, &list, NULL), ST_OK);
    for (uint32_t i = 0; i < list.count; i++)
        hash_id(hash, (uint32_t)list.ids[i]);
    hash_id(hash, UINT32_MAX);
    token_list_free(&list);
    return true;
}

/* Each family of pre-tokenisers on GPT-2's vocabulary: tokens_pre.txt has a hash of llama.cpp's ids
 * of the same strings. */
static void pre_tokenizers_are_the_reference_s(void **state)
{
    (void)state;
    char path[4096], name[64], *line;
    size_t n, size;
    int count = 0, wrong = 0;
    snprintf(path, sizeof path, "%s/ggml-vocab-gpt-2.gguf", folder);
    char *file = read_file(path, &n);
    char *table = read_file(OINFER_SOURCE_DIR "/tests/golden/tokens_pre.txt", &size);
    for (line = table; *line != '\0'; line = strchr(line, '\n') + 1, count++) {
        size_t length = strcspn(line, " ");
        assert_true(length < sizeof name);
        memcpy(name, line, length);
        name[length] = '\0';
        struct tokenizer *t = open_with_pre(file, n, name);
        struct id_hash hash = {t, 0xCBF29CE484222325u};
        each_golden_line("tokens_llama_spm.txt", hash_line, &hash);
        if (hash.value != strtoull(line + length, NULL, 16)) {
            print_error("%s: other ids than the reference's\n", name);
            wrong++;
        }
        tokenizer_close(t);
    }
    assert_int_equal(wrong, 0);
    assert_true(count >= 20);
    free(table);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_llama),
        cmocka_unit_test(spm_ids_are_the_reference_s),
        cmocka_unit_test(bpe_gpt2),
        cmocka_unit_test(bpe_starcoder),
        cmocka_unit_test(bpe_deepseek_coder),
        cmocka_unit_test(bpe_falcon),
        cmocka_unit_test(wpm_bge),
        cmocka_unit_test(pre_tokenizers_are_the_reference_s),
    };
    folder = getenv("OINFER_VOCAB_DIR");
    if (folder == NULL)
        folder = OINFER_SOURCE_DIR "/../shared/data/vocab";
    char path[4096];
    snprintf(path, sizeof path, "%s/ggml-vocab-llama-spm.gguf", folder);
    if (access(path, R_OK) != 0) {
        printf("skipped: no %s (set OINFER_VOCAB_DIR)\n", path);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
