/* What an image is made of: the documents of a registry, and what they say.
 *
 * An index lists manifests by platform; a manifest lists a configuration and layers by digest; the
 * configuration says how programs are started and which content (`diff_ids`) the layers must have
 * once they are unpacked. Both the OCI's and Docker's (version 2, schema 2) media types are read.
 * A media type that is not known, a layer that may not be distributed, a list that is too long and
 * a value of the wrong type are errors with a text; members that are not needed are passed over.
 *
 * The functions are pure: no I/O. What they return lives in the arena and borrows nothing of the
 * text. ERR_UNPROCESSABLE: well-formed, but no image for this machine, or a kind of image that is
 * not supported. ERR_INVALID: not such a document. Any thread. */
#pragma once

#include "base/arena.h"
#include "image/reference.h"

#define IMAGE_MAX_DOCUMENT ((size_t)4 << 20) /* of an index, a manifest or a configuration */
#define IMAGE_MAX_LAYERS   127
#define IMAGE_MAX_INDEX    1024
#define IMAGE_MAX_STRINGS  4096 /* of one list: variables, arguments, ports */

enum image_media {
        IMAGE_MEDIA_INDEX = 1,
        IMAGE_MEDIA_MANIFEST,
        IMAGE_MEDIA_CONFIG,
        IMAGE_MEDIA_TAR, /* a layer: plain, or compressed */
        IMAGE_MEDIA_TAR_GZIP,
        IMAGE_MEDIA_TAR_ZSTD,
};

struct image_platform {
        char os[32], architecture[32], variant[32]; /* "linux", "arm64", "v8"; variant "": none */
};

/* Of the machine that we run on. */
void image_platform_here(struct image_platform *ret);

/* Content by its digest. */
struct image_descriptor {
        enum image_media media;
        char digest[IMAGE_DIGEST_SIZE];
        uint64_t size;
};

struct image_manifest {
        struct image_descriptor config;
        size_t n_layers;                       /* 1 or more */
        const struct image_descriptor *layers; /* the lowest first */
};

struct image_config {
        struct image_platform platform;
        const char *user;              /* "": none; "name", "1000", "name:group", "1000:1000" */
        const char *working_dir;       /* "": none */
        const char *const *env;        /* "NAME=value"; NULL-terminated, as all lists here */
        const char *const *entrypoint; /* empty: none */
        const char *const *cmd;        /* empty: none */
        const char *const *ports;      /* "8080/tcp", sorted */
        const char *stop_signal;       /* "": none */
        size_t n_diff_ids;
        const char *const *diff_ids; /* "sha256:..." of each layer's plain content */
};

/* An image as the registry, an archive or a directory gives it. The texts are exactly the bytes
 * whose digests are the names. */
struct image {
        char digest[IMAGE_DIGEST_SIZE]; /* of the manifest */
        const char *manifest_text;
        size_t manifest_len;
        const char *config_text;
        size_t config_len;
        struct image_manifest manifest;
        struct image_config config; /* as many diff_ids as the manifest has layers */
};

/* Whether the document is an index or a manifest. `content_type`, what the sender called it,
 * decides where the document does not say it itself; NULL or "": not known. The two must not
 * contradict each other. */
int image_document_media(const char *text, size_t len, const char *content_type,
                         enum image_media *ret, struct err *err);

/* The manifest of an index for the platform. Where several have the architecture, the one with the
 * same variant, else the one with the highest variant that this platform can run, else the first.
 * ERR_UNPROCESSABLE lists the platforms that there are. */
int image_index_choose(const char *text, size_t len, const struct image_platform *platform,
                       struct image_descriptor *ret, struct err *err);

int image_manifest_parse(struct arena *arena, const char *text, size_t len,
                         struct image_manifest *ret, struct err *err);

/* Checks that the image is for `platform` (NULL: any Linux) and has `n_layers` diff_ids. */
int image_config_parse(struct arena *arena, const char *text, size_t len, size_t n_layers,
                       const struct image_platform *platform, struct image_config *ret,
                       struct err *err);

/* An image from its two documents, which the caller has verified or stored: all of the above.
 * The texts are copied into the arena. `platform` as above. */
int image_read(struct arena *arena, const char *manifest, size_t manifest_len, const char *config,
               size_t config_len, const struct image_platform *platform, struct image *ret,
               struct err *err);
