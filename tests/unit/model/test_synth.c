/* Synthetic models: shapes, dtypes and fall-backs, determinism, values, failing disks and memory;
 * and the reader against a real-sized file cut short (S43). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/mem.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/hparams.h"
#include "engine/model/synth.h"
#include "engine/tensor/quant.h"

static char folder[] = "/tmp/test_synth_XXXXXX";
static char path[64], other_path[64];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    snprintf(other_path, sizeof other_path, "%s/other.gguf", folder);
    return 0;
}

/* Fails if a test left anything behind, a temporary file for instance. */
static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    unlink(other_path);
    return rmdir(folder);
}

static void write_model(const char *shape_text, const char *dtype_text, const char *file)
{
    struct synth_shape shape;
    struct synth_dtype dtype;
    struct err e = {0};
    if (synth_shape_parse(shape_text, &shape, &e) != ST_OK ||
        synth_dtype_parse(dtype_text, &dtype, &e) != ST_OK ||
        synth_write(&shape, dtype, file, &e) != ST_OK)
        fail_msg("%s %s: %s", shape_text, dtype_text, e.text);
}

/* The whole file; mem_free it. */
static char *read_file(const char *file, size_t *n)
{
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    struct stat info;
    assert_int_equal(fstat(fileno(f), &info), 0);
    *n = (size_t)info.st_size;
    char *bytes = mem_alloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static struct gguf *open_model(void)
{
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_open(path, &g, &e) != ST_OK)
        fail_msg("%s", e.text);
    return g;
}

static void test_shapes(void **state)
{
    (void)state;
    struct synth_shape shape;
    struct err e = {0};
    assert_int_equal(synth_shape_parse("135m", &shape, &e), ST_OK);
    assert_true(shape.n_layer == 30 && shape.n_embd == 576 && shape.n_ff == 1536);
    assert_true(shape.n_head == 9 && shape.n_head_kv == 3 && shape.n_vocab == 49152 && shape.tied);
    assert_int_equal(synth_shape_parse("1.1B", &shape, &e), ST_OK);
    assert_true(shape.n_layer == 22 && shape.n_embd == 2048 && shape.n_ff == 5632);
    assert_true(shape.n_head == 32 && shape.n_head_kv == 4 && shape.n_vocab == 32000);
    assert_int_equal(synth_shape_parse("7b", &shape, &e), ST_OK);
    assert_true(shape.n_layer == 32 && shape.n_embd == 4096 && shape.n_ff == 11008);
    assert_string_equal(shape.name, "7b");
    assert_int_equal(synth_shape_parse("135m,n_layer=4,seed=9", &shape, &e), ST_OK);
    assert_true(shape.n_layer == 4 && shape.n_embd == 576 && shape.seed == 9);
    assert_string_equal(shape.name, "custom");
    assert_int_equal(synth_shape_parse("n_embd=512", &shape, &e), ST_OK);
    assert_true(shape.n_layer == 2 && shape.n_embd == 512);
}

static void test_wrong_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "neither a preset (135m 1.1b 7b tiny) nor key=value"},
        {"13b", "\"13b\" is neither a preset"},
        {"tiny,n_layers=2", "unknown key \"n_layers\", known: n_layer n_embd"},
        {"tiny,n_layer", "\"n_layer\" is neither"},
        {"n_layer=", "n_layer = \"\" is not a number in 1 .. 512"},
        {"n_layer=0", "n_layer = \"0\" is not a number in 1 .. 512"},
        {"n_layer=-1", "n_layer = \"-1\""},
        {"n_layer= 3", "n_layer = \" 3\""},
        {"n_layer=2x", "n_layer = \"2x\""},
        {"n_layer=513", "n_layer = \"513\""},
        {"seed=4294967296", "seed = \"4294967296\" is not a number in 0 .. 4294967295"},
        {"n_layer=99999999999999999999999999", "n_layer"},
        {"n_vocab=259", "n_vocab = \"259\" is not a number in 260 .. "},
        {"n_head=5", "n_head = 5 is not a multiple of n_head_kv = 2"},
        {"n_head=6", "n_embd = 256 is not a multiple of n_head = 6"},
        {"head_dim=33", "heads of 33 values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct synth_shape shape;
        struct err e = {0};
        enum status status = synth_shape_parse(cases[i].text, &shape, &e);
        if (status != ST_INVALID || strstr(e.text, cases[i].message) == NULL)
            fail_msg("\"%s\": %s \"%s\"", cases[i].text, status_name(status), e.text);
    }
    struct synth_dtype dtype;
    struct err e = {0};
    assert_int_equal(synth_dtype_parse("q9_9", &dtype, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "\"q9_9\""));
    assert_int_equal(synth_dtype_parse("iq2_xxs", &dtype, &e), ST_INVALID);
}

