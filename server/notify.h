/* What the service manager is told, and the sockets it passes: systemd's protocols, nothing where
 * it is not there. A manager that does not read its socket is not waited for (half a second for
 * what is said once): it hears nothing until it does. Loop thread. */
#ifndef OINFER_SERVER_NOTIFY_H
#define OINFER_SERVER_NOTIFY_H

#include <stdint.h>

/* Time within which the manager wants a sign of life; 0: it does not watch. */
uint64_t notify_watchdog_ns(void);
void notify_loading(uint64_t bytes_done, uint64_t bytes_total, uint32_t kernels_built);
void notify_ready(const char *status);
void notify_alive(void);
void notify_status(const char *status); /* one line for people */
/* To be followed by notify_ready. */
void notify_reloading(void);
/* It takes at most limit_ms until running requests are done, and a little for closing. */
void notify_stopping(const char *status, uint64_t limit_ms);
/* Number of listening sockets that the manager has passed, or -errno; *first is the first one's
 * descriptor. Once, before any thread is started: what says so is taken out of the environment. */
int notify_listen_fds(int *first);

#endif
