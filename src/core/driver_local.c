/* The local driver: this machine. A lease by itself is only a row; what exists in the world is made
 * when a command is first run in it. */
#include "core/driver.h"
#include "core/realization.h"

static int local_plan(struct op *op, struct runtime *rt, const struct environment *env,
                      const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        *ret = (struct lease_plan){ .provider = "local",
                                    .policy = POLICY_EPHEMERAL,
                                    .config = "{}" };
        return 0;
}

/* Never reached: a plan without a world opens nothing. */
static int local_open(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        return 0;
}

static int local_close(struct op *op, struct runtime *rt, const struct place *place,
                       struct err *err)
{
        return 0;
}

static bool local_matches(const char *recorded, const char *wanted)
{
        return false;
}

static int local_list(struct op *op, struct runtime *rt, driver_found_fn fn, void *ctx,
                      struct err *err)
{
        return 0;
}

static int local_realize(struct op *op, struct runtime *rt, const struct environment *env,
                         const struct lease *lease, json_t *workspace, struct buf *ret_json,
                         json_t **ret_realization, struct err *err)
{
        const char *local = json_get_string(workspace, "localPath");
        const char *remote = json_get_string(workspace, "remotePath");
        const char *cwd = local ? local : remote;

        *ret_realization = realization_record(env, lease, workspace, cwd);
        realization_answer(ret_json, cwd ? cwd : "/", *ret_realization);
        return 0;
}

const struct driver driver_local = {
        .key = "local",
        .plan = local_plan,
        .open = local_open,
        .close = local_close,
        .matches = local_matches,
        .list = local_list,
        .realize = local_realize,
};
