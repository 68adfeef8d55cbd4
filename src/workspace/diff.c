/* Walks two manifests side by side, and reports the paths that differ. */
#include "workspace/scan.h"

struct side {
        struct tree_source *source;
        struct tree_entry entry;
        bool there;
};

static int advance(struct side *s, struct err *err)
{
        int r = tree_next(s->source, &s->entry, err);

        s->there = r > 0;
        return r;
}

/* As if it had not been there. */
static int advance_known(struct side *s, struct err *err)
{
        int r;

        do
                r = advance(s, err);
        while (r > 0 && s->entry.kind == TREE_UNKNOWN);
        return r;
}

/* Nothing can be said of what is where `now` is unknown. */
static int pass_unknown(struct side *was, struct side *now, struct err *err)
{
        const char *at = now->entry.path;
        int r = 0;

        while (r >= 0 && was->there &&
               (streq(was->entry.path, at) || tree_beneath(was->entry.path, at)))
                r = advance_known(was, err);
        return r < 0 ? r : advance(now, err);
}

static int diff_step(struct side *was, struct side *now, tree_diff_fn fn, void *ctx,
                     struct err *err)
{
        int order = !was->there   ? 1
                    : !now->there ? -1
                                  : tree_compare(was->entry.path, now->entry.path);
        int r = 0;

        if (order >= 0 && now->entry.kind == TREE_UNKNOWN)
                return pass_unknown(was, now, err);
        if (order != 0 || !tree_same(&was->entry, &now->entry))
                r = fn(ctx, order <= 0 ? &was->entry : NULL, order >= 0 ? &now->entry : NULL, err);
        if (r >= 0 && order <= 0)
                r = advance_known(was, err);
        if (r >= 0 && order >= 0)
                r = advance(now, err);
        return r;
}

int tree_diff(struct tree_source *was_source, struct tree_source *now_source, tree_diff_fn fn,
              void *ctx, struct err *err)
{
        struct side was = { .source = was_source }, now = { .source = now_source };
        int r = advance_known(&was, err);

        if (r >= 0)
                r = advance(&now, err);
        while (r >= 0 && (was.there || now.there))
                r = diff_step(&was, &now, fn, ctx, err);
        return r < 0 ? r : 0;
}
