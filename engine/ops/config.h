/* Configurations: a variant with other values of its tunables.
 *
 * A configuration is a copy of the row and may be bound like it (op_bind); it belongs to the caller
 * and must outlive the steps bound to it. Pure functions; any thread.
 */
#ifndef OINFER_OPS_CONFIG_H
#define OINFER_OPS_CONFIG_H

#include "engine/ops/setting.h"
#include "engine/ops/variant.h"

struct config {
    struct variant row;
    char defines[256];
};

/* The tunables of a variant in the row's order; returns how many, at most CONFIG_MAX_TUNABLES. A
 * macro of the kernel file that the row does not define has its first value as standard. */
uint32_t variant_tunable_list(const struct variant *v, struct tunable out[CONFIG_MAX_TUNABLES]);
/* v with n settings. ST_INVALID names the tunable, the value and what is allowed. */
enum status variant_configure(const struct variant *v, const struct setting *settings, uint32_t n,
                              struct config *out, struct err *e);

#endif
