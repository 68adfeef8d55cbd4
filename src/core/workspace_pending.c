/* Stands in for bundles and the merge until src/workspace has them: each real one takes the place
 * of the weak one here. */
#include "workspace/bundle.h"
#include "workspace/merge.h"

#define WEAK __attribute__((weak))

static int missing(struct err *err)
{
        return err_set(err, ERR_NOT_IMPLEMENTED, "Changes cannot be merged yet.");
}

WEAK int bundle_create(const char *dir, struct bundle_writer **ret, struct err *err)
{
        return missing(err);
}

WEAK int bundle_take(struct op *op, struct bundle_writer *w, struct change_set *from,
                     struct err *err)
{
        return missing(err);
}

WEAK int bundle_finish(struct bundle_writer *w, struct err *err)
{
        return missing(err);
}

WEAK void bundle_close(struct bundle_writer *w)
{
}

WEAK int bundle_open(const char *dir, struct change_set **ret, struct bundle_size *ret_size,
                     struct err *err)
{
        return err_set(err, ERR_NOT_FOUND, "There is no bundle.");
}

WEAK int bundle_remove(struct op *op, const char *dir, struct err *err)
{
        return 0;
}

WEAK int merge_apply(struct op *op, int workspace_fd, struct change_set *changes,
                     const struct merge_options *options, struct merge_report *ret, struct err *err)
{
        return missing(err);
}
