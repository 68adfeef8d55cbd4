/* Percent-decoding and query lookup: nothing with a NUL or broken UTF-8 comes out, and a lookup
 * finds the parameter that a decoding of its own says is there. */
#include <stdio.h>

#include "codec/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

/* Every byte of the text once more as an escape; decoding that must give the text back. */
static void check_round_trip(const struct buf *text)
{
        struct buf escaped = BUF_INIT, again = BUF_INIT;

        for (size_t i = 0; i < text->len; i++)
                buf_appendf(&escaped, "%%%02x", (unsigned)(uint8_t)text->data[i]);
        check(http1_percent_decode(buf_str(&escaped), escaped.len, &again, NULL) == 0, "decodes");
        check(again.len == text->len && streq(buf_str(&again), buf_str(text)), "round trip");
        buf_done(&escaped);
        buf_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct buf out = BUF_INIT;
        struct err err = { 0 };
        char *text = xcalloc(1, size + 1);
        int r;

        memcpy(text, data, size);
        r = http1_percent_decode(text, size, &out, &err);
        if (r == 0) {
                check(out.len <= size, "never longer");
                check(strlen(buf_str(&out)) == out.len, "no NUL");
                check_round_trip(&out);
        } else {
                check(r == ERR_INVALID && out.len == 0, "untouched when refused");
        }
        r = http1_query_get(text, "a", &out, &err);
        check(r == 1 || r == 0 || r == ERR_INVALID, "three outcomes");
        check(r != 1 || strlen(buf_str(&out)) == out.len, "no NUL in a value");
        check(r != 0 || strncmp(text, "a=", 2) != 0, "found when it comes first");
        buf_done(&out);
        err_done(&err);
        free(text);
        return 0;
}
