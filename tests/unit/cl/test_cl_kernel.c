/* Kernels and programs: building, arguments, sizes, failures, the registry and the disk cache. */
#include "tests/unit/cl/cl_test.h"

#include <dirent.h>
#include <sys/stat.h>

#include "engine/cl/program.h"
#include "engine/cl/sm90a.h"
#include "engine/cl/source.h"
#include "engine/cl/trial.h"
#include "kernels/embedded.h"

static const char scale_text[] =
    "#ifndef FACTOR\n#define FACTOR 2\n#endif\n"
    "__kernel void scale(__global int *x, int addend)\n"
    "{ x[get_global_id(0)] = x[get_global_id(0)] * FACTOR + addend; }\n"
    "__kernel __attribute__((reqd_work_group_size(4, 1, 1)))\n"
    "void fours(__global int *x, __local int *l)\n"
    "{ l[get_local_id(0)] = 4; x[get_global_id(0)] = l[get_local_id(0)]; }\n";

static const size_t one[3] = {1, 1, 1};

static char device_name[128]; /* of the device under test, for messages */

static enum status open_scale(struct device *d, const char *defines, struct kernel **k,
                              struct err *e)
{
    snprintf(device_name, sizeof device_name, "%s", device_info(d)->name);
    return kernel_open_source(d, "scale.cl", scale_text, defines, "scale", k, e);
}

/* Runs scale on {1, 2, 3, 4} with addend 10 and compares with factor. */
static void run_scale(struct device *d, struct kernel *k, int factor)
{
    int x[4] = {1, 2, 3, 4}, addend = 10;
    struct buffer *b = NULL;
    assert_ok(buffer_open(d, sizeof x, BUFFER_IO, "x", &b, NULL));
    assert_ok(queue_write(d, QUEUE_COMPUTE, b, 0, x, sizeof x, "up", NULL));
    assert_ok(kernel_set_buffer(k, 0, b, NULL));
    assert_ok(kernel_set_bytes(k, 1, &addend, sizeof addend, NULL));
    assert_ok(kernel_launch(k, (const size_t[]){4, 1, 1}, (const size_t[]){0, 0, 0}, "scale", "", 0,
                            0, NULL));
    assert_ok(queue_read(d, QUEUE_COMPUTE, b, 0, x, sizeof x, "down", NULL));
    assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
    for (int i = 0; i < 4; i++)
        assert_int_equal(x[i], (i + 1) * factor + 10);
    buffer_close(b);
}

/* The body on every OpenCL device. */
static void each_cl_device(void (*body)(uint32_t index))
{
    for (uint32_t i = 0; i + 1 < device_list_count(test_list); i++)
        if (device_list_at(test_list, i)->available)
            body(i);
}

static void build_and_run(uint32_t index)
{
    struct device *d = test_open_device(index);
    struct kernel *a = NULL, *b = NULL, *c = NULL;
    uint32_t before = kernel_stats(d).built + kernel_stats(d).cached;
    assert_ok(open_scale(d, "", &a, NULL));
    assert_ok(open_scale(d, "", &b, NULL));
    assert_int_equal(kernel_stats(d).built + kernel_stats(d).cached, before + 1);
    assert_ok(open_scale(d, "-DFACTOR=5", &c, NULL));
    assert_int_equal(kernel_stats(d).built + kernel_stats(d).cached, before + 2);
    run_scale(d, a, 2);
    run_scale(d, c, 5);
    run_scale(d, b, 2);
    assert_true(kernel_max_work_group(a) >= 1);
    assert_true(kernel_preferred_multiple(a) >= 1);
    kernel_close(a);
    run_scale(d, b, 2);
    kernel_close(b);
    kernel_close(c);
    kernel_close(NULL);
    device_close(d);
}

static void test_build_and_run(void **state)
{
    (void)state;
    each_cl_device(build_and_run);
}

