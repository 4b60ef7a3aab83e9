/* Tuned choices: a list per device of configured rows, kept with the device. */
#include "engine/tune/tuned.h"

#include <math.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/ops/config.h"

#define MAX_ENTRIES 8192 /* of a device's life, replaced ones included */

struct entry {
    struct entry *next;
    const struct variant *base;
    struct tune_record record;
    struct config config;
    const struct variant *row; /* base where the settings are its own values, else config.row */
    enum variant_mark mark;    /* of config.row */
    bool replaced;
};

struct tuned {
    struct entry *entries;
    uint32_t n;
};

static void close_tuned(void *thing)
{
    struct tuned *t = thing;
    while (t->entries) {
        struct entry *next = t->entries->next;
        mem_free(t->entries);
        t->entries = next;
    }
    mem_free(t);
}

static struct tuned *tuned_of(struct device *d)
{
    return device_kept(d);
}

/* The row of kernels.def that a record speaks of, where the device can run it. */
static const struct variant *find_base(struct device *d, const struct tune_record *r)
{
    const struct variant *v;
    for (uint32_t i = 0; (v = variant_at(d, r->shape.op, i)) != NULL; i++) {
        uint64_t source;
        if (strcmp(v->name, r->variant) != 0 || v->ref ||
            (v->dtype != DT_ANY && v->dtype != (int)r->dtype))
            continue;
        if (variant_source_hash(d, v, &source, NULL) == ST_OK && source == r->source)
            return v;
    }
    return NULL;
}

/* Fills an entry; false where the record does not hold here. */
static bool make_entry(struct device *d, const struct tune_record *r, struct entry *out)
{
    const struct device_info *info = device_info(d);
    if (r->version != TUNER_VERSION || strcmp(r->device, info->name) != 0 ||
        strcmp(r->driver, info->driver) != 0)
        return false;
    const struct variant *v = find_base(d, r);
    struct space *space;
    struct setting settings[CONFIG_MAX_TUNABLES];
    char names[CONFIG_MAX_TUNABLES][24];
    uint32_t n, point = SPACE_NONE;
    if (!v || record_settings(r->settings, settings, &n, names, NULL) != ST_OK ||
        space_open(d, v, &space, NULL) != ST_OK)
        return false;
    point = space_find(space, settings, n);
    const bool holds =
        point != SPACE_NONE && space_configure(space, point, v, &out->config, NULL) == ST_OK;
    out->base = v;
    out->record = *r;
    out->row = holds && point == space->standard ? v : &out->config.row;
    space_close(space);
    return holds;
}

/* Puts the entry in its place: what it replaces is marked, the same again is no second one. Returns
 * whether it was taken. */
static bool link_entry(struct tuned *t, struct entry *new, bool fill)
{
    for (struct entry *old = t->entries; old; old = old->next) {
        if (old->replaced || old->base != new->base || old->record.dtype != new->record.dtype ||
            shape_distance(&old->record.shape, &new->record.shape) != 0)
            continue;
        const bool same = strcmp(old->record.settings, new->record.settings) == 0;
        if (same && !fill)
            old->record = new->record;
        if (same || fill) {
            mem_free(new);
            return !fill;
        }
        old->replaced = true;
    }
    new->next = t->entries;
    t->entries = new;
    t->n++;
    return true;
}

enum status tuned_apply(struct device *d, const struct tune_store *s, bool fill, uint32_t *n,
                        struct err *e)
{
    struct tuned *t = tuned_of(d);
    if (n)
        *n = 0;
    if (!t) {
        t = mem_zalloc(sizeof *t);
        if (!t)
            return err_set(e, ST_NO_MEMORY, "tuned values: %zu bytes", sizeof *t);
        device_keep(d, t, close_tuned);
    }
    const struct tune_record *r;
    for (uint32_t i = 0; (r = store_at(s, i)) != NULL && t->n < MAX_ENTRIES; i++) {
        struct entry *entry = mem_zalloc(sizeof *entry);
        if (!entry)
            return err_set(e, ST_NO_MEMORY, "tuned values: %zu bytes", sizeof *entry);
        if (!make_entry(d, r, entry)) {
            mem_free(entry);
            continue;
        }
        if (link_entry(t, entry, fill) && n)
            ++*n;
    }
    return ST_OK;
}

void tuned_clear(struct device *d)
{
    struct tuned *t = tuned_of(d);
    for (struct entry *entry = t ? t->entries : NULL; entry; entry = entry->next)
        entry->replaced = true;
}

/* The usable entry of a variant (NULL: of any) nearest to the shape; *distance is how far. */
static const struct entry *nearest(const struct tuned *t, const struct variant *base,
                                   const struct shape *shape, int dtype, double *distance)
{
    const struct entry *best = NULL;
    *distance = INFINITY;
    for (const struct entry *entry = t->entries; entry; entry = entry->next) {
        if (entry->replaced || entry->base != base || (int)entry->record.dtype != dtype ||
            (entry->row != base && entry->mark == VARIANT_FAILED))
            continue;
        const double far = shape_distance(&entry->record.shape, shape);
        if (far < *distance) {
            *distance = far;
            best = entry;
        }
    }
    return best;
}

/* Time for a unit of work. */
static double rate(const struct entry *entry)
{
    return entry->record.ns / entry->record.work;
}

const struct variant *tuned_choose(struct device *d, const struct variant *v,
                                   const struct shape *shape, int dtype, tuned_accepts accepts,
                                   const void *user)
{
    struct tuned *t = tuned_of(d);
    double distance;
    if (!t || v->ref)
        return v;
    const struct entry *chosen = nearest(t, v, shape, dtype, &distance);
    if (!chosen || distance > TUNED_MAX_DISTANCE)
        return v;
    double least = rate(chosen) * TUNED_GAIN;
    if (distance > 0 || !accepts)
        return chosen->row;
    for (const struct entry *other = t->entries; other; other = other->next) {
        if (other->replaced || other->base == v || (int)other->record.dtype != dtype ||
            shape_distance(&other->record.shape, shape) != 0 || rate(other) >= least ||
            (other->row != other->base && other->mark == VARIANT_FAILED) ||
            !accepts(d, other->base, user))
            continue;
        least = rate(other);
        chosen = other;
    }
    return chosen->row;
}

static struct entry *entry_of(struct device *d, const struct variant *row)
{
    struct tuned *t = tuned_of(d);
    for (struct entry *entry = t ? t->entries : NULL; entry; entry = entry->next)
        if (&entry->config.row == row)
            return entry;
    return NULL;
}

enum variant_mark tuned_mark_get(struct device *d, const struct variant *v)
{
    const struct entry *entry = entry_of(d, v);
    return entry ? entry->mark : VARIANT_UNTESTED;
}

void tuned_mark_set(struct device *d, const struct variant *v, enum variant_mark mark)
{
    struct entry *entry = entry_of(d, v);
    if (entry)
        entry->mark = mark;
}

bool tuned_entry(struct device *d, const struct variant *v, int dtype, uint32_t i,
                 struct tune_record *out)
{
    const struct tuned *t = tuned_of(d);
    for (const struct entry *entry = t ? t->entries : NULL; entry; entry = entry->next) {
        if (entry->replaced || entry->base != v ||
            (dtype >= 0 && (int)entry->record.dtype != dtype))
            continue;
        if (i-- == 0) {
            *out = entry->record;
            return true;
        }
    }
    return false;
}
