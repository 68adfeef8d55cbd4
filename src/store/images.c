/* SQL for `images`, `image_layers` and `image_parts`. */
#include "store/images.h"

#include "store/row.h"

static const struct column image_columns[] = {
        TEXT(struct image_row, id, "id", FIXED),
        TEXT(struct image_row, company_id, "companyId", FIXED),
        TEXT(struct image_row, reference, "reference"),
        TEXT(struct image_row, repository, NULL, FIXED),
        TEXT(struct image_row, digest, "digest"),
        TEXT(struct image_row, state, "state"),
        DOCUMENT(struct image_row, config, "config"),
        NUMBER(struct image_row, bytes, "bytes"),
        TEXT(struct image_row, error, "error"),
        TEXT(struct image_row, owner_instance),
        TIME(struct image_row, created_at, "createdAt", FIXED),
        TIME(struct image_row, updated_at, "updatedAt"),
        TIME(struct image_row, used_at, "usedAt"),
};
const struct row_type image_table =
        ROW_TYPE("images", struct image_row, image_columns, "Image not found");

static const struct column layer_columns[] = {
        TEXT(struct image_layer_row, id, "id", FIXED),
        TEXT(struct image_layer_row, diff_id, "diffId", FIXED),
        TEXT(struct image_layer_row, blob, "digest"),
        TEXT(struct image_layer_row, state, "state"),
        NUMBER(struct image_layer_row, bytes, "bytes"),
        TEXT(struct image_layer_row, owner_instance),
        TIME(struct image_layer_row, created_at, NULL, FIXED),
        TIME(struct image_layer_row, updated_at, NULL),
};
const struct row_type image_layer_table =
        ROW_TYPE("image_layers", struct image_layer_row, layer_columns, "Layer not found");

int images_find(struct db *db, const char *company_id, const char *name, struct arena *arena,
                struct image_row *ret, struct err *err)
{
        return row_get(db, &image_table,
                       "SELECT * FROM images WHERE (company_id = ?1 OR company_id IS NULL) "
                       "AND (id = ?2 OR (state = 'ready' AND (reference = ?2 OR digest = ?2))) "
                       "ORDER BY CASE WHEN company_id IS NULL THEN 1 ELSE 0 END, created_at DESC "
                       "LIMIT 1",
                       DB_ARGS(DB_T(company_id), DB_T(name)), arena, ret, err);
}

int images_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                int64_t limit, struct arena *arena, image_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &image_table,
                        "SELECT * FROM images WHERE (company_id = ?1 OR company_id IS NULL) "
                        "AND (CAST(?3 AS TEXT) IS NULL OR created_at < ?2 "
                        "OR (created_at = ?2 AND id < ?3)) "
                        "ORDER BY created_at DESC, id DESC LIMIT ?4",
                        DB_ARGS(DB_T(company_id), DB_I(before_us), DB_T(before_id), DB_I(limit)),
                        arena, fn, ctx, err);
}

int images_of(struct db *db, const char *company_id, struct arena *arena, struct image_row **ret,
              struct err *err)
{
        return row_all(db, &image_table,
                       "SELECT * FROM images WHERE CAST(?1 AS TEXT) IS NULL OR company_id = ?1 "
                       "ORDER BY created_at DESC, id DESC",
                       DB_ARGS(DB_T(company_id)), arena, ret, err);
}

int images_move(struct db *db, const char *id, const char *from, const struct image_row *to,
                struct err *err)
{
        return row_exec(db, &image_table, "UPDATE images SET * WHERE id = ?1 AND state = ?2", to,
                        DB_ARGS(DB_T(id), DB_T(from)), err);
}

int images_touch(struct db *db, const char *id, int64_t used_at, struct err *err)
{
        return db_exec(db, "UPDATE images SET used_at = ?2 WHERE id = ?1 AND used_at < ?2",
                       DB_ARGS(DB_T(id), DB_I(used_at)), err);
}

int images_rename_others(struct db *db, const struct image_row *row, struct err *err)
{
        return db_exec(db,
                       "UPDATE images SET reference = CASE WHEN repository = '' THEN digest "
                       "ELSE repository || '@' || digest END "
                       "WHERE reference = ?1 AND state = 'ready' AND id <> ?2 "
                       "AND COALESCE(company_id, '') = COALESCE(?3, '')",
                       DB_ARGS(DB_T(row->reference), DB_T(row->id), DB_T(row->company_id)), err);
}