/* Every weight dtype: the file opens, its matrices have the dtype, and their values the spread. */
static void test_every_dtype(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < DT_COUNT; id++) {
        if (dtype_info(id) == NULL || !dtype_info(id)->compute)
            continue;
        write_model("tiny", dtype_name(id), path);
        struct gguf *g = open_model();
        struct hparams h;
        assert_int_equal(hparams_read(g, &h, NULL), ST_OK);
        assert_true(h.n_layer == 2 && h.n_embd == 256 && h.n_head_kv == 2 && h.n_vocab == 512);
        const struct gguf_tensor *t = gguf_tensor_find(g, "blk.1.ffn_up.weight");
        assert_non_null(t);
        assert_int_equal(t->dtype, id);
        size_t n = (size_t)(t->ne[0] * t->ne[1]);
        float *values = mem_array(n, sizeof *values);
        assert_non_null(values);
        assert_int_equal(quant_to_f32(t->dtype, t->data, values, n, NULL), ST_OK);
        double sum = 0, squares = 0;
        for (size_t i = 0; i < n; i++) {
            sum += (double)values[i];
            squares += (double)values[i] * (double)values[i];
        }
        double spread = sqrt(squares / (double)n), expected = 1 / sqrt(256.0);
        if (fabs(spread / expected - 1) > 0.05 || fabs(sum / (double)n) > 0.05 * expected)
            fail_msg("%s: spread %g, mean %g, expected %g and 0", dtype_name(id), spread,
                     sum / (double)n, expected);
        mem_free(values);
        gguf_close(g);
    }
}

static enum dtype dtype_of(const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    if (t == NULL)
        fail_msg("no tensor %s", name);
    return t->dtype;
}

