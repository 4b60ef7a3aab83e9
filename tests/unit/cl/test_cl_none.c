/* D21: a machine without OpenCL. Everything works on `host`, and the hint says what was searched.
 */
#include "tests/unit/cl/cl_test.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "engine/cl/cl.h"
#include "engine/cl/hint.h"

#define NOBODY 65534

/* Platforms of a loader that does not read OCL_ICD_VENDORS: then there is OpenCL all the same. */
static cl_uint n_platforms;

static void test_only_host(void **state)
{
    (void)state;
    if (n_platforms > 0)
        skip();
    assert_int_equal(device_list_count(test_list), 1);
    assert_int_equal(device_list_at(test_list, 0)->kind, DEVICE_HOST);
    const char *hint = device_list_hint(test_list);
    assert_non_null(strstr(hint, "/nonexistent"));
    assert_non_null(strstr(hint, "pocl-opencl-icd"));
    uint32_t index = 9, n = 1;
    assert_ok(device_select(test_list, "auto", &index, &n, NULL));
    assert_int_equal(index, 0);
}

static void test_host_works(void **state)
{
    (void)state;
    if (n_platforms > 0)
        skip();
    struct device *d = test_open_device(0);
    struct buffer *b = NULL;
    char text[4] = "";
    assert_true(device_is_host(d));
    assert_int_equal(device_caps(d), 0);
    assert_ok(buffer_open(d, 4, BUFFER_IO, "b", &b, NULL));
    assert_ok(queue_write(d, QUEUE_TRANSFER, b, 0, "abc", 4, "up", NULL));
    assert_ok(queue_read(d, QUEUE_COMPUTE, b, 0, text, 4, "down", NULL));
    assert_string_equal(text, "abc");
    assert_string_equal(buffer_host(b), "abc");
    buffer_close(b);
    struct kernel *k = NULL;
    struct err e = {0};
    assert_int_equal(kernel_open(d, "probe/local.cl", "", "probe", &k, &e), ST_UNSUPPORTED);
    assert_null(k);
    device_close(d);
}

/* The other cases of the hint: platforms without devices (D7), devices that cannot be used. */
static void test_hint_texts(void **state)
{
    (void)state;
    char text[HINT_TEXT_BYTES];
    hint_write(0, 1, 0, HINT_NODES, text, sizeof text);
    assert_non_null(strstr(text, "1 OpenCL platform(s) without a device"));
    hint_write(0, 1, 2, HINT_NODES, text, sizeof text);
    assert_non_null(strstr(text, "2 OpenCL device(s), none usable"));
    char small[20];
    hint_write(-1001, 0, 0, HINT_NODES, small, sizeof small);
    assert_int_equal(strlen(small), sizeof small - 1);
}

static void make_node(const char *folder, const char *name, mode_t mode)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

/* What is wrong with the hint as a user who is not root sees it: 0 nothing. */
static int judge_hint(const char *nodes)
{
    char text[HINT_TEXT_BYTES], wanted[2][HINT_TEXT_BYTES];
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return 1;
    hint_write(0, 1, 0, nodes, text, sizeof text);
    snprintf(wanted[0], sizeof wanted[0],
             "no access to %s/dri/renderD131 (add the user to group render)", nodes);
    snprintf(wanted[1], sizeof wanted[1], "no access to %s/mali0 (add the user to group video)",
             nodes);
    for (int i = 0; i < 2; i++)
        if (strstr(text, wanted[i]) == NULL)
            return 2;
    return strstr(text, "kfd") != NULL || strstr(text, "card0") != NULL ? 3 : 0;
}

/* D22: device nodes that this user may not open are named with the group that may; those that it
 * may open, and those that are no matter of OpenCL, are not. */
static void test_denied_nodes(void **state)
{
    (void)state;
    char nodes[128], dri[160];
    snprintf(nodes, sizeof nodes, "%s/nodes", test_cache);
    snprintf(dri, sizeof dri, "%s/dri", nodes);
    assert_int_equal(chmod(test_cache, 0755), 0);
    assert_int_equal(mkdir(nodes, 0755), 0);
    assert_int_equal(mkdir(dri, 0755), 0);
    make_node(dri, "renderD131", 0);
    make_node(dri, "card0", 0);
    make_node(nodes, "mali0", 0);
    make_node(nodes, "kfd", 0666);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(judge_hint(nodes));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
    clGetPlatformIDs(0, NULL, &n_platforms);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_host),
        cmocka_unit_test(test_host_works),
        cmocka_unit_test(test_hint_texts),
        cmocka_unit_test(test_denied_nodes),
    };
    return cmocka_run_group_tests(tests, test_open_list, test_close_list);
}
