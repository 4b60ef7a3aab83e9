/* Rewriting of PTX text and loading it as a binary. */
#include "engine/cl/sm90a.h"

#include <string.h>

#include "engine/base/mem.h"
#include "engine/cl/program.h"

#define PTX_MAX_BYTES  ((size_t)32 << 20)
#define LOG_LINE_BYTES 300
#define MARK           "//@"
#define TARGET         ".target sm_90"
#define GROUPS         MARK "groups "

bool sm90a__wanted(const char *text)
{
    return strstr(text, MARK) != NULL;
}

/* The first of the two places, or the end; NULL stands for "not there". */
static const char *earlier(const char *a, const char *b)
{
    if (a == NULL)
        return b;
    return b != NULL && b < a ? b : a;
}

/* How many groups a compute unit shall hold at least, a digit; 1 where the program does not say. */
static char groups_of(const char *ptx)
{
    const char *groups = strstr(ptx, GROUPS);
    const char digit = groups != NULL ? groups[strlen(GROUPS)] : '1';
    return digit >= '1' && digit <= '9' ? digit : '1';
}

bool sm90a__rewrite(const char *ptx, struct strbuf *out)
{
    const char groups = groups_of(ptx);
    const char *target = strstr(ptx, TARGET);
    if (target == NULL)
        return false;
    const char *after = target + strlen(TARGET);
    strbuf_append(out, ptx, (size_t)(after - ptx));
    if (*after != 'a')
        strbuf_putc(out, 'a');
    for (const char *at = after; *at != '\0';) {
        const char *mark = strstr(at, MARK), *size = strstr(at, ".reqntid");
        const char *next = earlier(mark, size);
        if (next == NULL) {
            strbuf_puts(out, at);
            break;
        }
        strbuf_append(out, at, (size_t)(next - at));
        at = next + strlen(MARK);
        const bool told = strncmp(next, GROUPS, strlen(GROUPS)) == 0;
        if (next == size || told) {
            const size_t line = strcspn(next, "\n");
            strbuf_append(out, next, line);
            at = next + line;
        }
        if (next == size) { /* bounds the registers of a group, which setmaxnreg needs */
            strbuf_puts(out, "\n.minnctapersm ");
            strbuf_putc(out, groups);
        }
    }
    return !out->failed;
}

/* The program's binary as text; NULL when there is none. Free with mem_free. */
static char *read_ptx(cl_program program)
{
    size_t length = 0;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof length, &length, NULL) !=
            CL_SUCCESS ||
        length == 0 || length > PTX_MAX_BYTES)
        return NULL;
    char *text = mem_zalloc(length + 1);
    unsigned char *bytes = (unsigned char *)text;
    if (text != NULL &&
        clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) != CL_SUCCESS) {
        mem_free(text);
        return NULL;
    }
    return text;
}

static enum status load(struct device *d, const char *name, const struct strbuf *ptx,
                        cl_program *out, struct err *e)
{
    const unsigned char *bytes = (const unsigned char *)ptx->data;
    cl_int state = CL_SUCCESS, code = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithBinary(d->context, 1, &d->id, &ptx->length, &bytes, &state, &code);
    if (code == CL_SUCCESS)
        code = clBuildProgram(program, 1, &d->id, "", NULL, NULL);
    if (code == CL_SUCCESS) {
        *out = program;
        return ST_OK;
    }
    char line[LOG_LINE_BYTES] = "it is no program";
    if (program != NULL) {
        program__read_log(d, program, line, sizeof line);
        clReleaseProgram(program);
    }
    enum status status = cl_check(d, code, "loading as sm_90a", name, e);
    if (status == ST_DEVICE_LOST)
        return status;
    return err_set(e, ST_BUILD, "%s: %s does not load as sm_90a (%s): %s", d->info.name, name,
                   cl_error_name(code), line);
}

enum status sm90a__reload(struct device *d, const char *name, cl_program *program, struct err *e)
{
    struct strbuf ptx;
    strbuf_init(&ptx, PTX_MAX_BYTES);
    char *text = read_ptx(*program);
    clReleaseProgram(*program);
    *program = NULL;
    enum status status;
    if (text == NULL || !sm90a__rewrite(text, &ptx))
        status =
            err_set(e, ST_BUILD, "%s: %s: its binary is not PTX for sm_90", d->info.name, name);
    else
        status = load(d, name, &ptx, program, e);
    mem_free(text);
    strbuf_free(&ptx);
    return status;
}