static void test_mix(void **state)
{
    (void)state;
    write_model("tiny,n_layer=8", "q4_k_m", path);
    struct gguf *g = open_model();
    static const bool better[8] = {true, false, false, true, false, false, true, true};
    for (int i = 0; i < 8; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        assert_int_equal(dtype_of(g, name), better[i] ? DT_Q6_K : DT_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
        assert_int_equal(dtype_of(g, name), better[i] ? DT_Q6_K : DT_Q4_K);
        snprintf(name, sizeof name, "blk.%d.attn_q.weight", i);
        assert_int_equal(dtype_of(g, name), DT_Q4_K);
    }
    assert_int_equal(dtype_of(g, "output.weight"), DT_Q6_K);
    assert_int_equal(dtype_of(g, "token_embd.weight"), DT_Q4_K);
    assert_int_equal(dtype_of(g, "output_norm.weight"), DT_F32);
    gguf_close(g);
}

/* Rows that 256 does not divide fall back to blocks of 32, and to f16 where 32 does not either. */
static void test_fall_backs(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *dtype;
        enum dtype attn_q, ffn_down;
    } cases[] = {
        {"tiny,n_embd=96,n_ff=512", "q4_k", DT_Q5_0, DT_Q4_K},
        {"tiny,n_embd=96,n_ff=512", "q5_k", DT_Q5_1, DT_Q5_K},
        {"tiny,n_embd=96,n_ff=512", "q6_k", DT_Q8_0, DT_Q6_K},
        {"tiny,n_embd=96,n_ff=520", "q6_k", DT_Q8_0, DT_F16},
        {"tiny,n_embd=72,n_ff=256", "q4_0", DT_F16, DT_Q4_0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_model(cases[i].shape, cases[i].dtype, path);
        struct gguf *g = open_model();
        assert_int_equal(dtype_of(g, "blk.0.attn_q.weight"), cases[i].attn_q);
        assert_int_equal(dtype_of(g, "blk.0.ffn_down.weight"), cases[i].ffn_down);
        gguf_close(g);
    }
}

static void test_options(void **state)
{
    (void)state;
    write_model("tiny,tied=1,rope_freqs=1,head_dim=32,window=128,n_ctx=64", "q8_0", path);
    struct gguf *g = open_model();
    struct hparams h;
    assert_int_equal(hparams_read(g, &h, NULL), ST_OK);
    assert_true(h.head_dim_k == 32 && h.head_dim_v == 32 && h.n_rot == 32);
    assert_true(h.sliding_window == 128 && h.n_ctx_train == 64);
    assert_null(gguf_tensor_find(g, "output.weight"));
    const struct gguf_tensor *freqs = gguf_tensor_find(g, "rope_freqs.weight");
    assert_non_null(freqs);
    assert_int_equal(freqs->ne[0], 16);
    assert_int_equal(gguf_tensor_find(g, "blk.0.attn_q.weight")->ne[1], 4 * 32);
    gguf_close(g);
}

static void test_vocabulary(void **state)
{
    (void)state;
    write_model("tiny,n_vocab=30000,n_layer=1", "q4_0", path);
    struct gguf *g = open_model();
    uint64_t n;
    const char *key = "tokenizer.ggml.tokens";
    assert_int_equal(gguf_array(g, key, GGUF_STRING, &n, NULL), ST_OK);
    assert_int_equal(n, 30000);
    static const struct {
        uint64_t i;
        const char *text;
        int type;
    } samples[] = {{0, "<unk>", 2},
                   {1, "<s>", 3},
                   {2, "</s>", 3},
                   {3, "<0x00>", 6},
                   {258, "<0xFF>", 6},
                   {259, "\xE2\x96\x81", 1},
                   {260, "!", 1},
                   {353, "~", 1},
                   {354,
                    "\xE2\x96\x81"
                    "a",
                    1},
                   {379,
                    "\xE2\x96\x81"
                    "z",
                    1},
                   {380, "aa", 1},
                   {381,
                    "\xE2\x96\x81"
                    "aa",
                    1},
                   {1731,
                    "\xE2\x96\x81"
                    "zz",
                    1},
                   {1732, "aaa", 1}};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        struct gguf_string token = gguf_array_string(g, key, samples[i].i);
        assert_int_equal(token.length, strlen(samples[i].text));
        assert_memory_equal(token.data, samples[i].text, token.length);
        assert_int_equal(gguf_array_int(g, "tokenizer.ggml.token_type", samples[i].i),
                         samples[i].type);
    }
    for (uint64_t i = 381; i < n; i++)
        assert_true(gguf_array_f32(g, "tokenizer.ggml.scores", i) <
                    gguf_array_f32(g, "tokenizer.ggml.scores", i - 1));
    gguf_close(g);
}

static void test_deterministic(void **state)
{
    (void)state;
    size_t n, n_other;
    write_model("tiny", "q4_k_m", path);
    write_model("tiny", "q4_k_m", other_path);
    char *bytes = read_file(path, &n), *other = read_file(other_path, &n_other);
    assert_int_equal(n, n_other);
    assert_memory_equal(bytes, other, n);
    mem_free(other);
    write_model("tiny,seed=2", "q4_k_m", other_path);
    other = read_file(other_path, &n_other);
    assert_int_not_equal(memcmp(bytes + n - 4096, other + n_other - 4096, 4096), 0);
    mem_free(other);
    mem_free(bytes);
}

/* S43: cut at each 1 % of its length, the file is refused with the tensor, or the place in the
 * head, and the sizes. */
static void test_cut_at_each_percent(void **state)
{
    (void)state;
    write_model("tiny", "q4_0", path);
    size_t n;
    char *bytes = read_file(path, &n);
    unsigned named_tensors = 0;
    for (size_t percent = 0; percent < 100; percent++) {
        size_t cut = n * percent / 100;
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, cut, f), cut);
        fclose(f);
        struct gguf *g = NULL;
        struct err e = {0};
        assert_int_equal(gguf_open(path, &g, &e), ST_FORMAT);
        assert_int_equal(strncmp(e.text, path, strlen(path)), 0);
        char size[48];
        snprintf(size, sizeof size, "%zu bytes", cut);
        bool names_tensor = strstr(e.text, ".weight") != NULL && strstr(e.text, size) != NULL;
        bool names_place = strstr(e.text, "key") != NULL || percent == 0;
        assert_true(names_tensor || names_place);
        named_tensors += names_tensor;
    }
    assert_true(named_tensors > 90);
    mem_free(bytes);
}

