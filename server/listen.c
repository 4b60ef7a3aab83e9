/* Listening sockets. No state. */
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

static void describe(const struct sockaddr_storage *address, struct listen_address *out)
{
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, out->text, sizeof out->text);
        out->port = ntohs(in6->sin6_port);
        out->is_loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
    } else if (address->ss_family == AF_UNIX) {
        const struct sockaddr_un *un = (const struct sockaddr_un *)address;
        snprintf(out->text, sizeof out->text, "%s", un->sun_path);
        out->port = 0;
        out->is_loopback = true;
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, out->text, sizeof out->text);
        out->port = ntohs(in->sin_port);
        out->is_loopback = (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    }
}

/* Socket, bind, listen; -1 with errno set. */
static int listen_on(const struct addrinfo *address)
{
    int on = 1;
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static enum status resolve(const char *host, uint16_t port, struct addrinfo **out, struct err *e)
{
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int status = getaddrinfo(host, service, &hints, out);
    if (status != 0)
        return err_set(e, ST_INVALID, "host \"%s\": %s", host, gai_strerror(status));
    return ST_OK;
}

/* Reads a socket's own address. */
static enum status describe_socket(int fd, struct listen_address *address, struct err *e)
{
    struct sockaddr_storage own = {0};
    socklen_t length = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &length) != 0)
        return err_set(e, ST_IO, "cannot read the address of the socket: %s", strerror(errno));
    describe(&own, address);
    return ST_OK;
}

enum status listen_open(const char *host, uint16_t port, int *fd, struct listen_address *address,
                        struct err *e)
{
    struct addrinfo *found = NULL;
    enum status status = resolve(host, port, &found, e);
    if (status != ST_OK)
        return status;
    *fd = listen_on(found);
    int error = errno;
    freeaddrinfo(found);
    if (*fd < 0 && error == EADDRINUSE)
        return err_set(e, ST_BUSY,
                       "port %u on %s is taken by another program; choose another with --port",
                       port, host);
    if (*fd < 0)
        return err_set(e, ST_IO, "cannot listen on %s port %u: %s", host, port, strerror(error));
    status = describe_socket(*fd, address, e);
    if (status != ST_OK)
        close(*fd);
    return status;
}

enum status listen_resolve(const char *host, uint16_t port, struct listen_address *address,
                           struct err *e)
{
    struct addrinfo *found = NULL;
    struct sockaddr_storage first = {0};
    enum status status = resolve(host, port, &found, e);
    if (status != ST_OK)
        return status;
    memcpy(&first, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    describe(&first, address);
    return ST_OK;
}

enum status listen_adopt(int fd, struct listen_address *address, struct err *e)
{
    int type = 0, listening = 0;
    socklen_t length = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0)
        return err_set(e, ST_INVALID, "descriptor %d was passed to listen on: %s", fd,
                       strerror(errno));
    length = sizeof listening;
    if (type != SOCK_STREAM ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || !listening)
        return err_set(e, ST_INVALID,
                       "descriptor %d was passed to listen on, but is no listening stream socket",
                       fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return err_set(e, ST_IO, "descriptor %d cannot be set up: %s", fd, strerror(errno));
    return describe_socket(fd, address, e);
}
