/* mem: checked allocation, the fail-at switch, memory figures, the arena and its ceiling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/base/mem.h"

static int fail_off(void **state)
{
    (void)state;
    mem_fail_at(0, 0);
    return 0;
}

static void zero_bytes_give_unique_blocks(void **state)
{
    (void)state;
    void *a = mem_alloc(0), *b = mem_zalloc(0), *c = mem_aligned(64, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_ptr_not_equal(a, b);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(NULL);
}

static void blocks_are_zeroed_aligned_and_kept(void **state)
{
    (void)state;
    unsigned char *z = mem_zalloc(1000);
    assert_non_null(z);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(z[i], 0);
    z[999] = 42;
    z = mem_realloc(z, 100000);
    assert_non_null(z);
    assert_int_equal(z[999], 42);
    mem_free(z);

    for (size_t alignment = sizeof(void *); alignment <= 4096; alignment *= 2) {
        void *p = mem_aligned(alignment, 100);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignment, 0);
        mem_free(p);
    }

    const size_t large = ((size_t)5 << 20) + 1;
    unsigned char *huge = mem_huge(large);
    assert_non_null(huge);
    assert_int_equal((uintptr_t)huge % MEM_HUGE_PAGE_BYTES, 0);
    memset(huge, 1, large);
    mem_free(huge);
}

static void arrays_check_the_product(void **state)
{
    (void)state;
    uint32_t *a = mem_array(10, sizeof *a);
    assert_non_null(a);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(a[i], 0);
    a[9] = 9;
    uint32_t *grown = mem_array_resize(a, 20, sizeof *a);
    assert_non_null(grown);
    assert_int_equal(grown[9], 9);
    assert_null(mem_array_resize(grown, SIZE_MAX / 2, sizeof *a));
    assert_int_equal(grown[9], 9);
    assert_null(mem_array(SIZE_MAX / 2, 3));
    assert_null(mem_array(SIZE_MAX, SIZE_MAX));
    mem_free(grown);
}

static void strings_are_copied_with_a_nul(void **state)
{
    (void)state;
    char *copy = mem_strdup("hello");
    assert_string_equal(copy, "hello");
    mem_free(copy);
    copy = mem_strndup("hello", 2);
    assert_string_equal(copy, "he");
    mem_free(copy);
    copy = mem_strndup("a\0b", 3);
    assert_memory_equal(copy, "a\0b", 4);
    mem_free(copy);
    assert_null(mem_strndup("x", SIZE_MAX));
}

/* Every kind of allocation counts and can be the failing one. */
static void *allocate_kind(int kind)
{
    switch (kind) {
    case 0: return mem_alloc(8);
    case 1: return mem_zalloc(8);
    case 2: return mem_realloc(NULL, 8);
    case 3: return mem_array(2, 4);
    case 4: return mem_array_resize(NULL, 2, 4);
    case 5: return mem_strdup("x");
    case 6: return mem_strndup("x", 1);
    case 7: return mem_huge(8);
    default: return mem_aligned(16, 8);
    }
}
#define ALLOCATION_KINDS 9

static void fail_at_fails_the_nth_once(void **state)
{
    (void)state;
    for (int n = 1; n <= ALLOCATION_KINDS; n++) {
        mem_fail_at((uint64_t)n, 0);
        for (int kind = 0; kind < ALLOCATION_KINDS; kind++) {
            void *p = allocate_kind(kind);
            assert_int_equal(p == NULL, kind == n - 1);
            mem_free(p);
        }
        assert_int_equal(mem_fail_at(0, 0), ALLOCATION_KINDS);
    }
}

static void sticky_failure_lasts_until_turned_off(void **state)
{
    (void)state;
    mem_fail_at(3, 1);
    for (int kind = 0; kind < ALLOCATION_KINDS; kind++) {
        void *p = allocate_kind(kind);
        assert_int_equal(p == NULL, kind >= 2);
        mem_free(p);
    }
    mem_fail_at(0, 0);
    void *p = mem_alloc(1);
    assert_non_null(p);
    mem_free(p);
}

