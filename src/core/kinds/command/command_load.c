/* Which files become kinds of places, and which table each gets. */
#define _GNU_SOURCE
#include "core/kinds/command/command_load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/fd.h"
#include "core/kinds/command/command_internal.h"

#define KINDS_MAX 64

extern const struct kind kind_command; /* what all of them have in common */

struct command_kinds {
        struct command_kind *own[KINDS_MAX];
        size_t n;
        const struct kind **list; /* NULL-terminated */
        char *refused[KINDS_MAX];
        size_t n_refused;
};

/* The schema of configurations: the options as they are, and what every kind of places has. A new
 * reference. */
static json_t *make_schema(const json_t *descriptor)
{
        const json_t *options = json_object_get(descriptor, "options");
        json_t *properties = options ? json_copy((json_t *)options) : json_object();
        json_t *required = json_object_get(descriptor, "required");

        json_object_set_new(
                properties, "reuseLease",
                json_pack("{s:s, s:s, s:s, s:b}", "type", "boolean", "title", "Reuse places",
                          "description",
                          "Keep a place for the next run instead of making one for each run.",
                          "default", 0));
        return json_pack("{s:s, s:o, s:O*}", "type", "object", "properties", properties, "required",
                         required);
}

static bool has_secrets(const json_t *descriptor)
{
        const json_t *option;
        const char *key;

        json_object_foreach(json_object_get(descriptor, "options"), key, option)
        {
                if (command_option_is_secret(option))
                        return true;
        }
        return false;
}

static void kind_free(struct command_kind *k)
{
        json_decref(k->descriptor);
        json_decref(k->schema);
        free(k->path);
        free(k);
}

static bool is_taken(const char *name)
{
        for (const struct kind *const *k = builtin_kinds; *k; k++)
                if ((*k)->provider && streq((*k)->provider, name))
                        return true;
        return false;
}

static int add(struct command_kinds *all, const char *text, size_t len, const char *path,
               struct err *err)
{
        CLEAN(json_decrefp) json_t *d = NULL;
        struct command_kind *k;
        const char *name;
        size_t at = 0;
        int r = json_parse(text, len, &d, err);

        if (r >= 0)
                r = command_descriptor_check(d, err);
        if (r < 0)
                return r;
        name = json_get_string(d, "name");
        if (is_taken(name))
                return err_set(err, ERR_INVALID, "name: \"%s\" is one of Berth's own kinds", name);
        while (at < all->n && !streq(all->own[at]->kind.provider, name))
                at++;
        if (at == KINDS_MAX)
                return err_set(err, ERR_INVALID, "there are %d kinds already", KINDS_MAX);
        k = xcalloc(1, sizeof(*k));
        k->kind = kind_command;
        k->kind.provider = name;
        k->kind.display_name = json_get_string(d, "displayName");
        k->kind.description = json_get_string(d, "description");
        k->kind.isolation = json_get_string(d, "isolation");
        k->kind.isolated = json_is_true(json_object_get(d, "isolated"));
        k->kind.has_secrets_by_schema = has_secrets(d);
        if (!command_of(d, COMMAND_PAUSE))
                k->kind.park = NULL;
        k->schema = make_schema(d);
        k->path = path ? xstrdup(path) : NULL;
        k->descriptor = take_ptr(&d);
        if (at < all->n)
                kind_free(all->own[at]);
        else
                all->n++;
        all->own[at] = k;
        return 0;
}

/* Its commands run with the daemon's rights: nobody else may be able to write it. */
static int check_owner(int fd, const char *path, bool is_file, struct err *err)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "look at %s", path);
        if (is_file && !S_ISREG(st.st_mode))
                return err_set(err, ERR_INVALID, "%s is no file", path);
        if ((st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & (S_IWGRP | S_IWOTH)))
                return 0;
        return err_set(err, ERR_FORBIDDEN,
                       "%s can be changed by other users, and its commands run with the daemon's "
                       "rights: it has to belong to root or to the daemon's user, without write "
                       "permission for others (chmod go-w)",
                       path);
}

