/* The layers of one image on the disk: which ones are there already, making the others, and reading
 * from them. For image_get.c. Operation threads. */
#pragma once

#include "core/images/image.h"
#include "image/archive.h"
#include "image/registry.h"

/* One layer while its image is got. */
struct layer_work {
        const struct image_descriptor *what;
        const char *diff_id;
        struct image_layer_row row;
        bool is_ours;    /* this operation makes it */
        uint64_t done;   /* bytes fetched, for readers */
        const char *say; /* "waiting", "fetching", "fetched", "unpacking", "ready" */
};

/* Brings the bytes of layers[i] for each of the `n` in `which` into fds[i], verified. */
struct layer_bringer {
        int (*bring)(void *ctx, struct op *op, struct layer_work *const *layers, const int *fds,
                     size_t n, struct err *err);
        void *ctx;
};

/* Until all are ready: those that others make are waited for. `lock` guards what readers see of
 * `at`; it is rt->sandbox->images_lock. */
int image_layers_make(struct op *op, struct runtime *rt, const struct image_row *image,
                      struct layer_work *at, size_t n, const struct layer_bringer *bringer,
                      struct err *err);

/* image_user.c: the user that a configuration names ("", "name", "1000", "name:group"), by the
 * /etc/passwd and /etc/group of the image. ERR_UNPROCESSABLE when they do not have it. */
int image_find_user(struct op *op, const struct runtime *rt, const struct layer_work *layers,
                    size_t n, const char *wanted, struct image_user *ret, struct err *err);
