/* Results of /v1/ops: JSON and .npy of what the engine measured. Any thread. */
#ifndef OINFER_SERVER_OPS_RESULT_H
#define OINFER_SERVER_OPS_RESULT_H

#include "engine/base/strbuf.h"
#include "server/ops/request.h"

#define OPS_MAX_JSON_OUTPUT ((uint64_t)1 << 20) /* elements; more only as .npy */

/* Where and when it was measured. */
struct op_run {
    const struct device_info *device;
    uint64_t queue_ns, run_ns;
};

/* Whether the output of this request can be given as JSON; 400 otherwise. */
enum status op_result_check(const struct op_request *r, bool npy, struct fault *f);
void op_result_json(struct strbuf *out, const struct op_request *r,
                    const struct opbench_result *result, const struct op_run *run);
/* The output as an .npy file. */
void op_result_npy(struct strbuf *out, const struct op_request *r,
                   const struct opbench_result *result);

#endif
