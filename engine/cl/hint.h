/* Why there is no OpenCL device: what was searched, what was found, what to do. */
#ifndef OINFER_CL_HINT_H
#define OINFER_CL_HINT_H

#include <stddef.h>
#include <stdint.h>

#define HINT_TEXT_BYTES 1024

#define HINT_NODES "/dev"

/* code: what clGetPlatformIDs returned; then how many platforms and devices there were. Looks at
 * the ICD directory and at the device nodes of GPUs below `nodes` (HINT_NODES but in tests).
 * Thread: any, but reads the environment. */
void hint_write(int code, uint32_t n_platforms, uint32_t n_devices, const char *nodes, char *out,
                size_t size);

#endif
