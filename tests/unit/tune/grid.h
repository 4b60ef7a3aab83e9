/* Recorded grids: a space and the time of each of its points, as `oinfer tune --search grid
 * --record` wrote them (tests/bench/tune/, README.md there). */
#ifndef OINFER_TESTS_TUNE_GRID_H
#define OINFER_TESTS_TUNE_GRID_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/ops/config.h"
#include "engine/tune/search.h"
#include "engine/tune/store.h"

#define GRID_LINE_BYTES 1024
#define GRID_FIELDS     7

struct grid {
    struct space *space;
    double *times; /* [n_points]; 0: invalid, below 0 while reading: no line yet */
    double best;
    uint32_t n_valid;
};

static inline void grid_close(struct grid *g)
{
    space_close(g->space);
    mem_free(g->times);
}

/* The row of kernels.def that a line speaks of. */
static inline const struct variant *grid_variant(const char *op, const char *name, const char *text)
{
    enum dtype dtype;
    if (!dtype_parse(text, &dtype))
        return NULL;
    for (uint32_t i = 0; i < variant_row_count; i++)
        if (strcmp(op_name(variant_rows[i].op), op) == 0 &&
            strcmp(variant_rows[i].name, name) == 0 &&
            (variant_rows[i].dtype == DT_ANY || variant_rows[i].dtype == (int)dtype))
            return &variant_rows[i];
    return NULL;
}

static inline bool grid_add(struct grid *g, char *fields[GRID_FIELDS])
{
    struct setting settings[CONFIG_MAX_TUNABLES];
    char names[CONFIG_MAX_TUNABLES][24];
    uint32_t n;
    if (!g->space) {
        const struct variant *v = grid_variant(fields[0], fields[1], fields[2]);
        struct tunable dims[CONFIG_MAX_TUNABLES];
        const struct space_limits none = {0, 0};
        if (!v || space_make(dims, variant_tunable_list(v, dims), v->require, &none, &g->space,
                             NULL) != ST_OK)
            return false;
        g->times = mem_array(g->space->n_points, sizeof *g->times);
        for (uint32_t i = 0; g->times && i < g->space->n_points; i++)
            g->times[i] = -1;
    }
    if (!g->times || record_settings(fields[4], settings, &n, names, NULL) != ST_OK)
        return false;
    const uint32_t point = space_find(g->space, settings, n);
    if (point == SPACE_NONE || g->times[point] >= 0)
        return false;
    g->times[point] = fmax(strtod(fields[5], NULL), 0);
    if (g->times[point] <= 0)
        return true;
    g->n_valid++;
    if (g->best == 0 || g->times[point] < g->best)
        g->best = g->times[point];
    return true;
}

/* Takes the points without a line out of the space: its device's limits ruled them out. */
static inline void grid_shrink(struct grid *g)
{
    uint32_t kept = 0, standard = SPACE_NONE;
    for (uint32_t i = 0; i < g->space->n_points; i++) {
        if (g->times[i] < 0)
            continue;
        if (i == g->space->standard)
            standard = kept;
        g->space->codes[kept] = g->space->codes[i];
        g->times[kept++] = g->times[i];
    }
    g->space->n_points = kept;
    g->space->standard = standard;
}

/* Whatever device it was recorded on. False: it cannot be read, or has points that are not in the
 * space that the variant has now, or one twice. */
static inline bool grid_read(const char *path, struct grid *g)
{
    char line[GRID_LINE_BYTES];
    uint32_t n_lines = 0;
    FILE *f = fopen(path, "r");
    *g = (struct grid){0};
    bool ok = f && fgets(line, sizeof line, f);
    while (ok && fgets(line, sizeof line, f)) {
        char *fields[GRID_FIELDS], *at = line;
        for (uint32_t i = 0; i < GRID_FIELDS; i++) {
            fields[i] = at;
            at += strcspn(at, "\t\n");
            if (*at)
                *at++ = '\0';
        }
        ok = grid_add(g, fields);
        n_lines++;
    }
    if (f)
        fclose(f);
    ok = ok && g->space && n_lines > 0;
    if (ok)
        grid_shrink(g);
    return ok;
}

#endif