static int load_file(struct command_kinds *all, int dirfd, const char *dir, const char *name,
                     struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", dir, name);
        CLEAN(cleanup_fd) int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        int r;

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", path);
        r = check_owner(fd, path, true, err);
        if (r >= 0)
                r = file_read_at(dirfd, name, COMMAND_FILE_MAX, &text, err);
        return r < 0 ? r : add(all, buf_str(&text), text.len, path, err);
}

static int is_descriptor(const struct dirent *entry)
{
        size_t n = strlen(entry->d_name);

        return *entry->d_name != '.' && n > 5 && streq(entry->d_name + n - 5, ".json");
}

static void load_dir(struct command_kinds *all, const char *dir,
                     void (*complain)(void *ctx, const char *text), void *ctx)
{
        CLEAN(cleanup_fd) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CLEAN(err_done) struct err e = { 0 };
        struct dirent **names = NULL;
        int n, r;

        if (fd < 0 && errno == ENOENT)
                return;
        r = fd < 0 ? err_sys(&e, ERR_IO, errno, "open %s", dir) : check_owner(fd, dir, false, &e);
        if (r < 0) {
                complain(ctx, e.msg);
                all->refused[all->n_refused++] = xstrdup(e.msg);
                return;
        }
        n = scandirat(fd, ".", &names, is_descriptor, alphasort);
        for (int i = 0; i < n; i++) {
                CLEAN(err_done) struct err one = { 0 };

                if (load_file(all, fd, dir, names[i]->d_name, &one) < 0) {
                        CLEAN(cleanup_free)
                        char *text = xasprintf("%s: %s", names[i]->d_name, one.msg);

                        complain(ctx, text);
                        if (all->n_refused < KINDS_MAX)
                                all->refused[all->n_refused++] = take_ptr(&text);
                }
                free(names[i]);
        }
        free(names);
}

static void make_list(struct command_kinds *all)
{
        size_t n = 0, i = 0;

        while (builtin_kinds[n])
                n++;
        all->list = xcalloc(n + all->n + 1, sizeof(*all->list));
        for (n = 0; builtin_kinds[n]; n++)
                all->list[n] = builtin_kinds[n];
        for (; i < all->n; i++)
                all->list[n + i] = &all->own[i]->kind;
        all->list[n + i] = NULL;
}

struct command_kinds *command_kinds_load(const char *dir,
                                         void (*complain)(void *ctx, const char *text), void *ctx)
{
        struct command_kinds *all = xcalloc(1, sizeof(*all));

        for (const struct embedded_file *f = kind_files; f->name; f++) {
                CLEAN(err_done) struct err e = { 0 };

                if (add(all, f->data, f->len, NULL, &e) < 0) {
                        (void)fprintf(stderr, "berth: %s: %s\n", f->name, e.msg);
                        abort(); /* a bug of ours: test_command_descriptor finds it first */
                }
        }
        if (dir)
                load_dir(all, dir, complain, ctx);
        make_list(all);
        return all;
}

const struct kind *const *command_kinds_list(const struct command_kinds *all)
{
        return all->list;
}

void command_kinds_free(struct command_kinds *all)
{
        if (!all)
                return;
        for (size_t i = 0; i < all->n; i++)
                kind_free(all->own[i]);
        for (size_t i = 0; i < all->n_refused; i++)
                free(all->refused[i]);
        free(all->list);
        free(all);
}

const char *command_kinds_refused(const struct command_kinds *all, size_t i)
{
        return all && i < all->n_refused ? all->refused[i] : NULL;
}

const json_t *command_kind_descriptor(const struct kind *kind, const char **ret_path)
{
        if (!kind || kind->open != kind_command.open)
                return NULL;
        if (ret_path)
                *ret_path = command_kind_of(kind)->path;
        return command_kind_of(kind)->descriptor;
}
