/* What the files of the HTTP server share; no other file includes it.
 *
 *     http_server.c    life cycle, accepting, deadlines, deferred work
 *     http_conn.c      one connection: bytes in, requests, bytes out, closing
 *     http_exchange.c  one request: what the handler reads of it
 *     http_answer.c    one answer: heads, bodies, streams
 *     http_listen.c    making listening sockets
 *     http_client.c    how much of the server one client has
 *
 * Ownership: the server owns its connections; a connection owns its exchange until the answer is
 * complete. When the client goes first, the connection lets go of the exchange (x->conn = NULL) and
 * the handler's finishing call frees it.
 *
 * No call of a handler into the server ever calls back into a handler: calls from outside only
 * queue bytes and put the connection on the `due` list, which an idle handle of the loop works off
 * before the loop waits again. Calls from inside one of the server's own callbacks (conn->running)
 * leave that to the callback. */
#pragma once

#include "codec/http1.h"
#include "net/http_server.h"

#define READ_SIZE           65536 /* of the one read buffer that all connections share */
#define PIPELINE_PENDING    65536 /* unsent bytes past which no further request is started */
#define SMALL_BODY          65536 /* bodies up to here are always taken */
#define COPY_BODY_MAX       16384 /* smaller bodies are copied behind their head, to leave as one */
#define LINGER_MS           5000  /* how long a closing connection waits for the client's end */
#define PROBE_MS            1000  /* see http_deadline */
#define ACCEPT_RETRY_MS     100   /* after a failure to accept that is not the client's */
#define SURPLUS_MAX         64    /* connections past the limit that are still told so */
#define CARRIER_SURPLUS_MAX 16    /* the same of one carrier, or of one client */
#define UNIX_PLACES         64    /* connections past all that, for the Unix socket only */
#define CLIENT_BUCKETS      256
#define ACCEPT_RESERVE      8 /* descriptors that are kept for accepting */
#define FEW_CONNECTIONS     8 /* up to here a client may ask for the reserved path */

/* A member of a circular list whose head is a link of its own. */
struct http_link {
        struct http_link *prev, *next;
};

static inline void link_init(struct http_link *l)
{
        l->prev = l->next = l;
}

static inline bool link_is_empty(const struct http_link *l)
{
        return l->next == l;
}

static inline void link_remove(struct http_link *l)
{
        l->prev->next = l->next;
        l->next->prev = l->prev;
        link_init(l);
}

static inline void link_append(struct http_link *list, struct http_link *l)
{
        l->prev = list->prev;
        l->next = list;
        list->prev->next = l;
        list->prev = l;
}

/* What a connection waits for, with a time limit. Each kind has one fixed limit, so its list stays
 * sorted by appending and one timer, set to the earliest head, serves all. */
enum http_deadline {
        DEADLINE_HEAD,
        DEADLINE_BODY,
        DEADLINE_IDLE,
        DEADLINE_CARRIED_IDLE, /* the same of carried connections: theirs is another list */
        DEADLINE_WRITE,
        DEADLINE_LINGER,
        /* A TCP client that closed its side may be gone or may only have finished sending; the
         * kernel cannot tell until we send. When an answer takes longer than this, an unneeded
         * "100 Continue" finds out, so that the work of a client that left is cancelled. */
        DEADLINE_PROBE,
        N_DEADLINES,
        DEADLINE_NONE = N_DEADLINES,
};

/* HEAD -> BODY -> ANSWER -> HEAD ...; any -> CLOSING -> LINGER -> CLOSED; any -> CLOSED. */
enum conn_phase {
        CONN_HEAD,    /* idle, or reading a head */
        CONN_BODY,    /* reading a body */
        CONN_ANSWER,  /* the request is complete, the answer is not */
        CONN_CLOSING, /* sending the last answer; input is dropped */
        CONN_LINGER,  /* our side is shut; waiting for the client's, so that no reset kills the
                         answer on its way */
        CONN_CLOSED,  /* the memory goes when the loop is done with the handle */
};

struct http_listener {
        uv_poll_t poll;
        struct http_server *server;
        struct http_listener *next;
        int fd;
        bool is_unix;
};

/* One client, as long as it has connections. */
struct http_client {
        struct http_link link; /* in its bucket */
        char key[sizeof(((struct http_peer *)0)->client)];
        unsigned n_conns, n_unfinished;
};

struct http_conn {
        struct byte_stream *stream;
        struct socket_stream socket; /* where that is ours; see http_conn_open() */
        struct http_server *server;
        struct http_link all;      /* in server->conns */
        struct http_link kin;      /* in server->carried, or alone */
        struct http_link due;      /* in server->due, or alone */
        struct http_link deadline; /* in server->deadlines[deadline_kind], or alone */
        uint64_t deadline_at;      /* uv_now() */
        enum http_deadline deadline_kind;
        enum conn_phase phase;
        bool running;  /* inside one of our callbacks; it will do what is due */
        bool eof;      /* the client has ended its side */
        bool broken;   /* a write failed or the output grew past its bound */
        bool progress; /* bytes went in or out since the deadline was set */
        bool probed;
        bool sent_since_drained;
        bool reserved_only;         /* may ask for config.reserved_path, once, and nothing else */
        struct http_client *client; /* NULL: carried */
        struct http_exchange *x;
        struct buf in; /* bytes received and not yet taken; holds no memory when empty */
        size_t head_seen;
        struct buf out; /* bytes to send from out_sent on; holds no memory when idle */
        size_t out_sent;
        struct buf tail; /* a large body that follows `out`, not copied */
        size_t tail_sent;
        struct http_peer peer;
};

