/* What the daemon says about itself: the GET routes. Nothing here waits for an engine: workers are
 * asked for what they last told. Loop thread. */
#ifndef OINFER_SERVER_INFO_H
#define OINFER_SERVER_INFO_H

#include "server/http.h"

struct service;

void info_health(struct service *s, struct exchange *x);
void info_metrics(struct service *s, struct exchange *x);
void info_props(struct service *s, struct exchange *x);
void info_slots(struct service *s, struct exchange *x);
void info_models(struct service *s, struct exchange *x);
void info_devices(struct service *s, struct exchange *x);
void info_ops(struct service *s, struct exchange *x);
void info_openapi(struct service *s, struct exchange *x);

#endif
