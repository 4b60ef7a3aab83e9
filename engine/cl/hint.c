/* The text for a machine without a usable OpenCL device. */
#include "engine/cl/hint.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cl/cl.h"

#define ICD_DIRECTORY "/etc/OpenCL/vendors"

struct text {
    char *out;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    if (t->length >= t->size)
        return;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->out + t->length, t->size - t->length, format, args);
    va_end(args);
    if (n > 0)
        t->length += (size_t)n;
}

/* Lists the .icd files of the directory the loader reads; returns how many there are. */
static int put_icd_files(struct text *t, const char *directory)
{
    DIR *d = opendir(directory);
    if (d == NULL) {
        put(t, " %s cannot be read;", directory);
        return 0;
    }
    int n = 0;
    for (struct dirent *file = readdir(d); file != NULL; file = readdir(d)) {
        size_t length = strlen(file->d_name);
        if (length < 5 || strcmp(file->d_name + length - 4, ".icd") != 0)
            continue;
        put(t, "%s %s", n == 0 ? " .icd files:" : ",", file->d_name);
        n++;
    }
    closedir(d);
    put(t, n == 0 ? " no .icd file in it;" : ";");
    return n;
}

/* Names device nodes that exist but may not be opened, and the group that may. */
static void put_denied_nodes(struct text *t)
{
    static const struct {
        const char *path, *group;
    } nodes[] = {{"/dev/dri/renderD128", "render"},
                 {"/dev/dri/renderD129", "render"},
                 {"/dev/kfd", "render"},
                 {"/dev/mali0", "video"},
                 {"/dev/kgsl-3d0", "video"},
                 {"/dev/nvidiactl", "video"}};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (access(nodes[i].path, F_OK) == 0 && access(nodes[i].path, R_OK | W_OK) != 0)
            put(t, " no access to %s (add the user to group %s);", nodes[i].path, nodes[i].group);
}

void hint_write(int code, uint32_t n_platforms, uint32_t n_devices, char *out, size_t size)
{
    struct text t = {out, size, 0};
    const char *vendors = getenv("OCL_ICD_VENDORS");
    const char *directory = vendors != NULL && vendors[0] != '\0' ? vendors : ICD_DIRECTORY;
    out[0] = '\0';
    if (n_platforms == 0)
        put(&t, "no OpenCL platform (%s); searched %s%s:", cl_error_name(code), directory,
            directory == vendors ? " (OCL_ICD_VENDORS)" : "");
    else if (n_devices == 0)
        put(&t, "%u OpenCL platform(s) without a device; searched %s:", n_platforms, directory);
    else
        put(&t, "%u OpenCL device(s), none usable (see their notes); searched %s:", n_devices,
            directory);
    int n_files = put_icd_files(&t, directory);
    put_denied_nodes(&t);
    if (n_files == 0 && directory != vendors && access("/dev/nvidiactl", F_OK) == 0)
        put(&t,
            " for NVIDIA write the line libnvidia-opencl.so.1 to " ICD_DIRECTORY "/nvidia.icd;");
    put(&t, " install a driver's OpenCL package, or pocl-opencl-icd for the CPU");
}
