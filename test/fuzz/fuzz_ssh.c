/* What a host says: the lines of its script, the errors of ssh, and lines of known_hosts. Nothing
 * may be read past its end, and what is passed on is one clean line. */
#include "base/utf8.h"
#include "ssh/explain.h"
#include "ssh/hello.h"
#include "ssh/hostkey.h"
#include "ssh/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void hear(char *text)
{
        struct ssh_hello h = { 0 };
        char *save = NULL;

        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                (void)ssh_hello_line(&h, line, NULL);
        if (h.cwd && (*h.cwd != '/' || strlen(h.cwd) > HELLO_PATH_MAX || strchr(h.cwd, '\x1b')))
                abort();
        ssh_hello_done(&h);
}

static void explain(const char *text)
{
        static const struct ssh_target t = {
                .host = "h", .username = "u", .port = 22, .path = "/w", .strict = true
        };
        CLEAN(buf_done) struct buf out = BUF_INIT;

        ssh_explain(ssh_trouble_of(text), text, &t, text, &out);
        if (out.len == 0 || !utf8_is_valid(out.data, out.len) || strpbrk(out.data, "\n\r\x1b"))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(cleanup_free) char *text = xstrndup((const char *)data, size);
        CLEAN(buf_done) struct buf clean = BUF_INIT;
        char fingerprint[FINGERPRINT_MAX];

        (void)hostkey_fingerprint((const char *)data, size, fingerprint);
        for (size_t i = 1, n; hostkey_line(text, i, &n); i++)
                continue;
        ssh_text_clean((const char *)data, size, 200, &clean);
        if (clean.len > 200)
                abort();
        explain(text);
        hear(text);
        return 0;
}
