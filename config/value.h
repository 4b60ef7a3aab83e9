/* Values of options: text to the field of a row, and back. Used by config.c and print.c only. */
#ifndef OINFER_CONFIG_VALUE_H
#define OINFER_CONFIG_VALUE_H

#include "config/config.h"

enum value_result { VALUE_OK, VALUE_BAD, VALUE_NO_MEMORY };

/* Checks `text` against the row and stores it in its field (LIST: appends). VALUE_BAD fills
 * `reason` with the value and the limit, and leaves the field as it was. */
enum value_result value__parse(struct config *c, const struct config_option *option,
                               const char *text, char *reason, size_t size);
/* Frees what the row's field owns and zeroes it. */
void value__clear(struct config *c, const struct config_option *option);
/* Whether two configurations have the same value in the row. */
bool value__equal(const struct config *a, const struct config *b,
                  const struct config_option *option);
/* Exchanges the row's values, and what they own. */
void value__swap(struct config *a, struct config *b, const struct config_option *option);
/* Appends the field as the file would spell it. */
void value__print(const struct config *c, const struct config_option *option, struct strbuf *out);

#endif
