/* Makes assets from skills of the operator, instructions of the agent, and files of the user that
 * the daemon runs as. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "core/runs/run_assets.h"

#define CACHE_KEEP_S    (INT64_C(30) * 24 * 3600) /* an unused bundle goes after so long */
#define LEFT_KEEP_S     (INT64_C(24) * 3600)      /* and one that a crash left unfinished */
#define SEED_FILE_MAX   ((size_t)1 << 20)
#define COMPANY_DIR_FMT "%s/companies/%s/%s"
#define KEY_SUFFIX      "-key"
#define OWN_SUFFIX      "-own"

/* A path beneath another, either of which may be empty. */
static const char *asset_path(const struct run_asset *a, const char *dir, const char *name)
{
        return arena_printf(a->t->op->arena, "%s%s%s", dir, *dir && *name ? "/" : "", name);
}

static const char *company_dir(const struct run_asset *a, const char *name)
{
        return arena_printf(a->t->op->arena, COMPANY_DIR_FMT, a->t->rt->data_dir,
                            a->t->run.company_id, name);
}

/* The directory that a company has for good. Where files of the user are not shared it is another
 * directory, without the links and copies that were made while they were shared. */
static const char *company_home(const struct run_asset *a, const json_t *part, const char *suffix)
{
        const char *own = a->t->rt->settings.share_user_files ? "" : OWN_SUFFIX;

        return company_dir(a, arena_printf(a->t->op->arena, "%s%s%s",
                                           json_get_string(part, "company"), own, suffix));
}

static const char *text_or(const json_t *part, const char *member, const char *fallback)
{
        const char *text = json_get_string(part, member);

        return text ? text : fallback;
}

static bool follows(const struct run_asset *a)
{
        return !json_is_false(json_object_get(a->plan, "followSymlinks"));
}

static const json_t *parts(const struct run_asset *a)
{
        return json_object_get(a->plan, "from");
}

/* Skills */

/* As links where the program sees this machine's files, else with their contents. Links to other
 * directories make another asset, so the key includes the targets. */
static int add_skills(struct run_asset *a, struct asset_tree *tree, const char *into, bool as_links,
                      struct err *err)
{
        int r = 0;

        for (const struct skill *s = a->skills->at; r >= 0 && s < a->skills->at + a->skills->n;
             s++) {
                const char *to = asset_path(a, into, s->name);

                if (!skill_is_wanted(a->t->config, s->name))
                        continue;
                r = as_links ? asset_tree_add_link(tree, s->dir, to, err)
                             : asset_tree_add_dir(tree, s->dir, to, follows(a), NULL, err);
                if (kind_runs_on_host(a->t->rt, a->t->record.env.driver))
                        asset_tree_note(tree, s->dir);
                if (r < 0 && r != ERR_CANCELLED)
                        return err_wrap(err, r, "skill \"%s\"", s->name);
        }
        return r;
}

static void find_missing(struct run_asset *a)
{
        size_t i;
        json_t *one;

        json_array_clear(a->missing);
        json_array_foreach((json_t *)skill_wanted(a->t->config), i, one)
        {
                const char *name = json_string_value(one);

                if (name && !skill_find(a->skills, name))
                        json_array_append(a->missing, one);
        }
}

/* Files of the user */

/* NULL: there is no such directory, or its files are not for agents (share_user_files). */
static const char *user_dir(const struct run_asset *a, const json_t *part)
{
        const char *variable = json_get_string(part, "variable");
        const char *dir = variable ? getenv(variable) : NULL, *home = getenv("HOME");

        if (!a->t->rt->settings.share_user_files)
                return NULL;
        if (dir && *dir == '/')
                return arena_strdup(a->t->op->arena, dir);
        return home && *home == '/' ? asset_path(a, home, json_get_string(part, "user")) : NULL;
}

static int copy_once(int dir, const char *from, const char *name, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct stat st;
        int r;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        r = file_read_at(AT_FDCWD, from, SEED_FILE_MAX, &text, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? r : file_write_at(dir, name, buf_str(&text), text.len, 0600, err);
}

/* Whether the file is made of a variable of the agent, and not from the user's files. */
static bool is_key_file(const struct run_asset *a, const char *path)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)parts(a), i, one)
        {
                const char *file = json_get_string(one, "keyFile");

                if (file && streq(file, path))
                        return true;
        }
        return false;
}

/* The first part with that member; NULL: none. */
static const json_t *part_with(const struct run_asset *a, const char *member)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)parts(a), i, one)
        {
                if (json_object_get(one, member))
                        return one;
        }
        return NULL;
}

/* A login is linked, because the program renews it there; other files may differ, and are copied
 * once. */
