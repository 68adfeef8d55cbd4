/* Getting an image: the intent, the documents, the layers, and the row that says it is ready. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/audit.h"
#include "core/images/image_layers.h"
#include "core/live/run_event.h"
#include "core/sandboxes/sandbox_host.h"
#include "rt/mail.h"
#include "rt/pool.h"

/* Rights */

int image_may(struct op *op, struct runtime *rt, const char *company_id, bool write,
              struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r < 0)
                return r;
        if (!company_id)
                return access_admin(op->actor, "Images of the instance are for its admins.", err);
        r = access_board(op->actor, err);
        if (r >= 0)
                r = write ? access_manage_environments(db, op->actor, company_id, err)
                          : access_company(db, op->actor, company_id, false, err);
        return r;
}

/* Progress */

/* On the stack of the operation that pulls; readers find it in the list. */
struct image_pull {
        struct image_pull *next;
        const char *image_id;
        struct layer_work *layers;
        size_t n;
};

static void pull_show(struct runtime *rt, struct image_pull *p)
{
        pthread_mutex_lock(&rt->sandbox->images_lock);
        p->next = rt->sandbox->pulls;
        rt->sandbox->pulls = p;
        pthread_mutex_unlock(&rt->sandbox->images_lock);
}

static void pull_hide(struct runtime *rt, struct image_pull *p)
{
        struct image_pull **at;

        pthread_mutex_lock(&rt->sandbox->images_lock);
        for (at = &rt->sandbox->pulls; *at != p; at = &(*at)->next)
                ;
        *at = p->next;
        pthread_mutex_unlock(&rt->sandbox->images_lock);
}

json_t *image_progress(const struct runtime *rt, const char *image_id)
{
        const struct image_pull *p;
        json_t *list = NULL;

        if (!rt->sandbox)
                return NULL;
        pthread_mutex_lock(&rt->sandbox->images_lock);
        for (p = rt->sandbox->pulls; p && !streq(p->image_id, image_id); p = p->next)
                ;
        if (p)
                list = json_array();
        for (size_t i = 0; p && i < p->n; i++)
                json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "digest",
                                                      p->layers[i].what->digest, "state",
                                                      p->layers[i].say, "done",
                                                      (json_int_t)p->layers[i].done, "total",
                                                      (json_int_t)p->layers[i].what->size));
        pthread_mutex_unlock(&rt->sandbox->images_lock);
        return list;
}

/* The intent */

static bool is_allowed_host(const char *list, const char *host)
{
        size_t n = strlen(host);

        for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
                if (strcspn(at, ",") == n && strncmp(at, host, n) == 0)
                        return true;
        return !list || !*list;
}

static int image_insert(struct db *db, void *arg, struct err *err)
{
        return images_insert(db, arg, err);
}

/* The intent: the row, `pulling`. */
static int image_begin(struct op *op, struct runtime *rt, const struct image_request *req,
                       struct image_row *ret, struct err *err)
{
        int64_t now = clock_now_us();
        char text[IMAGE_REF_SIZE];
        struct image_ref ref;
        int r;

        if (!rt->sandbox)
                return err_set(err, ERR_UNPROCESSABLE, "This daemon has no sandboxes.");
        r = image_ref_parse(req->reference, &ref, err);
        if (r < 0)
                return err_wrap(err, ERR_UNPROCESSABLE, "image");
        if (!req->from && !is_allowed_host(rt->settings.image_allowed_registries, ref.host))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Images of %s are not allowed here: the setting "
                               "image_allowed_registries names %s.",
                               ref.host, rt->settings.image_allowed_registries);
        image_ref_format(&ref, text);
        *ret = (struct image_row){
                .id = arena_strdup(op->arena, uuid_new().s),
                .company_id = req->company_id,
                .reference = arena_strdup(op->arena, text),
                .repository =
                        req->from ? "" : arena_printf(op->arena, "%s/%s", ref.host, ref.repository),
                .state = IMAGE_PULLING,
                .owner_instance = rt->node.instance.s,
                .created_at = now,
                .updated_at = now,
                .used_at = now,
        };
        FAULT("image.intend.before");
        r = store_write(op, rt->store, image_insert, ret, err);
        FAULT("image.intend.after");
        return r;
}

/* The configuration, as the row keeps it */

static json_t *list_of(const char *const *texts)
{
        json_t *list = json_array();

        for (; texts && *texts; texts++)
                json_array_append_new(list, json_string(*texts));
        return list;
}

