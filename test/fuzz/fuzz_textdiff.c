/* Two texts: their difference, read back, makes the second out of the first. The first byte says
 * where the input is cut in two. */
#include "workspace/textdiff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct reader {
        const char *at, *end; /* of the first text */
        struct buf out;
};

static const char *line_end(const char *at, const char *end)
{
        const char *newline = memchr(at, '\n', (size_t)(end - at));

        return newline ? newline + 1 : end;
}

static void take_line(struct reader *r, bool keep)
{
        const char *end = line_end(r->at, r->end);

        if (r->at == r->end)
                abort();
        if (keep)
                buf_append(&r->out, r->at, (size_t)(end - r->at));
        r->at = end;
}

/* Lines before a hunk: its place in the first text counts from one, or is the line before it. */
static void take_until(struct reader *r, const char *text, const char *hunk)
{
        char *rest;
        unsigned long from = strtoul(hunk + 4, &rest, 10);
        unsigned long n = *rest == ',' ? strtoul(rest + 1, NULL, 10) : 1;
        unsigned long line = 1;

        for (const char *p = text; p < r->at; p++)
                line += *p == '\n';
        from += n == 0;
        for (; line < from; line++)
                take_line(r, true);
}

static void read_back(struct reader *r, const char *text, const struct buf *diff)
{
        const char *at = diff->data, *end = diff->data + diff->len;
        char last = '\0';

        while (at < end) {
                const char *next = line_end(at, end);

                switch (*at) {
                case '@':
                        take_until(r, text, at);
                        break;
                case '+':
                        buf_append(&r->out, at + 1, (size_t)(next - at - 1));
                        break;
                case '\\':
                        if (last == '+')
                                r->out.len--; /* the newline that was not there */
                        break;
                default:
                        take_line(r, *at == ' ');
                }
                last = *at;
                at = next;
        }
        buf_append(&r->out, r->at, (size_t)(r->end - r->at));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data + 1;
        CLEAN(buf_done) struct buf diff = BUF_INIT;
        struct textdiff_side was, now;
        struct reader r = { 0 };
        size_t cut;

        if (size < 1)
                return 0;
        cut = (size - 1) * data[0] / 255;
        was = (struct textdiff_side){ text, cut };
        now = (struct textdiff_side){ text + cut, size - 1 - cut };
        if (!textdiff_is_text(&was) || !textdiff_is_text(&now))
                return 0;
        if (textdiff(&was, &now, &diff) == 0) {
                if (was.len != now.len || memcmp(was.text, now.text, was.len) != 0)
                        abort();
                return 0;
        }
        r.at = was.text;
        r.end = was.text + was.len;
        read_back(&r, was.text, &diff);
        if (r.out.len != now.len || (now.len > 0 && memcmp(r.out.data, now.text, now.len) != 0))
                abort();
        buf_done(&r.out);
        return 0;
}
