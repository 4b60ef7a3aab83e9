/* A shared library that stands between a program and the OpenCL loader: it counts the live objects
 * of every kind, and makes chosen calls fail, late or for ever, so that failure paths run.
 *
 * Use it with any program, the daemon included: LD_PRELOAD=libfake_cl.so PROGRAM, and
 *   OINFER_FAULT         rules separated by commas, NAME:N:CODE. Call number N (from 1) of function
 *                        NAME fails with the OpenCL error CODE: clCreateBuffer:3:-4. N+ means that
 *                        call and all after it; NAME may be * (any function listed in calls.def),
 *                        which counts all of them together: *:40+:-36 loses the device at call 40.
 *                        CODE may be sleep=MS instead: the call is made, MS milliseconds late.
 *   OINFER_FAULT_FILE    a file of such rules, read again (and counted from there) whenever it has
 *                        changed: faults that come and go while the program runs.
 *   OINFER_FAULT_REPORT  a file that gets one line at exit, and whenever the rules are read again:
 *                        calls=N failed=N context=N queue=N mem=N program=N kernel=N event=N
 *                        (references that are still held).
 *
 * Or link it into a test program, before the loader, and use fake_cl.h. Release calls never fail,
 * as with real drivers. Functions not in calls.def pass through. A queue that is lost for ever
 * finishes first: what a dead device has not done, it does not do later. Thread-safe.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake_cl.h"

enum call {
#define X(name) CALL_##name,
#include "calls.def"
#undef X
    CALL_COUNT
};

static const char *const call_names[CALL_COUNT] = {
#define X(name) #name,
#include "calls.def"
#undef X
};

enum kind { CONTEXT, QUEUE, MEM, PROGRAM, KERNEL, EVENT, KIND_COUNT };

static const char *const kind_names[KIND_COUNT] = {"context", "queue",  "mem",
                                                   "program", "kernel", "event"};

#define RULES_MAX 16

struct rule {
    int call; /* enum call; CALL_COUNT: any */
    unsigned long number;
    int sticky;
    cl_int code;
    unsigned sleep_ms;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static int rule_count;
static unsigned long call_counts[CALL_COUNT + 1]; /* the last: all together */
static unsigned long failed_count;
static long alive[KIND_COUNT];
static size_t memory_bytes, memory_used; /* see fake_cl_memory */

long fake_cl_alive(void)
{
    long sum = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KIND_COUNT; i++)
        sum += alive[i];
    pthread_mutex_unlock(&lock);
    return sum;
}

unsigned long fake_cl_calls(void)
{
    pthread_mutex_lock(&lock);
    unsigned long n = call_counts[CALL_COUNT];
    pthread_mutex_unlock(&lock);
    return n;
}

/* One NAME:N[+]:CODE; a rule that cannot be read ends the program, since a test depends on it. */
static void parse_rule(char *text)
{
    struct rule r = {CALL_COUNT, 0, 0, 0, 0};
    char *number = strchr(text, ':');
    char *code = number != NULL ? strchr(number + 1, ':') : NULL;
    if (code == NULL || rule_count == RULES_MAX) {
        fprintf(stderr, "fake_cl: bad rule %s\n", text);
        _exit(2);
    }
    *number++ = '\0';
    *code++ = '\0';
    if (strcmp(text, "*") != 0) {
        for (r.call = 0; r.call < CALL_COUNT && strcmp(call_names[r.call], text) != 0;)
            r.call++;
        if (r.call == CALL_COUNT) {
            fprintf(stderr, "fake_cl: unknown function %s\n", text);
            _exit(2);
        }
    }
    char *end = NULL;
    r.number = strtoul(number, &end, 10);
    r.sticky = *end == '+';
    if (strncmp(code, "sleep=", 6) == 0)
        r.sleep_ms = (unsigned)strtoul(code + 6, NULL, 10);
    else
        r.code = (cl_int)strtol(code, NULL, 10);
    rules[rule_count++] = r;
}

