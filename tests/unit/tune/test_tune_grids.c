/* Searches on recorded grids: every file of tests/bench/tune/, of whatever device, and some that no
 * device may run. */
#include "tune_test.h"

#include <dirent.h>

#include "grid.h"

#define BUDGET    20
#define SEEDS     10
#define OTHERS    30 /* further seeds: what holds must not hold for ten alone */
#define FOLDER    OINFER_SOURCE_DIR "/tests/bench/tune"
#define VALID_MIN 96

/* How many of n seeds end within 5 % of the grid's best. */
static uint32_t successes(const struct grid *g, enum search_kind kind, uint64_t seed, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct search *s;
        uint32_t point;
        double best;
        assert_int_equal(search_open(kind, g->space, BUDGET, seed + i, &s, NULL), ST_OK);
        while (search_next(s, &point))
            search_tell(s, point, g->times[point]);
        count += search_best(s, &best) != SPACE_NONE && best * 0.95 <= g->best;
        search_close(s);
    }
    return count;
}

static void bayes_finds_the_best_of_recorded_grids(void **state)
{
    (void)state;
    uint32_t n_files = 0, n_failed = 0;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (const struct dirent *file; (file = readdir(folder)) != NULL;) {
        char path[512];
        struct grid g;
        const size_t length = strlen(file->d_name);
        if (length < 4 || strcmp(file->d_name + length - 4, ".tsv") != 0)
            continue;
        snprintf(path, sizeof path, FOLDER "/%s", file->d_name);
        if (!grid_read(path, &g))
            fail_msg("%s: not of the variant's space", path);
        /* short of it: over 300 seeds it was 78 % there (README.md beside the grids) */
        const bool is_short = strcmp(file->d_name, "matmul_f32_h200.tsv") == 0;
        const uint32_t first = successes(&g, SEARCH_BAYES, 1, SEEDS);
        const uint32_t others = successes(&g, SEARCH_BAYES, 1000, OTHERS);
        const uint32_t random = successes(&g, SEARCH_RANDOM, 1, SEEDS);
        print_message("%s, %u valid points: bayes %u of %d and %u of %d, random %u of %d\n",
                      file->d_name, g.n_valid, first, SEEDS, others, OTHERS, random, SEEDS);
        n_failed += g.n_valid < VALID_MIN || first < SEEDS * 9 / 10 ||
                    others < (is_short ? OTHERS * 2 / 3 : OTHERS * 9 / 10) || random > first;
        n_files++;
        grid_close(&g);
    }
    closedir(folder);
    assert_true(n_files > 0);
    assert_int_equal(n_failed, 0);
}

static bool write_and_read(const char *lines, struct grid *g)
{
    char path[] = "/tmp/oinfer_grid_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    fprintf(f, "op\tvariant\tdtype\tshape\tsettings\tns\treason\n%s", lines);
    fclose(f);
    const bool ok = grid_read(path, g);
    remove(path);
    if (!ok)
        grid_close(g);
    return ok;
}

/* A variant of NVIDIA's devices, a part of its space, one point invalid; and files that are wrong.
 */
static void grids_of_other_devices_are_read(void **state)
{
    (void)state;
    struct grid g;
#define LINE(lws, ns) "argmax\tvec4\tf32\trows=99,len=99\tLWS=" lws "\t" ns "\t\n"
    assert_true(write_and_read(LINE("512", "7") LINE("128", "5") LINE("64", "0"), &g));
    assert_int_equal(g.space->n_points, 3);
    assert_int_equal(g.n_valid, 2);
    assert_true(g.best == 5);
    char text[SPACE_TEXT_BYTES];
    assert_string_equal(space_text(g.space, 1, text), "LWS=128");
    assert_int_equal(g.space->standard, 1);
    assert_true(g.times[0] == 0 && g.times[1] == 5 && g.times[2] == 7);
    grid_close(&g);
    assert_false(write_and_read("", &g));
    assert_false(write_and_read(LINE("100", "7"), &g));
    assert_false(write_and_read(LINE("64", "7") LINE("64", "7"), &g));
#undef LINE
    assert_false(write_and_read("argmax\tnone\tf32\tr\tLWS=64\t7\t\n", &g));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bayes_finds_the_best_of_recorded_grids),
        cmocka_unit_test(grids_of_other_devices_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
