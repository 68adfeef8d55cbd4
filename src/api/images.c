/* Images that sandboxes are made of. Getting one goes on after the answer: the client asks again,
 * and sees how far each layer is. */
#include "api/api.h"
#include "api/encode.h"
#include "core/images/image.h"

#define LIST_DEFAULT 100
#define LIST_MAX     500

static const char *const formats[] = { "archive", "directory", NULL };

struct image_body {
        const char *reference, *secret_id, *path, *format;
        json_t *config;
        bool instance; /* it is the instance's */
};

static const struct body_member pull_members[] = {
        BODY_TEXT(struct image_body, reference, "reference", .flags = CHECK_REQUIRED, .min = 1),
        BODY_FLAG(struct image_body, instance, "instance"),
        BODY_UUID(struct image_body, secret_id, "secretId"),
};
static const struct body_type pull_body = BODY_TYPE(pull_members, .is_strict = true);

static const struct body_member import_members[] = {
        BODY_TEXT(struct image_body, reference, "reference", .flags = CHECK_REQUIRED, .min = 1),
        BODY_FLAG(struct image_body, instance, "instance"),
        BODY_TEXT(struct image_body, path, "path", .flags = CHECK_REQUIRED, .min = 1),
        BODY_WORD(struct image_body, format, "format", formats),
        BODY_OBJECT(struct image_body, config, "config"),
};
static const struct body_type import_body = BODY_TYPE(import_members, .is_strict = true);

static const struct body_member prune_members[] = {
        BODY_FLAG(struct image_body, instance, "instance"),
};
static const struct body_type prune_body = BODY_TYPE(prune_members, .is_strict = true);

static void write_image(struct jw *w, const struct call *c, const struct image_row *row)
{
        CLEAN(json_decrefp) json_t *progress = image_progress(c->rt, row->id);

        jw_object(w);
        encode_members(w, &image_table, row);
        if (progress)
                jw_kvalue(w, "progress", progress);
        jw_object_end(w);
}

static int answer_image(struct call *c, int r, const struct image_row *row)
{
        if (r >= 0)
                write_image(call_json(c), c, row);
        return r;
}

/* The owner that the body asks for, and whether the caller may. */
static int owner_of(struct call *c, const struct image_body *b, const char **ret, struct err *err)
{
        *ret = b->instance ? NULL : c->params[0];
        return image_may(c->op, c->rt, *ret, true, err);
}

static int pull_image(struct call *c, struct err *err)
{
        struct image_body b = { 0 };
        struct image_request req = { 0 };
        struct image_login login = { 0 };
        struct image_row row = { 0 };
        struct body body = body_decode(&pull_body, c->body, true, c->op->arena, &b);
        int r = owner_of(c, &b, &req.company_id, err);
        if (r >= 0)
                r = body_check(&body, err);
        if (r >= 0)
                r = image_login_for(c->op, c->rt, c->params[0], b.reference, b.secret_id, &login,
                                    err);
        if (r < 0)
                return r;
        req.reference = b.reference;
        r = image_start(c->op, c->rt, &req, &login, -1, &row, err);
        return answer_image(c, r, &row);
}

static int import_image(struct call *c, struct err *err)
{
        struct image_body b = { 0 };
        struct image_source from = { 0 };
        struct image_request req = { .from = &from };
        struct image_login none = { 0 };
        struct image_row row = { 0 };
        struct body body = body_decode(&import_body, c->body, true, c->op->arena, &b);
        int fd = -1, r = owner_of(c, &b, &req.company_id, err);
        if (r >= 0)
                r = body_check(&body, err);
        if (r >= 0)
                r = image_open_source(c->op, c->rt, c->params[0], b.path, &fd, err);
        if (r < 0)
                return r;
        req.reference = b.reference;
        from.is_tree = b.format && streq(b.format, "directory");
        from.set = b.config;
        r = image_start(c->op, c->rt, &req, &none, fd, &row, err);
        return answer_image(c, r, &row);
}

static int show_in_list(void *ctx, const struct image_row *row)
{
        struct call_page *p = ctx;

        if (call_page_has_room(p, row->created_at, row->id))
                encode_row(p->w, &image_table, row);
        return 0;
}

static int list_images(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct call_page p = { 0 };
        int r = image_may(c->op, c->rt, c->params[0], false, err);

        if (r >= 0)
                r = call_page(c, &p, LIST_DEFAULT, LIST_MAX, err);
        if (r >= 0)
                r = store_read_begin(c->op, c->rt->store, &db, err);
        if (r < 0)
                return r;
        call_page_begin(c, &p);
        r = images_list(db, c->params[0], p.before_us, p.before_id, call_page_rows(&p),
                        c->op->arena, show_in_list, &p, err);
        return call_page_end(c, &p, r, err);
}

static int get_image(struct call *c, struct err *err)
{
        struct image_row row = { 0 };
        int r = image_may(c->op, c->rt, c->params[0], false, err);

        if (r >= 0)
                r = image_get_row(c->op, c->rt, c->params[0], c->params[1], &row, err);
        return answer_image(c, r, &row);
}

static int delete_image(struct call *c, struct err *err)
{
        struct image_row row = { 0 };
        int r = image_may(c->op, c->rt, c->params[0], false, err);

        if (r >= 0)
                r = image_remove(c->op, c->rt, c->params[0], c->params[1], &row, err);
        return answer_image(c, r, &row);
}

static int prune_images(struct call *c, struct err *err)
{
        struct image_body b = { 0 };
        struct body body = body_decode(&prune_body, c->body, true, c->op->arena, &b);
        int64_t images = 0, bytes = 0;
        const char *owner;
        int r = owner_of(c, &b, &owner, err);
        if (r >= 0)
                r = body_check(&body, err);
        if (r >= 0)
                r = image_prune(c->op, c->rt, owner, &images, &bytes, err);
        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kint(w, "images", images);
        jw_kint(w, "bytes", bytes);
        jw_object_end(w);
        return 0;
}

const struct route routes_images[] = {
        { "GET", "/api/companies/:companyId/images", .fn = list_images },
        { "POST", "/api/companies/:companyId/images", .fn = pull_image, .status = 202,
          .flags = ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/images/import", .fn = import_image, .status = 202 },
        { "POST", "/api/companies/:companyId/images/prune", .fn = prune_images,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/companies/:companyId/images/:name", .fn = get_image },
        { "DELETE", "/api/companies/:companyId/images/:name", .fn = delete_image },
        { 0 },
};
