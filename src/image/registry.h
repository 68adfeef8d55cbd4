/* A registry: the documents and the layers of one repository, by libcurl.
 *
 * Nothing that a registry sends is used before it is verified: a manifest asked for by digest, a
 * configuration and a layer have the digest and the size that the document before them says. A
 * manifest asked for by tag is what the registry says; its digest is computed here.
 *
 * Which addresses are reached: public ones. An address that is not (loopback, private, link-local)
 * is connected to only for a host and port that the operator's rules name, whether the reference, a
 * redirect or the realm of a token names it; it is the address of the connection that is judged.
 * https with verified certificates, except for hosts that the rules name with http://. Redirects
 * (at most 5, to https, or to a host that the rules name with http://) lose the Authorization
 * header when host or port change. Credentials go to the registry itself and to the realm that it
 * names, never to a mirror, and to a realm over http only where the rules name it.
 *
 * Each wait ends by the operation's deadline or cancel, or when for REGISTRY_SILENCE_MS nothing
 * came. Errors that pass (a cut, a 5xx, a 429 with a short Retry-After) are tried again a few times
 * within that; a layer goes on where it was cut. What cannot pass becomes a sentence that says what
 * to do: ERR_UNAUTHORIZED (401 with credentials, or without), ERR_FORBIDDEN (403; an address that
 * is not public), ERR_NOT_FOUND (404), ERR_THROTTLED (429, with the time to wait), ERR_PROVIDER
 * (an answer that makes no sense, a wrong digest), ERR_UNREACHABLE (5xx, no answer),
 * ERR_NOT_IMPLEMENTED (no libcurl here), ERR_TOO_LARGE. No text has a token or a password in it.
 *
 * A struct registry belongs to one operation at a time. Operation threads. */
#pragma once

#include "image/login.h"
#include "image/manifest.h"
#include "rt/op.h"

#define REGISTRY_SILENCE_MS 60000
#define REGISTRY_CONNECT_MS 20000
#define REGISTRY_PARALLEL   4 /* layers at once */
#define REGISTRY_MAX_RULES  64

/* The operator's list: a text of entries with commas between them.
 *
 *     registry.corp:5000               may be at an address that is not public
 *     http://localhost:5000            the same, and without TLS
 *     docker.io=mirror.corp            a mirror: for docker.io it is asked first, and may be at an
 *     docker.io=http://10.0.0.5:5000   address that is not public. No credentials are sent to it
 *
 * A mirror that does not have the image or does not answer is passed over. */
struct registry_rules {
        size_t n;
        struct registry_rule {
                char host[IMAGE_HOST_SIZE];      /* with ":port" where the entry has one */
                char mirror_of[IMAGE_HOST_SIZE]; /* "": not a mirror */
                bool plain_http;
        } at[REGISTRY_MAX_RULES];
};

/* NULL and "" are no rules. ERR_INVALID says which entry is wrong, and why. */
int registry_rules_parse(const char *text, struct registry_rules *ret, struct err *err);

struct registry;

/* Nothing is sent yet. rules and login (NULL: none) are borrowed until registry_close();
 * `ca_file` (NULL: none) has certificates to trust instead of those of the system. */
struct registry *registry_open(const struct registry_rules *rules, const struct image_ref *ref,
                               const struct image_login *login, const char *ca_file);
void registry_close(struct registry *r); /* NULL is fine */

/* The manifest that the reference names, for the platform, and its configuration. In the arena of
 * the operation. */
int registry_image(struct op *op, struct registry *r, const struct image_platform *platform,
                   struct image *ret, struct err *err);

/* One layer to fetch. */
struct registry_blob {
        const struct image_descriptor *what;
        /* A regular file, open for reading and writing, the caller's. Bytes that are in it are
         * taken for the beginning, left by an attempt that was cut, and are verified with the
         * rest. After success it has exactly the layer. After a wrong digest it is empty; after
         * any other failure it has what came, for the next attempt. Not synced. */
        int fd;
};

/* Called from the operation's thread: at the beginning, at most every 100 ms for each layer, and
 * once when it is verified (done == total, is_verified). */
struct registry_progress {
        void (*on_progress)(void *ctx, size_t layer, uint64_t done, uint64_t total,
                            bool is_verified);
        void *ctx;
};

/* Fetch and verify all of them, REGISTRY_PARALLEL at once. 0: each one is complete. At the first
 * failure the others are left as they are. progress may be NULL. */
int registry_fetch(struct op *op, struct registry *r, const struct registry_blob *blobs, size_t n,
                   const struct registry_progress *progress, struct err *err);