static json_t *variables_of(const char *const *texts)
{
        json_t *o = json_object();

        for (; texts && *texts; texts++) {
                const char *eq = strchr(*texts, '=');
                CLEAN(cleanup_free)
                char *name = eq ? xstrndup(*texts, (size_t)(eq - *texts)) : NULL;

                if (name && *name)
                        json_object_set_new(o, name, json_string(eq + 1));
        }
        return o;
}

static const char *config_text(struct op *op, const struct image_config *c,
                               const struct image_user *user)
{
        json_t *doc =
                json_pack("{s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:s}", "user", c->user, "runsAs",
                          json_pack("{s:I, s:I, s:s, s:s}", "uid", (json_int_t)user->uid, "gid",
                                    (json_int_t)user->gid, "name", user->name, "home", user->home),
                          "workingDir", c->working_dir, "env", variables_of(c->env), "entrypoint",
                          list_of(c->entrypoint), "cmd", list_of(c->cmd), "ports",
                          list_of(c->ports), "architecture", c->platform.architecture);

        return json_to_arena(op->arena, json_keep(op->arena, doc));
}

/* The work */

struct getting {
        struct op *op;
        struct runtime *rt;
        const struct image_request *req;
        struct image_row *row;
        struct image image;
        struct layer_work *layers;
        struct registry *registry;
        struct image_archive *archive;
        int tree; /* of a directory: the layer's tar */
};

static void getting_done(struct getting *g)
{
        registry_close(g->registry);
        image_archive_close(g->archive);
        cleanup_fd(&g->tree);
}

struct fetch_view {
        struct runtime *rt;
        struct layer_work *const *layers;
};

static void on_fetched(void *ctx, size_t i, uint64_t done, uint64_t total, bool is_verified)
{
        struct fetch_view *v = ctx;

        pthread_mutex_lock(&v->rt->sandbox->images_lock);
        v->layers[i]->done = done;
        v->layers[i]->say = is_verified ? "fetched" : "fetching";
        pthread_mutex_unlock(&v->rt->sandbox->images_lock);
}

static int bring_from_registry(void *ctx, struct op *op, struct layer_work *const *layers,
                               const int *fds, size_t n, struct err *err)
{
        struct getting *g = ctx;
        struct fetch_view view = { g->rt, layers };
        struct registry_progress progress = { on_fetched, &view };
        struct registry_blob blobs[IMAGE_MAX_LAYERS];

        for (size_t i = 0; i < n; i++)
                blobs[i] = (struct registry_blob){ layers[i]->what, fds[i] };
        return registry_fetch(op, g->registry, blobs, n, &progress, err);
}

static int bring_from_archive(void *ctx, struct op *op, struct layer_work *const *layers,
                              const int *fds, size_t n, struct err *err)
{
        struct getting *g = ctx;
        struct fetch_view view = { g->rt, layers };
        int r = 0;

        for (size_t i = 0; r >= 0 && i < n; i++) {
                if (ftruncate(fds[i], 0) < 0 || lseek(fds[i], 0, SEEK_SET) < 0)
                        return err_sys(err, ERR_IO, errno, "make a layer's file");
                r = image_archive_copy(op, g->archive, layers[i]->what, fds[i], err);
                if (r >= 0)
                        on_fetched(&view, i, layers[i]->what->size, layers[i]->what->size, true);
        }
        return r;
}

/* The only layer of an image from a directory was written while its digest was found. */
static int bring_from_tree(void *ctx, struct op *op, struct layer_work *const *layers,
                           const int *fds, size_t n, struct err *err)
{
        struct getting *g = ctx;
        off_t at = 0;
        ssize_t moved = 1;

        if (ftruncate(fds[0], 0) < 0 || lseek(fds[0], 0, SEEK_SET) < 0)
                return err_sys(err, ERR_IO, errno, "make a layer's file");
        while (moved > 0) {
                int r = op_check(op, err);

                if (r < 0)
                        return r;
                moved = copy_file_range(g->tree, &at, fds[0], NULL, (size_t)64 << 20, 0);
        }
        return moved < 0 ? err_sys(err, ERR_IO, errno, "copy the layer") : 0;
}

static const char *const *texts_of(struct op *op, const json_t *list)
{
        size_t n = json_array_size(list);
        const char **texts = arena_alloc(op->arena, (n + 1) * sizeof(*texts));

        for (size_t i = 0; i < n; i++)
                texts[i] = json_string_value(json_array_get(list, i));
        texts[n] = NULL;
        return texts;
}