static int seed_company(struct run_asset *a, const json_t *part, const char *path, struct err *err)
{
        const char *from = user_dir(a, part), *into = text_or(part, "into", "");
        CLEAN(cleanup_fd) int dir = -1;
        size_t i;
        json_t *one;
        int r = path_make_dirs(path, 0700, err);

        if (r < 0 || !from)
                return r;
        dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open %s", path);
        json_array_foreach(json_object_get(part, "link"), i, one)
        {
                const char *name = json_string_value(one), *target = asset_path(a, from, name);

                if (!is_key_file(a, asset_path(a, into, name)) && access(target, F_OK) == 0 &&
                    symlinkat(target, dir, name) < 0 && errno != EEXIST)
                        return err_sys(err, ERR_IO, errno, "create %s/%s", path, name);
        }
        json_array_foreach(json_object_get(part, "files"), i, one)
        {
                const char *name = json_string_value(one);

                if (r >= 0 && !is_key_file(a, asset_path(a, into, name)))
                        r = copy_once(dir, asset_path(a, from, name), name, err);
        }
        return r;
}

static int add_files(struct run_asset *a, struct asset_tree *tree, const json_t *names,
                     const char *from, const char *into, bool follow, struct err *err)
{
        size_t i;
        json_t *one;
        int r = 0;

        json_array_foreach((json_t *)names, i, one)
        {
                const char *name = json_string_value(one), *to = asset_path(a, into, name);

                if (r >= 0 && !is_key_file(a, to))
                        r = asset_tree_add_file(tree, asset_path(a, from, name), to, follow, err);
        }
        return r;
}

const char *const *run_asset_names(const struct run_asset *a, const json_t *list)
{
        const char **names =
                arena_alloc(a->t->op->arena, (json_array_size(list) + 1) * sizeof(*names));
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one) names[i] = json_string_value(one);
        return names;
}

static int add_user_tree(struct run_asset *a, struct asset_tree *tree, const json_t *part,
                         const char *from, struct err *err)
{
        const char *name = json_get_string(part, "tree");
        int r;

        if (!name)
                return 0;
        r = asset_tree_add_dir(tree, asset_path(a, from, name), text_or(part, "into", name),
                               follows(a), run_asset_names(a, json_object_get(part, "exclude")),
                               err);
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return 0;
}

/* Only the daemon writes a company's directory: no link is followed there. Logins are read from
 * where they are made. */
static int add_user(struct run_asset *a, struct asset_tree *tree, const json_t *part,
                    struct err *err)
{
        const char *from = user_dir(a, part), *into = text_or(part, "into", "");
        const json_t *files = json_object_get(part, "files");
        int r = 0;

        if (json_get_string(part, "company")) {
                const char *path = company_home(a, part, "");

                r = seed_company(a, part, path, err);
                if (r >= 0)
                        r = add_files(a, tree, files, path, into, false, err);
        } else if (from) {
                r = add_files(a, tree, files, from, into, follows(a), err);
        }
        if (r >= 0 && from)
                r = add_files(a, tree, json_object_get(part, "link"), from, into, true, err);
        return r < 0 || !from ? r : add_user_tree(a, tree, part, from, err);
}

/* Trees */

static int add_parts(struct run_asset *a, struct asset_tree *tree, bool as_links, struct err *err)
{
        const char *instructions = json_get_string(a->plan, "instructions");
        size_t i;
        json_t *part;
        int r = 0;

        json_array_foreach((json_t *)parts(a), i, part)
        {
                const char *skills = json_get_string(part, "skills");
                const char *text = json_get_string(part, "instructions");

                if (skills) {
                        find_missing(a);
                        r = add_skills(a, tree, skills, as_links, err);
                } else if (text && instructions) {
                        r = asset_tree_add_text(tree, text, instructions, err);
                } else if (json_object_get(part, "user")) {
                        r = add_user(a, tree, part, err);
                }
                if (r < 0)
                        return r;
        }
        return r;
}

static int make_tree(struct run_asset *a, const char *path, bool as_links, bool *ret_empty,
                     struct err *err)
{
        CLEAN(asset_tree_done) struct asset_tree tree = { .fd = -1 };
        int r = asset_tree_init(&tree, a->t->op, path, err);

        if (r >= 0)
                r = add_parts(a, &tree, as_links, err);
        if (r < 0)
                return r;
        *ret_empty = tree.files == 0;
        if (!as_links)
                asset_tree_key(&tree, a->content);
        return 0;
}

int run_asset_gather(struct run_asset *a, bool *ret_empty, struct err *err)
{
        int r = make_tree(a, a->tree, false, ret_empty, err);

        if (r >= 0 && part_with(a, "keyFile"))
                *ret_empty = false;
        return r;
}

/* On this machine */

/* Whether it is a link into the data directory; any other link is the operator's. False also when
 * it is not a link. */
static bool is_our_link(const struct run_asset *a, int dir, const char *name, char *ret, size_t max)
{
        const char *data = a->t->rt->data_dir;
        size_t n = strlen(data);
        ssize_t len = readlinkat(dir, name, ret, max - 1);

        if (len < 0)
                return false;
        ret[len] = '\0';
        return strncmp(ret, data, n) == 0 && ret[n] == '/';
}

static void drop_dangling(const struct run_asset *a, const char *path)
{
        DIR *dir = opendir(path);
        const struct dirent *entry;
        char target[4096];

        while (dir && (entry = readdir(dir)))
                if (is_our_link(a, dirfd(dir), entry->d_name, target, sizeof(target)) &&
                    file_life_at(dirfd(dir), entry->d_name) == LIFE_NO)
                        (void)unlinkat(dirfd(dir), entry->d_name, 0);
        if (dir)
                closedir(dir);
}

