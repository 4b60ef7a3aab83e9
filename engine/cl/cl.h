/* The OpenCL API as this folder uses it: the header, error names, and one way to report a failure.
 *
 * Only engine/cl includes this file; no CL type leaves the folder. Stateless, except that cl_check
 * marks its device lost when the code says so.
 */
#ifndef OINFER_CL_CL_H
#define OINFER_CL_CL_H

#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue: drivers of 1.2 have no other */
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"

struct device;

/* "CL_OUT_OF_RESOURCES", ...; "unknown OpenCL error" for a code no specification names. */
const char *cl_error_name(cl_int code);
/* What a code means to our callers (the table errors.def); CL_SUCCESS: ST_OK. */
enum status cl_status(cl_int code);

/* CL_SUCCESS: ST_OK. Otherwise fills *e with "DEVICE: CALL (THING): NAME (code)", marks the device
 * lost where the code means that, and returns the status. thing may be "". */
enum status cl_check(struct device *d, cl_int code, const char *call, const char *thing,
                     struct err *e);

/* A device's or platform's string property, cut to size - 1 bytes, without blanks around it; ""
 * when the driver does not have it. */
void cl_device_text(cl_device_id id, cl_device_info what, char *out, size_t size);
void cl_platform_text(cl_platform_id id, cl_platform_info what, char *out, size_t size);
/* Size and time of the file that the platform's driver was loaded from, so that a driver replaced
 * without a new version number is noticed; "" when the platform does not say where that is. */
void cl_driver_stamp(cl_platform_id id, char *out, size_t size);
/* A numeric property of up to 8 bytes; `otherwise` when the driver does not have it. */
cl_ulong cl_device_number(cl_device_id id, cl_device_info what, cl_ulong otherwise);

#endif
