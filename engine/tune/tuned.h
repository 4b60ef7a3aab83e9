/* Tuned choices: the records of a store that hold on one device, and the choices made by them.
 *
 * A record holds where device, driver, tuner version and the variant's source are the same, and the
 * variant still has those settings; others are passed over without a word. The choice for a call:
 *   - the heuristic's variant gets the settings of its record of the same class of shapes, else of
 *     the nearest class, at most TUNED_MAX_DISTANCE away;
 *   - another variant takes its place only where both have a record of the very class, and the
 *     other's is faster by more than noise (TUNED_GAIN).
 * Rows that were handed out stay until the device closes. Belongs to the device's thread.
 */
#ifndef OINFER_TUNE_TUNED_H
#define OINFER_TUNE_TUNED_H

#include "engine/ops/variant.h"
#include "engine/tune/store.h"

#define TUNED_MAX_DISTANCE 3.0  /* classes, each a doubling of a dimension */
#define TUNED_GAIN         0.95 /* of the heuristic's time */

/* Adds what holds on the device; a newer record replaces an older one of its key, unless `fill`:
 * then what is known already stays. *n, if not NULL: how many were taken. */
enum status tuned_apply(struct device *d, const struct tune_store *s, bool fill, uint32_t *n,
                        struct err *e);
/* Forgets all: choices from now on are the heuristic's. */
void tuned_clear(struct device *d);

/* Whether a variant may stand in for the heuristic's. */
typedef bool (*tuned_accepts)(struct device *d, const struct variant *v, const void *user);
/* The row to run a call of this shape with, v being the heuristic's variant: v itself, v
 * configured, or another one that `accepts` lets through (NULL: none). */
const struct variant *tuned_choose(struct device *d, const struct variant *v,
                                   const struct shape *shape, int dtype, tuned_accepts accepts,
                                   const void *user);
/* Marks of configured rows, as variant_mark_get and _set have them for the others. */
enum variant_mark tuned_mark_get(struct device *d, const struct variant *v);
void tuned_mark_set(struct device *d, const struct variant *v, enum variant_mark mark);
/* Settings in use for a variant and dtype, entry i: for reports. False past the end. */
bool tuned_entry(struct device *d, const struct variant *v, int dtype, uint32_t i,
                 struct tune_record *out);

#endif
