/* The listening socket: its own step, so that "port taken" is one clear sentence before any model
 * is loaded. Any thread. */
#ifndef OINFER_SERVER_LISTEN_H
#define OINFER_SERVER_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

struct listen_address {
    char text[112]; /* numeric address, or the path of a socket in the file system */
    uint16_t port;  /* the one in use, also when 0 was asked for */
    bool is_loopback;
};

/* Resolves host and listens on port (0: any free one). *fd is non-blocking and close-on-exec.
 * ST_INVALID: unknown host; ST_BUSY: the port is taken; ST_IO: anything else. */
enum status listen_open(const char *host, uint16_t port, int *fd, struct listen_address *address,
                        struct err *e);

/* What listen_open would say of the address, without a socket. ST_INVALID: unknown host. */
enum status listen_resolve(const char *host, uint16_t port, struct listen_address *address,
                           struct err *e);
/* Makes a socket that another program has opened ready for use: it must be a listening stream
 * socket, else ST_INVALID. The descriptor stays the caller's when it fails. */
enum status listen_adopt(int fd, struct listen_address *address, struct err *e);

#endif
