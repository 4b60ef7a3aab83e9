/* tune.json, read and written with cJSON. */
#include "server/tune_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/mem.h"

#define FORMAT         "oinfer.tune"
#define FORMAT_VERSION 1
#define PATH_BYTES     4096
#define LOCK_TRIES     500
#define LOCK_PAUSE_NS  10000000

const char *tune_file_path(const char *folder, char *out, size_t n)
{
    const int length = folder ? snprintf(out, n, "%s/tune.json", folder) : -1;
    return length > 0 && (size_t)length < n ? out : NULL;
}

/* ---- reading ---- */

/* The whole file with a terminating NUL; NULL with `why`, which is NULL when there is no file. */
static char *read_whole(const char *path, size_t *length, const char **why)
{
    char *text = NULL;
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    *why = NULL;
    if (file < 0) {
        *why = errno == ENOENT ? NULL : strerror(errno);
        return NULL;
    }
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
        *why = "not a file";
    else if (info.st_size > (off_t)TUNE_FILE_MAX_BYTES)
        *why = "too large";
    else if (!(text = mem_zalloc((size_t)info.st_size + 1)))
        *why = "out of memory";
    *length = 0;
    while (text && *length < (size_t)info.st_size) {
        const ssize_t n = read(file, text + *length, (size_t)info.st_size - *length);
        if (n <= 0)
            break;
        *length += (size_t)n;
    }
    close(file);
    return text;
}

static bool copy_string(const cJSON *object, const char *key, char *out, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) && (size_t)snprintf(out, size, "%s", item->valuestring) < size;
}

static bool read_number(const cJSON *object, const char *key, double *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *out = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return cJSON_IsNumber(item) && isfinite(*out) && *out >= 0;
}

/* A number that is an integer of 32 bits. */
static bool is_count(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= UINT32_MAX &&
           item->valuedouble == floor(item->valuedouble);
}

static bool read_shape(const cJSON *object, enum op_id op, struct shape *out)
{
    const cJSON *dims = cJSON_GetObjectItemCaseSensitive(object, "shape"), *dim;
    if (!cJSON_IsObject(dims))
        return false;
    *out = shape_standard(op);
    cJSON_ArrayForEach(dim, dims)
    {
        if (!is_count(dim) ||
            shape_set(out, dim->string, (uint64_t)dim->valuedouble, NULL) != ST_OK)
            return false;
    }
    return true;
}

static bool read_settings(const cJSON *object, char *out, size_t size)
{
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(object, "settings"), *item;
    size_t used = 0;
    out[0] = '\0';
    if (!cJSON_IsObject(settings))
        return false;
    cJSON_ArrayForEach(item, settings)
    {
        if (!is_count(item))
            return false;
        used += (size_t)snprintf(out + used, size - used, "%s%s=%.0f", used ? " " : "",
                                 item->string, item->valuedouble);
        if (used >= size)
            return false;
    }
    return true;
}

static bool read_record(const cJSON *object, struct tune_record *r)
{
    char op[32], dtype[16], source[20], *end;
    enum op_id id;
    double version;
    *r = (struct tune_record){0};
    if (!cJSON_IsObject(object) || !copy_string(object, "op", op, sizeof op) ||
        !shape_op(op, &id) || !copy_string(object, "dtype", dtype, sizeof dtype) ||
        !dtype_parse(dtype, &r->dtype) || !read_shape(object, id, &r->shape) ||
        !copy_string(object, "variant", r->variant, sizeof r->variant) ||
        !copy_string(object, "device", r->device, sizeof r->device) ||
        !copy_string(object, "driver", r->driver, sizeof r->driver) ||
        !copy_string(object, "source", source, sizeof source) || strlen(source) != 16 ||
        !read_settings(object, r->settings, sizeof r->settings) ||
        !read_number(object, "tuner", &version) || version > UINT32_MAX ||
        !read_number(object, "ns", &r->ns) ||
        !read_number(object, "standard_ns", &r->standard_ns) ||
        !read_number(object, "work", &r->work))
        return false;
    r->version = (uint32_t)version;
    r->source = strtoull(source, &end, 16);
    return *end == '\0';
}

/* Adds all records; what is wrong, or NULL. Nothing is added from a file that is wrong. */
static const char *read_records(const cJSON *root, struct tune_store *s)
{
    char format[32];
    double version;
    const cJSON *records = cJSON_GetObjectItemCaseSensitive(root, "records"), *object;
    struct tune_store *read;
    if (!cJSON_IsObject(root) || !copy_string(root, "format", format, sizeof format) ||
        strcmp(format, FORMAT) != 0)
        return "not a tune file";
    if (!read_number(root, "version", &version) || version != FORMAT_VERSION)
        return "of another version";
    if (!cJSON_IsArray(records))
        return "no records";
    if (store_open(&read, NULL) != ST_OK)
        return "out of memory";
    const char *why = NULL;
    cJSON_ArrayForEach(object, records)
    {
        struct tune_record r;
        if (!why && (!read_record(object, &r) || store_add(read, &r, NULL) != ST_OK))
            why = "a record is malformed";
    }
    if (!why && store_merge(s, read, NULL) != ST_OK)
        why = "out of memory";
    store_close(read);
    return why;
}

