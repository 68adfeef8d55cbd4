/* What is accepted is written, read again, and is the same document; any bytes at all make a valid
 * string in the writer. */
#include "codec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *must_parse(const char *text, size_t len)
{
        struct err e = { 0 };
        json_t *v;

        if (json_parse(text, len, &v, &e) < 0)
                abort();
        return v;
}

static void write_as_string(const char *data, size_t size)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct jw w;
        json_t *v;

        if (memchr(data, '\0', size)) /* written as \u0000, which the reader does not take */
                return;
        jw_init(&w, &b);
        jw_array(&w);
        jw_string_n(&w, data, size);
        jw_array_end(&w);
        v = must_parse(buf_str(&b), b.len);
        if (json_array_size(v) != 1)
                abort();
        json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *first, *second;
        char *text, *again;
        int r = json_parse((const char *)data, size, &first, &e);

        write_as_string((const char *)data, size);
        if (r < 0) {
                if (r != ERR_INVALID || !str_starts(e.msg, "Malformed JSON: "))
                        abort();
                return 0;
        }
        text = json_to_text(first);
        second = must_parse(text, strlen(text));
        if (!json_equal(first, second))
                abort();
        again = json_to_text(second);
        if (!streq(text, again))
                abort();
        free(again);
        free(text);
        json_decref(first);
        json_decref(second);
        return 0;
}