/* A link of ours that leads to another directory, or to none any more, is replaced or removed;
 * anything else with that name stays. */
static int link_skills(struct run_asset *a, const char *dir, struct err *err)
{
        char there[4096];
        int r = path_make_dirs(dir, 0700, err);

        find_missing(a);
        if (r >= 0)
                drop_dangling(a, dir);
        for (size_t i = 0; r >= 0 && i < a->skills->n; i++) {
                const struct skill *s = &a->skills->at[i];
                const char *link = asset_path(a, dir, s->name);

                if (!skill_is_wanted(a->t->config, s->name))
                        continue;
                if (is_our_link(a, AT_FDCWD, link, there, sizeof(there)) && !streq(there, s->dir))
                        (void)unlink(link);
                if (symlink(s->dir, link) < 0 && errno != EEXIST)
                        r = err_sys(err, ERR_IO, errno, "create %s", link);
        }
        return r;
}

/* A directory of the company: seeded, and with links to the skills beside its other files. It
 * serves all agents of the company, so it has the skills of all of them. Agents with a key of their
 * own have another directory, so that they do not get the user's login. */
static int provide_company(struct run_asset *a, const json_t *part, struct err *err)
{
        size_t i;
        json_t *one;
        int r;

        a->dir = company_home(a, part, part_with(a, "keyFile") ? KEY_SUFFIX : "");
        r = seed_company(a, part, a->dir, err);
        json_array_foreach((json_t *)parts(a), i, one)
        {
                const char *into = json_get_string(one, "skills");

                if (r >= 0 && into)
                        r = link_skills(a, asset_path(a, a->dir, into), err);
        }
        return r;
}

/* Remove bundles that were not used for long, and those that were never finished. */
static void trim_cache(const struct run_asset *a, const char *cache)
{
        DIR *dir = opendir(cache);
        const struct dirent *entry;
        int64_t now = clock_now_us() / 1000000;
        struct stat st;

        while (dir && (entry = readdir(dir))) {
                const char *name = entry->d_name;
                int64_t keep = *name == '.' ? LEFT_KEEP_S : CACHE_KEEP_S;

                if (!streq(name, ".") && !streq(name, "..") &&
                    fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    st.st_mtim.tv_sec + keep < now)
                        (void)asset_tree_remove(asset_path(a, cache, name), NULL);
        }
        if (dir)
                closedir(dir);
}

/* Named by the hash of its content and of the skills' directories, so that runs with different
 * content do not collide. */
static int provide_bundle(struct run_asset *a, bool *ret_empty, struct err *err)
{
        const char *cache = company_dir(a, arena_printf(a->t->op->arena, "%s-prompt-cache",
                                                        adapter_key(a->t->agent.adapter_type)));
        const char *temp;
        bool ignored;
        int r = make_tree(a, NULL, false, ret_empty, err);

        if (r < 0 || *ret_empty)
                return r;
        a->dir = asset_path(a, cache, a->content);
        if (utimensat(AT_FDCWD, a->dir, NULL, 0) == 0)
                return 0;
        temp = arena_printf(a->t->op->arena, "%s/.%s-%s", cache, a->t->run.id, a->key);
        r = path_make_dirs(cache, 0700, err);
        if (r >= 0)
                r = asset_tree_remove(temp, err);
        if (r >= 0)
                r = make_tree(a, temp, true, &ignored, err);
        /* The whole tree is on the disk before it gets its name: a tree with a name is not checked
         * again. */
        if (r >= 0) {
                CLEAN(cleanup_fd)
                int fd = open(temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

                if (fd < 0 || syncfs(fd) < 0)
                        r = err_sys(err, ERR_IO, errno, "sync %s", temp);
        }
        if (r >= 0 && rename(temp, a->dir) < 0 && errno != EEXIST && errno != ENOTEMPTY)
                r = err_sys(err, ERR_IO, errno, "create %s", a->dir);
        (void)asset_tree_remove(temp, NULL);
        trim_cache(a, cache);
        return r;
}

/* In the home of the user that the program runs as: links among what the user has there. */
static int provide_home(struct run_asset *a, const char *beneath, bool *ret_empty, struct err *err)
{
        const char *home = text_or(a->plan, "home", getenv("HOME"));

        *ret_empty = !home || *home != '/' || a->skills->n == 0;
        if (*ret_empty)
                return 0;
        a->dir = asset_path(a, home, beneath);
        return link_skills(a, a->dir, err);
}

int run_asset_provide(struct run_asset *a, bool *ret_empty, struct err *err)
{
        const json_t *company = part_with(a, "company");
        const char *to = json_get_string(a->plan, "copyTo");

        *ret_empty = false;
        if (to && strncmp(to, "~/", 2) == 0)
                return provide_home(a, to + 2, ret_empty, err);
        return company ? provide_company(a, company, err) : provide_bundle(a, ret_empty, err);
}
