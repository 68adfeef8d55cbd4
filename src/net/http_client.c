/* How much of the server one client has: connections, and requests that have begun and are not
 * complete. A client that holds many of either gives way to the others, never the others to it.
 *
 * A client is counted by http_peer.client while it has a connection; carried connections are
 * counted by their carrier instead. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#include "base/hash.h"
#include "net/http_internal.h"

#define ACCOUNTS 65536 /* uids below are accounts; of those above one account may have many */

static bool is_loopback(const struct in6_addr *a)
{
        return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static bool is_account(uid_t uid)
{
        return uid < ACCOUNTS || uid == geteuid();
}

static void put_user(const char *where, uid_t uid, char *ret, size_t size)
{
        if (uid == (uid_t)-1)
                (void)snprintf(ret, size, "%s", where);
        else if (!is_account(uid))
                (void)snprintf(ret, size, "%s uids from %d", where, ACCOUNTS);
        else
                (void)snprintf(ret, size, "%s uid %u", where, (unsigned)uid);
}

/* A user of this machine has all of 127.0.0.0/8, and one with an IPv6 network its 2^64 addresses:
 * neither is more than one client. A user who may map uids (/etc/subuid) has many of those too. */
void http_client_name(const struct sockaddr *from, uid_t owner, char *ret, size_t size)
{
        char text[INET6_ADDRSTRLEN] = "";
        struct in6_addr a = { 0 };

        if (from->sa_family != AF_INET && from->sa_family != AF_INET6) {
                put_user("unix", owner, ret, size);
                return;
        }
        if (from->sa_family == AF_INET6) {
                memcpy(&a, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr,
                       sizeof(a));
        } else {
                a.s6_addr[10] = a.s6_addr[11] = 0xff;
                memcpy(&a.s6_addr[12], &((const struct sockaddr_in *)(const void *)from)->sin_addr,
                       4);
        }
        if (is_loopback(&a)) {
                put_user("local", owner, ret, size);
                return;
        }
        if (IN6_IS_ADDR_V4MAPPED(&a)) {
                (void)inet_ntop(AF_INET, &a.s6_addr[12], text, sizeof(text));
        } else {
                memset(&a.s6_addr[8], 0, 8);
                (void)inet_ntop(AF_INET6, &a, text, sizeof(text));
        }
        (void)snprintf(ret, size, "%s", text);
}

bool http_client_of_user(uid_t uid, char *ret, size_t size)
{
        put_user("local", uid, ret, size);
        return is_account(uid);
}

/* "192.0.2.1", "192.0.2.1:4711", "2001:db8::1" or "[2001:db8::1]:4711". */
static bool parse_hop(const char *text, size_t len, struct sockaddr_storage *ret)
{
        const char *colon = memchr(text, ':', len);
        char address[INET6_ADDRSTRLEN];

        if (len > 0 && *text == '[') {
                const char *end = memchr(text++, ']', len);

                len = end ? (size_t)(end - text) : 0;
        } else if (colon && !memchr(colon + 1, ':', (size_t)(text + len - colon - 1))) {
                len = (size_t)(colon - text);
        }
        if (len >= sizeof(address))
                return false;
        memcpy(address, text, len);
        address[len] = '\0';
        ret->ss_family = AF_INET;
        if (inet_pton(AF_INET, address, &((struct sockaddr_in *)ret)->sin_addr) == 1)
                return true;
        ret->ss_family = AF_INET6;
        return inet_pton(AF_INET6, address, &((struct sockaddr_in6 *)ret)->sin6_addr) == 1;
}

static bool last_hop(const char *header, struct sockaddr_storage *ret)
{
        const char *comma = strrchr(header, ',');
        const char *text = comma ? comma + 1 : header;

        text += strspn(text, " \t");
        size_t len = strcspn(text, " \t");
        return text[len + strspn(text + len, " \t")] == '\0' && parse_hop(text, len, ret);
}

void http_request_client(const struct http_exchange *x, const char *reverse_proxy, char *ret,
                         size_t size)
{
        const struct http_peer *peer = http_peer(x);
        const char *header = http_header(x, "x-forwarded-for");
        struct sockaddr_storage hop = { 0 };

        if (reverse_proxy && header &&
            (streq(peer->address, reverse_proxy) || streq(peer->client, reverse_proxy)) &&
            last_hop(header, &hop))
                http_client_name((const struct sockaddr *)&hop, (uid_t)-1, ret, size);
        else
                (void)snprintf(ret, size, "%s", peer->client);
}

void http_clients_init(struct http_server *s)
{
        for (size_t i = 0; i < CLIENT_BUCKETS; i++)
                link_init(&s->clients[i]);
}

static size_t bucket_of(const char *key)
{
        return (size_t)(hash_text(key) % CLIENT_BUCKETS);
}

static struct http_client *client_find(const struct http_server *s, const char *key)
{
        const struct http_link *bucket = &s->clients[bucket_of(key)];

        for (struct http_link *l = bucket->next; l != bucket; l = l->next) {
                struct http_client *client = container_of(l, struct http_client, link);

                if (streq(client->key, key))
                        return client;
        }
        return NULL;
}

void http_client_join(struct http_conn *c)
{
        struct http_server *s = c->server;
        struct http_client *client = client_find(s, c->peer.client);

        if (!client) {
                client = xcalloc(1, sizeof(*client));
                memcpy(client->key, c->peer.client, sizeof(client->key));
                link_append(&s->clients[bucket_of(client->key)], &client->link);
        }
        client->n_conns++;
        c->client = client;
}

void http_client_leave(struct http_conn *c)
{
        struct http_client *client = take_ptr(&c->client);

        if (!client || --client->n_conns > 0)
                return;
        link_remove(&client->link);
        free(client);
}

static bool is_unfinished(const struct http_conn *c)
{
        return c->deadline_kind == DEADLINE_HEAD || c->deadline_kind == DEADLINE_BODY;
}

unsigned http_client_connections(const struct http_server *s, const char *key)
{
        const struct http_client *client = client_find(s, key);

        return client ? client->n_conns : 0;
}

/* The oldest connection whose request is unfinished: of that client, or of any (NULL) with more
 * than so many connections. A connection that counts as idle and could not be closed for that has
 * sent bytes that were not read yet: it is the last to go. The lists are sorted by age. */
static struct http_conn *oldest_unfinished(struct http_server *s, const struct http_client *of,
                                           unsigned more_than)
{
        static const enum http_deadline kinds[] = { DEADLINE_HEAD, DEADLINE_BODY, DEADLINE_IDLE };

        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
                struct http_link *list = &s->deadlines[kinds[i]];

                for (struct http_link *l = list->next; l != list; l = l->next) {
                        struct http_conn *c = container_of(l, struct http_conn, deadline);

                        if (!c->broken && c->client && (!of || c->client == of) &&
                            c->client->n_conns > more_than)
                                return c;
                }
        }
        return NULL;
}

/* Called in the middle of work on a connection: connections that are given up are closed from the
 * loop. */
void http_client_began(struct http_conn *c)
{
        struct http_client *client = c->client;

        if (!client || !is_unfinished(c))
                return;
        client->n_unfinished++;
        if (client->n_unfinished <= c->server->config.max_unfinished)
                return;
        struct http_conn *oldest = oldest_unfinished(c->server, client, 0);
        if (oldest) {
                oldest->broken = true;
                http_conn_due(oldest);
        }
}

void http_client_ended(struct http_conn *c)
{
        if (c->client && is_unfinished(c))
                c->client->n_unfinished--;
}

bool http_client_shed_for(struct http_server *s, const char *key)
{
        struct http_conn *c = oldest_unfinished(s, NULL, http_client_connections(s, key) + 1);

        if (c)
                http_conn_close(c);
        return c;
}
