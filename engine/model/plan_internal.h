/* Private to plan*.c: building (plan_build.c), scratch (plan_scratch.c), running (plan.c). */
#ifndef OINFER_MODEL_PLAN_INTERNAL_H
#define OINFER_MODEL_PLAN_INTERNAL_H

#include "engine/model/plan.h"

/* Fills steps and values from the graph. */
enum status plan__build(struct plan *p, uint32_t typical_tokens, struct err *e);
/* Gives every value its offset; values that are never alive together share memory. */
enum status plan__place_values(struct plan *p, struct err *e);

/* Puts counts of rows (and, for attention, kv_max) into a step's params. */
void plan__set_counts(const struct plan *p, const struct plan_step *s, uint32_t n_rows,
                      uint32_t kv_max, union op_params *params);
/* Most rows a step or a value of these rows has in one run. */
uint32_t plan__max_rows(const struct plan *p, enum graph_rows rows);

#endif
