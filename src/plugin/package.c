/* Where the parts of a package are, and what it is: its manifest, its worker and its checksum. */
#define _GNU_SOURCE
#include "plugin/package.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"

#define PACKAGE_JSON_MAX ((size_t)4 << 20)
#define READS_MAX        32

/* Paths */

/* Whether the real path `path` is `dir` or below it. */
static bool is_inside(const char *dir, const char *path)
{
        size_t n = strlen(dir);

        return strncmp(dir, path, n) == 0 && (path[n] == '/' || path[n] == '\0' || streq(dir, "/"));
}

/* The real path of what `name` means beneath root, or NULL when it is not there or leads out. */
static const char *resolve(struct arena *a, const char *root, const char *name)
{
        char real[PATH_MAX];
        const char *path = *name == '/' ? name : arena_printf(a, "%s/%s", root, name);

        if (!realpath(path, real) || !is_inside(root, real))
                return NULL;
        return arena_strdup(a, real);
}

static bool is_file(const char *path)
{
        struct stat st;

        return path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* package.json, or the manifest alone */

/* A folder with this file needs nothing else to be a plugin: no package.json, and no program is run
 * to read the manifest. */
#define STATIC_MANIFEST "berth-plugin.json"

static int read_package_json(struct op *op, const char *root, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        json_t *v = NULL;
        int r = file_read_at(AT_FDCWD, arena_printf(op->arena, "%s/package.json", root),
                             PACKAGE_JSON_MAX, &text, err);

        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_INVALID, "Missing package.json at %s", root);
        if (r >= 0)
                r = json_parse(buf_str(&text), text.len, &v, err);
        if (r < 0)
                return err_wrap(err, ERR_INVALID, "%s/package.json", root);
        *ret = json_keep(op->arena, v);
        return 0;
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash && slash[1] ? slash + 1 : path;
}

/* Where the manifest is: what the package says, without a second guess when it is not there; else
 * the two usual places. */
static int find_manifest(struct op *op, const struct package *p, const json_t *package_json,
                         const char **ret, struct err *err)
{
        static const char *const usual[] = { "dist/manifest.js", "manifest.js" };
        const json_t *section = json_get_object(package_json, "paperclipPlugin");
        const char *said = json_get_string(section, "manifest");
        struct arena *a = op->arena;

        if (!package_json) {
                *ret = resolve(a, p->root, STATIC_MANIFEST);
                if (is_file(*ret))
                        return 0;
                return err_set(err, ERR_INVALID,
                               "%s/" STATIC_MANIFEST " is not a file of the plugin", p->root);
        }
        if (said) {
                *ret = resolve(a, p->root, said);
                if (is_file(*ret))
                        return 0;
                return err_set(err, ERR_INVALID,
                               "Failed to load manifest module at %s/%s: there is no such file in "
                               "the package",
                               p->root, said);
        }
        for (size_t i = 0; i < ARRAY_LEN(usual); i++) {
                *ret = resolve(a, p->root, usual[i]);
                if (is_file(*ret))
                        return 0;
        }
        return err_set(err, ERR_INVALID,
                       "Package %s at %s does not appear to be a Paperclip plugin (no manifest "
                       "found).",
                       p->name, p->root);
}

int package_find_entry(struct arena *arena, const char *root, const json_t *manifest,
                       const char **ret, struct err *err)
{
        const char *worker = json_get_string(json_object_get(manifest, "entrypoints"), "worker");
        const char *entry = resolve(arena, root, worker);

        if (!is_file(entry))
                return err_set(err, ERR_INVALID,
                               "Worker entrypoint not found for plugin \"%s\". Checked: %s/%s, %s",
                               json_get_string(manifest, "id"), root, worker, worker);
        *ret = entry;
        return 0;
}

const char *const *package_find_reads(struct arena *arena, const char *base, const char *root)
{
        const char **reads = arena_alloc(arena, (READS_MAX + 2) * sizeof(*reads));
        char *at = arena_strdup(arena, base), *slash;
        char real[PATH_MAX];
        size_t n = 0;

        reads[n++] = base;
        if (!streq(base, root))
                return reads; /* npm put everything into the prefix */
        while ((slash = strrchr(at, '/')) != NULL && n < READS_MAX) {
                *slash = '\0';
                if (realpath(arena_printf(arena, "%s/node_modules", at), real))
                        reads[n++] = arena_strdup(arena, real);
        }
        return reads;
}

static int load_manifest(struct op *op, const struct plugin_tools *tools, struct package *p,
                         const json_t *package_json, struct err *err)
{
        const char *file;
        json_t *given = NULL, *checked = NULL;
        int r = find_manifest(op, p, package_json, &file, err);

        if (r < 0)
                return r;
        r = manifest_eval(op, tools, p->reads, file, &given, err);
        if (r < 0)
                return err_wrap(err, r, "Failed to load manifest module at %s", file);
        p->warnings = json_keep(op->arena, json_array());
        r = manifest_check(given, PLUGIN_HOST_VERSION, p->warnings, &checked, err);
        json_decref(given);
        if (r >= 0)
                p->manifest = json_keep(op->arena, checked);
        return r;
}

static int real_directory(struct arena *a, const char *path, const char **ret)
{
        char real[PATH_MAX];
        struct stat st;

        if (!realpath(path, real) || stat(real, &st) < 0 || !S_ISDIR(st.st_mode))
                return ERR_NOT_FOUND;
        *ret = arena_strdup(a, real);
        return 0;
}

int package_open(struct op *op, const struct plugin_tools *tools, const char *base,
                 const char *root, struct package *ret, struct err *err)
{
        struct package p = { 0 };
        json_t *package_json = NULL;
        const char *real_base;
        int r = real_directory(op->arena, base, &real_base);

        if (r >= 0)
                r = real_directory(op->arena, root, &p.root);
        if (r < 0 || !is_inside(real_base, p.root))
                return err_set(err, ERR_INVALID,
                               "Package directory not found after installation: %s", root);
        if (access(arena_printf(op->arena, "%s/" STATIC_MANIFEST, p.root), F_OK) < 0)
                r = read_package_json(op, p.root, &package_json, err);
        if (r < 0)
                return r;
        p.name = arena_strdup(op->arena, json_get_string(package_json, "name"));
        p.npm_version = arena_strdup(op->arena, json_get_string(package_json, "version"));
        if (!p.name || !*p.name)
                p.name = arena_strdup(op->arena, base_name(p.root));
        p.reads = package_find_reads(op->arena, real_base, p.root);
        r = load_manifest(op, tools, &p, package_json, err);
        if (r >= 0)
                r = package_find_entry(op->arena, p.root, p.manifest, &p.entry, err);
        if (r >= 0)
                r = tree_checksum(op, real_base, p.checksum, err);
        if (r >= 0)
                *ret = p;
        return r;
}
