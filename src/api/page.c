/* The web page: files that are part of the binary (web/, scripts/web).
 *
 * `/assets/NAME` is an embedded file. Its name contains a hash of its contents, so it never changes
 * and may be kept for ever; it is there compressed only, since only browsers ask for it. Every
 * other path that no route knows and that is not the API's is the page itself, which finds out from
 * its address what to show.
 *
 * The page gets no rights from where it comes: it calls the API like every other client. Its policy
 * lets it load and call nothing but this daemon, and no page may put it into a frame. */
#include <strings.h>

#include "api/api.h"
#include "api/page.h"
#include "base/embedded.h"

#define ASSETS "/assets/"
#define INDEX  "index.html"

#define POLICY                                                                                     \
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "            \
        "img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; "             \
        "frame-ancestors 'none'"

static const struct embedded_file *find(const char *name)
{
        for (const struct embedded_file *f = page_files; f->name; f++)
                if (streq(f->name, name))
                        return f;
        return NULL;
}

static const char *type_of(const char *name)
{
        const char *end = strrchr(name, '.');

        if (end && streq(end, ".js"))
                return "text/javascript; charset=utf-8";
        if (end && streq(end, ".css"))
                return "text/css; charset=utf-8";
        return "text/html; charset=utf-8";
}

/* No header means that everything is welcome (RFC 9110, 12.5.3). */
static bool takes_gzip(struct call *c)
{
        const char *accepted = http_header(c->x, "accept-encoding");

        return !accepted || strstr(accepted, "gzip") || strchr(accepted, '*');
}

static int get_asset(struct call *c, const char *name, struct err *err)
{
        const struct embedded_file *f = find(name);

        if (!f || streq(name, INDEX))
                return err_set(err, ERR_NOT_FOUND, "Not found");
        c->content_type = type_of(name);
        if (!takes_gzip(c)) {
                c->status = 406;
                c->content_type = "text/plain; charset=utf-8";
                buf_puts(&c->out, "This file is there compressed only; accept gzip.\n");
                return 0;
        }
        call_field(c, "Content-Encoding", "gzip");
        call_field(c, "Cache-Control", "public, max-age=31536000, immutable");
        buf_append(&c->out, f->data, f->len);
        call_etag(c);
        return 0;
}

static void get_index(struct call *c, const struct embedded_file *f)
{
        c->content_type = type_of(INDEX);
        call_field(c, "Content-Security-Policy", POLICY);
        call_field(c, "Referrer-Policy", "no-referrer");
        call_field(c, "Cross-Origin-Opener-Policy", "same-origin");
        /* It names the files of this version: after an upgrade the old ones are gone. */
        call_field(c, "Cache-Control", "no-cache");
        buf_append(&c->out, f->data, f->len);
        call_etag(c);
}

static int get_page(struct call *c, struct err *err)
{
        const char *path = http_path(c->x);
        const struct embedded_file *index = find(INDEX);

        if (str_starts(path, ASSETS))
                return get_asset(c, path + strlen(ASSETS), err);
        if (index) {
                get_index(c, index);
        } else if (streq(path, "/")) {
                c->content_type = "text/plain; charset=utf-8";
                buf_puts(&c->out,
                         "Berth " BERTH_VERSION " is running, built without its web page.\n\n"
                         "The API is under /api; try GET /api/health, or `berth --help`.\n");
        } else {
                return err_set(err, ERR_NOT_FOUND, "Not found");
        }
        return 0;
}

const struct route *page_route(const char *method, const char *path)
{
        static const struct route route = { "GET", "/*", .fn = get_page,
                                            .flags = ROUTE_INLINE | ROUTE_OPEN };

        if (!streq(method, "GET") && !streq(method, "HEAD"))
                return NULL;
        /* A client that mistypes the API's address has to hear so. */
        if (strncasecmp(path, "/api", 4) == 0 && (path[4] == '\0' || path[4] == '/'))
                return NULL;
        return path[0] == '/' ? &route : NULL;
}
