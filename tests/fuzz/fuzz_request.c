/* Fuzz target: request bodies. The first byte chooses the route, the rest is the body.
 * Whatever comes, parsing ends in a request within its limits or in a fault that names a 4xx (or,
 * for memory, 503) status. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "server/fault.h"
#include "server/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum request_route routes[] = {REQUEST_COMPLETION, REQUEST_TOKENIZE,
                                                REQUEST_DETOKENIZE};
    static const struct request_limits limits = {
        .choices = 16, .stop_strings = 16, .max_tokens = 0, .deadline_ms = 600000};
    struct request *request;
    struct fault fault;
    if (size == 0)
        return 0;
    enum status status = request_parse(routes[data[0] % 3], (const char *)data + 1, size - 1,
                                       &limits, &request, &fault);
    if (status != ST_OK) {
        unsigned http = fault_http_status(fault.kind);
        if (request != NULL || fault.message[0] == '\0' || (http != 400 && http != 503))
            abort();
        return 0;
    }
    if (request->max_tokens < 0 || request->n < 1 || request->n > 128 ||
        !(request->temperature >= 0 && request->temperature <= 100) ||
        request->prompt.count > limits.choices || request->stop.count > STOP_MAX_STRINGS)
        abort();
    request_close(request);
    return 0;
}
