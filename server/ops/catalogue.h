/* The catalogue of GET /v1/ops: operators, their fields and variants, and where each runs. */
#ifndef OINFER_SERVER_OPS_CATALOGUE_H
#define OINFER_SERVER_OPS_CATALOGUE_H

#include "engine/base/strbuf.h"
#include "server/ops/request.h"

/* A device in use. */
struct ops_device {
    const struct device_info *info;
    uint32_t caps;
};

/* Appends one JSON object. tuned: what was found on these devices, or others; NULL: nothing. Any
 * thread. */
void ops_catalogue_json(struct strbuf *out, const struct ops_device *devices, uint32_t n,
                        const struct tune_store *tuned);

#endif
