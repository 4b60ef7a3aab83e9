/* Assembles program text. Stateless; the set of included files lives in one call. */
#include "engine/cl/source.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/cl/cache.h"
#include "kernels/embedded.h"

#define INCLUDES_MAX    64 /* files of one program */
#define INCLUDE_DEPTH   16
#define FILE_NAME_BYTES 128
#define KERNEL_FILE_MAX ((long)1 << 20) /* bytes of one file in a kernel folder */
#define KERNEL_PATH_MAX 1024

struct assembly {
    const char *kernel_dir;
    struct strbuf *out;
    uint32_t n_seen;
    char seen[INCLUDES_MAX][FILE_NAME_BYTES];
    struct err *e;
};

static const char *const prelude[] = {"common.cl", "quant.h", "params.h"};

/* Text of a file from the kernel folder; NULL when it cannot be read. Free with mem_free. */
static char *read_file(const char *kernel_dir, const char *file)
{
    char path[KERNEL_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", kernel_dir, file);
    if (n < 0 || (size_t)n >= sizeof path || strstr(file, "..") != NULL)
        return NULL;
    FILE *stream = fopen(path, "rbe");
    if (stream == NULL)
        return NULL;
    char *text = NULL;
    long length = fseek(stream, 0, SEEK_END) == 0 ? ftell(stream) : -1;
    if (length >= 0 && length <= KERNEL_FILE_MAX && fseek(stream, 0, SEEK_SET) == 0)
        text = mem_zalloc((size_t)length + 1);
    if (text != NULL && fread(text, 1, (size_t)length, stream) != (size_t)length) {
        mem_free(text);
        text = NULL;
    }
    fclose(stream);
    return text;
}

static const char *find_embedded(const char *file)
{
    for (size_t i = 0; i < kernel_file_count; i++)
        if (strcmp(kernel_files[i].path, file) == 0)
            return kernel_files[i].text;
    return NULL;
}

/* Whether the file was taken already; remembers it, unless it is a template (.inc).
 * ST_INVALID when there are too many. */
static enum status remember(struct assembly *a, const char *file, bool *seen)
{
    *seen = false;
    const char *suffix = strrchr(file, '.');
    if (suffix != NULL && strcmp(suffix, ".inc") == 0)
        return ST_OK;
    for (uint32_t i = 0; i < a->n_seen && !*seen; i++)
        *seen = strcmp(a->seen[i], file) == 0;
    if (*seen)
        return ST_OK;
    if (a->n_seen == INCLUDES_MAX || strlen(file) >= FILE_NAME_BYTES)
        return err_set(a->e, ST_INVALID, "kernel source %s: more than %d files in one program",
                       file, INCLUDES_MAX);
    snprintf(a->seen[a->n_seen++], FILE_NAME_BYTES, "%s", file);
    return ST_OK;
}

static enum status add_file(struct assembly *a, const char *file, bool must_exist, int depth);

/* The path of an `#include "path"` line, or false. */
static bool parse_include(const char *line, size_t length, char *path)
{
    static const char directive[] = "#include \"";
    size_t n = sizeof directive - 1;
    if (length <= n || strncmp(line, directive, n) != 0)
        return false;
    const char *end = memchr(line + n, '"', length - n);
    if (end == NULL || (size_t)(end - line) - n >= FILE_NAME_BYTES)
        return false;
    memcpy(path, line + n, (size_t)(end - line) - n);
    path[(size_t)(end - line) - n] = '\0';
    return true;
}

/* Appends text line by line, with included files in the place of their lines. */
static enum status add_text(struct assembly *a, const char *name, const char *text, int depth)
{
    strbuf_printf(a->out, "#line 1 \"kernels/%s\"\n", name);
    unsigned line_number = 1;
    for (const char *line = text; *line != '\0'; line_number++) {
        size_t length = strcspn(line, "\n");
        char path[FILE_NAME_BYTES];
        if (parse_include(line, length, path)) {
            enum status status = add_file(a, path, true, depth + 1);
            if (status != ST_OK)
                return status;
            strbuf_printf(a->out, "#line %u \"kernels/%s\"\n", line_number + 1, name);
        } else {
            strbuf_append(a->out, line, length);
            strbuf_putc(a->out, '\n');
        }
        line += length;
        if (*line == '\n')
            line++;
    }
    if (a->out->failed)
        return err_set(a->e, ST_NO_MEMORY, "kernel source %s: out of memory or over %zu bytes",
                       name, a->out->ceiling);
    return ST_OK;
}

static enum status add_file(struct assembly *a, const char *file, bool must_exist, int depth)
{
    bool seen;
    enum status status = remember(a, file, &seen);
    if (status != ST_OK || seen)
        return status;
    if (depth > INCLUDE_DEPTH)
        return err_set(a->e, ST_INVALID, "kernel source %s: includes deeper than %d", file,
                       INCLUDE_DEPTH);
    char *loaded = a->kernel_dir != NULL ? read_file(a->kernel_dir, file) : NULL;
    const char *text = a->kernel_dir != NULL ? loaded : find_embedded(file);
    if (text != NULL)
        status = add_text(a, file, text, depth);
    else if (must_exist)
        status = err_set(a->e, ST_NOT_FOUND, "kernel source %s: not found in %s", file,
                         a->kernel_dir != NULL ? a->kernel_dir : "this program");
    mem_free(loaded);
    return status;
}

static enum status add_prelude(struct assembly *a, const char *name)
{
    enum status status = ST_OK;
    if (strncmp(name, "probe/", 6) == 0)
        return ST_OK;
    for (size_t i = 0; i < sizeof prelude / sizeof prelude[0] && status == ST_OK; i++)
        status = add_file(a, prelude[i], false, 0);
    return status;
}

static enum status assemble(const char *kernel_dir, const char *name, const char *text,
                            struct strbuf *out, struct err *e)
{
    struct assembly *a = mem_zalloc(sizeof *a);
    if (a == NULL)
        return err_set(e, ST_NO_MEMORY, "kernel source %s: out of memory", name);
    a->kernel_dir = kernel_dir;
    a->out = out;
    a->e = e;
    enum status status = add_prelude(a, name);
    if (status == ST_OK)
        status = text != NULL ? add_text(a, name, text, 0) : add_file(a, name, true, 0);
    mem_free(a);
    return status;
}

enum status source_file(const char *kernel_dir, const char *file, struct strbuf *out, struct err *e)
{
    return assemble(kernel_dir, file, NULL, out, e);
}

enum status source_text(const char *kernel_dir, const char *name, const char *text,
                        struct strbuf *out, struct err *e)
{
    return assemble(kernel_dir, name, text, out, e);
}

uint64_t source_hash(void)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < kernel_file_count; i++) {
        const char *parts[] = {(const char *)&hash, kernel_files[i].path, kernel_files[i].text};
        const size_t lengths[] = {sizeof hash, strlen(parts[1]), strlen(parts[2])};
        hash = cache_hash(parts, lengths, 3).low;
    }
    return hash;
}
