/* Tunables of a variant and the values that a caller sets: plain values, shared by everybody. */
#ifndef OINFER_OPS_SETTING_H
#define OINFER_OPS_SETTING_H

#include <stdint.h>

#define CONFIG_MAX_TUNABLES 8
#define CONFIG_MAX_VALUES   16

struct setting {
    const char *name; /* "ROWS" */
    uint32_t value;
};

/* One entry of a row's .tunables, with the value that the row itself has. */
struct tunable {
    char name[24];
    uint32_t n_values, values[CONFIG_MAX_VALUES], standard;
};

#endif
