/* Calls of sd_notify. Built without libsystemd, all of them do nothing. */
#include "server/notify.h"

#include <inttypes.h>

#ifdef OINFER_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#define EXTEND_US 30000000 /* loading may go on for so long after each sign of progress */

#ifdef OINFER_HAVE_SYSTEMD

uint64_t notify_watchdog_ns(void)
{
    uint64_t us = 0;
    return sd_watchdog_enabled(0, &us) > 0 ? us * 1000 : 0;
}

void notify_loading(uint64_t bytes_done, uint64_t bytes_total, uint32_t kernels_built)
{
    sd_notifyf(0,
               "STATUS=loading: %" PRIu64 " of %" PRIu64 " MiB, %" PRIu32
               " kernels built\nEXTEND_TIMEOUT_USEC=%d\nWATCHDOG=1",
               bytes_done >> 20, bytes_total >> 20, kernels_built, EXTEND_US);
}

void notify_ready(const char *status)
{
    sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_alive(void)
{
    sd_notify(0, "WATCHDOG=1");
}

void notify_stopping(const char *status)
{
    sd_notifyf(0, "STOPPING=1\nSTATUS=%s", status);
}

#else

uint64_t notify_watchdog_ns(void)
{
    return 0;
}

void notify_loading(uint64_t bytes_done, uint64_t bytes_total, uint32_t kernels_built)
{
    (void)bytes_done;
    (void)bytes_total;
    (void)kernels_built;
}

void notify_ready(const char *status)
{
    (void)status;
}

void notify_alive(void)
{
}

void notify_stopping(const char *status)
{
    (void)status;
}

#endif
