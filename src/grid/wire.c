#include "config.h"
#include "grid/wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000 };

static socklen_t length_of(const union wire_address *at) {
    return at->any.sa_family == AF_INET ? sizeof at->v4 : sizeof at->v6;
}

static union wire_address v4_address(struct in_addr address, int port) {
    union wire_address at;
    memset(&at, 0, sizeof at);
    at.v4 = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr = address, .sin_port = htons((uint16_t)port)};
    return at;
}

static union wire_address v6_address(struct in6_addr address, int port) {
    union wire_address at;
    memset(&at, 0, sizeof at);
    at.v6 = (struct sockaddr_in6){
        .sin6_family = AF_INET6, .sin6_addr = address, .sin6_port = htons((uint16_t)port)};
    return at;
}

/* Adds an address that other hosts can use, unless it is there. */
static void add(struct wire_place *p, const struct sockaddr *address) {
    union wire_address at, from;
    if (address->sa_family == AF_INET) {
        memcpy(&from, address, sizeof from.v4);
        if (ntohl(from.v4.sin_addr.s_addr) >> 24 == 127) return;
        at = v4_address(from.v4.sin_addr, p->port);
    } else if (address->sa_family == AF_INET6) {
        memcpy(&from, address, sizeof from.v6);
        const struct in6_addr *a = &from.v6.sin6_addr;
        if (IN6_IS_ADDR_LOOPBACK(a) || IN6_IS_ADDR_LINKLOCAL(a)) return;
        at = v6_address(*a, p->port);
    } else {
        return;
    }
    for (int i = 0; i < p->n; i++)
        if (memcmp(&p->at[i], &at, sizeof at) == 0) return;
    if (p->n < WIRE_MOST_ADDRESSES) p->at[p->n++] = at;
}

static void list_addresses(struct wire_place *p) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *named = NULL;
    struct ifaddrs *all = NULL;
    if (getaddrinfo(p->host, NULL, &hints, &named) == 0)
        for (struct addrinfo *a = named; a; a = a->ai_next) add(p, a->ai_addr);
    if (named) freeaddrinfo(named);
    if (getifaddrs(&all) == 0)
        for (struct ifaddrs *a = all; a; a = a->ifa_next)
            if (a->ifa_addr && a->ifa_flags & IFF_UP) add(p, a->ifa_addr);
    if (all) freeifaddrs(all);
}

int wire_listen(struct wire_place *p) {
    union wire_address any = v6_address(in6addr_any, 0);
    socklen_t n = sizeof any;
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    memset(p, 0, sizeof *p);
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off); /* IPv4 too */
    } else {
        any = v4_address((struct in_addr){INADDR_ANY}, 0);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0 || bind(fd, &any.any, length_of(&any)) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, &any.any, &n) != 0 ||
        getrandom(p->token, sizeof p->token, 0) != sizeof p->token) {
        if (fd >= 0) close(fd);
        return -1;
    }
    p->port = ntohs(any.any.sa_family == AF_INET ? any.v4.sin_port : any.v6.sin6_port);
    p->pid = (int)getpid();
    gethostname(p->host, sizeof p->host - 1);
    list_addresses(p);
    return fd;
}

static int wait_for(int fd, short events) {
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, PATIENCE_MS) == 1;
}

static void start(struct wire *w, int fd) {
    int on = 1;
    memset(w, 0, sizeof *w);
    w->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int connect_to(struct wire *w, union wire_address at, const struct wire_message *hello) {
    int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0, got = 0;
    socklen_t n = sizeof error;
    struct wire_message answer;
    if (fd < 0) return 0;
    start(w, fd);
    if ((connect(fd, &at.any, length_of(&at)) == 0 || errno == EINPROGRESS) &&
        wait_for(fd, POLLOUT) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 &&
        error == 0) {
        wire_send(w, hello);
        while (got == 0 && wait_for(fd, POLLIN)) got = wire_receive(w, &answer);
    }
    if (got == 1 && answer.kind == WIRE_WELCOME &&
        memcmp(answer.token, hello->token, sizeof answer.token) == 0)
        return 1;
    wire_close(w);
    return 0;
}

int wire_connect(struct wire *w, const struct wire_place *p, int same_host,
                 struct wire_message *hello) {
    struct in_addr loopback = {htonl(INADDR_LOOPBACK)};
    hello->kind = WIRE_HELLO;
    memcpy(hello->token, p->token, sizeof hello->token);
    if (same_host && (connect_to(w, v4_address(loopback, p->port), hello) ||
                      connect_to(w, v6_address(in6addr_loopback, p->port), hello)))
        return 1;
    for (int i = 0; i < p->n; i++)
        if (connect_to(w, p->at[i], hello)) return 1;
    return 0;
}

void wire_describe(char *text, size_t size, const struct wire_place *p) {
    size_t n = (size_t)snprintf(text, size, "%s: ", p->host);
    for (int i = 0; i < p->n && n < size; i++) {
        char name[INET6_ADDRSTRLEN] = "";
        const union wire_address *at = &p->at[i];
        if (at->any.sa_family == AF_INET)
            inet_ntop(AF_INET, &at->v4.sin_addr, name, sizeof name);
        else
            inet_ntop(AF_INET6, &at->v6.sin6_addr, name, sizeof name);
        n += (size_t)snprintf(text + n, size - n, "%s, ", name);
    }
    if (n < size) snprintf(text + n, size - n, "port %d", p->port);
}

int wire_accept(struct wire *w, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return 0;
    start(w, fd);
    return 1;
}

static void flush(struct wire *w) {
    if (w->out_left == 0) return;
    const char *rest = (const char *)(&w->out + 1) - w->out_left;
    ssize_t n = send(w->fd, rest, w->out_left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) w->out_left -= (size_t)n;
}

void wire_send(struct wire *w, const struct wire_message *m) {
    if (w->fd < 0) return;
    flush(w);
    if (w->out_left > 0) return;
    w->out = *m, w->out_left = sizeof *m;
    flush(w);
}

int wire_receive(struct wire *w, struct wire_message *m) {
    if (w->fd < 0) return 0;
    ssize_t n = recv(w->fd, (char *)&w->in + w->in_bytes, sizeof w->in - w->in_bytes, MSG_DONTWAIT);
    if (n == 0) return -1;
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    w->in_bytes += (size_t)n;
    if (w->in_bytes < sizeof w->in) return 0;
    *m = w->in, w->in_bytes = 0;
    return 1;
}

void wire_close(struct wire *w) {
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
}