/* D6: a build failure names device, file, options and the log's first error, and is remembered. */
static void build_failure(uint32_t index)
{
    static const char bad[] = "#ifdef WRONG\nthis is no C;\n#endif\n__kernel void k(void) {}\n";
    struct device *d = test_open_device(index);
    struct kernel *k = NULL;
    struct err e = {0};
    assert_ok(kernel_open_source(d, "bad.cl", bad, "", "k", &k, NULL));
    kernel_close(k);
    for (int round = 0; round < 2; round++) {
        err_clear(&e);
        assert_int_equal(kernel_open_source(d, "bad.cl", bad, "-DWRONG", "k", &k, &e), ST_BUILD);
        assert_null(k);
        assert_non_null(strstr(e.text, device_info(d)->name));
        assert_non_null(strstr(e.text, "bad.cl"));
        assert_non_null(strstr(e.text, "-DWRONG"));
        assert_non_null(strstr(e.text, "error"));
        assert_int_equal(kernel_stats(d).failed, round == 0 ? kernel_stats(d).failed : 1);
    }
    uint32_t failed = kernel_stats(d).failed;
    device_close(d);
    /* S30: remembered on disk as well: the next process does not even try. */
    d = test_open_device(index);
    assert_int_equal(kernel_open_source(d, "bad.cl", bad, "-DWRONG", "k", &k, &e), ST_BUILD);
    assert_int_equal(kernel_stats(d).failed, 0);
    assert_non_null(strstr(e.text, "bad.cl"));
    assert_true(failed >= 1);
    device_close(d);
}

static void test_build_failure(void **state)
{
    (void)state;
    each_cl_device(build_failure);
}

static void unknown_names(uint32_t index)
{
    struct device *d = test_open_device(index);
    struct kernel *k = NULL;
    struct err e = {0};
    assert_int_equal(kernel_open_source(d, "scale.cl", scale_text, "", "nothing", &k, &e),
                     ST_BUILD);
    assert_non_null(strstr(e.text, "nothing"));
    assert_int_equal(kernel_open(d, "no/such.cl", "", "k", &k, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.text, "no/such.cl"));
    assert_null(k);
    device_close(d);
}

static void test_unknown_names(void **state)
{
    (void)state;
    each_cl_device(unknown_names);
}

/* D18: the kernel's own limit counts, not the device's; the error has value and limit. */
static void sizes(uint32_t index)
{
    struct device *d = test_open_device(index);
    struct kernel *k = NULL;
    struct err e = {0};
    assert_ok(open_scale(d, "", &k, NULL));
    size_t over = (size_t)kernel_max_work_group(k) + 1;
    assert_int_equal(kernel_launch(k, (const size_t[]){over, 1, 1}, (const size_t[]){over, 1, 1},
                                   "scale", "", 0, 0, &e),
                     ST_INVALID);
    char number[32];
    snprintf(number, sizeof number, "%zu", over);
    assert_non_null(strstr(e.text, number));
    assert_int_equal(kernel_launch(k, (const size_t[]){5, 1, 1}, (const size_t[]){2, 1, 1}, "scale",
                                   "", 0, 0, &e),
                     ST_INVALID);
    assert_int_equal(kernel_launch(k, (const size_t[]){0, 1, 1}, one, "scale", "", 0, 0, &e),
                     ST_INVALID);
    assert_false(device_is_lost(d));
    assert_int_not_equal(kernel_set_bytes(k, 9, &over, sizeof over, &e), ST_OK);
    assert_non_null(strstr(e.text, "argument 9"));
    kernel_close(k);
    assert_ok(kernel_open_source(d, "scale.cl", scale_text, "", "fours", &k, NULL));
    struct buffer *b = NULL;
    int x[4] = {0, 0, 0, 0};
    assert_ok(buffer_open(d, sizeof x, BUFFER_IO, "x", &b, NULL));
    assert_ok(kernel_set_buffer(k, 0, b, NULL));
    assert_ok(kernel_set_local(k, 1, 16, NULL));
    assert_ok(kernel_launch(k, (const size_t[]){4, 1, 1}, (const size_t[]){4, 1, 1}, "fours", "", 0,
                            0, NULL));
    assert_ok(queue_read(d, QUEUE_COMPUTE, b, 0, x, sizeof x, "down", NULL));
    assert_ok(queue_wait(d, QUEUE_COMPUTE, NULL));
    assert_int_equal(x[3], 4);
    buffer_close(b);
    kernel_close(k);
    device_close(d);
}

