/* Conditions: the integer expressions of a row's `.require` in kernels.def.
 *
 *   condition  = sum [ ("<=" | ">=" | "==" | "<" | ">") sum ], more of them joined by "&&"
 *   sum        = product { ("+" | "-") product }
 *   product    = factor { ("*" | "/" | "%") factor }
 *   factor     = number | NAME | "(" sum ")"
 *
 * Values are 64-bit; NAMEs are the variant's tunables, and LOCAL_BYTES and MAX_GROUP of the device.
 * Pure functions; any thread.
 */
#ifndef OINFER_TUNE_CONDITION_H
#define OINFER_TUNE_CONDITION_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

struct condition_name {
    const char *name;
    int64_t value;
};

/* Evaluates text (NULL or "": true) with n names. ST_INVALID: what does not parse, a name that is
 * not known, or a division by zero, with the rest of the text from there. */
enum status condition_holds(const char *text, const struct condition_name *names, uint32_t n,
                            bool *out, struct err *e);

#endif
