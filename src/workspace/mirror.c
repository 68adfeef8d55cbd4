#define _GNU_SOURCE
#include "workspace/mirror.h"

#include <errno.h>
#include <fcntl.h>

#include "workspace/content.h"
#include "workspace/scan.h"

struct listed {
        struct listed *next;
        struct change change;
};

struct mirror {
        struct change_set set;
        struct op *op;
        int source;
        const struct mirror_options *options;
        struct listed *first, **last, *at;
};

static bool is_preserved(const struct mirror *m, const char *path)
{
        for (const char *const *p = m->options->preserve_absent; p && *p; p++)
                if (streq(path, *p) || tree_beneath(path, *p))
                        return true;
        return false;
}

static struct tree_entry keep_entry(struct arena *a, const struct tree_entry *e)
{
        struct tree_entry copy = *e;

        copy.path = arena_strdup(a, e->path);
        copy.target = arena_strdup(a, e->target);
        return copy;
}

static int list_difference(void *ctx, const struct tree_entry *target,
                           const struct tree_entry *source, struct err *err)
{
        struct mirror *m = ctx;
        struct listed *l;

        if (!source && is_preserved(m, target->path))
                return 0;
        l = arena_new(m->op->arena, struct listed);
        l->change.is_delete = !source;
        l->change.has_was = target != NULL;
        if (target)
                l->change.was = keep_entry(m->op->arena, target);
        if (source)
                l->change.now = keep_entry(m->op->arena, source);
        else
                l->change.now.path = l->change.was.path;
        *m->last = l;
        m->last = &l->next;
        return op_check(m->op, err);
}

static int check_op(void *ctx, struct err *err)
{
        return op_check(ctx, err);
}

static int open_scan(struct op *op, int dir, struct scan **ret, struct err *err)
{
        struct scan_options options = { .check = check_op, .ctx = op };
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open a directory");
        return scan_open(fd, &options, ret, err);
}

static int list_all(struct mirror *m, int target_fd, struct err *err)
{
        struct scan *target = NULL, *source = NULL;
        int r = open_scan(m->op, target_fd, &target, err);

        if (r >= 0)
                r = open_scan(m->op, m->source, &source, err);
        if (r >= 0)
                r = tree_diff(scan_source(target), scan_source(source), list_difference, m, err);
        if (target)
                scan_close(target);
        if (source)
                scan_close(source);
        return r;
}

static int next_listed(struct change_set *s, struct change *ret, struct err *err)
{
        struct mirror *m = container_of(s, struct mirror, set);

        (void)err;
        if (!m->at)
                return 0;
        *ret = m->at->change;
        m->at = m->at->next;
        return 1;
}

static int open_source(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        return content_open(container_of(s, struct mirror, set)->source, c->now.path, ret_fd, err);
}

static void close_nothing(struct change_set *s)
{
        (void)s;
}

int mirror_directory(struct op *op, int source_fd, int target_fd,
                     const struct mirror_options *options, struct merge_report *ret,
                     struct err *err)
{
        struct mirror m = {
                .set = { next_listed, open_source, close_nothing },
                .op = op,
                .source = source_fd,
                .options = options,
        };
        struct merge_options merge = {
                .lock_path = options->lock_path,
                .stamp = options->stamp,
                .set_owner = options->set_owner,
        };
        int r;

        m.last = &m.first;
        r = list_all(&m, target_fd, err);
        if (r < 0)
                return r;
        m.at = m.first;
        return merge_apply(op, target_fd, &m.set, &merge, ret, err);
}