static void test_sizes(void **state)
{
    (void)state;
    each_cl_device(sizes);
}

/* ---- the disk cache ---- */

static char cache_path[512]; /* of the cached scale program, found by find_cached */

/* The only program in a cache; removes all of them first where `remove_all`. */
static void find_cached(const char *cache, bool remove_all)
{
    char folder[128];
    snprintf(folder, sizeof folder, "%s/programs", cache);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    uint32_t n = 0;
    for (struct dirent *f = readdir(dir); f != NULL; f = readdir(dir)) {
        if (f->d_name[0] == '.')
            continue;
        snprintf(cache_path, sizeof cache_path, "%s/%s", folder, f->d_name);
        n++;
        if (remove_all)
            assert_int_equal(unlink(cache_path), 0);
    }
    closedir(dir);
    assert_true(remove_all || n == 1);
}

/* Opens a device and the scale kernel, checks its result, and returns what the program cost. */
static struct kernel_stats cold_or_warm(uint32_t index, const char *cache)
{
    struct device_options options = {.cache_dir = cache};
    struct device *d = NULL;
    struct kernel *k = NULL;
    struct err e = {0};
    if (device_open(test_list, index, &options, &d, &e) != ST_OK)
        fail_msg("%s", e.text);
    struct kernel_stats before = kernel_stats(d);
    if (open_scale(d, "-DFACTOR=3", &k, &e) != ST_OK)
        fail_msg("%s", e.text);
    run_scale(d, k, 3);
    struct kernel_stats after = kernel_stats(d);
    after.built -= before.built;
    after.cached -= before.cached;
    kernel_close(k);
    device_close(d);
    return after;
}

static long file_size(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return (long)s.st_size;
}

static void flip_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(c ^ 0x40, f);
    fclose(f);
}

/* D24, D25, D26, S30: the second start loads the binary; any change of the file means a rebuild
 * with right results, and the file is written again. */