void tune_file_load(const char *path, struct tune_store *s)
{
    const char *why;
    size_t length;
    char *text = read_whole(path, &length, &why);
    if (text) {
        cJSON *root = cJSON_ParseWithLengthOpts(text, length + 1, NULL, true);
        why = root ? read_records(root, s) : "not JSON";
        cJSON_Delete(root);
        mem_free(text);
    }
    if (why) {
        char quoted[256];
        log_warn("tuned values ignored file=%s reason=\"%s\"",
                 log_quote(quoted, sizeof quoted, path), why);
    }
}

/* ---- writing ---- */

static bool add_shape(cJSON *object, const struct shape *shape)
{
    cJSON *dims = cJSON_AddObjectToObject(object, "shape");
    bool ok = dims != NULL;
    for (uint32_t i = 0; ok && i < shape->n_dims; i++)
        ok = cJSON_AddNumberToObject(dims, shape_dim_name(shape->op, i), shape->dims[i]) != NULL;
    return ok;
}

static bool add_settings(cJSON *object, const char *text)
{
    struct setting settings[CONFIG_MAX_TUNABLES];
    char names[CONFIG_MAX_TUNABLES][24];
    uint32_t n;
    cJSON *values = cJSON_AddObjectToObject(object, "settings");
    bool ok = values != NULL && record_settings(text, settings, &n, names, NULL) == ST_OK;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = cJSON_AddNumberToObject(values, settings[i].name, settings[i].value) != NULL;
    return ok;
}

static bool add_record(cJSON *records, const struct tune_record *r)
{
    char source[20];
    cJSON *o = cJSON_CreateObject();
    if (!o || !cJSON_AddItemToArray(records, o)) {
        cJSON_Delete(o);
        return false;
    }
    snprintf(source, sizeof source, "%016" PRIx64, r->source);
    return cJSON_AddStringToObject(o, "op", op_name(r->shape.op)) &&
           cJSON_AddStringToObject(o, "variant", r->variant) &&
           cJSON_AddStringToObject(o, "dtype", dtype_name(r->dtype)) && add_shape(o, &r->shape) &&
           cJSON_AddStringToObject(o, "device", r->device) &&
           cJSON_AddStringToObject(o, "driver", r->driver) &&
           cJSON_AddStringToObject(o, "source", source) &&
           cJSON_AddNumberToObject(o, "tuner", r->version) && add_settings(o, r->settings) &&
           cJSON_AddNumberToObject(o, "ns", round(r->ns)) &&
           cJSON_AddNumberToObject(o, "standard_ns", round(r->standard_ns)) &&
           cJSON_AddNumberToObject(o, "work", r->work);
}

static char *text_of(const struct tune_store *s)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *records = NULL;
    bool ok = root && cJSON_AddStringToObject(root, "format", FORMAT) &&
              cJSON_AddNumberToObject(root, "version", FORMAT_VERSION) &&
              (records = cJSON_AddArrayToObject(root, "records")) != NULL;
    const struct tune_record *r;
    for (uint32_t i = 0; ok && (r = store_at(s, i)) != NULL; i++)
        ok = add_record(records, r);
    char *text = ok ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    return text;
}

static enum status write_whole(const char *path, const char *text, struct err *e)
{
    char temporary[PATH_BYTES];
    const size_t length = strlen(text);
    const int n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof temporary)
        return err_set(e, ST_IO, "%.200s: the path is too long", path);
    const int file = mkstemp(temporary); /* of mode 0600 */
    if (file < 0)
        return err_set(e, ST_IO, "%.200s: %s", temporary, strerror(errno));
    size_t done = 0;
    while (done < length) {
        const ssize_t written = write(file, text + done, length - done);
        if (written < 0)
            break;
        done += (size_t)written;
    }
    enum status st = ST_OK;
    if (done < length || fsync(file) != 0)
        st = err_set(e, ST_IO, "%.200s: %s", temporary, strerror(errno));
    if (close(file) != 0 && st == ST_OK)
        st = err_set(e, ST_IO, "%.200s: %s", temporary, strerror(errno));
    if (st == ST_OK && rename(temporary, path) != 0)
        st = err_set(e, ST_IO, "%.200s: %s", path, strerror(errno));
    if (st != ST_OK)
        unlink(temporary);
    return st;
}

/* Locks the folder of a file, for whoever reads, merges and writes it: other processes have it too.
 * -1: without, where no lock can be had in time. */
static int lock_folder(const char *path)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        *slash = '\0';
    const int file = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES) {
            close(file);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return file;
}

enum status tune_file_add(const char *path, const struct tune_store *s, struct err *e)
{
    struct tune_store *all;
    enum status st = store_open(&all, e);
    if (st != ST_OK)
        return st;
    const int lock = lock_folder(path);
    tune_file_load(path, all);
    st = store_merge(all, s, e);
    char *text = st == ST_OK ? text_of(all) : NULL;
    if (st == ST_OK)
        st = text ? write_whole(path, text, e)
                  : err_set(e, ST_NO_MEMORY, "%.200s: out of memory", path);
    if (lock >= 0)
        close(lock);
    cJSON_free(text);
    store_close(all);
    return st;
}
