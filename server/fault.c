/* The table of faults and the two ways to fill one in. No state. */
#include "server/fault.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    enum status status;
    unsigned http;
    const char *type, *code;
} rows[FAULT_COUNT] = {
#define FAULT(id, status, http, type, code) {status, http, type, code},
#include "server/faults.def"
#undef FAULT
};

unsigned fault_http_status(enum fault_kind kind)
{
    return rows[kind].http;
}

const char *fault_type(enum fault_kind kind)
{
    return rows[kind].type;
}

const char *fault_code(enum fault_kind kind)
{
    return rows[kind].code;
}

enum status fault_set(struct fault *f, enum fault_kind kind, const char *param, const char *format,
                      ...)
{
    *f = (struct fault){.kind = kind};
    snprintf(f->param, sizeof f->param, "%s", param != NULL ? param : "");
    struct err cut;
    char message[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    err_set(&cut, rows[kind].status, "%s", message); /* cuts at a UTF-8 boundary */
    snprintf(f->message, sizeof f->message, "%s", cut.text);
    return rows[kind].status;
}

enum status fault_from_err(struct fault *f, const char *param, const struct err *e)
{
    enum fault_kind kind = FAULT_ENGINE;
    for (enum fault_kind i = 0; i < FAULT_COUNT; i++) {
        if (rows[i].status == e->status) {
            kind = i;
            break;
        }
    }
    return fault_set(f, kind, param, "%s",
                     e->text[0] != '\0' ? e->text : status_message(e->status));
}
