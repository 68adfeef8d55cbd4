/* Fetches a package to the directory that it can be run from.
 *
 * What is on disk when:
 *   before npm runs          a row in plugin_installs
 *   npm and the checks run   staging/<install>
 *   all is well              packages/<install>, synced; the caller then names it in a row, in the
 *                            transaction that forgets the fetch
 *
 * A crash before that transaction leaves files that no row names, which the next start removes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/plugins/plugin_internal.h"

/* Files */

static const char *staging_of(struct op *op, struct plugin_registry *reg, const char *install_id)
{
        return arena_printf(op->arena, "%s/%s", reg->staging_dir, install_id);
}

static const char *package_of(struct op *op, struct plugin_registry *reg, const char *install_id)
{
        return arena_printf(op->arena, "%s/%s", reg->packages_dir, install_id);
}

void plugin_remove_package(struct op *op, struct plugin_registry *reg, const char *install_id)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);

        if (install_id && tree_remove(&shield, package_of(op, reg, install_id), &err) < 0)
                log_warn("the files of a plugin could not be removed; the next start tries again",
                         LOG_S("install", install_id), LOG_S("error", err.msg));
}

static int forget_fetch(struct db *db, void *arg, struct err *err)
{
        return plugin_installs_delete(db, arg, err);
}

void plugin_abandon(struct op *op, struct plugin_registry *reg, const char *install_id)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);

        if (!install_id)
                return;
        int r = tree_remove(&shield, staging_of(op, reg, install_id), &err);
        if (r >= 0)
                r = tree_remove(&shield, package_of(op, reg, install_id), &err);
        if (r >= 0)
                r = store_write(&shield, reg->config.rt->store, forget_fetch, (void *)install_id,
                                &err);
        if (r < 0)
                log_warn("what was fetched could not be removed; the next start tries again",
                         LOG_S("install", install_id), LOG_S("error", err.msg));
}

/* The directory; with `all`, everything below it too. */
static int sync_dir(const char *path, bool all, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0 || (all ? syncfs(fd) : fsync(fd)) < 0)
                return err_sys(err, ERR_IO, errno, "sync %s", path);
        return 0;
}

static int put_in_place(struct op *op, struct plugin_registry *reg, const char *install_id,
                        struct err *err)
{
        const char *from = staging_of(op, reg, install_id), *to = package_of(op, reg, install_id);
        int r = sync_dir(from, true, err);

        if (r < 0)
                return r;
        FAULT("registry.place.before");
        if (rename(from, to) < 0)
                return err_sys(err, ERR_IO, errno, "rename %s", from);
        FAULT("registry.place.after");
        return sync_dir(reg->packages_dir, false, err);
}

/* Getting */

static int record_fetch(struct db *db, void *arg, struct err *err)
{
        return plugin_installs_insert(db, arg, err);
}

static int fetch_package(struct op *op, struct plugin_registry *reg,
                         const struct plugin_source *source, struct plugin_sink *sink,
                         struct plugin_fetched *ret, struct err *err)
{
        const struct runtime *rt = reg->config.rt;
        struct plugin_install row = { .id = ret->install_id,
                                      .package_name = source->name,
                                      .owner_instance = rt->node.instance.s,
                                      .created_at = clock_now_us() };
        const char *prefix = staging_of(op, reg, row.id);

        FAULT("registry.intent.before");
        int r = store_write(op, rt->store, record_fetch, &row, err);
        FAULT("registry.intent.after");
        if (r < 0)
                return r;
        if (mkdir(prefix, 0700) < 0)
                return err_sys(err, ERR_IO, errno, "create %s", prefix);
        plugin_say(sink, arena_printf(op->arena, "fetching %s%s%s", source->name,
                                      source->version ? "@" : "",
                                      source->version ? source->version : ""));
        FAULT("registry.fetch.before");
        r = package_fetch(op, &reg->tools, prefix, source->name, source->version, plugin_say, sink,
                          err);
        FAULT("registry.fetch.after");
        if (r < 0)
                return r;
        plugin_say(sink, "looking into the package");
        r = package_open(op, &reg->tools, prefix, package_root(op->arena, prefix, source->name),
                         &ret->package, err);
        return r < 0 ? r : put_in_place(op, reg, row.id, err);
}

static int open_local(struct op *op, struct plugin_registry *reg,
                      const struct plugin_source *source, struct plugin_sink *sink,
                      struct plugin_fetched *ret, struct err *err)
{
        char real[PATH_MAX];
        struct stat st;

        if (!realpath(source->name, real))
                return err_set(err, ERR_INVALID, "Local plugin path does not exist: %s",
                               source->name);
        if (stat(real, &st) < 0 || !S_ISDIR(st.st_mode))
                return err_set(err, ERR_INVALID, "Invalid localPath: %s is not a directory",
                               source->name);
        plugin_say(sink, "looking into the package");
        ret->local_path = arena_strdup(op->arena, real);
        return package_open(op, &reg->tools, real, real, &ret->package, err);
}

int plugin_obtain(struct op *op, struct plugin_registry *reg, const struct plugin_source *source,
                  struct plugin_sink *sink, struct plugin_fetched *ret, struct err *err)
{
        struct op patient = *op;
        struct uuid id = uuid_new();
        json_t *warning;
        size_t i;

        /* At most so many at a time: each has a thread and an npm. */
        pthread_mutex_lock(&reg->lock);
        bool full = reg->installs >= PLUGIN_INSTALLS_MAX;
        reg->installs += !full;
        pthread_mutex_unlock(&reg->lock);
        if (full)
                return err_set(err, ERR_BUSY, "%d plugins are being fetched; try again later",
                               PLUGIN_INSTALLS_MAX);
        /* Fetching has a limit of its own, which may be longer than that of a request. */
        patient.deadline_ms =
                MAX(op->deadline_ms, clock_mono_ms() + reg->tools.fetch_ms + PLUGIN_SHIELD_MS);
        if (!source->is_local)
                ret->install_id = arena_strdup(op->arena, id.s);
        int r = source->is_local ? open_local(&patient, reg, source, sink, ret, err)
                                 : fetch_package(&patient, reg, source, sink, ret, err);
        pthread_mutex_lock(&reg->lock);
        reg->installs--;
        pthread_mutex_unlock(&reg->lock);
        if (r < 0)
                return r;
        plugin_say(sink, arena_printf(op->arena, "found %s %s, %s",
                                      json_get_string(ret->package.manifest, "id"),
                                      json_get_string(ret->package.manifest, "version"),
                                      ret->package.checksum));
        json_array_foreach(ret->package.warnings, i, warning) plugin_say(
                sink, arena_printf(op->arena, "warning: %s", json_string_value(warning)));
        return r;
}

/* Fill the row's members that follow from the fetched package; the rest is left unchanged. */
void plugin_fill_row(struct op *op, const struct plugin_fetched *f, struct plugin *row)
{
        const json_t *m = f->package.manifest;
        struct arena *a = op->arena;

        row->key = json_get_string(m, "id");
        row->package_name = f->package.name;
        row->version = json_get_string(m, "version");
        row->api_version = json_integer_value(json_object_get(m, "apiVersion"));
        row->categories = json_to_arena(a, json_object_get(m, "categories"));
        row->manifest = json_to_arena(a, m);
        row->package_path = f->local_path;
        row->install_id = f->install_id;
        row->package_version = f->package.npm_version;
        row->checksum = arena_strdup(a, f->package.checksum);
        row->pending = NULL;
        row->last_error = NULL;
}
