/* trim: which mappings may lose their pages, and that what they hold is still there afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/trim.h"

#define MAPPED_BYTES ((size_t)4 << 20)

/* A mapping described by its first line, its resident and its private kilobytes. */
static struct trim_mapping described(const char *first, unsigned resident_kb, unsigned private_kb)
{
    struct trim_mapping m = {0};
    char line[64];
    assert_false(trim__line(&m, first));
    assert_false(trim__line(&m, "Size:              99999 kB"));
    snprintf(line, sizeof line, "Rss: %15u kB", resident_kb);
    assert_false(trim__line(&m, line));
    assert_false(trim__line(&m, "Referenced:         1234 kB"));
    snprintf(line, sizeof line, "Anonymous: %9u kB", private_kb);
    assert_true(trim__line(&m, line));
    return m;
}

static void only_whole_file_pages_are_dropped(void **state)
{
    (void)state;
    const char *code = "7f0000000000-7f0000400000 r-xp 00001000 08:01 4242   /usr/lib/libbig.so.1";
    struct trim_mapping m = described(code, 4096, 0);
    assert_true(trim__droppable(&m));
    assert_true(m.begin == 0x7f0000000000 && m.end == 0x7f0000400000 && m.inode == 4242);

    m = described(code, 4096, 4); /* a page of its own: a relocation */
    assert_false(trim__droppable(&m));
    m = described(code, 100, 0); /* not worth a call */
    assert_false(trim__droppable(&m));
    m = described("7f0000000000-7f0000400000 rw-p 00001000 08:01 4242 /usr/lib/libbig.so.1", 4096,
                  0); /* may be written to at any moment */
    assert_false(trim__droppable(&m));
    m = described("7f0000000000-7f0000400000 r--s 00000000 08:01 77 /models/a.gguf", 4096, 0);
    assert_false(trim__droppable(&m));
    m = described("7f0000000000-7f0000400000 r--p 00000000 00:00 0", 4096, 0); /* of no file */
    assert_false(trim__droppable(&m));
}

static void facts_of_one_mapping_do_not_reach_the_next(void **state)
{
    (void)state;
    struct trim_mapping m = described("1000-401000 r-xp 00000000 08:01 5 /lib/a.so", 4096, 0);
    assert_false(trim__line(&m, "401000-801000 r-xp 00000000 08:01 5 /lib/a.so"));
    assert_false(trim__droppable(&m));
    assert_false(trim__line(&m, "VmFlags: rd ex mr mw me"));
    assert_false(trim__line(&m, ""));
    assert_false(trim__droppable(&m));
}

/* Resident pages among n bytes at p, which begin at a page. */
static size_t resident_bytes(void *p, size_t n)
{
    const uintptr_t begin = (uintptr_t)p;
    char line[512];
    unsigned long kb = 0;
    int inside = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        char *at;
        const uintptr_t from = (uintptr_t)strtoull(line, &at, 16);
        if (at != line && *at == '-')
            inside = from >= begin && (uintptr_t)strtoull(at + 1, NULL, 16) <= begin + n;
        if (inside && strncmp(line, "Rss:", 4) == 0) {
            kb = strtoul(line + 4, NULL, 10);
            break;
        }
    }
    fclose(f);
    return kb * 1024;
}

static void pages_go_and_come_back(void **state)
{
    (void)state;
    char path[] = "/tmp/oinfer-trim-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    unsigned char *bytes = malloc(MAPPED_BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < MAPPED_BYTES; i++)
        bytes[i] = (unsigned char)(i * 31 >> 3);
    assert_int_equal(write(fd, bytes, MAPPED_BYTES), MAPPED_BYTES);
    unsigned char *mapped = mmap(NULL, MAPPED_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(mapped != MAP_FAILED);
    close(fd);
    assert_memory_equal(mapped, bytes, MAPPED_BYTES);
    assert_int_equal(resident_bytes(mapped, MAPPED_BYTES), MAPPED_BYTES);
    trim_memory();
    assert_int_equal(resident_bytes(mapped, MAPPED_BYTES), 0);
    assert_memory_equal(mapped, bytes, MAPPED_BYTES);
    munmap(mapped, MAPPED_BYTES);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_file_pages_are_dropped),
        cmocka_unit_test(facts_of_one_mapping_do_not_reach_the_next),
        cmocka_unit_test(pages_go_and_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
