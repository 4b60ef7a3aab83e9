/* What the service manager is told: systemd's notification protocol, nothing where it is not there.
 * Loop thread. */
#ifndef OINFER_SERVER_NOTIFY_H
#define OINFER_SERVER_NOTIFY_H

#include <stdint.h>

/* Time within which the manager wants a sign of life; 0: it does not watch. */
uint64_t notify_watchdog_ns(void);
void notify_loading(uint64_t bytes_done, uint64_t bytes_total, uint32_t kernels_built);
void notify_ready(const char *status);
void notify_alive(void);
void notify_stopping(const char *status);

#endif
