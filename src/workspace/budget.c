/* Counts files and bytes of a restore against its limits. */
#include "workspace/budget.h"

#include <inttypes.h>

#define MIB ((uint64_t)1 << 20)

int budget_take(struct budget *b, uint64_t files, uint64_t bytes, const char *path, struct err *err)
{
        if (!b)
                return 0;
        if (files > b->max_files - b->files)
                return err_set(err, ERR_TOO_LARGE,
                               "More than %" PRIu64 " changed files, with %s: that is what a "
                               "restore may bring home. Raise restore_max_files, or exclude paths.",
                               b->max_files, path);
        if (bytes > b->max_bytes - b->bytes)
                return err_set(err, ERR_TOO_LARGE,
                               "More than %" PRIu64 " MiB of changes, with %s: that is what a "
                               "restore may bring home. Raise restore_max_mb, or exclude paths.",
                               b->max_bytes / MIB, path);
        b->files += files;
        b->bytes += bytes;
        return 0;
}

static int budget_next(struct change_set *set, struct change *ret, struct err *err)
{
        struct budget_set *s = container_of(set, struct budget_set, set);
        int r = s->from->next(s->from, ret, err);

        if (r <= 0)
                return r;
        bool is_file = !ret->is_delete && ret->now.kind == TREE_FILE;
        r = budget_take(s->budget, 1, is_file ? ret->now.size : 0, ret->now.path, err);
        return r < 0 ? r : 1;
}

static int budget_open(struct change_set *set, const struct change *c, int *ret_fd, struct err *err)
{
        struct budget_set *s = container_of(set, struct budget_set, set);

        return s->from->open(s->from, c, ret_fd, err);
}

static void budget_close(struct change_set *set)
{
        (void)set; /* the caller closes the set */
}

struct change_set *budget_watch(struct budget_set *s, struct budget *b, struct change_set *from)
{
        *s = (struct budget_set){ { budget_next, budget_open, budget_close }, from, b };
        return &s->set;
}
