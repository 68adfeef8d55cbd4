/* Where our own program and the files installed with it are. */
#include "base/installed.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

const char *installed_program(struct arena *a)
{
        char self[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

        return n > 0 ? arena_strndup(a, self, (size_t)n) : NULL;
}

static const char *find_beside(struct arena *a, const char *const *places, size_t n, int mode)
{
        const char *self = installed_program(a);

        for (size_t i = 0; self && i < n; i++) {
                char *path = arena_printf(a, "%.*s/%s", (int)(strrchr(self, '/') - self), self,
                                          places[i]);

                if (access(path, mode) == 0)
                        return path;
        }
        return NULL;
}

const char *installed_box(struct arena *a)
{
        static const char *const places[] = { "berth-box", "../libexec/berth/berth-box" };

        return find_beside(a, places, ARRAY_LEN(places), X_OK);
}

const char *installed_provider(struct arena *a, const char *name)
{
        const char *places[] = { arena_printf(a, "providers/%s/berth-plugin.json", name),
                                 arena_printf(a, "../libexec/berth/providers/%s/berth-plugin.json",
                                              name) };
        const char *manifest = strchr(name, '/') || *name == '.'
                                       ? NULL
                                       : find_beside(a, places, ARRAY_LEN(places), R_OK);
        char real[PATH_MAX];

        if (!manifest || !realpath(manifest, real))
                return NULL;
        return arena_strndup(a, real, (size_t)(strrchr(real, '/') - real));
}

const char *installed_examples(struct arena *a)
{
        static const char *const places[] = { "../share/berth/examples", "../examples" };
        const char *path = find_beside(a, places, ARRAY_LEN(places), R_OK);
        char real[PATH_MAX];

        return path && realpath(path, real) ? arena_strdup(a, real) : NULL;
}
