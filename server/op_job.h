/* The part of a job that is a run of an operator: JOB_OPERATOR.
 *
 * It goes the way of every job (job.h): prepared on a pool thread, queued, run on the worker of its
 * device in one piece, replied to by the loop.
 */
#ifndef OINFER_SERVER_OP_JOB_H
#define OINFER_SERVER_OP_JOB_H

#include "server/job.h"
#include "server/ops/request.h"

struct op_job {
    enum api_op op;
    bool wants_npy;     /* Accept: application/x-npy */
    char *content_type; /* of the body; NULL: JSON */
    struct op_request *request;
    struct opbench_result result;
    struct device_info device;
    uint64_t run_ns;
};

/* NULL when out of memory. The texts are headers of the request or NULL. */
struct op_job *op_job_open(enum api_op op, const char *content_type, const char *accept);
void op_job_close(struct op_job *o); /* accepts NULL */

/* Pool thread: parses the job's body and finds the worker that it is for. On failure j->fault says
 * why. */
enum status op_job_prepare(struct job *j, const char *body, size_t n);

/* How a worker runs it. */
struct op_job_host {
    void *user;
    /* The engine will be busy for so long at most before it says so again; false: stop. */
    bool (*proceed)(void *user, double next_ns);
};
/* Worker's thread: measures. ST_DEVICE_LOST: the device is lost; *e says why. Other failures are
 * the job's own fault. */
enum status op_job_run(struct job *j, struct device *d, const struct op_job_host *host,
                       struct err *e);

/* Loop thread: the body of the reply and its type. */
const char *op_job_reply(const struct job *j, struct strbuf *out);

#endif
