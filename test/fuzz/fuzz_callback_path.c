/* A path without a problem reads the same for everybody: it decodes, each segment to one that is
 * not empty, has no dots, slashes or control bytes; and only such a path is ever a route. */
#include "base/buf.h"
#include "codec/http1.h"
#include "core/callbacks/callback_routes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_segment(const char *at, size_t len, bool is_last)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        if (len == 0 && !is_last)
                abort();
        if (http1_percent_decode(at, len, &text, NULL) < 0)
                return; /* no UTF-8: nothing has that name */
        if (text.len != strlen(buf_str(&text)) || strpbrk(buf_str(&text), "/\\\n\r\t") ||
            (len > 0 && (streq(buf_str(&text), ".") || streq(buf_str(&text), ".."))))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char *const methods[] = { "GET", "POST", "PUT", "PATCH", "DELETE" };
        CLEAN(cleanup_free) char *path = xstrndup((const char *)data, size);

        if (callback_path_problem(path))
                return 0;
        for (const char *at = path; *at == '/'; at += 1 + strcspn(at + 1, "/"))
                check_segment(at + 1, strcspn(at + 1, "/"), at[1] == '\0');
        for (size_t i = 0; i < ARRAY_LEN(methods); i++)
                if (callback_route_allowed(methods[i], path) && !str_starts(path, "/api/") &&
                    !str_starts(path, "/llms/"))
                        abort();
        return 0;
}
