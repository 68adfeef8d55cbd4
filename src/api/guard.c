/* Which Host and Origin headers a request may come with. */
#include "api/guard.h"

#include <strings.h>

/* The host without port and brackets; nothing when it is longer than a host can be, because a part
 * of it could be a name that is allowed. */
static void bare_host(const char *host, char *out, size_t size)
{
        size_t n;

        if (*host == '[') {
                host++;
                n = strcspn(host, "]");
        } else {
                n = strcspn(host, ":");
        }
        if (n >= size)
                n = 0;
        memcpy(out, host, n);
        out[n] = '\0';
}

static bool is_loopback(const char *host)
{
        size_t n = strlen(host);

        return strcasecmp(host, "localhost") == 0 || streq(host, "::1") ||
               (n > 10 && strcasecmp(host + n - 10, ".localhost") == 0) ||
               (str_starts(host, "127.") && strspn(host, "0123456789.") == n);
}

static bool is_listed(const char *list, const char *host)
{
        size_t len = strlen(host);

        while (list && *list) {
                size_t n;

                list += strspn(list, ", ");
                n = strcspn(list, ", ");
                if (n == len && strncasecmp(list, host, n) == 0)
                        return true;
                list += n;
        }
        return false;
}

static bool is_host_of_url(const char *url, const char *host)
{
        const char *at = url ? strstr(url, "://") : NULL;
        char own[256];

        if (!at)
                return false;
        bare_host(at + 3, own, sizeof(own));
        own[strcspn(own, "/")] = '\0';
        return strcasecmp(own, host) == 0;
}

bool guard_host_allowed(const struct settings *s, const char *header)
{
        char host[256];

        if (s->exposure == EXPOSURE_PUBLIC)
                return true;
        bare_host(header, host, sizeof(host));
        if (!*host)
                return false;
        return is_loopback(host) || (s->listen_host && strcasecmp(host, s->listen_host) == 0) ||
               is_listed(s->allowed_hostnames, host) || is_host_of_url(s->public_url, host);
}

bool guard_origin_allowed(const struct settings *s, const char *origin, const char *host)
{
        size_t n = s->public_url ? strlen(s->public_url) : 0;

        while (n > 0 && s->public_url[n - 1] == '/')
                n--;
        if (n > 0 && strlen(origin) == n && strncasecmp(origin, s->public_url, n) == 0)
                return true;
        if (strncasecmp(origin, "http://", 7) == 0)
                return strcasecmp(origin + 7, host) == 0;
        if (strncasecmp(origin, "https://", 8) == 0)
                return strcasecmp(origin + 8, host) == 0;
        return false;
}

static bool is_unsafe(const char *method)
{
        return !streq(method, "GET") && !streq(method, "HEAD") && !streq(method, "OPTIONS");
}

int guard_request(struct call *c, const struct http_peer *peer, const char *method, struct err *err)
{
        const struct settings *s = &c->rt->settings;
        const char *host = http_header(c->x, "host");
        const char *forwarded = http_header(c->x, "x-forwarded-host");
        const char *origin = http_header(c->x, "origin");

        if (peer->is_unix)
                return 0; /* no browser speaks to a Unix socket */
        if (!host || !*host)
                return err_set(
                        err, ERR_FORBIDDEN,
                        "Missing Host header. Send the name under which this instance is known.");
        /* A page that reached us under a foreign name can invent X-Forwarded-Host, so it never
         * replaces Host: both have to be allowed. */
        if (!guard_host_allowed(s, host))
                forwarded = host;
        if (forwarded && !guard_host_allowed(s, forwarded)) {
                char name[256];

                bare_host(forwarded, name, sizeof(name));
                return err_set(
                        err, ERR_FORBIDDEN,
                        "Hostname '%s' is not allowed for this Paperclip instance. If you want "
                        "to allow it, add it to BERTH_ALLOWED_HOSTNAMES (allowed_hostnames in "
                        "berth.toml) and restart the daemon.",
                        name);
        }
        if (is_unsafe(method) && origin && !guard_origin_allowed(s, origin, host))
                return err_set(err, ERR_FORBIDDEN,
                               "Board mutation requires trusted browser origin");
        return 0;
}
