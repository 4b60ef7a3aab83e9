/* Fuzz target: bodies of operators. The first byte chooses the operator and, by its highest bit,
 * multipart/form-data with the boundary "x". Whatever comes, parsing ends in a request whose inputs
 * are all there, or in a fault that names a 400 (or, for memory, 503) status. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/ops/multipart.h"
#include "server/ops/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(enum api_op op, const char *body, size_t n, const struct op_part *parts,
                  uint32_t n_parts)
{
    struct op_request *r;
    struct fault f;
    if (op_request_parse(op, body, n, parts, n_parts, 600000, &r, &f) != ST_OK) {
        const unsigned http = fault_http_status(f.kind);
        if (r != NULL || f.message[0] == '\0' || (http != 400 && http != 503))
            abort();
        return;
    }
    if (r->bench.iterations < 1 || r->bench.iterations > OPBENCH_MAX_ITERATIONS ||
        r->bench.n_settings > CONFIG_MAX_TUNABLES || r->n_inputs < 1 ||
        r->n_inputs > OPS_MAX_INPUTS || r->output.array.n_dims > OPS_MAX_DIMS)
        abort();
    volatile float sum = 0;
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        const struct op_array *x = &r->inputs[i];
        const float *values = r->bench.data.inputs[x->tensor];
        for (uint64_t k = 0; values != NULL && k < op_array_count(x); k++)
            sum = sum + values[k];
    }
    op_request_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const enum api_op op = (enum api_op)((data[0] & 0x7F) % API_COUNT);
    const char *body = (const char *)data + 1;
    if (!(data[0] & 0x80)) {
        parse(op, body, size - 1, NULL, 0);
        return 0;
    }
    struct multipart m;
    struct op_part parts[MULTIPART_MAX_PARTS];
    struct err e = {0};
    if (multipart_parse("multipart/form-data; boundary=x", body, size - 1, &m, &e) != ST_OK) {
        if (e.text[0] == '\0')
            abort();
        return 0;
    }
    uint32_t n = 0, json = MULTIPART_MAX_PARTS;
    for (uint32_t i = 0; i < m.count; i++) {
        if (strcmp(m.parts[i].name, "request") == 0)
            json = i;
        else
            parts[n++] = (struct op_part){m.parts[i].name, m.parts[i].bytes, m.parts[i].n};
    }
    if (json < MULTIPART_MAX_PARTS)
        parse(op, m.parts[json].bytes, m.parts[json].n, parts, n);
    return 0;
}
