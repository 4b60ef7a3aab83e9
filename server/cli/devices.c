/* `oinfer devices`: every device, opened and probed, as a table or as JSON. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "engine/cl/device.h"
#include "server/cli/args.h"
#include "server/cli/cli.h"
#include "server/cli/loaded.h"

#define PATH_BYTES 1024
#define MIB        ((uint64_t)1 << 20)

/* What opening a device told. */
struct row {
    const struct device_info *info;
    uint32_t caps;
    bool opened, measured;
    struct device_peaks peaks;
    struct err problem; /* why it could not be opened or measured */
};

static void read_device(const struct device_list *l, uint32_t i, const char *cache, bool measure,
                        struct row *row)
{
    const struct device_options options = {.cache_dir = cache, .trial_command = "/proc/self/exe"};
    struct device *d = NULL;
    memset(row, 0, sizeof *row);
    row->info = device_list_at(l, i);
    if (!row->info->available)
        return;
    row->opened = device_open(l, i, &options, &d, &row->problem) == ST_OK;
    if (row->opened) {
        row->caps = device_caps(d);
        row->measured = measure && device_measure_peaks(d, &row->peaks, &row->problem) == ST_OK;
    }
    device_close(d);
}

/* Name of the i-th bit if the device has it. */
static const char *cap_at(const struct row *row, uint32_t bit)
{
    uint32_t cap = (uint32_t)1 << bit;
    return (row->caps & cap) != 0 ? device_cap_name((enum device_cap)cap) : NULL;
}

static void print_row(const struct row *row)
{
    const struct device_info *info = row->info;
    printf("%u: %s\n", info->index, info->name);
    printf("   %-10s %s, %s, driver %s, %s\n", device_kind_name(info->kind), info->platform,
           info->vendor, info->driver, info->version);
    printf("   %-10s %llu MiB, one buffer %llu MiB, local %llu KiB\n", "memory",
           (unsigned long long)(info->global_bytes / MIB),
           (unsigned long long)(info->max_alloc_bytes / MIB),
           (unsigned long long)(info->local_bytes / 1024));
    printf("   %-10s %u at %u MHz, work-group up to %u\n", "units", info->compute_units,
           info->clock_mhz, info->max_work_group);
    if (info->uuid[0] != '\0')
        printf("   %-10s %s\n", "uuid", info->uuid);
    if (row->opened && row->caps != 0) {
        printf("   %-10s", "caps");
        for (uint32_t bit = 0; bit < 32; bit++)
            if (cap_at(row, bit) != NULL)
                printf(" %s", cap_at(row, bit));
        printf("\n");
    }
    if (row->measured)
        printf("   %-10s read %.1f GB/s, copy %.1f GB/s, f32 %.0f GFLOP/s\n", "measured",
               row->peaks.read_gb_s, row->peaks.copy_gb_s, row->peaks.f32_gflop_s);
    if (info->note[0] != '\0')
        printf("   %-10s %s\n", "note", info->note);
    if (row->problem.status != ST_OK)
        printf("   %-10s %s\n", "problem", row->problem.text);
}

static cJSON *row_json(const struct row *row)
{
    const struct device_info *info = row->info;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "index", info->index);
    cJSON_AddStringToObject(o, "kind", device_kind_name(info->kind));
    cJSON_AddStringToObject(o, "name", info->name);
    cJSON_AddStringToObject(o, "vendor", info->vendor);
    cJSON_AddStringToObject(o, "platform", info->platform);
    cJSON_AddStringToObject(o, "driver", info->driver);
    cJSON_AddStringToObject(o, "version", info->version);
    cJSON_AddStringToObject(o, "uuid", info->uuid);
    cJSON_AddNumberToObject(o, "compute_units", info->compute_units);
    cJSON_AddNumberToObject(o, "clock_mhz", info->clock_mhz);
    cJSON_AddNumberToObject(o, "max_work_group", info->max_work_group);
    cJSON_AddNumberToObject(o, "memory_bytes", (double)info->global_bytes);
    cJSON_AddNumberToObject(o, "max_buffer_bytes", (double)info->max_alloc_bytes);
    cJSON_AddNumberToObject(o, "local_bytes", (double)info->local_bytes);
    cJSON_AddBoolToObject(o, "unified_memory", info->unified_memory);
    cJSON_AddBoolToObject(o, "usable", info->available && row->opened);
    cJSON *caps = cJSON_AddArrayToObject(o, "caps");
    for (uint32_t bit = 0; bit < 32; bit++)
        if (cap_at(row, bit) != NULL)
            cJSON_AddItemToArray(caps, cJSON_CreateString(cap_at(row, bit)));
    if (row->measured) {
        cJSON *peaks = cJSON_AddObjectToObject(o, "peaks");
        cJSON_AddNumberToObject(peaks, "read_gb_s", row->peaks.read_gb_s);
        cJSON_AddNumberToObject(peaks, "copy_gb_s", row->peaks.copy_gb_s);
        cJSON_AddNumberToObject(peaks, "f32_gflop_s", row->peaks.f32_gflop_s);
    }
    cJSON_AddStringToObject(o, "note",
                            row->problem.status != ST_OK ? row->problem.text : info->note);
    return o;
}

static int print_json(const struct device_list *l, const char *cache, bool measure)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *list = cJSON_AddArrayToObject(root, "devices");
    for (uint32_t i = 0; i < device_list_count(l); i++) {
        struct row row;
        read_device(l, i, cache, measure, &row);
        cJSON_AddItemToArray(list, row_json(&row));
    }
    cJSON_AddStringToObject(root, "hint", device_list_hint(l));
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (text == NULL) {
        fprintf(stderr, "oinfer devices: out of memory\n");
        return CLI_FAILED;
    }
    printf("%s\n", text);
    cJSON_free(text);
    return 0;
}

int cli_devices(int argc, char **argv)
{
    bool json = false, measure = false;
    const struct arg args[] = {
        {"--json", NULL, NULL, ARG_FLAG, &json, false, "print JSON"},
        {"--peaks", NULL, NULL, ARG_FLAG, &measure, false,
         "measure bandwidth and arithmetic too (once; then cached)"},
    };
    int done = args_parse("devices", "Lists every OpenCL device, and host, with what it can do.",
                          args, sizeof args / sizeof args[0], argc, argv);
    if (done >= 0)
        return done;
    char path[PATH_BYTES];
    const char *cache = loaded_cache_folder(path, sizeof path);
    struct device_list *l = NULL;
    struct err e = {0};
    if (device_list_cache_dir(cache, &e) != ST_OK || device_list_open(0, &l, &e) != ST_OK) {
        fprintf(stderr, "oinfer devices: %s\n", e.text);
        return CLI_FAILED;
    }
    int status = 0;
    if (json) {
        status = print_json(l, cache, measure);
    } else {
        for (uint32_t i = 0; i < device_list_count(l); i++) {
            struct row row;
            read_device(l, i, cache, measure, &row);
            print_row(&row);
        }
        if (device_list_hint(l)[0] != '\0')
            printf("%s\n", device_list_hint(l));
    }
    device_list_close(l);
    return status;
}
