/* References to images, as people write them, and digests.
 *
 *     node:22                      docker.io/library/node:22
 *     ghcr.io/org/name:tag         as it is
 *     localhost:5000/x             localhost:5000/x:latest
 *     debian@sha256:<64 digits>    docker.io/library/debian@sha256:...
 *     debian:12@sha256:<...>       both are kept; the digest decides what is fetched
 *
 * The first part is a registry when it has a dot or a colon or is "localhost". "index.docker.io"
 * and "registry-1.docker.io" are docker.io. A reference with neither tag nor digest means the tag
 * "latest". What parses is bounded, has no byte that would mean something in a URL, and prints
 * back to a text that parses to the same.
 *
 * Values without pointers, any thread. */
#pragma once

#include "base/err.h"

#define IMAGE_HOST_SIZE       262 /* a host name, ":65535" and the end */
#define IMAGE_REPOSITORY_SIZE 256
#define IMAGE_TAG_SIZE        129
#define IMAGE_DIGEST_SIZE     72 /* "sha256:", 64 digits and the end */
#define IMAGE_REF_SIZE                                                                             \
        (IMAGE_HOST_SIZE + IMAGE_REPOSITORY_SIZE + IMAGE_TAG_SIZE + IMAGE_DIGEST_SIZE)

struct image_ref {
        char host[IMAGE_HOST_SIZE];             /* "docker.io", "localhost:5000", lower case */
        char repository[IMAGE_REPOSITORY_SIZE]; /* "library/node" */
        char tag[IMAGE_TAG_SIZE];               /* "": none, and then there is a digest */
        char digest[IMAGE_DIGEST_SIZE];         /* "": none */
};

/* ERR_INVALID with a text that says what is wrong, and how a reference is written. */
int image_ref_parse(const char *text, struct image_ref *ret, struct err *err);

/* The whole reference: "docker.io/library/node:22". */
void image_ref_format(const struct image_ref *ref, char ret[IMAGE_REF_SIZE]);

/* "sha256:" and 64 digits in lower case. Other algorithms are not read: nothing in use writes them.
 */
bool image_digest_ok(const char *text);