/* Forgets the rules and the counts of calls, and takes these rules; under the lock. */
static void take_rules(const char *text)
{
    char *copy = strdup(text), *rest = NULL;
    rule_count = 0;
    failed_count = 0;
    memset(call_counts, 0, sizeof call_counts);
    for (char *part = strtok_r(copy, ", \n", &rest); part != NULL;
         part = strtok_r(NULL, ", \n", &rest))
        parse_rule(part);
    free(copy);
}

void fake_cl_rules(const char *text)
{
    pthread_mutex_lock(&lock);
    take_rules(text);
    pthread_mutex_unlock(&lock);
}

unsigned long fake_cl_calls_of(int call)
{
    pthread_mutex_lock(&lock);
    unsigned long n = call_counts[call];
    pthread_mutex_unlock(&lock);
    return n;
}

unsigned long fake_cl_failed(void)
{
    pthread_mutex_lock(&lock);
    unsigned long n = failed_count;
    pthread_mutex_unlock(&lock);
    return n;
}

const char *fake_cl_name(int call)
{
    return call < CALL_COUNT ? call_names[call] : NULL;
}

static const char *rule_file;

/* The line that OINFER_FAULT_REPORT asks for; under the lock. */
static void write_report(void)
{
    const char *path = getenv("OINFER_FAULT_REPORT");
    FILE *file = path != NULL ? fopen(path, "we") : NULL;
    if (file == NULL)
        return;
    fprintf(file, "calls=%lu failed=%lu", call_counts[CALL_COUNT], failed_count);
    for (int i = 0; i < KIND_COUNT; i++)
        fprintf(file, " %s=%ld", kind_names[i], alive[i]);
    fprintf(file, "\n");
    fclose(file);
}

/* Takes the rules of the file if it has changed; under the lock. */
static void look_at_file(void)
{
    static struct timespec seen;
    struct stat s;
    char text[1024];
    if (stat(rule_file, &s) != 0 ||
        (s.st_mtim.tv_sec == seen.tv_sec && s.st_mtim.tv_nsec == seen.tv_nsec))
        return;
    FILE *file = fopen(rule_file, "re");
    if (file == NULL)
        return;
    seen = s.st_mtim;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    write_report();
    take_rules(text);
}

__attribute__((destructor)) static void end(void)
{
    pthread_mutex_lock(&lock);
    write_report();
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("OINFER_FAULT");
    rule_file = getenv("OINFER_FAULT_FILE");
    if (text != NULL)
        fake_cl_rules(text);
}

/* The loader's own function of that name. */
static void *real(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (f == NULL) {
        fprintf(stderr, "fake_cl: no %s\n", name);
        _exit(2);
    }
    return f;
}

#define REAL(name) ((__typeof__(&name))real(#name))

/* Counts the call, waits if a rule says so, and returns the code it must fail with, or 0. queue:
 * that the call is on, or NULL. */
static cl_int fault_on(enum call call, cl_command_queue queue)
{
    unsigned sleep_ms = 0;
    cl_int code = CL_SUCCESS;
    int lost = 0;
    pthread_mutex_lock(&lock);
    if (rule_file != NULL)
        look_at_file();
    unsigned long n = ++call_counts[call], total = ++call_counts[CALL_COUNT];
    for (int i = 0; i < rule_count; i++) {
        const struct rule *r = &rules[i];
        unsigned long at = r->call == CALL_COUNT ? total : n;
        if ((r->call != CALL_COUNT && r->call != (int)call) ||
            (r->sticky ? at < r->number : at != r->number))
            continue;
        code = r->code != CL_SUCCESS ? r->code : code;
        lost |= r->sticky && code != CL_SUCCESS;
        sleep_ms += r->sleep_ms;
    }
    failed_count += code != CL_SUCCESS;
    pthread_mutex_unlock(&lock);
    if (sleep_ms > 0)
        nanosleep(&(struct timespec){sleep_ms / 1000, (long)(sleep_ms % 1000) * 1000000}, NULL);
    if (lost && queue != NULL)
        REAL(clFinish)(queue);
    return code;
}

