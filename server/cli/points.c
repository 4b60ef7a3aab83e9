/* The file of recorded points: op, variant, dtype, shape, settings, ns and reason between tabs,
 * after a line of their names. */
#include "server/cli/points.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define HEAD       "op\tvariant\tdtype\tshape\tsettings\tns\treason\n"
#define FIELDS     7
#define LINE_BYTES 1024

/* Copies a field that ends at `end`; false: it is longer than there is room for. */
static bool take(const char *from, const char *end, char *out, size_t room)
{
    const size_t n = (size_t)(end - from);
    if (n >= room)
        return false;
    memcpy(out, from, n);
    out[n] = '\0';
    return true;
}

/* A whole line; false: it is none of a point. */
static bool parse(const char *line, struct tune_known *out)
{
    const char *fields[FIELDS + 1] = {line};
    char op[32], *end;
    uint32_t n = 1;
    for (const char *at = line; *at && n <= FIELDS; at++)
        if (*at == '\t' || *at == '\n')
            fields[n++] = at + 1;
    if (n != FIELDS + 1 || fields[FIELDS][0] != '\0')
        return false;
    *out = (struct tune_known){.ns = strtod(fields[5], &end)};
    return end == fields[6] - 1 && out->ns >= 0 && take(line, fields[1] - 1, op, sizeof op) &&
           shape_op(op, &out->op) &&
           take(fields[1], fields[2] - 1, out->variant, sizeof out->variant) &&
           take(fields[2], fields[3] - 1, out->dtype, sizeof out->dtype) &&
           take(fields[3], fields[4] - 1, out->shape, sizeof out->shape) &&
           take(fields[4], fields[5] - 1, out->settings, sizeof out->settings);
}

/* Reads what is there; *whole_bytes: of its whole lines. */
static enum status read_known(const char *path, struct points *p, long *whole_bytes, struct err *e)
{
    char line[LINE_BYTES];
    enum status st = ST_OK;
    *whole_bytes = 0;
    if (!fgets(line, sizeof line, p->file)) /* empty */
        return ST_OK;
    if (strcmp(line, HEAD) != 0)
        return err_set(e, ST_INVALID, "%.200s: not a file of recorded points", path);
    p->known = mem_array(POINTS_MAX, sizeof *p->known);
    if (!p->known)
        st = err_set(e, ST_NO_MEMORY, "%.200s: no memory for its points", path);
    *whole_bytes = ftell(p->file);
    while (st == ST_OK && fgets(line, sizeof line, p->file) && strchr(line, '\n')) {
        if (p->n_known == POINTS_MAX || !parse(line, &p->known[p->n_known]))
            st = err_set(e, ST_INVALID, "%.200s: line %u is no recorded point, or over %d of them",
                         path, p->n_known + 2, POINTS_MAX);
        p->n_known++;
        *whole_bytes = ftell(p->file);
    }
    return st;
}

enum status points_open(const char *path, struct points *p, struct err *e)
{
    long end = 0;
    *p = (struct points){.file = fopen(path, "r+e")};
    if (!p->file && errno == ENOENT)
        p->file = fopen(path, "w+e");
    if (!p->file)
        return err_set(e, ST_IO, "%.200s: cannot be written: %s", path, strerror(errno));
    enum status st = read_known(path, p, &end, e);
    if (st == ST_OK && fseek(p->file, end, SEEK_SET) != 0)
        st = err_set(e, ST_IO, "%.200s: cannot be written: %s", path, strerror(errno));
    if (st == ST_OK && end == 0)
        fputs(HEAD, p->file);
    return st;
}

void points_add(struct points *p, const struct tune_progress *progress)
{
    char shape[SHAPE_TEXT_BYTES];
    if (!p->file || progress->last.known)
        return;
    fprintf(p->file, "%s\t%s\t%s\t%s\t%s\t%.0f\t%s\n", op_name(progress->shape.op),
            progress->variant, dtype_name(progress->dtype), shape_text(&progress->shape, shape),
            progress->last.settings, progress->last.ns, progress->last.reason);
    fflush(p->file);
}

enum status points_close(struct points *p, struct err *e)
{
    mem_free(p->known);
    bool bad = p->file && ferror(p->file) != 0;
    bad = (p->file && fclose(p->file) != 0) || bad;
    *p = (struct points){0};
    return bad ? err_set(e, ST_IO, "the recorded points could not be written") : ST_OK;
}
