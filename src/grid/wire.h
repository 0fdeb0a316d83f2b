/* Messages of one size over TCP between rank 0 and the others, for the watchdog. Only grid/
 * includes this. */
#ifndef REGULON_GRID_WIRE_H
#define REGULON_GRID_WIRE_H
#include "grid/judge.h"
#include <netinet/in.h>

enum wire_kind {
    WIRE_HELLO,   /* from a rank to rank 0, first: rank, pid, host */
    WIRE_WELCOME, /* the answer */
    WIRE_BEAT,    /* both ways, a second: mark; code: leaves with it, -1: works */
    WIRE_DYING,   /* to rank 0: die(), with code; or abort(), with cause HAS_ABORTED */
    WIRE_BYE,     /* both ways: the watch ends */
    WIRE_VERDICT, /* from rank 0: end with code; cause, and rank, pid, host of whom it names */
};

struct wire_message {
    uint64_t token[2]; /* of the run, in HELLO and WELCOME: strangers do not know it */
    int32_t kind, rank, pid, code, cause;
    char host[64];
    struct mark mark;
};

/* One end of a connection. */
struct wire {
    int fd; /* -1: none */
    struct wire_message in, out;
    size_t in_bytes, out_left;
};

/* Where rank 0 can be found; all ranks get it by MPI_Bcast. */
enum { WIRE_MOST_ADDRESSES = 16 };
union wire_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};
struct wire_place {
    uint64_t token[2];
    char host[64];
    int pid, port, n;
    union wire_address at[WIRE_MOST_ADDRESSES]; /* [n] those of the host's name first */
};

/* Listens on every interface, on a port of the system's choice, and says where. Returns the socket,
 * -1: no network (errno). */
int wire_listen(struct wire_place *p);

/* Connects to the place, on the same host over the loopback, else at each address in turn, five
 * seconds each; says hello and waits for the welcome. 0: in vain. */
int wire_connect(struct wire *w, const struct wire_place *p, int same_host,
                 struct wire_message *hello);

/* "node1: 10.0.0.1, fd00::2, port 4711" */
void wire_describe(char *text, size_t size, const struct wire_place *p);

/* The rest never waits. wire_accept: 0: nobody is there. wire_send: a message is dropped while an
 * earlier one is stuck. wire_receive: 1: a message, 0: none yet, -1: the connection has ended. */
int wire_accept(struct wire *w, int listener);
void wire_send(struct wire *w, const struct wire_message *m);
int wire_receive(struct wire *w, struct wire_message *m);
void wire_close(struct wire *w);
#endif
