/* The rules of the merge for one change. */
#include "workspace/merge_decide.h"

/* The change with `was` filled in where the host's file tells: it was not touched since. */
struct known {
        const struct tree_entry *now, *ours; /* ours: NULL when there is nothing */
        const struct tree_entry *was;        /* NULL: it was not there, or it is unknown */
        uint32_t umask;
        bool ours_shared;
};

/* Whether a umask on the way makes `to` out of `from`. */
static bool explains(uint32_t umask, uint32_t from, uint32_t to)
{
        return to == from || to == (from & ~umask);
}

static bool is_file(const struct tree_entry *e)
{
        return e && e->kind == TREE_FILE;
}

static bool same(const struct tree_entry *a, const struct tree_entry *b)
{
        return a && b && tree_same_content(a, b);
}

static bool they_changed_mode(const struct known *k)
{
        const struct tree_entry *was = k->was;

        if (!was || was->kind != TREE_FILE)
                return true;
        return !explains(k->umask, was->mode, k->now->mode);
}

/* `was` may be what came back from there, with their umask. */
static bool we_changed_mode(const struct known *k)
{
        const struct tree_entry *was = k->was, *ours = k->ours;

        if (!was || !ours || was->kind != TREE_FILE || ours->kind != TREE_FILE)
                return false;
        return !explains(k->umask, ours->mode, was->mode);
}

static uint32_t mode_for(const struct known *k)
{
        /* Readable by its owner, or the next merge could not tell what it is. */
        if (k->now->kind == TREE_FILE && is_file(k->ours) && !they_changed_mode(k))
                return k->ours->mode;
        return (k->now->mode & 0777) | (k->now->kind == TREE_DIR ? 0700 : 0400);
}

static struct merge_verdict verdict(const struct known *k, enum merge_what what)
{
        return (struct merge_verdict){ what, k->now->kind == TREE_LINK ? 0 : mode_for(k) };
}

static struct merge_verdict decide_delete(const struct known *k)
{
        bool as_staged = same(k->ours, k->was) && !we_changed_mode(k);

        if (!k->ours)
                return (struct merge_verdict){ MERGE_NOTHING, 0 };
        return (struct merge_verdict){ as_staged ? MERGE_DELETE : MERGE_LEAVE, 0 };
}

static struct merge_verdict decide_dir(const struct known *k)
{
        if (!k->ours)
                return verdict(k, MERGE_PUT);
        if (k->ours->kind == TREE_DIR)
                return verdict(k, MERGE_NOTHING);
        return verdict(k, same(k->ours, k->was) ? MERGE_PUT : MERGE_ASIDE);
}

static struct merge_verdict decide_same(const struct known *k)
{
        bool applies = is_file(k->now) && is_file(k->was) && they_changed_mode(k) &&
                       !we_changed_mode(k) && mode_for(k) != k->ours->mode;

        if (!applies)
                return verdict(k, MERGE_NOTHING);
        /* Its other name keeps the mode that it has. */
        return verdict(k, k->ours_shared ? MERGE_PUT : MERGE_MODE);
}

static struct merge_verdict decide_put(const struct known *k)
{
        bool only_mode = same(k->was, k->now);

        if (!k->ours)
                return verdict(k, only_mode ? MERGE_NOTHING : MERGE_PUT);
        if (same(k->ours, k->now))
                return decide_same(k);
        if (only_mode)
                return verdict(k, MERGE_NOTHING);
        if (k->ours->kind == TREE_DIR || same(k->ours, k->was))
                return verdict(k, MERGE_PUT);
        return verdict(k, MERGE_ASIDE);
}

struct merge_verdict merge_decide(const struct change *c, const struct merge_local *local,
                                  uint32_t umask)
{
        struct known k = {
                .now = &c->now,
                .ours = local->is_there ? &local->entry : NULL,
                .was = c->has_was ? &c->was : NULL,
                .umask = umask,
                .ours_shared = local->is_shared,
        };

        /* An unknown entry is equal to nothing, so it is never taken for unchanged. The time of a
         * directory tells of what is in it, and it goes only when nothing is. */
        if (!k.was && c->was_by_time && k.ours &&
            (k.ours->kind == TREE_DIR || local->ctime_ns <= c->staged_ns))
                k.was = k.ours;
        if (c->is_delete)
                return decide_delete(&k);
        return c->now.kind == TREE_DIR ? decide_dir(&k) : decide_put(&k);
}
