/* Calls of libsystemd. Built without it, all of them do nothing. */
#include "server/notify.h"

#include <inttypes.h>
#include <time.h>

#ifdef OINFER_HAVE_SYSTEMD
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "engine/base/log.h"
#endif

#define EXTEND_US     120000000 /* loading may go on for so long after each sign of progress */
#define STOP_MARGIN_S 10        /* for closing, after the requests that may still run */
#define PATIENCE_MS   500       /* for messages that come once */

#ifdef OINFER_HAVE_SYSTEMD

/* A socket of our own to the manager's, only to ask whether it has room: libsystemd's calls wait
 * for it, and a manager that has stopped must not stop us. -1: not tried yet; -2: none can be had.
 */
static int asking = -1;

static int open_asking(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path != NULL ? strlen(path) : 0;
    if (n < 2 || n > sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return -2;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -2;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (connect(fd, (const struct sockaddr *)&address, length) == 0)
        return fd;
    close(fd);
    return -2;
}

/* Whether the manager takes a message within wait_ms. Of those that it does not take, the first of
 * a row is logged. */
static bool takes_message(int wait_ms)
{
    static bool silent;
    if (asking == -1)
        asking = open_asking();
    struct pollfd room = {.fd = asking, .events = POLLOUT};
    bool full = asking >= 0 && poll(&room, 1, wait_ms) == 0;
    if (full && !silent)
        log_warn("the service manager does not read its socket: it is told nothing until it does");
    silent = full;
    return !full;
}

uint64_t notify_watchdog_ns(void)
{
    uint64_t us = 0;
    return sd_watchdog_enabled(0, &us) > 0 ? us * 1000 : 0;
}

void notify_loading(uint64_t bytes_done, uint64_t bytes_total, uint32_t kernels_built)
{
    if (takes_message(0))
        sd_notifyf(0,
                   "STATUS=loading: %" PRIu64 " of %" PRIu64 " MiB, %" PRIu32
                   " kernels built\nEXTEND_TIMEOUT_USEC=%d\nWATCHDOG=1",
                   bytes_done >> 20, bytes_total >> 20, kernels_built, EXTEND_US);
}

void notify_ready(const char *status)
{
    if (takes_message(PATIENCE_MS))
        sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_alive(void)
{
    if (takes_message(0))
        sd_notify(0, "WATCHDOG=1");
}

void notify_status(const char *status)
{
    if (takes_message(0))
        sd_notifyf(0, "STATUS=%s", status);
}

void notify_reloading(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (takes_message(PATIENCE_MS))
        sd_notifyf(0, "RELOADING=1\nSTATUS=reloading\nMONOTONIC_USEC=%" PRIu64,
                   (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
}

void notify_stopping(const char *status, uint64_t limit_ms)
{
    if (takes_message(PATIENCE_MS))
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
