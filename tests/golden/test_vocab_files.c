/* Vocabulary-only GGUFs of other models with another engine's test vectors (NAME.gguf.inp, .out),
 * and llama.cpp's ids for one SPM vocabulary (tokens_llama_spm.txt). Needs the folder of those
 * files: OINFER_VOCAB_DIR, or ../shared/data/vocab beside the source tree. */
#include "tests/golden/tokens.h"

#include <unistd.h>

#define SEPARATOR "\n__ggml_vocab_test__\n"

static const char *folder;

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(LINE_BYTES);
    if (f == NULL || text == NULL)
        fail_msg("%s: cannot be read", path);
    size_t n = fread(text, 1, LINE_BYTES - 1, f);
    text[n] = '\0';
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
    struct tokenizer *t = open_named(name, path);
    snprintf(beside, sizeof beside, "%s.inp", path);
    char *inputs = read_file(beside);
    snprintf(beside, sizeof beside, "%s.out", path);
    char *outputs = read_file(beside);
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
    check_golden(t, "tokens_llama_spm.txt", comes_back);
    tokenizer_close(t);
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