static const char *const *variable_texts(struct op *op, const json_t *env)
{
        const char **texts = arena_alloc(op->arena, (json_object_size(env) + 1) * sizeof(*texts));
        const char *name;
        json_t *value;
        size_t n = 0;

        json_object_foreach((json_t *)env, name, value) texts[n++] =
                arena_printf(op->arena, "%s=%s", name, json_string_value(value));
        texts[n] = NULL;
        return texts;
}

static const char *text_or_none(const json_t *o, const char *key)
{
        const char *s = json_get_string(o, key);

        return s ? s : "";
}

static int read_tree(struct getting *g, struct err *err)
{
        const json_t *set = g->req->from->set;
        struct image_config config = {
                .user = text_or_none(set, "user"),
                .working_dir = text_or_none(set, "workingDir"),
                .env = variable_texts(g->op, json_get_object(set, "env")),
                .entrypoint = texts_of(g->op, json_object_get(set, "entrypoint")),
                .cmd = texts_of(g->op, json_object_get(set, "cmd")),
                .ports = texts_of(g->op, NULL),
                .stop_signal = "",
        };

        image_platform_here(&config.platform);
        /* Without a name: it goes with the operation, or with the daemon. */
        g->tree = open(g->rt->sandbox->images_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (g->tree < 0)
                return err_sys(err, ERR_IO, errno, "make a file for the image");
        return image_from_dir(g->op, g->req->from->fd, &config, g->tree, &g->image, err);
}

static int read_archive(struct getting *g, const struct image_platform *platform, struct err *err)
{
        struct image_ref wanted, ref;
        char text[IMAGE_REF_SIZE], other[IMAGE_REF_SIZE];
        size_t n, i = 0;
        int r = image_archive_open(g->op, g->req->from->fd, &g->archive, err);

        if (r < 0)
                return r;
        n = image_archive_count(g->archive);
        if (n > 1 && image_ref_parse(g->row->reference, &wanted, NULL) >= 0) {
                image_ref_format(&wanted, text);
                for (; i < n; i++) {
                        if (image_ref_parse(image_archive_name(g->archive, i), &ref, NULL) < 0)
                                continue;
                        image_ref_format(&ref, other);
                        if (streq(text, other))
                                break;
                }
        }
        if (n == 0 || i == n)
                return err_set(err, ERR_UNPROCESSABLE,
                               "The archive has %zu images, and none is called %s.", n,
                               g->row->reference);
        return image_archive_image(g->op, g->archive, i, platform, &g->image, err);
}

static int read_documents(struct getting *g, const struct registry_rules *rules, struct err *err)
{
        struct image_platform platform;
        struct image_ref ref;
        int r = image_ref_parse(g->row->reference, &ref, err);

        image_platform_here(&platform);
        if (r < 0)
                return r;
        if (g->req->from && g->req->from->is_tree)
                return read_tree(g, err);
        if (g->req->from)
                return read_archive(g, &platform, err);
        pool_needs_seat(g->op, "a registry");
        g->registry = registry_open(
                rules, &ref, g->req->login && g->req->login->password ? g->req->login : NULL, NULL);
        return registry_image(g->op, g->registry, &platform, &g->image, err);
}

static int write_image(struct db *db, void *arg, struct err *err)
{
        struct getting *g = arg;
        int r = images_move(db, g->row->id, IMAGE_PULLING, g->row, err);

        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The image was removed meanwhile.");
        if (r >= 0 && streq(g->row->state, IMAGE_READY)) {
                r = images_rename_others(db, g->row, err);
                if (r >= 0 && g->row->company_id)
                        r = audit(db, g->op, g->row->company_id, "environment.image_pulled",
                                  "environment_image", g->row->id,
                                  json_pack("{s:s, s:s}", "reference", g->row->reference, "digest",
                                            g->row->digest),
                                  err);
        }
        return MIN(r, 0);
}

static int record_image(struct getting *g, const char *state, struct err *err)
{
        g->row->state = state;
        g->row->updated_at = g->row->used_at = clock_now_us();
        return store_write(g->op, g->rt->store, write_image, g, err);
}

static int get_layers(struct getting *g, struct err *err)
{
        const struct image_manifest *m = &g->image.manifest;
        struct layer_bringer bringer = { g->archive    ? bring_from_archive
                                         : g->registry ? bring_from_registry
                                                       : bring_from_tree,
                                         g };
        struct image_pull shown;
        struct image_user user = { 0 };

        g->layers = arena_alloc(g->op->arena, m->n_layers * sizeof(*g->layers));
        for (size_t i = 0; i < m->n_layers; i++)
                g->layers[i] = (struct layer_work){ .what = &m->layers[i],
                                                    .diff_id = g->image.config.diff_ids[i],
                                                    .say = "waiting" };
        shown = (struct image_pull){ .image_id = g->row->id,
                                     .layers = g->layers,
                                     .n = m->n_layers };
        pull_show(g->rt, &shown);
        int r = image_layers_make(g->op, g->rt, g->row, g->layers, m->n_layers, &bringer, err);
        pull_hide(g->rt, &shown);
        if (r >= 0)
                r = image_find_user(g->op, g->rt, g->layers, m->n_layers, g->image.config.user,
                                    &user, err);
        if (r < 0)
                return r;
        g->row->config = config_text(g->op, &g->image.config, &user);
        g->row->bytes = 0;
        for (size_t i = 0; i < m->n_layers; i++)
                g->row->bytes += g->layers[i].row.bytes;
        FAULT("image.ready.before");
        r = record_image(g, IMAGE_READY, err);
        FAULT("image.ready.after");
        return r;
}

static int get_image(struct getting *g, struct err *err)
{
        struct registry_rules *rules = arena_new(g->op->arena, struct registry_rules);
        int r = registry_rules_parse(g->rt->settings.image_registries, rules, err);

        if (r >= 0)
                r = read_documents(g, rules, err);
        if (r < 0)
                return r;
        g->row->digest = arena_strdup(g->op->arena, g->image.digest);
        FAULT("image.documents.before");
        r = record_image(g, IMAGE_PULLING, err);
        FAULT("image.documents.after");
        return r < 0 ? r : get_layers(g, err);
}

/* Get everything that the row is still missing. The row is `ready` or `failed` afterwards, and
 * *row says what it is. */
static int image_get(struct op *op, struct runtime *rt, const struct image_request *req,
                     struct image_row *row, struct err *err)
{
        CLEAN(getting_done)
        struct getting g = { .op = op, .rt = rt, .req = req, .row = row, .tree = -1 };
        CLEAN(err_done) struct err why = { 0 };
        int r = get_image(&g, &why);

        if (r >= 0)
                return 0;
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);
        g.op = &shield;
        row->error = arena_strdup(op->arena, why.msg);
        (void)record_image(&g, IMAGE_FAILED, NULL);
        /* What a registry refuses is no answer to the caller's own identity. */
        if (r == ERR_UNAUTHORIZED || r == ERR_FORBIDDEN || r == ERR_NOT_FOUND || r == ERR_INVALID)
                r = ERR_UNPROCESSABLE;
        return err_set(err, r, "%s: %s", row->reference, why.msg);
}

