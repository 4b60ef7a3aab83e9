/* The text for a machine without a usable OpenCL device. */
#include "engine/cl/hint.h"

#include <dirent.h>
#include <grp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/cl/cl.h"

#define ICD_DIRECTORY   "/etc/OpenCL/vendors"
#define NODE_PATH_BYTES 512

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

/* The group whose members may open the file, or `usual` where its mode gives it to nobody's. */
static void find_group(const char *path, const char *usual, char *name, size_t size)
{
    struct stat s;
    struct group entry, *found = NULL;
    char text[1024];
    const mode_t both = S_IRGRP | S_IWGRP;
    if (stat(path, &s) == 0 && s.st_gid != 0 && (s.st_mode & both) == both)
        getgrgid_r(s.st_gid, &entry, text, sizeof text, &found);
    snprintf(name, size, "%s", found != NULL ? entry.gr_name : usual);
}

/* Names a device node that exists but may not be opened, and the group that may. */
static void put_if_denied(struct text *t, const char *folder, const char *node, const char *group)
{
    char path[NODE_PATH_BYTES], name[64];
    int n = snprintf(path, sizeof path, "%s/%s", folder, node);
    if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0 ||
        access(path, R_OK | W_OK) == 0)
        return;
    find_group(path, group, name, sizeof name);
    put(t, " no access to %s (add the user to group %s);", path, name);
}

static void put_denied_nodes(struct text *t, const char *nodes)
{
    static const char *const of_video[] = {"mali0", "kgsl-3d0", "nvidiactl", "nvidia0"};
    char folder[NODE_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/dri", nodes);
    DIR *d = opendir(folder);
    for (struct dirent *node = d != NULL ? readdir(d) : NULL; node != NULL; node = readdir(d))
        if (strncmp(node->d_name, "renderD", strlen("renderD")) == 0)
            put_if_denied(t, folder, node->d_name, "render");
    if (d != NULL)
        closedir(d);
    put_if_denied(t, nodes, "kfd", "render");
    for (size_t i = 0; i < sizeof of_video / sizeof of_video[0]; i++)
        put_if_denied(t, nodes, of_video[i], "video");
}

void hint_write(int code, uint32_t n_platforms, uint32_t n_devices, const char *nodes, char *out,
                size_t size)
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
    put_denied_nodes(&t, nodes);
    if (n_files == 0 && directory != vendors && access("/dev/nvidiactl", F_OK) == 0)
        put(&t,
            " for NVIDIA write the line libnvidia-opencl.so.1 to " ICD_DIRECTORY "/nvidia.icd;");
    put(&t, " install a driver's OpenCL package, or pocl-opencl-icd for the CPU");
}
