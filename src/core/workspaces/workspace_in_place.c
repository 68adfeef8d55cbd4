/* The local driver's way: commands work in the directory itself. Nothing is moved, so there is
 * nothing to bring home and nothing to lose. */
#include "core/workspaces/workspace.h"

static int in_place_stage(struct op *op, struct runtime *rt, const struct place *place,
                          const struct workspace *w, workspace_progress_fn progress, void *ctx,
                          struct stage_result *ret, struct err *err)
{
        *ret = (struct stage_result){ .cwd = w->local_path };
        return 0;
}

const struct workspace_way workspace_in_place = {
        .name = "in_place",
        .stage = in_place_stage,
        .dies_with_place = true,
};
