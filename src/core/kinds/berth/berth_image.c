/* Sandboxes from images: what the configuration of an image decides where the environment's does
 * not, namely the user, the working directory and variables. */
#include "core/images/image.h"
#include "core/kinds/berth/berth.h"
#include "core/kinds/berth/snapshot.h"

bool berth_has_base(const json_t *config)
{
        return json_get_string(config, "rootfs") || json_get_string(config, "image");
}

/* The digest becomes part of the place's configuration: a place with another image does not serve
 * the request. */
int berth_image_plan(struct op *op, struct runtime *rt, const char *company_id, const char *run_id,
                     json_t **config, struct err *err)
{
        const char *reference = json_get_string(*config, "image");
        const char *pull = json_get_string(*config, "pull");
        struct image_row image;

        if (!reference)
                return 0;
        int r = image_ensure(op, rt, company_id, reference, pull ? pull : "missing", run_id, &image,
                             err);
        if (r < 0)
                return r;
        *config = json_keep(op->arena, json_copy(*config));
        json_object_set_new(*config, "imageDigest", json_string(image.digest));
        return 0;
}

static void take_user(const json_t *config, const struct image_row *image, struct arena *arena,
                      struct sandbox_row *row)
{
        struct image_user user = image_user_of(json_from_text(arena, image->config));

        row->image_id = image->id;
        if (json_get_string(config, "user"))
                return;
        row->user_id = user.uid;
        row->group_id = user.uid ? user.gid : 0;
}

int berth_image_claim(struct db *db, const struct place *place, const char *of_snapshot,
                      struct arena *arena, struct sandbox_row *row, struct err *err)
{
        const json_t *config = json_from_text(arena, place->config);
        const char *reference = json_get_string(config, "image");
        const char *digest = json_get_string(config, "imageDigest");
        struct image_row image;
        int r;

        if (reference && !json_object_get(config, FORK_MEMBER))
                r = image_claim(db, place->company_id, reference, digest ? digest : reference,
                                arena, &image, err);
        else if (of_snapshot)
                r = images_get(db, of_snapshot, arena, &image, err);
        else
                return 0;
        if (r < 0)
                return r;
        if (of_snapshot && !streq(of_snapshot, image.id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Snapshot \"%s\" was made on another image, or on another version "
                               "of %s, and can only be used there.",
                               json_get_string(config, "snapshot"), reference);
        take_user(config, &image, arena, row);
        return 0;
}

static int load_image(struct op *op, struct runtime *rt, const struct sandbox_row *row,
                      struct image_row *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : images_get(db, row->image_id, op->arena, ret, err);
}

/* One that is not plain could lead out of the image: commands begin in /workspace instead. */
static const char *working_dir(struct arena *arena, const json_t *image)
{
        const char *dir = json_get_string(image, "workingDir");
        size_t n = dir ? strlen(dir) : 0;

        while (n > 1 && dir[n - 1] == '/')
                n--;
        dir = n ? arena_strndup(arena, dir, n) : NULL;
        return dir && sandbox_path_is_plain(dir) ? dir : NULL;
}

int berth_image_spec(struct op *op, struct runtime *rt, const json_t *config,
                     const struct sandbox_row *row, struct sandbox_spec *spec, struct err *err)
{
        const char *user = json_get_string(config, "user");
        struct image_row image;
        int r;

        if (!row->image_id)
                return 0;
        r = load_image(op, rt, row, &image, err);
        if (r >= 0)
                r = image_directories(op, rt, row->image_id, spec->base, SANDBOX_MAX_BASE, err);
        if (r < 0)
                return r;
        spec->n_base = (uint32_t)r;
        spec->working_dir = working_dir(op->arena, json_from_text(op->arena, image.config));
        /* Only the user "agent" may be missing in an image, and is added to it. */
        if (user && !streq(user, "root"))
                return 0;
        spec->own_users = true;
        spec->root_inside = row->user_id == 0;
        spec->user_id = (uint32_t)row->user_id;
        spec->group_id = (uint32_t)row->group_id;
        return 0;
}

int berth_image_defaults(struct op *op, struct runtime *rt, const struct sandbox_row *row,
                         const json_t *config, json_t *variables, const char **ret_cwd,
                         struct err *err)
{
        struct image_row image = { 0 };
        const json_t *doc;
        struct image_user user;
        int r = row->image_id ? load_image(op, rt, row, &image, err) : 0;

        if (r < 0 || !row->image_id)
                return r;
        doc = json_from_text(op->arena, image.config);
        user = image_user_of(doc);
        if (!json_get_string(config, "user")) {
                json_object_set_new(variables, "HOME", json_string(user.home));
                json_object_set_new(variables, "USER", json_string(user.name));
                json_object_set_new(variables, "LOGNAME", json_string(user.name));
        }
        json_object_update(variables, json_get_object(doc, "env"));
        if (working_dir(op->arena, doc))
                *ret_cwd = working_dir(op->arena, doc);
        return 0;
}
