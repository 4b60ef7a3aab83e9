/* server/openapi.yaml as bytes, put there by the build. Static lifetime; any thread. */
#ifndef OINFER_SERVER_OPENAPI_H
#define OINFER_SERVER_OPENAPI_H

#include <stddef.h>

extern const char openapi_yaml[];
extern const size_t openapi_yaml_length;

#endif