struct http_exchange {
        struct http_conn *conn; /* NULL once the client is gone */
        struct http_peer peer;
        void *data;
        void (*on_drained)(struct http_exchange *x);
        void (*on_bytes)(struct http_exchange *x, const char *data, size_t len); /* upgraded */

        const char *method, *path, *query;
        size_t n_fields;
        struct http_field *fields; /* one per name */
        struct buf body;
        size_t body_counted; /* of it, in the server's sum; see body_bytes() */

        enum http1_framing framing;
        uint64_t body_left;           /* HTTP1_BODY_LENGTH */
        struct http1_chunked chunked; /* HTTP1_BODY_CHUNKED */
        bool body_done;
        bool body_paused;
        bool body_streamed;

        bool is_head;      /* the method HEAD: no body in the answer */
        bool is_old;       /* HTTP/1.0: no chunks */
        bool is_absolute;  /* the target was a whole URL */
        bool keep_alive;   /* as the client wants it */
        bool handed_out;   /* the handler knows it and will finish it */
        bool answering;    /* http_stream_begin() was called */
        bool drop_content; /* this answer has no body */
};

struct http_server {
        struct http_server_config config;
        struct http_listener *listeners;
        struct http_link conns;
        struct http_link carried; /* those of them that something else carries */
        struct http_link due;
        struct http_link deadlines[N_DEADLINES];
        unsigned limits_ms[N_DEADLINES];
        unsigned n_conns, n_carried;
        unsigned n_handles; /* until their close callbacks */
        size_t bodies;      /* bytes of large bodies in memory */
        size_t answers;     /* bytes of large answers in memory */
        bool draining;
        bool closing;
        struct http_link clients[CLIENT_BUCKETS];
        int netlink_fd; /* for net/sock_owner.h; -1: none */
        /* Given up to accept a client when descriptors run out: to let the operator in, to tell of
         * the health, or to drop it. */
        int reserve[ACCEPT_RESERVE];
        unsigned n_reserve;
        bool is_short; /* and it was logged */
        uv_timer_t timer;
        uint64_t timer_at; /* when the timer is active */
        uv_timer_t accept_retry;
        uv_idle_t due_idle;
        void (*on_closed)(void *);
        void *on_closed_arg;
        time_t date_second;
        char date[40];       /* "Date: ...\r\n" for date_second */
        char keep_alive[80]; /* the header lines of a connection that stays */
        char scratch[READ_SIZE];
};

/* Something else than a socket of ours carries it; see http_server_serve(). */
static inline bool http_conn_is_carried(const struct http_conn *c)
{
        return c->peer.via;
}

/* http_server.c */
/* When the answers in memory are too much, give up the clients that have not read for longest. */
void http_server_shed_answers(struct http_server *s, const struct http_conn *except);
void http_conn_due(struct http_conn *c);
void http_deadline_set(struct http_conn *c, enum http_deadline kind);
void http_deadline_clear(struct http_conn *c);
void http_server_forget(struct http_conn *c);
void http_server_handle_closed(struct http_server *s);

/* http_client.c */
/* What http_peer.client says of an address; of a Unix socket only the family is read. */
void http_client_name(const struct sockaddr *from, uid_t owner, char *ret, size_t size);
void http_clients_init(struct http_server *s);
/* Count a connection to its client, and no more. */
void http_client_join(struct http_conn *c);
void http_client_leave(struct http_conn *c);
/* Whether a connection's request is under way and not complete, from its deadline. */
void http_client_began(struct http_conn *c);
void http_client_ended(struct http_conn *c);
unsigned http_client_connections(const struct http_server *s, const char *key);
/* Make room for a client: give up the oldest unfinished request of one that has more connections.
 * False: there is none. */
bool http_client_shed_for(struct http_server *s, const char *key);

/* http_conn.c */
enum http_admission {
        HTTP_ADMIT,
        HTTP_ADMIT_RESERVED, /* for the reserved path only */
        HTTP_ADMIT_REFUSED,  /* to be told that it is one too many */
        HTTP_ADMIT_DROPPED,
};
/* Over a socket, or over a stream that something else carries. */
void http_conn_open(struct http_server *s, int take_fd, const struct http_peer *peer,
                    enum http_admission admission);
void http_conn_open_stream(struct http_server *s, struct byte_stream *take_stream,
                           const struct http_peer *peer, enum http_admission admission);
void http_conn_advance(struct http_conn *c);
void http_conn_expired(struct http_conn *c, enum http_deadline kind);
void http_conn_close(struct http_conn *c);

static inline size_t http_conn_pending(const struct http_conn *c)
{
        return c->out.len - c->out_sent + c->tail.len - c->tail_sent;
}

/* http_exchange.c */
struct http_exchange *http_exchange_new(struct http_conn *c, const struct http1_request *req,
                                        const char *head);
void http_exchange_free(struct http_exchange *x);
/* http_conn.c: its body no longer counts. Before the exchange leaves its connection. */
void http_exchange_uncount(struct http_server *s, struct http_exchange *x);

/* http_answer.c */
void http_answer_continue(struct http_conn *c);
void http_answer_refusal(struct http_conn *c, int status, const char *text, bool is_head);
