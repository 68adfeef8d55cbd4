/* Finds one text in an XML document by its path. */
#define _GNU_SOURCE /* memmem */
#include "codec/xml.h"

struct name {
        const char *at;
        size_t len;
};

struct reader {
        const char *at;
        const char *end;
        struct name open[XML_MAX_DEPTH];
        size_t depth;
        struct err *err;
};

static int refuse(struct reader *r, const char *text)
{
        return err_set(r->err, ERR_INVALID, "XML: %s", text);
}

static bool looks_at(const struct reader *r, const char *text)
{
        size_t n = strlen(text);

        return (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}

/* Step behind the next `text`. */
static int skip_past(struct reader *r, const char *text)
{
        const char *found = memmem(r->at, (size_t)(r->end - r->at), text, strlen(text));

        if (!found)
                return refuse(r, "ends too early");
        r->at = found + strlen(text);
        return 0;
}

static bool ends_name(char c)
{
        return c == '>' || c == '/' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int read_name(struct reader *r, struct name *ret)
{
        ret->at = r->at;
        while (r->at < r->end && !ends_name(*r->at) && *r->at != '<')
                r->at++;
        ret->len = (size_t)(r->at - ret->at);
        return ret->len > 0 && r->at < r->end && *r->at != '<' ? 0 : refuse(r, "bad element");
}

/* To the '>' of an opening tag; attribute values may hold one. Returns 1 for "/>". */
static int finish_tag(struct reader *r)
{
        char quote = '\0', last = '\0';

        for (; r->at < r->end; last = *r->at++) {
                if (quote && *r->at == quote) {
                        quote = '\0';
                } else if (!quote && (*r->at == '"' || *r->at == '\'')) {
                        quote = *r->at;
                } else if (!quote && *r->at == '>') {
                        r->at++;
                        return last == '/' ? 1 : 0;
                }
        }
        return refuse(r, "ends too early");
}

static int open_element(struct reader *r)
{
        struct name name;
        int e = read_name(r, &name);

        if (e < 0)
                return e;
        e = finish_tag(r);
        if (e != 0)
                return e < 0 ? e : 0; /* empty element: opened and closed */
        if (r->depth == XML_MAX_DEPTH)
                return refuse(r, "nested too deeply");
        r->open[r->depth++] = name;
        return 1;
}

static int close_element(struct reader *r)
{
        struct name name;
        const struct name *top = r->depth > 0 ? &r->open[r->depth - 1] : NULL;
        int e = read_name(r, &name);

        if (e < 0)
                return e;
        if (!top || top->len != name.len || memcmp(top->at, name.at, name.len) != 0)
                return refuse(r, "elements are not closed in order");
        r->depth--;
        return skip_past(r, ">");
}

static bool is_at(const struct reader *r, const char *path)
{
        for (size_t i = 0; i < r->depth; i++) {
                size_t n = strcspn(path, "/");

                if (n != r->open[i].len || memcmp(path, r->open[i].at, n) != 0)
                        return false;
                path += n;
                if (*path == '/')
                        path++;
                else if (i + 1 < r->depth)
                        return false;
        }
        return !*path;
}

static int take_text(struct reader *r, const char **ret, size_t *ret_len)
{
        const char *stop = memchr(r->at, '<', (size_t)(r->end - r->at));

        if (!stop || stop + 1 >= r->end || stop[1] != '/')
                return refuse(r, "an element where text was expected");
        if (memchr(r->at, '&', (size_t)(stop - r->at)))
                return refuse(r, "an entity where plain text was expected");
        *ret = r->at;
        *ret_len = (size_t)(stop - r->at);
        return 1;
}

/* Steps over one piece of markup; 1 when an element was opened. */
static int step(struct reader *r)
{
        if (looks_at(r, "<!--"))
                return skip_past(r, "-->");
        if (looks_at(r, "<?"))
                return skip_past(r, "?>");
        if (looks_at(r, "<!"))
                return refuse(r, "a declaration is not understood");
        if (looks_at(r, "</")) {
                r->at += 2;
                return close_element(r);
        }
        r->at++;
        return open_element(r);
}

int xml_find(const char *text, size_t len, const char *path, const char **ret, size_t *ret_len,
             struct err *err)
{
        struct reader r = { .at = text, .end = text + len, .err = err };
        int e;

        while ((r.at = memchr(r.at, '<', (size_t)(r.end - r.at)))) {
                e = step(&r);
                if (e < 0)
                        return e;
                if (e > 0 && is_at(&r, path))
                        return take_text(&r, ret, ret_len);
        }
        return r.depth > 0 ? refuse(&r, "ends too early") : 0;
}
