/* The kernel sources inside the binary: what embed.cmake generates from this folder. Host only. */
#ifndef OINFER_KERNELS_EMBEDDED_H
#define OINFER_KERNELS_EMBEDDED_H

#include <stddef.h>

struct kernel_file {
    const char *path; /* below kernels/: "gemv/rows.cl" */
    const char *text; /* NUL-terminated */
    size_t length;
};

extern const struct kernel_file kernel_files[]; /* sorted by path; ends with a NULL path */
extern const size_t kernel_file_count;

#endif