static void disk_cache(uint32_t index)
{
    char cache[96];
    snprintf(cache, sizeof cache, "%s/disk%u", test_cache, index);
    cold_or_warm(index, cache);
    find_cached(cache, true); /* the caps stay known, so only one program is built from here on */
    assert_int_equal(cold_or_warm(index, cache).built, 1);
    assert_int_equal(cold_or_warm(index, cache).cached, 1);
    find_cached(cache, false);
    struct stat s;
    assert_int_equal(stat(cache_path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    char folder[128];
    snprintf(folder, sizeof folder, "%s/programs", cache);
    assert_int_equal(stat(folder, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    long size = file_size(cache_path);
    /* magic, format, kind, key, length, hash, and the payload's begin, middle and end */
    const long places[] = {0, 8, 12, 16, 31, 32, 40, 48, size / 2, size - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        flip_byte(cache_path, places[i]);
        assert_int_equal(cold_or_warm(index, cache).built, 1);
        assert_int_equal(cold_or_warm(index, cache).cached, 1);
        assert_int_equal(file_size(cache_path), size);
    }
    const long lengths[] = {0, 10, 47, 48, size / 2, size - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(truncate(cache_path, lengths[i]), 0);
        assert_int_equal(cold_or_warm(index, cache).built, 1);
        assert_int_equal(cold_or_warm(index, cache).cached, 1);
    }
}

static void test_disk_cache(void **state)
{
    (void)state;
    each_cl_device(disk_cache);
}

/* A binary that is whole but not this program's: the driver refuses it, the source is built. */
static void stale_binary(uint32_t index)
{
    char cache[96];
    if (strcmp(device_list_at(test_list, index)->platform, "rusticl") == 0)
        return; /* it ends the process on such a file; the driver's stamp keeps them apart */
    snprintf(cache, sizeof cache, "%s/stale%u", test_cache, index);
    cold_or_warm(index, cache);
    find_cached(cache, true);
    cold_or_warm(index, cache);
    find_cached(cache, false);
    struct cache_key key = {0, 0};
    const char *name = strrchr(cache_path, '/') + 1;
    char half[17] = "";
    memcpy(half, name, 16);
    key.high = strtoull(half, NULL, 16);
    key.low = strtoull(name + 16, NULL, 16);
    static const char junk[] = "an older driver's idea of a binary";
    cache_store(cache, "programs", key, CACHE_PROGRAM, junk, sizeof junk);
    assert_int_equal(cold_or_warm(index, cache).built, 1);
    assert_int_equal(cold_or_warm(index, cache).cached, 1);
}

static void test_stale_binary(void **state)
{
    (void)state;
    each_cl_device(stale_binary);
}

/* D26: a driver file replaced under the same version number makes other keys. */
static void driver_stamp(uint32_t index)
{
    struct device *d = test_open_device(index);
    struct cache_key before = device__key(d, "x", 1, "");
    assert_true(d->driver_stamp[0] != '\0');
    d->driver_stamp[0]++;
    struct cache_key after = device__key(d, "x", 1, "");
    assert_true(before.high != after.high || before.low != after.low);
    device_close(d);
}

static void test_driver_stamp(void **state)
{
    (void)state;
    each_cl_device(driver_stamp);
}

/* Anyone could plant a binary in a folder that others may write to. */
static void test_shared_folder(void **state)
{
    (void)state;
    char cache[96], folder[128];
    void *data;
    size_t length;
    struct cache_key key = {1, 2};
    snprintf(cache, sizeof cache, "%s/shared", test_cache);
    snprintf(folder, sizeof folder, "%s/programs", cache);
    cache_store(cache, "programs", key, CACHE_PROGRAM, "abc", 3);
    assert_true(cache_load(cache, "programs", key, CACHE_PROGRAM, &data, &length));
    assert_int_equal(length, 3);
    assert_memory_equal(data, "abc", 4);
    free(data);
    assert_false(cache_load(cache, "programs", key, CACHE_FAILURE, &data, &length));
    assert_false(cache_load(NULL, "programs", key, CACHE_PROGRAM, &data, &length));
    assert_int_equal(chmod(folder, 0770), 0);
    assert_false(cache_load(cache, "programs", key, CACHE_PROGRAM, &data, &length));
    cache_store(cache, "programs", key, CACHE_PROGRAM, "def", 3);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_true(cache_load(cache, "programs", key, CACHE_PROGRAM, &data, &length));
    assert_memory_equal(data, "abc", 4);
    free(data);
    /* A link out of the folder is not followed, and is written over. */
    char file[200], outside[200];
    snprintf(file, sizeof file, "%s/%016llx%016llx.bin", folder, 1ull, 2ull);
    snprintf(outside, sizeof outside, "%s/outside", test_cache);
    assert_int_equal(rename(file, outside), 0);
    assert_int_equal(symlink(outside, file), 0);
    assert_false(cache_load(cache, "programs", key, CACHE_PROGRAM, &data, &length));
    cache_store(cache, "programs", key, CACHE_PROGRAM, "ghi", 3);
    assert_true(cache_load(cache, "programs", key, CACHE_PROGRAM, &data, &length));
    assert_memory_equal(data, "ghi", 4);
    free(data);
    assert_int_equal(rename(outside, file), 0); /* what it led to was not touched */
    assert_true(cache_load(cache, "programs", key, CACHE_PROGRAM, &data, &length));
    assert_memory_equal(data, "abc", 4);
    free(data);
}

/* The same bytes split differently are different keys. */
static void test_hash(void **state)
{
    (void)state;
    const char *a[] = {"ab", "c"}, *b[] = {"a", "bc"};
    const size_t la[] = {2, 1}, lb[] = {1, 2};
    struct cache_key x = cache_hash(a, la, 2), y = cache_hash(b, lb, 2), z = cache_hash(a, la, 2);
    assert_true(x.high != y.high || x.low != y.low);
    assert_true(x.high == z.high && x.low == z.low);
}

/* No more idle programs are kept than PROGRAMS_IDLE_MAX. */
static void test_idle_programs(void **state)
{
    (void)state;
    struct device *d = test_open_device(0);
    uint32_t idle = 0;
    for (int i = 0; i < 3 && !device_is_host(d); i++) {
        struct kernel *k = NULL;
        char defines[32];
        snprintf(defines, sizeof defines, "-DFACTOR=%d", 20 + i);
        assert_ok(open_scale(d, defines, &k, NULL));
        kernel_close(k);
    }
    for (struct program *p = d->programs; p != NULL; p = p->next)
        idle += p->users == 0;
    assert_true(idle <= PROGRAMS_IDLE_MAX);
    device_close(d);
}

/* ---- sources ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_source_folder(void **state)
{
    (void)state;
    char folder[96];
    struct strbuf out;
    struct err e = {0};
    snprintf(folder, sizeof folder, "%s/kernels", test_cache);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_file(folder, "common.cl", "/* common */\n");
    write_file(folder, "shared.h", "#include \"deep.h\"\nint shared;\n");
    write_file(folder, "deep.h", "int deep;");
    write_file(folder, "a.cl", "#include \"shared.h\"\n#include \"deep.h\"\nint a;\n");
    write_file(folder, "loop.cl", "#include \"loop.cl\"\nint loop;\n");
    write_file(folder, "lost.cl", "int x;\n#include \"gone.h\"\n");
    strbuf_init(&out, SOURCE_MAX_BYTES);
    assert_ok(source_file(folder, "a.cl", &out, NULL));
    assert_string_equal(strbuf_text(&out), "#line 1 \"kernels/common.cl\"\n/* common */\n"
                                           "#line 1 \"kernels/a.cl\"\n"
                                           "#line 1 \"kernels/shared.h\"\n"
                                           "#line 1 \"kernels/deep.h\"\nint deep;\n"
                                           "#line 2 \"kernels/shared.h\"\nint shared;\n"
                                           "#line 2 \"kernels/a.cl\"\n"
                                           "#line 3 \"kernels/a.cl\"\nint a;\n");
    strbuf_clear(&out);
    assert_ok(source_file(folder, "loop.cl", &out, NULL));
    strbuf_clear(&out);
    assert_int_equal(source_file(folder, "lost.cl", &out, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.text, "gone.h"));
    assert_int_equal(source_file(folder, "../kernels/a.cl", &out, &e), ST_NOT_FOUND);
    strbuf_free(&out);
    strbuf_init(&out, 30);
    assert_int_equal(source_file(folder, "a.cl", &out, &e), ST_NO_MEMORY);
    strbuf_free(&out);
}

/* The uncovering of sm_90a instructions in a program's PTX. */
static void test_sm90a_rewrite(void **state)
{
    (void)state;
    struct strbuf out;
    strbuf_init(&out, 1 << 20);
    assert_true(sm90a__wanted("asm(\"//@wgmma.fence;\")"));
    assert_false(sm90a__wanted("// @ nothing"));
    assert_true(sm90a__rewrite(".version 9.0\n.target sm_90, texmode\n.entry k()\n"
                               ".reqntid 128, 1, 1\n{\n//@wgmma.fence;\nadd;\n//@x;\n}\n",
                               &out));
    assert_string_equal(strbuf_text(&out),
                        ".version 9.0\n.target sm_90a, texmode\n.entry k()\n"
                        ".reqntid 128, 1, 1\n.minnctapersm 1\n{\nwgmma.fence;\nadd;\nx;\n}\n");
    strbuf_clear(&out);
    assert_true(sm90a__rewrite(".target sm_90\n.reqntid 64, 1, 1\n{\n\t//@groups 8\nadd;\n}\n"
                               ".reqntid 32, 1, 1\n{\n}\n",
                               &out));
    assert_string_equal(strbuf_text(&out), ".target sm_90a\n.reqntid 64, 1, 1\n.minnctapersm 8\n"
                                           "{\n\t//@groups 8\nadd;\n}\n"
                                           ".reqntid 32, 1, 1\n.minnctapersm 8\n{\n}\n");
    strbuf_clear(&out);
    assert_false(sm90a__rewrite(".target sm_80\n", &out));
    strbuf_free(&out);
}

/* ---- trial builds ---- */

/* A kernel that PoCL 3.1's compiler ends the process on: the instruction is selected in a function
 * that was inlined into one without the feature. */
static const char deadly[] =
    "__attribute__((target(\"avx512f,avx512vnni\")))\n"
    "__kernel void deadly(__global int16 *x)\n"
    "{ x[get_global_id(0)] = __builtin_ia32_vpdpbusd512(x[0], x[1], x[2]); }\n";

/* The child dies, this process lives, and the failure says why and is remembered on disk. */
static void test_trial(void **state)
{
    (void)state;
    char cache[96];
    snprintf(cache, sizeof cache, "%s/trial", test_cache);
    struct device_options options = {.cache_dir = cache, .trial_command = "/proc/self/exe"};
    for (uint32_t i = 0; i + 1 < device_list_count(test_list); i++) {
        const struct device_info *info = device_list_at(test_list, i);
        if (!info->available || strcmp(info->platform, "Portable Computing Language") != 0)
            continue;
        for (int round = 0; round < 2; round++) {
            struct device *d = NULL;
            struct kernel *k = NULL;
            struct err e = {0};
            assert_ok(device_open(test_list, i, &options, &d, NULL));
            enum status status = kernel_open_source(d, "deadly.cl", deadly, "", "deadly", &k, &e);
            assert_int_equal(status, ST_BUILD);
            assert_non_null(strstr(e.text, "deadly.cl"));
            /* One that is right comes back from the child as a binary. */
            struct kernel_stats before = kernel_stats(d);
            assert_ok(open_scale(d, "-DFACTOR=7", &k, NULL));
            assert_int_equal(kernel_stats(d).cached, before.cached + 1);
            run_scale(d, k, 7);
            kernel_close(k);
            device_close(d);
        }
    }
}

/* A command that cannot do trial builds: building goes on in this process. */
static void test_trial_unusable(void **state)
{
    (void)state;
    static const char *const commands[] = {"/nonexistent/program", "/bin/true"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char cache[96];
        snprintf(cache, sizeof cache, "%s/unusable%zu", test_cache, i);
        struct device_options options = {.cache_dir = cache, .trial_command = commands[i]};
        struct device *d = NULL;
        struct kernel *k = NULL;
        if (device_list_count(test_list) == 1)
            skip();
        assert_ok(device_open(test_list, 0, &options, &d, NULL));
        assert_ok(open_scale(d, "-DFACTOR=11", &k, NULL));
        run_scale(d, k, 11);
        kernel_close(k);
        device_close(d);
    }
}

/* D9: none but the probe and the one variant that is about them read images, whose limits differ
 * from device to device. (S31, that programs are small, is checked of every build of them when the
 * kernels are.) */
static void test_programs_read_no_images(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < kernel_file_count; i++) {
        const char *path = kernel_files[i].path, *end = path + strlen(path);
        if (end - path < 3 || strcmp(end - 3, ".cl") != 0 || strcmp(path, "common.cl") == 0)
            continue;
        struct strbuf text;
        strbuf_init(&text, SOURCE_MAX_BYTES);
        assert_ok(source_file(NULL, path, &text, NULL));
        if (strstr(path, "probe/") == NULL && strcmp(path, "conv2d/image.cl") != 0 &&
            strstr(strbuf_text(&text), "read_image") != NULL)
            fail_msg("%s: uses images", path);
        strbuf_free(&text);
        n++;
    }
    assert_true(n > 30);
}

int main(int argc, char **argv)
{
    int trial = trial_build_main(argc, argv);
    if (trial >= 0)
        return trial;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build_and_run),
        cmocka_unit_test(test_build_failure),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_disk_cache),
        cmocka_unit_test(test_stale_binary),
        cmocka_unit_test(test_driver_stamp),
        cmocka_unit_test(test_shared_folder),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_idle_programs),
        cmocka_unit_test(test_source_folder),
        cmocka_unit_test(test_sm90a_rewrite),
        cmocka_unit_test(test_trial),
        cmocka_unit_test(test_trial_unusable),
        cmocka_unit_test(test_programs_read_no_images),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