/* On a thread of its own */

struct image_job {
        struct letter letter;
        struct pool_job job;
        struct runtime *rt;
        struct arena arena; /* of the row and the request */
        struct image_row row;
        struct image_request req;
        struct image_source from;
        struct image_login login;
};

static void job_run(struct pool_job *job, struct op *op)
{
        struct image_job *j = container_of(job, struct image_job, job);
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        if (image_get(op, j->rt, &j->req, &j->row, &err) < 0)
                log_info("an image could not be got", LOG_S("image", j->row.id),
                         LOG_S("error", err.msg));
}

static void job_done(struct pool_job *job)
{
        struct image_job *j = container_of(job, struct image_job, job);

        image_login_done(&j->login);
        cleanup_fd(&j->from.fd);
        arena_done(&j->arena);
        free(j);
}

/* Where the pool takes nothing any more, the daemon ends: its next start finds the row. */
static void job_on_loop(struct letter *letter)
{
        struct image_job *j = container_of(letter, struct image_job, letter);

        j->job = (struct pool_job){ .run = job_run, .done = job_done, .urgent = true };
        j->job.timeout_ms = j->rt->settings.image_pull_timeout_ms;
        pool_job_lane(&j->job, LANE_PEERS,
                      lane_name(j->req.company_id, arena_printf(&j->arena, "image-%s", j->row.id)));
        if (pool_submit(j->rt->pool, &j->job, NULL) < 0)
                job_done(&j->job);
}

static struct image_row copy_row(struct arena *arena, const struct image_row *row)
{
        struct image_row copy = *row;

        copy.id = arena_strdup(arena, row->id);
        copy.company_id = arena_strdup(arena, row->company_id);
        copy.reference = arena_strdup(arena, row->reference);
        copy.repository = arena_strdup(arena, row->repository);
        return copy;
}

