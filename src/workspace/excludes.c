/* Which paths the patterns exclude, and which files are part of no tree. */
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "workspace/scan.h"

#define RUNTIME_DIR ".paperclip-runtime"

static bool is_or_beneath(const char *path, const char *base, size_t len)
{
        return strncmp(path, base, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static bool is_beneath(const char *path, const char *base, size_t len)
{
        return strncmp(path, base, len) == 0 && path[len] == '/';
}

static bool has_part(const char *path, const char *name, size_t len)
{
        for (;;) {
                if (is_or_beneath(path, name, len))
                        return true;
                path = strchr(path, '/');
                if (!path)
                        return false;
                path++;
        }
}

static bool has_part_with_prefix(const char *path, const char *prefix)
{
        while (!str_starts(path, prefix)) {
                path = strchr(path, '/');
                if (!path)
                        return false;
                path++;
        }
        return true;
}

static bool matches(const char *pattern, const char *path)
{
        bool below = false;

        while (str_starts(pattern, "./"))
                pattern += 2;
        while (*pattern == '/')
                pattern++;
        size_t len = strlen(pattern);
        while (len > 0 && pattern[len - 1] == '/')
                len--;
        if (len == 0)
                return false;
        if (len > 2 && strncmp(pattern + len - 2, "/*", 2) == 0) {
                below = true;
                len -= 2;
        }
        if (len > 2 && str_starts(pattern, "*/") && !memchr(pattern + 2, '/', len - 2))
                return has_part(path, pattern + 2, len - 2);
        return below ? is_beneath(path, pattern, len) : is_or_beneath(path, pattern, len);
}

bool excludes_match(const struct excludes *x, const char *path)
{
        if (is_or_beneath(path, RUNTIME_DIR, strlen(RUNTIME_DIR)) ||
            has_part_with_prefix(path, "._"))
                return true;
        for (const char *const *p = x ? x->patterns : NULL; p && *p; p++)
                if (matches(*p, path))
                        return true;
        return false;
}

struct tree_id tree_id_of(const struct stat *st)
{
        return (struct tree_id){
                .dev = (uint64_t)major(st->st_dev) << 32 | minor(st->st_dev),
                .ino = st->st_ino,
        };
}

bool excludes_never(const struct excludes *x, struct tree_id id)
{
        const struct tree_ids *never = x ? x->never : NULL;

        for (size_t i = 0; never && i < never->n; i++)
                if (never->at[i].dev == id.dev && never->at[i].ino == id.ino)
                        return true;
        return false;
}