int images_delete(struct db *db, const char *id, const char *state, struct err *err)
{
        int r = db_exec(db,
                        "DELETE FROM image_parts WHERE image_id = ?1 AND EXISTS "
                        "(SELECT 1 FROM images WHERE id = ?1 AND state = ?2)",
                        DB_ARGS(DB_T(id), DB_T(state)), err);

        return r < 0 ? r
                     : db_exec(db, "DELETE FROM images WHERE id = ?1 AND state = ?2",
                               DB_ARGS(DB_T(id), DB_T(state)), err);
}

int images_open(struct db *db, struct arena *arena, struct image_row **ret, struct err *err)
{
        return row_all(db, &image_table, "SELECT * FROM images WHERE state <> 'ready' ORDER BY id",
                       DB_NO_ARGS, arena, ret, err);
}

int images_unused(struct db *db, struct arena *arena, struct image_row **ret, struct err *err)
{
        return row_all(db, &image_table,
                       "SELECT * FROM images WHERE state = 'ready' "
                       "AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE image_id = images.id) "
                       "AND NOT EXISTS (SELECT 1 FROM snapshots WHERE image_id = images.id) "
                       "ORDER BY used_at, id",
                       DB_NO_ARGS, arena, ret, err);
}

int images_count_users(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT (SELECT COUNT(*) FROM sandboxes WHERE image_id = ?1) + "
                         "(SELECT COUNT(*) FROM snapshots WHERE image_id = ?1)",
                         DB_ARGS(DB_T(id)), ret, err);
}

int image_layers_find(struct db *db, const struct image_row *image, const char *diff_id,
                      struct arena *arena, struct image_layer_row *ret, struct err *err)
{
        return row_find(
                db, &image_layer_table,
                "SELECT * FROM image_layers WHERE diff_id = ?1 AND state <> 'deleting' "
                "AND EXISTS (SELECT 1 FROM image_parts p JOIN images i ON i.id = p.image_id "
                "WHERE p.layer_id = image_layers.id AND (i.company_id IS NULL "
                "OR i.company_id = ?2 OR (?3 <> '' AND i.repository = ?3))) "
                "ORDER BY CASE state WHEN 'ready' THEN 0 WHEN 'making' THEN 1 ELSE 2 END, "
                "id LIMIT 1",
                DB_ARGS(DB_T(diff_id), DB_T(image->company_id), DB_T(image->repository)), arena,
                ret, err);
}

int image_layers_move(struct db *db, const struct image_layer_row *from,
                      const struct image_layer_row *to, struct err *err)
{
        return row_exec(
                db, &image_layer_table,
                "UPDATE image_layers SET * WHERE id = ?1 AND state = ?2 AND owner_instance = ?3",
                to, DB_ARGS(DB_T(from->id), DB_T(from->state), DB_T(from->owner_instance)), err);
}

int image_layers_delete(struct db *db, const char *id, const char *state, struct err *err)
{
        return db_exec(db, "DELETE FROM image_layers WHERE id = ?1 AND state = ?2",
                       DB_ARGS(DB_T(id), DB_T(state)), err);
}

int image_layers_of(struct db *db, const char *image_id, struct arena *arena,
                    struct image_layer_row **ret, struct err *err)
{
        return row_all(db, &image_layer_table,
                       "SELECT * FROM image_layers JOIN image_parts p ON p.layer_id = "
                       "image_layers.id WHERE p.image_id = ?1 ORDER BY p.position",
                       DB_ARGS(DB_T(image_id)), arena, ret, err);
}

int image_layers_loose(struct db *db, struct arena *arena, struct image_layer_row **ret,
                       struct err *err)
{
        return row_all(db, &image_layer_table,
                       "SELECT * FROM image_layers WHERE state <> 'making' AND NOT EXISTS "
                       "(SELECT 1 FROM image_parts WHERE layer_id = image_layers.id) ORDER BY id",
                       DB_NO_ARGS, arena, ret, err);
}

int image_layers_open(struct db *db, struct arena *arena, struct image_layer_row **ret,
                      struct err *err)
{
        return row_all(db, &image_layer_table,
                       "SELECT * FROM image_layers WHERE state = 'making' ORDER BY id", DB_NO_ARGS,
                       arena, ret, err);
}

int image_layers_bytes(struct db *db, int64_t *ret, struct err *err)
{
        return db_number(db, "SELECT COALESCE(SUM(bytes), 0) FROM image_layers", DB_NO_ARGS, ret,
                         err);
}

int image_parts_set(struct db *db, const char *image_id, int64_t position, const char *layer_id,
                    struct err *err)
{
        return db_exec(db,
                       "INSERT INTO image_parts (image_id, position, layer_id) VALUES (?1, ?2, ?3) "
                       "ON CONFLICT (image_id, position) DO UPDATE SET layer_id = ?3",
                       DB_ARGS(DB_T(image_id), DB_I(position), DB_T(layer_id)), err);
}