/* A disk that takes no more (a file size limit stands in for it): named, and nothing is left. */
static void test_full_disk(void **state)
{
    (void)state;
    unlink(path);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {100000, 100000};
        struct synth_shape shape;
        struct err e = {0};
        int ok = setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                 synth_shape_parse("tiny", &shape, &e) == ST_OK &&
                 synth_write(&shape, (struct synth_dtype){DT_Q4_0, false}, path, &e) == ST_IO &&
                 strstr(e.text, path) != NULL && strstr(e.text, "File too large") != NULL;
        _exit(ok ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_unwritable_place(void **state)
{
    (void)state;
    struct synth_shape shape;
    struct err e = {0};
    assert_int_equal(synth_shape_parse("tiny", &shape, &e), ST_OK);
    struct synth_dtype dtype = {DT_F16, false};
    assert_int_equal(synth_write(&shape, dtype, "/nonexistent/m.gguf", &e), ST_IO);
    assert_non_null(strstr(e.text, "/nonexistent/m.gguf"));
    assert_int_equal(synth_write(&shape, dtype, folder, &e), ST_IO); /* rename fails */
    assert_non_null(strstr(e.text, "cannot rename"));
    char temporary[96];
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", folder, (long)getpid());
    assert_int_not_equal(access(temporary, F_OK), 0);
    shape.n_head_kv = 3;
    assert_int_equal(synth_write(&shape, dtype, path, &e), ST_INVALID);
}

static void test_memory_fails(void **state)
{
    (void)state;
    struct synth_shape shape;
    struct err e = {0};
    assert_int_equal(synth_shape_parse("tiny,n_layer=1", &shape, &e), ST_OK);
    struct synth_dtype dtype = {DT_Q4_0, false};
    mem_fail_at(0, 0);
    assert_int_equal(synth_write(&shape, dtype, path, &e), ST_OK);
    uint64_t allocations = mem_fail_at(0, 0);
    assert_true(allocations > 10);
    for (uint64_t n = 1; n <= allocations; n++) {
        unlink(path);
        mem_fail_at(n, 0);
        enum status status = synth_write(&shape, dtype, path, &e);
        mem_fail_at(0, 0);
        assert_int_equal(status, ST_NO_MEMORY);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

/* The writer refuses to be misused, instead of writing a bad file. */
static void test_writer_misuse(void **state)
{
    (void)state;
    struct gguf_writer *w = NULL;
    struct err e = {0};
    unlink(path);
    assert_int_equal(gguf_writer_open(path, &w, &e), ST_OK);
    assert_false(gguf_writer_tensor(w, "ragged", DT_Q4_0, (uint64_t[2]){33, 1}));
    assert_int_equal(gguf_writer_begin_data(w, &e), ST_INVALID);
    gguf_writer_close(w);
    assert_int_equal(gguf_writer_open(path, &w, &e), ST_OK);
    assert_true(gguf_writer_tensor(w, "a", DT_F32, (uint64_t[2]){2, 1}));
    assert_true(gguf_writer_tensor(w, "b", DT_F32, (uint64_t[2]){2, 1}));
    assert_int_equal(gguf_writer_begin_data(w, &e), ST_OK);
    float zeros[3] = {0};
    assert_int_equal(gguf_writer_data(w, zeros, 12, &e), ST_INVALID);
    assert_int_equal(gguf_writer_data(w, zeros, 8, &e), ST_OK);
    assert_int_equal(gguf_writer_commit(w, &e), ST_INVALID);
    assert_non_null(strstr(e.text, "1 of 2 tensors"));
    gguf_writer_close(w);
    gguf_writer_close(NULL);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_wrong_shapes),
        cmocka_unit_test(test_every_dtype),
        cmocka_unit_test(test_mix),
        cmocka_unit_test(test_fall_backs),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_cut_at_each_percent),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_unwritable_place),
        cmocka_unit_test(test_memory_fails),
        cmocka_unit_test(test_writer_misuse),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
