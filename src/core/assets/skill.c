/* Decides which directories are skills, and which of them an agent gets. */
#define _GNU_SOURCE
#include "core/assets/skill.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/utf8.h"

#define NAME_MAX_LEN 64
#define BUILTIN_DIR  "builtin-skills"
#define BUILTIN_NAME "berth"

static bool is_skill_name(const char *s)
{
        return *s != '.' && strlen(s) <= NAME_MAX_LEN &&
               s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] ==
                       '\0';
}

/* The head of SKILL.md */

struct line {
        const char *at;
        size_t len;
};

/* The next line without its end; false: there is none. */
static bool next_line(const char **text, size_t *len, struct line *ret)
{
        const char *end = *len ? memchr(*text, '\n', *len) : NULL;

        if (!end)
                return false;
        *ret = (struct line){ *text, (size_t)(end - *text) };
        *len -= ret->len + 1;
        *text = end + 1;
        if (ret->len > 0 && ret->at[ret->len - 1] == '\r')
                ret->len--;
        return true;
}

static bool is_fence(struct line l)
{
        return l.len == 3 && memcmp(l.at, "---", 3) == 0;
}

static struct line unquoted_text(struct line l)
{
        while (l.len > 0 && strchr(" \t", l.at[0])) {
                l.at++;
                l.len--;
        }
        while (l.len > 0 && strchr(" \t", l.at[l.len - 1]))
                l.len--;
        if (l.len >= 2 && strchr("\"'", l.at[0]) && l.at[l.len - 1] == l.at[0]) {
                l.at++;
                l.len -= 2;
        }
        return l;
}

const char *skill_description(struct arena *arena, const char *text, size_t len)
{
        static const char name[] = "description:";
        struct line l;

        if (!next_line(&text, &len, &l) || !is_fence(l))
                return NULL;
        while (next_line(&text, &len, &l) && !is_fence(l)) {
                if (l.len < strlen(name) || memcmp(l.at, name, strlen(name)) != 0)
                        continue;
                l.at += strlen(name);
                l.len -= strlen(name);
                l = unquoted_text(l);
                if (l.len == 0 || !utf8_is_valid(l.at, l.len) || memchr(l.at, '\0', l.len))
                        return NULL;
                return arena_strndup(arena, l.at, l.len);
        }
        return NULL;
}

/* Looking */

/* A directory is a skill when a file SKILL.md lies in it. */
static bool skill_read_head(struct arena *arena, int dir, struct skill *s)
{
        CLEAN(cleanup_fd) int fd = -1;
        char text[SKILL_HEAD_MAX];
        struct stat st;

        if (path_open_beneath(dir, SKILL_FILE, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &fd, NULL) < 0)
                return false;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return false;
        ssize_t n = read(fd, text, sizeof(text));
        if (n < 0)
                return false;
        s->description = skill_description(arena, text, (size_t)n);
        s->updated_at = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
        return true;
}

static struct skill *skill_by_name(const struct skill_list *list, const char *name)
{
        for (size_t i = 0; i < list->n; i++)
                if (streq(list->at[i].name, name))
                        return &list->at[i];
        return NULL;
}

static int skill_add(struct skill_list *list, const struct skill *s, struct err *err)
{
        struct skill *there = skill_by_name(list, s->name);

        if (!there && list->n == SKILLS_MAX)
                return err_set(err, ERR_TOO_LARGE, "There are more than %d skills", SKILLS_MAX);
        there = there ? there : &list->at[list->n++];
        *there = *s;
        return 0;
}

static int skill_list_dir(struct arena *arena, const char *path, bool is_company,
                          struct skill_list *list, struct err *err)
{
        DIR *dir = opendir(path);
        const struct dirent *entry;
        int r = 0;

        if (!dir)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "open %s", path);
        while (r >= 0 && (entry = readdir(dir))) {
                struct skill s = { .is_company = is_company };
                CLEAN(cleanup_fd) int fd = -1;

                if (!is_skill_name(entry->d_name))
                        continue;
                fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0 || !skill_read_head(arena, fd, &s))
                        continue;
                s.name = arena_strdup(arena, entry->d_name);
                s.dir = arena_printf(arena, "%s/%s", path, s.name);
                r = skill_add(list, &s, err);
        }
        closedir(dir);
        return r;
}

static int skills_by_name(const void *a, const void *b)
{
        return strcmp(((const struct skill *)a)->name, ((const struct skill *)b)->name);
}

int skill_list(struct arena *arena, const char *data_dir, const char *company_id,
               struct skill_list *ret, struct err *err)
{
        const char *builtin = arena_printf(arena, "%s/" BUILTIN_DIR, data_dir);
        const char *all = arena_printf(arena, "%s/skills", data_dir);
        const char *own = arena_printf(arena, "%s/companies/%s/skills", data_dir, company_id);

        *ret = (struct skill_list){ .at = arena_alloc(arena, SKILLS_MAX * sizeof(*ret->at)) };
        int r = skill_list_dir(arena, builtin, false, ret, err);
        if (r >= 0)
                r = skill_list_dir(arena, all, false, ret, err);
        if (r >= 0)
                r = skill_list_dir(arena, own, true, ret, err);
        if (r >= 0)
                qsort(ret->at, ret->n, sizeof(*ret->at), skills_by_name);
        return r;
}

int skill_write_builtin(const char *data_dir, struct err *err)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/" BUILTIN_DIR "/" BUILTIN_NAME, data_dir);
        CLEAN(cleanup_free) char *path = xasprintf("%s/" SKILL_FILE, dir);
        const struct embedded_file *f = agent_texts;
        CLEAN(buf_done) struct buf there = BUF_INIT;

        while (!streq(f->name, SKILL_FILE))
                f++;
        if (file_read_at(AT_FDCWD, path, f->len, &there, NULL) >= 0 && there.len == f->len &&
            memcmp(buf_str(&there), f->data, f->len) == 0)
                return 0;
        int r = path_make_dirs(dir, 0700, err);
        return r < 0 ? r : file_write_at(AT_FDCWD, path, f->data, f->len, 0600, err);
}

/* Choosing */

static const char *last_part(const char *name)
{
        const char *slash = strrchr(name, '/');

        return slash ? slash + 1 : name;
}

const struct skill *skill_find(const struct skill_list *list, const char *name)
{
        return skill_by_name(list, last_part(name));
}

const json_t *skill_wanted(const json_t *adapter_config)
{
        const json_t *wanted = json_object_get(
                json_get_object(adapter_config, "paperclipSkillSync"), "desiredSkills");

        return json_is_array(wanted) ? wanted : NULL;
}

bool skill_is_wanted(const json_t *adapter_config, const char *name)
{
        const json_t *wanted = skill_wanted(adapter_config);
        size_t i;
        json_t *one;

        if (!wanted)
                return true;
        json_array_foreach((json_t *)wanted, i, one)
        {
                const char *text = json_string_value(one);

                if (text && streq(last_part(text), name))
                        return true;
        }
        return false;
}
