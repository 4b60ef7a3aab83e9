/* Calls of libsystemd. Built without it, all of them do nothing. */
#include "server/notify.h"

#include <inttypes.h>
#include <time.h>

#ifdef OINFER_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#define EXTEND_US     120000000 /* loading may go on for so long after each sign of progress */
#define STOP_MARGIN_S 10        /* for closing, after the requests that may still run */

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

void notify_status(const char *status)
{
    sd_notifyf(0, "STATUS=%s", status);
}

void notify_reloading(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    sd_notifyf(0, "RELOADING=1\nSTATUS=reloading\nMONOTONIC_USEC=%" PRIu64,
               (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
}

void notify_stopping(const char *status, uint64_t limit_ms)
{
    sd_notifyf(0, "STOPPING=1\nSTATUS=%s\nEXTEND_TIMEOUT_USEC=%" PRIu64, status,
               limit_ms * 1000u + STOP_MARGIN_S * UINT64_C(1000000));
}

int notify_listen_fds(int *first)
{
    *first = SD_LISTEN_FDS_START;
    return sd_listen_fds(1);
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

void notify_status(const char *status)
{
    (void)status;
}

void notify_reloading(void)
{
}

void notify_stopping(const char *status, uint64_t limit_ms)
{
    (void)status;
    (void)limit_ms;
}

int notify_listen_fds(int *first)
{
    *first = -1;
    return 0;
}

#endif
