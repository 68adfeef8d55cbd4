/* The scanner agrees with the parser on every document that the parser takes, and what it escapes
 * it reads back. */
#include "codec/json.h"
#include "codec/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare(const char *text, size_t size, const char *raw, size_t n, int found)
{
        json_t *document = NULL;
        const char *wanted;
        char *out;
        size_t len = 0;

        /* A NUL between tokens passes the parser as a blank. */
        if (memchr(text, '\0', size) || json_parse(text, size, &document, NULL) < 0)
                return;
        if (!json_is_object(document)) {
                json_decref(document);
                return;
        }
        wanted = json_get_string(document, "k");
        if (found < 0 || (found > 0) != (wanted != NULL)) {
                /* A key written with escapes is only known to the parser. */
                if (found < 0 || memchr(text, '\\', size) == NULL)
                        abort();
        } else if (wanted) {
                out = xcalloc(n + 1, 1);
                if (json_scan_decode(raw, n, out, &len, NULL) < 0 || len != strlen(wanted) ||
                    memcmp(out, wanted, len) != 0)
                        abort();
                free(out);
        }
        json_decref(document);
}

static void round_trip(const char *text, size_t size)
{
        size_t n = json_scan_escaped_len(text, size), len = 0;
        char *escaped = xcalloc(n + 1, 1), *back = xcalloc(n + 1, 1);

        if (json_scan_escape(text, size, escaped) != n)
                abort();
        if (json_scan_decode(escaped, n, back, &len, NULL) == 0 &&
            (len != size || memcmp(back, text, size) != 0))
                abort();
        free(escaped);
        free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data, *raw = NULL;
        size_t n = 0;
        int found = json_scan_string(text, size, "k", &raw, &n, NULL);

        if (found > 0 && (raw < text || raw + n > text + size))
                abort();
        compare(text, size, raw, n, found);
        round_trip(text, size);
        return 0;
}
