/* Whatever is in a header, the answer is one line with 64 digits at its end, or nothing. */
#include <sodium.h>

#include "codec/sigv4.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        CLEAN(cleanup_free) char *name = xstrndup((const char *)data, size);
        char *value = strchr(name, '=');
        struct sigv4_header headers[] = { { "host", "a" }, { name, "" } };
        struct sigv4_request request = {
                .method = "POST",
                .path = "/",
                .headers = headers,
                .n_headers = 2,
                .body = data,
                .body_len = size,
        };
        struct sigv4_key key = { "id", "secret", "us-east-1", "service" };

        if (sodium_init() < 0)
                abort();
        if (value) {
                *value++ = '\0';
                headers[1].value = value;
                key.secret = value;
        }
        if (sigv4_sign(&request, &key, "20150830T123600Z", &out, NULL) < 0)
                return out.len == 0 ? 0 : (abort(), 0);
        if (out.len < SIGV4_HASH_LEN || strchr(out.data, '\n') ||
            strspn(out.data + out.len - SIGV4_HASH_LEN, "0123456789abcdef") != SIGV4_HASH_LEN)
                abort();
        return 0;
}
