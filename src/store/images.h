/* Rows of `images`, `image_layers` and `image_parts`: images that sandboxes are made of, and the
 * unpacked layers that they share. */
#pragma once

#include "store/db.h"

#define IMAGE_PULLING  "pulling" /* or imported */
#define IMAGE_READY    "ready"
#define IMAGE_FAILED   "failed"
#define IMAGE_DELETING "deleting"

#define LAYER_MAKING   "making"
#define LAYER_CUT      "cut"
#define LAYER_READY    "ready"
#define LAYER_DELETING "deleting"

struct image_row {
        const char *id;
        const char *company_id; /* NULL: the instance's */
        const char *reference, *repository;
        const char *digest; /* of the manifest; NULL: not known yet */
        const char *state;
        const char *config; /* JSON: user, workingDir, env, ...; NULL: not known yet */
        int64_t bytes;      /* of its layers; shared ones count in each */
        const char *error;  /* of a failed one */
        const char *owner_instance;
        int64_t created_at, updated_at, used_at;
};

struct image_layer_row {
        const char *id, *diff_id, *blob, *state;
        int64_t bytes;
        const char *owner_instance;
        int64_t created_at, updated_at;
};

extern const struct row_type image_table, image_layer_table;

typedef int (*image_fn)(void *ctx, const struct image_row *row);

ROW_BASICS(images, struct image_row, image_table)
ROW_BASICS(image_layers, struct image_layer_row, image_layer_table)

/* By id, or the newest ready one of that reference or digest: the company's own before the
 * instance's. `company_id` NULL: the instance's only. ERR_NOT_FOUND. */
int images_find(struct db *db, const char *company_id, const char *name, struct arena *arena,
                struct image_row *ret, struct err *err);
/* The company's and the instance's, newest first; at most `limit` rows, after the one whose
 * created_at and id are given (0, NULL: from the start). */
int images_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                int64_t limit, struct arena *arena, image_fn fn, void *ctx, struct err *err);
/* Those of one company; NULL: of all, and of the instance. */
int images_of(struct db *db, const char *company_id, struct arena *arena, struct image_row **ret,
              struct err *err);
/* From one state to another, with all of *to that changes. 1, or 0 when it is in another state. */
int images_move(struct db *db, const char *id, const char *from, const struct image_row *to,
                struct err *err);
int images_touch(struct db *db, const char *id, int64_t used_at, struct err *err);
/* Other ready images of the same owner and reference get `reference`, which names the digest. */
int images_rename_others(struct db *db, const struct image_row *row, struct err *err);
/* With its parts. */
int images_delete(struct db *db, const char *id, const char *state, struct err *err);
/* Those that are not ready. */
int images_open(struct db *db, struct arena *arena, struct image_row **ret, struct err *err);
/* Ready ones that no sandbox and no snapshot stands on, the least recently used first. */
int images_unused(struct db *db, struct arena *arena, struct image_row **ret, struct err *err);
/* How many living places and snapshots stand on it. */
int images_count_users(struct db *db, const char *id, int64_t *ret, struct err *err);

/* A layer of that content that an image of the same owner, of the instance, or of the same
 * repository has: 1, or 0 when there is none. One that is ready before others. */
int image_layers_find(struct db *db, const struct image_row *image, const char *diff_id,
                      struct arena *arena, struct image_layer_row *ret, struct err *err);
/* 1, or 0 when it is in another state or another instance's. */
int image_layers_move(struct db *db, const struct image_layer_row *from,
                      const struct image_layer_row *to, struct err *err);
int image_layers_delete(struct db *db, const char *id, const char *state, struct err *err);
/* Those of an image, the lowest first. */
int image_layers_of(struct db *db, const char *image_id, struct arena *arena,
                    struct image_layer_row **ret, struct err *err);
/* Those that no image has, and those that are not ready. */
int image_layers_loose(struct db *db, struct arena *arena, struct image_layer_row **ret,
                       struct err *err);
int image_layers_open(struct db *db, struct arena *arena, struct image_layer_row **ret,
                      struct err *err);
int image_layers_bytes(struct db *db, int64_t *ret, struct err *err);

int image_parts_set(struct db *db, const char *image_id, int64_t position, const char *layer_id,
                    struct err *err);
