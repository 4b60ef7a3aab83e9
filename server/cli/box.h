/* Boxes: places that operators are measured on, this machine's engine or a daemon at a URL.
 *
 * Both take the JSON body of /v1/ops/{op} and give the JSON of its answer. One thread.
 */
#ifndef OINFER_SERVER_CLI_BOX_H
#define OINFER_SERVER_CLI_BOX_H

#include <cjson/cJSON.h>

#include "engine/engine.h"

#define BOX_LOCAL "local" /* instead of a URL */

struct box;
/* url: http(s)://host:port of a daemon, or BOX_LOCAL; device: which one, "" for any. The URL is
 * borrowed. */
enum status box_open(const char *url, const char *device, struct box **out, struct err *e);
void box_close(struct box *b); /* accepts NULL */
const char *box_name(const struct box *b);

/* What a box answered: the result, or why there is none. */
struct box_answer {
    cJSON *result; /* owned; NULL: failed */
    struct err error;
};
void box_answer_free(struct box_answer *a);

/* Has every box run the operator (name as in the API) at the same time. body: its fields; each box
 * adds its device. Fills answers[n]. */
void boxes_run(struct box *const *boxes, uint32_t n, const char *op, const cJSON *body,
               struct box_answer *answers);

#endif
