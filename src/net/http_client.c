/* How much of the server one client has: connections, and requests that have begun and are not
 * complete. Who holds many of either gives way to the others, never they to him.
 *
 * A client is counted by http_peer.client while it has a connection; carried connections are
 * counted by their carrier instead. */
#include "net/http_internal.h"

void http_clients_init(struct http_server *s)
{
        for (size_t i = 0; i < CLIENT_BUCKETS; i++)
                link_init(&s->clients[i]);
}

/* FNV-1a */
static size_t bucket_of(const char *key)
{
        uint32_t hash = 2166136261U;

        for (; *key; key++)
                hash = (hash ^ (unsigned char)*key) * 16777619U;
        return hash % CLIENT_BUCKETS;
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
 * than so many connections. What counts as idle and could not be closed for that has sent something
 * that was not read yet: the last to go. The lists are sorted by age. */
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

/* Called in the middle of work on a connection: what is given up is closed from the loop. */
void http_client_began(struct http_conn *c)
{
        struct http_client *client = c->client;
        struct http_conn *oldest;

        if (!client || !is_unfinished(c))
                return;
        client->n_unfinished++;
        if (client->n_unfinished <= c->server->config.max_unfinished)
                return;
        oldest = oldest_unfinished(c->server, client, 0);
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