int image_start(struct op *op, struct runtime *rt, const struct image_request *req,
                struct image_login *take_login, int take_source, struct image_row *ret,
                struct err *err)
{
        struct image_job *j = xcalloc(1, sizeof(*j));
        int r;

        arena_init(&j->arena);
        j->rt = rt;
        j->login = *take_login;
        *take_login = (struct image_login){ 0 };
        j->from.fd = take_source;
        r = image_begin(op, rt, req, ret, err);
        if (r < 0) {
                job_done(&j->job);
                return r;
        }
        j->row = copy_row(&j->arena, ret);
        j->req = (struct image_request){ .company_id = j->row.company_id,
                                         .reference = j->row.reference,
                                         .login = &j->login };
        if (req->from) {
                j->from.is_tree = req->from->is_tree;
                j->from.set = req->from->set ? json_keep(&j->arena, json_deep_copy(req->from->set))
                                             : NULL;
                j->req.from = &j->from;
        }
        mail_post(rt->mail, &j->letter, job_on_loop);
        return 0;
}

/* For a sandbox */

struct run_note {
        struct op *op;
        struct runtime *rt;
        const char *run_id, *text;
};

static int write_run_note(struct db *db, void *arg, struct err *err)
{
        const struct run_note *n = arg;
        struct run run;
        int r = runs_get(db, n->run_id, n->op->arena, &run, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? r : run_event_add(db, n->rt, &run, "image", "info", n->text, NULL, err);
}

static int tell_run(struct op *op, struct runtime *rt, const char *run_id, const char *reference,
                    struct err *err)
{
        struct run_note n = { op, rt, run_id,
                              arena_printf(op->arena, "pulling the image %s", reference) };

        return store_write(op, rt->store, write_run_note, &n, err);
}

int image_ensure(struct op *op, struct runtime *rt, const char *company_id, const char *reference,
                 const char *pull, const char *run_id, struct image_row *ret, struct err *err)
{
        CLEAN(image_login_done) struct image_login login = { 0 };
        struct image_request req = { .company_id = company_id,
                                     .reference = reference,
                                     .login = &login };
        struct op longer = op_with_time(op, rt->settings.image_pull_timeout_ms);
        char text[IMAGE_REF_SIZE];
        struct image_ref ref;
        int r = ERR_NOT_FOUND;

        if (image_ref_parse(reference, &ref, err) < 0)
                return err_wrap(err, ERR_UNPROCESSABLE, "image");
        image_ref_format(&ref, text);
        {
                CLEAN(store_read_end) struct db *db = NULL;

                r = store_read_begin(op, rt->store, &db, err);
                if (r >= 0)
                        r = images_find(db, company_id, text, op->arena, ret, err);
        }
        if (r >= 0 && (!streq(pull, "always") || !*ret->repository))
                return 0;
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        if (streq(pull, "never"))
                return err_set(err, ERR_UNPROCESSABLE,
                               "The image %s is not here, and pull is \"never\". Get it with: "
                               "berth image pull %s",
                               text, reference);
        r = image_login_for(op, rt, company_id, reference, NULL, &login, err);
        if (r >= 0 && run_id)
                r = tell_run(op, rt, run_id, text, err);
        if (r >= 0)
                r = image_begin(op, rt, &req, ret, err);
        return r < 0 ? r : image_get(&longer, rt, &req, ret, err);
}

int image_claim(struct db *db, const char *company_id, const char *reference, const char *digest,
                struct arena *arena, struct image_row *ret, struct err *err)
{
        int r = images_find(db, company_id, digest, arena, ret, err);

        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_CONFLICT, "The image %s was removed meanwhile.", reference);
        if (r >= 0)
                r = images_touch(db, ret->id, clock_now_us(), err);
        return MIN(r, 0);
}

/* A layer that is in an image twice is shown once: what is in the upper one hides the lower. */
int image_directories(struct op *op, struct runtime *rt, const char *image_id, const char **ret,
                      size_t room, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct image_layer_row *rows = NULL;
        size_t n = 0;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = image_layers_of(db, image_id, op->arena, &rows, err);
        if (r < 0 || !rows)
                return r;
        for (int i = r - 1; i >= 0; i--) {
                int above = i + 1;

                while (above < r && !streq(rows[above].id, rows[i].id))
                        above++;
                if (above < r)
                        continue;
                if (n == room)
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "The image has more than %zu layers.", room);
                ret[n++] =
                        arena_printf(op->arena, "%s/%s/root", rt->sandbox->images_dir, rows[i].id);
        }
        return (int)n;
}
