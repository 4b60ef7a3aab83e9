/* Error names, the map from OpenCL codes to our status, and property queries that cannot fail. */
#define _GNU_SOURCE /* dladdr */
#include "engine/cl/cl.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/cl/impl.h"

#define PROPERTY_TEXT_BYTES 4096 /* longer properties read as "" */

static const struct {
    cl_int code;
    const char *name;
    enum status status;
} cl_errors[] = {
#define X(code, name, status) {code, name, status},
#include "engine/cl/errors.def"
#undef X
};

#define CL_ERROR_COUNT (sizeof cl_errors / sizeof cl_errors[0])

const char *cl_error_name(cl_int code)
{
    for (size_t i = 0; i < CL_ERROR_COUNT; i++)
        if (cl_errors[i].code == code)
            return cl_errors[i].name;
    return code == CL_SUCCESS ? "CL_SUCCESS" : "unknown OpenCL error";
}

enum status cl_status(cl_int code)
{
    for (size_t i = 0; i < CL_ERROR_COUNT; i++)
        if (cl_errors[i].code == code)
            return cl_errors[i].status;
    return code == CL_SUCCESS ? ST_OK : ST_DEVICE;
}

enum status cl_check(struct device *d, cl_int code, const char *call, const char *thing,
                     struct err *e)
{
    if (code == CL_SUCCESS)
        return ST_OK;
    enum status status = cl_status(code);
    if (status == ST_DEVICE_LOST)
        d->lost = true;
    if (thing[0] == '\0')
        return err_set(e, status, "%s: %s: %s (%d)", d->info.name, call, cl_error_name(code), code);
    return err_set(e, status, "%s: %s (%s): %s (%d)", d->info.name, call, thing,
                   cl_error_name(code), code);
}

/* Copies text without blanks around it and with runs of blanks as one. */
static void copy_tidy(const char *text, char *out, size_t size)
{
    size_t n = 0;
    bool blank = true;
    for (const char *p = text; *p != '\0' && n + 1 < size; p++) {
        bool space = isspace((unsigned char)*p) != 0;
        if (space && blank)
            continue;
        out[n++] = space ? ' ' : *p;
        blank = space;
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

void cl_device_text(cl_device_id id, cl_device_info what, char *out, size_t size)
{
    char text[PROPERTY_TEXT_BYTES] = "";
    if (clGetDeviceInfo(id, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    copy_tidy(text, out, size);
}

void cl_platform_text(cl_platform_id id, cl_platform_info what, char *out, size_t size)
{
    char text[PROPERTY_TEXT_BYTES] = "";
    if (clGetPlatformInfo(id, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    copy_tidy(text, out, size);
}

cl_ulong cl_device_number(cl_device_id id, cl_device_info what, cl_ulong otherwise)
{
    cl_ulong value = 0;
    size_t n = 0;
    if (clGetDeviceInfo(id, what, sizeof value, &value, &n) != CL_SUCCESS)
        return otherwise;
    if (n == sizeof(cl_uint)) {
        cl_uint narrow = 0;
        memcpy(&narrow, &value, sizeof narrow);
        return narrow;
    }
    return n == sizeof value ? value : otherwise;
}

void cl_driver_stamp(cl_platform_id id, char *out, size_t size)
{
    char extensions[PROPERTY_TEXT_BYTES];
    Dl_info where;
    struct stat file;
    out[0] = '\0';
    cl_platform_text(id, CL_PLATFORM_EXTENSIONS, extensions, sizeof extensions);
    if (strstr(extensions, "cl_khr_icd") == NULL)
        return;
    void *const *dispatch = *(void *const *const *)(const void *)id; /* as cl_khr_icd lays down */
    if (dladdr(dispatch[0], &where) != 0 && where.dli_fname != NULL &&
        stat(where.dli_fname, &file) == 0)
        snprintf(out, size, "%lld %lld", (long long)file.st_size, (long long)file.st_mtime);
}