static cl_int fault(enum call call)
{
    return fault_on(call, NULL);
}

static void count(enum kind kind, long change)
{
    pthread_mutex_lock(&lock);
    alive[kind] += change;
    pthread_mutex_unlock(&lock);
}

void fake_cl_memory(size_t n_bytes)
{
    pthread_mutex_lock(&lock);
    memory_bytes = n_bytes;
    memory_used = 0;
    pthread_mutex_unlock(&lock);
}

/* Takes a buffer's memory of the device; 0: there is not so much. */
static int take_memory(size_t n_bytes)
{
    pthread_mutex_lock(&lock);
    const int fits = memory_bytes == 0 || n_bytes <= memory_bytes - memory_used;
    if (fits)
        memory_used += memory_bytes != 0 ? n_bytes : 0;
    pthread_mutex_unlock(&lock);
    return fits;
}

static void give_memory(size_t n_bytes)
{
    pthread_mutex_lock(&lock);
    memory_used -= memory_bytes != 0 ? n_bytes : 0;
    pthread_mutex_unlock(&lock);
}

/* What the object gives back to the device when it is released now. */
static size_t held_by(cl_mem object)
{
    cl_mem_object_type type = 0;
    cl_uint n_references = 0;
    size_t size = 0;
    if (clGetMemObjectInfo(object, CL_MEM_TYPE, sizeof type, &type, NULL) != CL_SUCCESS ||
        clGetMemObjectInfo(object, CL_MEM_SIZE, sizeof size, &size, NULL) != CL_SUCCESS ||
        clGetMemObjectInfo(object, CL_MEM_REFERENCE_COUNT, sizeof n_references, &n_references,
                           NULL) != CL_SUCCESS)
        return 0;
    return type == CL_MEM_OBJECT_BUFFER && n_references == 1 ? size : 0;
}

