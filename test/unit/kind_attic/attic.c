/* A kind of place for tests, which no other file of the program knows: its places are boxes in an
 * attic that the test keeps. It shows that a kind is one folder, and one line in a list. */
#include "kind_attic/attic.h"

#include "codec/check.h"
#include "core/secrets/secret.h"

struct attic attic;

static int attic_normalize(const struct kind *kind, json_t *config, enum config_form form,
                           json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *shelf, *key = NULL;

        check_init(&c, config);
        check_text(&c, "An attic needs a shelf.");
        shelf = check_string(&c, "shelf", CHECK_REQUIRED | CHECK_TRIM, 1, 0);
        if (form == CONFIG_SUBMITTED)
                key = check_string(&c, "key", CHECK_NULLABLE, 0, 0);
        (void)check_record(&c, "keyRef", CHECK_NULLABLE);
        check_unknown(&c, (const char *[]){ "shelf", "key", "keyRef", NULL });
        if (!check_failed(&c))
                *ret = json_pack("{s:s, s:s?, s:O?}", "shelf", shelf, "key", key, "keyRef",
                                 json_object_get(config, "keyRef"));
        return check_end_config(&c, err);
}

static int attic_probe(struct op *op, struct runtime *rt, const struct probe_target *target,
                       json_t *config, struct probe_result *ret, struct err *err)
{
        json_t *resolved = NULL;
        int r = secret_resolve_config(op, rt, target->company_id, target->environment_id,
                                      &kind_attic, config, NULL, NULL, &resolved, err);

        if (r < 0)
                return r;
        ret->ok = streq(json_get_string(resolved, "key"), ATTIC_KEY);
        buf_appendf(&ret->summary, "The attic %s.", ret->ok ? "opens" : "stays shut");
        json_decref(resolved);
        return 0;
}

static int attic_plan(struct op *op, struct runtime *rt, const struct environment *env,
                      const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        *ret = (struct lease_plan){ .provider = kind_attic.driver,
                                    .policy = POLICY_EPHEMERAL,
                                    .config = env->config,
                                    .has_world = true };
        return 0;
}

static int attic_claim(struct db *db, struct runtime *rt, const struct place *place,
                       struct arena *arena, struct err *err)
{
        attic.claims++;
        return 0;
}

static int attic_unclaim(struct db *db, const struct place *place, struct err *err)
{
        attic.claims--;
        return 0;
}

static int attic_open(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        snprintf(attic.box, sizeof(attic.box), "%s", place->id);
        ret->id = arena_printf(op->arena, "attic://%s", place->id);
        return 0;
}

static int attic_close(struct op *op, struct runtime *rt, const struct place *place,
                       struct err *err)
{
        attic.box[0] = '\0';
        return 0;
}

static int attic_list(struct op *op, struct runtime *rt, const struct kind *kind, kind_found_fn fn,
                      void *ctx, struct err *err)
{
        if (!attic.box[0])
                return 0;
        return fn(ctx, &(struct kind_thing){ kind_attic.driver, attic.box, "box", rt->node.id.s });
}

static void attic_describe(const struct place *place, const struct provider_lease *opened,
                           bool resumed, json_t *metadata)
{
        json_object_set_new(metadata, "remoteCwd", json_string("/attic"));
}

static int attic_realize(struct op *op, struct runtime *rt, const struct environment *env,
                         const struct lease *lease, json_t *workspace, json_t **ret,
                         struct err *err)
{
        *ret = realization_elsewhere(op, &kind_attic, env, lease, workspace);
        return 0;
}

static json_t *attic_summary(const json_t *metadata, const char *local, const char *remote,
                             const char *cwd)
{
        return json_sprintf("Attic workspace realized at %s.", remote);
}

static void attic_forget_environment(struct runtime *rt, const char *environment_id)
{
        attic.forgotten++;
}

static const struct kind_secret secrets[] = { { "key", "keyRef", "key" }, { 0 } };

static const struct kind_realization realization = { .strategy = "carry",
                                                     .prepare = "It is carried up.",
                                                     .summary = attic_summary };

const struct kind kind_attic = {
        .driver = "attic",
        .label = "attic",
        .isolation = "under the roof, not isolated",
        .is_elsewhere = true,
        .takes_runs = true,
        .writes_cleanup_status = true,
        .forget_environment = attic_forget_environment,
        .normalize = attic_normalize,
        .secrets = secrets,
        .probe = attic_probe,
        .plan = attic_plan,
        .claim = attic_claim,
        .unclaim = attic_unclaim,
        .open = attic_open,
        .close = attic_close,
        .list = attic_list,
        .describe = attic_describe,
        .realize = attic_realize,
        .realization = &realization,
};
