/* Runs a fuzz target without libFuzzer: over every file of the folders given, and over mutations of
 * each (cut at every hundredth of its length, and a fixed number of seeded byte changes), so that a
 * plain build under the sanitizers still looks around each known input. Exit status 1 when a folder
 * is missing or empty: a corpus that vanished must not pass.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_INPUT_BYTES    ((size_t)4 << 20)
#define MUTATIONS_PER_FILE 200
#define CHANGES_PER_INPUT  4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A target sees an exact-size heap block, so that the sanitizers notice one byte too far. */
static int run_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL)
        return -1;
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return 0;
}

static int run_mutations(const uint8_t *data, size_t size)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, '"', '{', '['};
    for (size_t i = 0; i < 100; i++)
        if (run_copy(data, size * i / 100) != 0)
            return -1;
    uint64_t random = 0x9E3779B97F4A7C15u ^ size;
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL)
        return -1;
    int rc = 0;
    for (int i = 0; i < MUTATIONS_PER_FILE && size > 0 && rc == 0; i++) {
        memcpy(copy, data, size);
        for (int change = 0; change < CHANGES_PER_INPUT; change++) {
            uint64_t r = next_random(&random);
            size_t at = (size_t)(r >> 16) % size;
            uint8_t flipped = (uint8_t)(copy[at] ^ 1u << (r >> 1 & 7));
            copy[at] = (r & 1) != 0 ? edges[(r >> 1) % sizeof edges] : flipped;
        }
        rc = run_copy(copy, size);
    }
    free(copy);
    return rc;
}

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rbe");
    if (f == NULL) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return -1;
    }
    uint8_t *data = malloc(MAX_INPUT_BYTES);
    size_t size = data != NULL ? fread(data, 1, MAX_INPUT_BYTES, f) : 0;
    int rc = data != NULL ? run_copy(data, size) : -1;
    if (rc == 0)
        rc = run_mutations(data, size);
    free(data);
    fclose(f);
    return rc;
}

/* Number of files run, or -1. */
static int run_folder(const char *folder)
{
    DIR *d = opendir(folder);
    if (d == NULL)
        return -1;
    int count = 0;
    const struct dirent *entry;
    while (count >= 0 && (entry = readdir(d)) != NULL) {
        char path[4096];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        count = run_file(path) == 0 ? count + 1 : -1;
    }
    closedir(d);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = run_folder(argv[i]);
        printf("%s: %d inputs and their mutations\n", argv[i], count);
        if (count <= 0)
            return 1;
    }
    return argc > 1 ? 0 : 1;
}