/* A call that returns its error. */
#define PASS(name, parameters, arguments)                        \
    cl_int name parameters                                       \
    {                                                            \
        cl_int code = fault(CALL_##name);                        \
        return code != CL_SUCCESS ? code : REAL(name) arguments; \
    }

/* An enqueue: its last parameter is `event`. */
#define ENQUEUE(name, parameters, arguments)        \
    cl_int name parameters                          \
    {                                               \
        cl_int code = fault_on(CALL_##name, queue); \
        if (code == CL_SUCCESS)                     \
            code = REAL(name) arguments;            \
        if (code == CL_SUCCESS && event != NULL)    \
            count(EVENT, 1);                        \
        return code;                                \
    }

/* A call that makes an object and stores its error in `error`. */
#define CREATE(name, type, kind, parameters, arguments)               \
    type name parameters                                              \
    {                                                                 \
        cl_int code = fault(CALL_##name);                             \
        type made = code == CL_SUCCESS ? REAL(name) arguments : NULL; \
        if (code != CL_SUCCESS && error != NULL)                      \
            *error = code;                                            \
        if (made != NULL)                                             \
            count(kind, 1);                                           \
        return made;                                                  \
    }

/* Retain and release of a kind of object. */
#define COUNTED(retain, release, type, kind) \
    cl_int retain(type object)               \
    {                                        \
        cl_int code = REAL(retain)(object);  \
        if (code == CL_SUCCESS)              \
            count(kind, 1);                  \
        return code;                         \
    }                                        \
    cl_int release(type object)              \
    {                                        \
        cl_int code = REAL(release)(object); \
        if (code == CL_SUCCESS)              \
            count(kind, -1);                 \
        return code;                         \
    }

PASS(clGetPlatformIDs, (cl_uint n, cl_platform_id *ids, cl_uint *found), (n, ids, found))
PASS(clGetDeviceIDs,
     (cl_platform_id platform, cl_device_type type, cl_uint n, cl_device_id *ids, cl_uint *found),
     (platform, type, n, ids, found))
PASS(clBuildProgram,
     (cl_program program, cl_uint n, const cl_device_id *ids, const char *options,
      void(CL_CALLBACK *notify)(cl_program, void *), void *user),
     (program, n, ids, options, notify, user))
PASS(clSetKernelArg, (cl_kernel kernel, cl_uint index, size_t size, const void *value),
     (kernel, index, size, value))
PASS(clGetProgramInfo,
     (cl_program program, cl_program_info what, size_t size, void *value, size_t *size_ret),
     (program, what, size, value, size_ret))
PASS(clGetProgramBuildInfo,
     (cl_program program, cl_device_id id, cl_program_build_info what, size_t size, void *value,
      size_t *size_ret),
     (program, id, what, size, value, size_ret))
PASS(clGetKernelWorkGroupInfo,
     (cl_kernel kernel, cl_device_id id, cl_kernel_work_group_info what, size_t size, void *value,
      size_t *size_ret),
     (kernel, id, what, size, value, size_ret))
PASS(clGetEventInfo,
     (cl_event event, cl_event_info what, size_t size, void *value, size_t *size_ret),
     (event, what, size, value, size_ret))
PASS(clGetEventProfilingInfo,
     (cl_event event, cl_profiling_info what, size_t size, void *value, size_t *size_ret),
     (event, what, size, value, size_ret))

cl_int clFlush(cl_command_queue queue)
{
    cl_int code = fault_on(CALL_clFlush, queue);
    return code != CL_SUCCESS ? code : REAL(clFlush)(queue);
}

cl_int clFinish(cl_command_queue queue)
{
    cl_int code = fault_on(CALL_clFinish, queue);
    return code != CL_SUCCESS ? code : REAL(clFinish)(queue);
}

cl_int clWaitForEvents(cl_uint n, const cl_event *events)
{
    cl_int code = fault(CALL_clWaitForEvents);
    cl_int done = REAL(clWaitForEvents)(n, events); /* nothing goes on after a failure */
    return code != CL_SUCCESS ? code : done;
}

ENQUEUE(clEnqueueReadBuffer,
        (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
         void *to, cl_uint n, const cl_event *wait, cl_event *event),
        (queue, buffer, blocking, offset, size, to, n, wait, event))
ENQUEUE(clEnqueueWriteBuffer,
        (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
         const void *from, cl_uint n, const cl_event *wait, cl_event *event),
        (queue, buffer, blocking, offset, size, from, n, wait, event))
ENQUEUE(clEnqueueCopyBuffer,
        (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
         size_t size, cl_uint n, const cl_event *wait, cl_event *event),
        (queue, from, to, from_offset, to_offset, size, n, wait, event))
ENQUEUE(clEnqueueFillBuffer,
        (cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size,
         size_t offset, size_t size, cl_uint n, const cl_event *wait, cl_event *event),
        (queue, buffer, pattern, pattern_size, offset, size, n, wait, event))
ENQUEUE(clEnqueueUnmapMemObject,
        (cl_command_queue queue, cl_mem object, void *mapped, cl_uint n, const cl_event *wait,
         cl_event *event),
        (queue, object, mapped, n, wait, event))
ENQUEUE(clEnqueueNDRangeKernel,
        (cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
         const size_t *global, const size_t *local, cl_uint n, const cl_event *wait,
         cl_event *event),
        (queue, kernel, dimensions, offset, global, local, n, wait, event))
ENQUEUE(clEnqueueMarkerWithWaitList,
        (cl_command_queue queue, cl_uint n, const cl_event *wait, cl_event *event),
        (queue, n, wait, event))
ENQUEUE(clEnqueueBarrierWithWaitList,
        (cl_command_queue queue, cl_uint n, const cl_event *wait, cl_event *event),
        (queue, n, wait, event))

CREATE(clCreateContext, cl_context, CONTEXT,
       (const cl_context_properties *properties, cl_uint n, const cl_device_id *ids,
        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
        cl_int *error),
       (properties, n, ids, notify, user, error))
CREATE(clCreateCommandQueue, cl_command_queue, QUEUE,
       (cl_context context, cl_device_id id, cl_command_queue_properties properties, cl_int *error),
       (context, id, properties, error))
cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                      cl_int *error)
{
    cl_int code = fault(CALL_clCreateBuffer);
    const int takes = code == CL_SUCCESS && take_memory(size);
    if (code == CL_SUCCESS && !takes)
        code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    cl_mem made =
        code == CL_SUCCESS ? REAL(clCreateBuffer)(context, flags, size, host, error) : NULL;
    if (code != CL_SUCCESS && error != NULL)
        *error = code;
    if (made != NULL)
        count(MEM, 1);
    else if (takes)
        give_memory(size);
    return made;
}

CREATE(clCreateImage, cl_mem, MEM,
       (cl_context context, cl_mem_flags flags, const cl_image_format *format,
        const cl_image_desc *desc, void *host, cl_int *error),
       (context, flags, format, desc, host, error))
CREATE(clCreateProgramWithSource, cl_program, PROGRAM,
       (cl_context context, cl_uint n, const char **texts, const size_t *lengths, cl_int *error),
       (context, n, texts, lengths, error))
CREATE(clCreateProgramWithBinary, cl_program, PROGRAM,
       (cl_context context, cl_uint n, const cl_device_id *ids, const size_t *lengths,
        const unsigned char **binaries, cl_int *states, cl_int *error),
       (context, n, ids, lengths, binaries, states, error))
CREATE(clCreateKernel, cl_kernel, KERNEL, (cl_program program, const char *name, cl_int *error),
       (program, name, error))

/* Maps memory: no object of its own, but maybe an event. */
void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                         cl_map_flags flags, size_t offset, size_t size, cl_uint n,
                         const cl_event *wait, cl_event *event, cl_int *error)
{
    cl_int code = fault_on(CALL_clEnqueueMapBuffer, queue);
    if (code != CL_SUCCESS) {
        if (error != NULL)
            *error = code;
        return NULL;
    }
    void *mapped = REAL(clEnqueueMapBuffer)(queue, buffer, blocking, flags, offset, size, n, wait,
                                            event, error);
    if (mapped != NULL && event != NULL)
        count(EVENT, 1);
    return mapped;
}

cl_int clCreateKernelsInProgram(cl_program program, cl_uint n, cl_kernel *kernels, cl_uint *found)
{
    cl_uint made = 0;
    cl_int code = fault(CALL_clCreateKernelsInProgram);
    if (code == CL_SUCCESS)
        code = REAL(clCreateKernelsInProgram)(program, n, kernels, &made);
    if (code == CL_SUCCESS && kernels != NULL)
        count(KERNEL, (long)made);
    if (code == CL_SUCCESS && found != NULL)
        *found = made;
    return code;
}

COUNTED(clRetainContext, clReleaseContext, cl_context, CONTEXT)
COUNTED(clRetainCommandQueue, clReleaseCommandQueue, cl_command_queue, QUEUE)
cl_int clRetainMemObject(cl_mem object)
{
    cl_int code = REAL(clRetainMemObject)(object);
    count(MEM, code == CL_SUCCESS ? 1 : 0);
    return code;
}

cl_int clReleaseMemObject(cl_mem object)
{
    const size_t held = held_by(object);
    cl_int code = REAL(clReleaseMemObject)(object);
    count(MEM, code == CL_SUCCESS ? -1 : 0);
    give_memory(code == CL_SUCCESS ? held : 0);
    return code;
}

COUNTED(clRetainProgram, clReleaseProgram, cl_program, PROGRAM)
COUNTED(clRetainKernel, clReleaseKernel, cl_kernel, KERNEL)
COUNTED(clRetainEvent, clReleaseEvent, cl_event, EVENT)
