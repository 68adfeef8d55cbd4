/* The response head: the same result however cut, and slices that stay inside. The first byte says
 * where to cut, the lowest bit of the second whether the request was a HEAD. */
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

static void check_slice(struct http1_slice s, const char *bytes, size_t len)
{
        check(s.p >= bytes && s.len <= len && s.p + s.len <= bytes + len, "slice in the head");
        for (size_t i = 0; i < s.len; i++)
                check(s.p[i] != '\r' && s.p[i] != '\n' && s.p[i] != '\0', "slice is one line");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct http1_response whole, cut;
        struct http1_refusal why = { 0 }, why_cut = { 0 };
        enum http1_result r, r_cut;
        size_t seen = 0, seen_cut = 0;
        size_t len, at;
        bool for_head;
        char *bytes;

        if (size < 2)
                return 0;
        len = size - 2;
        at = len ? data[0] * len / 255 : 0;
        for_head = data[1] & 1;
        bytes = xcalloc(1, len ? len : 1);
        memcpy(bytes, data + 2, len);

        r = http1_response_parse(bytes, len, 1024, &seen, for_head, &whole, &why);
        if (r == HTTP1_DONE) {
                check(whole.head.len <= len && whole.head.len <= 1024, "head within its limit");
                check(whole.status >= 100 && whole.status <= 599, "a status");
                check(!for_head || whole.head.framing == HTTP1_NO_BODY, "HEAD has no body");
                check_slice(whole.reason, bytes, whole.head.len);
                for (size_t i = 0; i < whole.head.n_headers; i++) {
                        check_slice(whole.head.headers[i].name, bytes, whole.head.len);
                        check_slice(whole.head.headers[i].value, bytes, whole.head.len);
                }
        }
        check(r != HTTP1_REFUSED || (why.status == 502 && why.text), "a refusal has its reason");

        r_cut = http1_response_parse(bytes, at, 1024, &seen_cut, for_head, &cut, &why_cut);
        if (r_cut == HTTP1_MORE)
                r_cut = http1_response_parse(bytes, len, 1024, &seen_cut, for_head, &cut, &why_cut);
        check(r == r_cut && why.text == why_cut.text, "same result however cut");
        if (r == HTTP1_DONE)
                check(whole.head.len == cut.head.len && whole.status == cut.status &&
                              whole.head.framing == cut.head.framing &&
                              whole.head.content_length == cut.head.content_length,
                      "same head however cut");
        free(bytes);
        return 0;
}