static void failed_realloc_keeps_the_block(void **state)
{
    (void)state;
    char *p = mem_strdup("kept");
    mem_fail_at(1, 0);
    assert_null(mem_realloc(p, 1 << 20));
    assert_string_equal(p, "kept");
    mem_free(p);
}

static void figures_are_plausible(void **state)
{
    (void)state;
    uint64_t resident = mem_resident_bytes(), peak = mem_peak_resident_bytes();
    assert_true(mem_available_bytes() > 1 << 20);
    assert_true(resident > 100 * 1024 && resident < (uint64_t)1 << 46);
    assert_true(peak > 100 * 1024 && peak < (uint64_t)1 << 46);

    size_t n = (size_t)64 << 20;
    unsigned char *block = mem_alloc(n);
    assert_non_null(block);
    memset(block, 1, n);
    assert_true(mem_resident_bytes() >= resident + n / 2);
    assert_true(mem_peak_resident_bytes() >= n);
    mem_free(block);
}

static void arena_blocks_are_zeroed_and_aligned(void **state)
{
    (void)state;
    struct arena *a = arena_open((size_t)1 << 20);
    assert_non_null(a);
    assert_int_equal(arena_used_bytes(a), 0);
    unsigned char *previous = NULL;
    for (size_t n = 1; n < 2000; n += 37) {
        unsigned char *p = arena_alloc(a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xFF, n);
        assert_ptr_not_equal(p, previous);
        previous = p;
    }
    assert_true(arena_used_bytes(a) >= 2000);
    arena_close(a);
    arena_close(NULL);
}

static void arena_grows_over_many_blocks(void **state)
{
    (void)state;
    struct arena *a = arena_open((size_t)8 << 20);
    unsigned char *small = arena_alloc(a, 10);
    unsigned char *large = arena_alloc(a, (size_t)1 << 20);
    unsigned char *next = arena_alloc(a, 10);
    assert_non_null(small);
    assert_non_null(large);
    assert_non_null(next);
    memset(large, 1, (size_t)1 << 20);
    assert_int_equal(small[0] + next[0], 0);
    assert_string_equal(arena_strndup(a, "abcdef", 3), "abc");
    assert_non_null(arena_array(a, 100, 8));
    arena_close(a);
}

static void arena_keeps_its_ceiling(void **state)
{
    (void)state;
    struct arena *a = arena_open(100);
    assert_non_null(arena_alloc(a, 96));
    assert_null(arena_alloc(a, 16));
    assert_null(arena_strndup(a, "0123456789", 10));
    assert_int_equal(arena_used_bytes(a), 96);
    arena_close(a);

    a = arena_open(SIZE_MAX);
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_array(a, SIZE_MAX / 4, 8));
    assert_null(arena_strndup(a, "x", SIZE_MAX));
    assert_int_equal(arena_used_bytes(a), 0);
    arena_close(a);
}

static void arena_survives_failed_allocations(void **state)
{
    (void)state;
    mem_fail_at(1, 0);
    assert_null(arena_open(1000));
    mem_fail_at(0, 0);

    struct arena *a = arena_open((size_t)1 << 20);
    mem_fail_at(1, 0);
    assert_null(arena_alloc(a, 100));
    assert_int_equal(arena_used_bytes(a), 0);
    assert_non_null(arena_alloc(a, 100));
    arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_bytes_give_unique_blocks),
        cmocka_unit_test(blocks_are_zeroed_aligned_and_kept),
        cmocka_unit_test(arrays_check_the_product),
        cmocka_unit_test(strings_are_copied_with_a_nul),
        cmocka_unit_test_teardown(fail_at_fails_the_nth_once, fail_off),
        cmocka_unit_test_teardown(sticky_failure_lasts_until_turned_off, fail_off),
        cmocka_unit_test_teardown(failed_realloc_keeps_the_block, fail_off),
        cmocka_unit_test(figures_are_plausible),
        cmocka_unit_test(arena_blocks_are_zeroed_and_aligned),
        cmocka_unit_test(arena_grows_over_many_blocks),
        cmocka_unit_test(arena_keeps_its_ceiling),
        cmocka_unit_test_teardown(arena_survives_failed_allocations, fail_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
