/* The fake provider: ids and nothing behind them, for probes and tests.
 *
 * Tests need the record and the world, so with BERTH_FAKE_WORLD set to a directory each fake
 * sandbox is a file there, named by its place's id and holding the provider lease id. Opening
 * creates the file, closing removes it, listing reads the directory; and files with these names
 * make calls go wrong:
 *
 *   fail-open, fail-resume, fail-close   the call fails and does nothing
 *   busy-open                            the provider is busy, and does nothing
 *   lose-open                            the sandbox is made, but the answer is lost
 *   hold-open, hold-resume, hold-close   the call waits for as long as the file is there */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "codec/check.h"
#include "core/kinds/sandbox.h"

#define NAME         "fake"
#define HOLD_POLL_MS 2

extern const struct kind kind_fake;

static int open_world(const struct runtime *rt, int *ret_fd, struct err *err)
{
        *ret_fd = open(rt->settings.fake_world, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (*ret_fd < 0)
                return err_sys(err, ERR_PROVIDER, errno, "fake world %s", rt->settings.fake_world);
        return 0;
}

static bool told_to(int world, const char *what)
{
        return faccessat(world, what, F_OK, 0) == 0;
}

/* Acts as a slow provider: only the end of the operation ends the wait early. */
static int wait_while_told(const struct op *op, int world, const char *what, struct err *err)
{
        int r = 0;

        while (r >= 0 && told_to(world, what))
                r = op_wait_fd(op, -1, 0, HOLD_POLL_MS, err);
        return r;
}

static int check_config(const json_t *config, struct err *err)
{
        const char *provider = json_get_string(config, "provider");

        if (!provider || !streq(provider, NAME))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Sandbox provider \"fake\" received config for provider \"%s\".",
                               provider ? provider : "unknown");
        return 0;
}

static int create_in_world(const struct op *op, struct runtime *rt, const struct place *place,
                           const char *id, struct err *err)
{
        CLEAN(cleanup_fd) int world = -1;

        if (!rt->settings.fake_world)
                return 0;
        int r = open_world(rt, &world, err);
        if (r >= 0)
                r = wait_while_told(op, world, "hold-open", err);
        if (r < 0)
                return r;
        if (told_to(world, "fail-open"))
                return err_set(err, ERR_PROVIDER, "The fake provider was told to fail.");
        if (told_to(world, "busy-open"))
                return err_set(err, ERR_BUSY, "The fake provider was told to be busy.");
        FAULT("fake.open.before");
        r = file_write_at(world, place->id, id, strlen(id), 0600, err);
        FAULT("fake.open.after");
        if (r >= 0 && told_to(world, "lose-open"))
                return err_set(err, ERR_UNCERTAIN, "The fake provider's answer was lost.");
        return r;
}

static int fake_open(struct op *op, struct runtime *rt, const struct place *place,
                     const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        json_t *config;
        int r = kind_place_config(op, place, &config, err);

        if (r >= 0)
                r = check_config(config, err);
        if (r < 0)
                return r;
        if (json_is_true(json_object_get(config, "reuseLease")))
                ret->id = arena_printf(op->arena, "sandbox://fake/%s", place->environment_id);
        else
                ret->id = arena_printf(op->arena, "sandbox://fake/%s/%s",
                                       req->run_id ? req->run_id : uuid_new().s, uuid_new().s);
        ret->metadata = config;
        return create_in_world(op, rt, place, ret->id, err);
}

static int fake_resume(struct op *op, struct runtime *rt, const struct place *place,
                       const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        CLEAN(cleanup_fd) int world = -1;
        json_t *config;
        int r = kind_place_config(op, place, &config, err);

        if (r < 0)
                return r;
        if (rt->settings.fake_world) {
                r = open_world(rt, &world, err);
                if (r >= 0)
                        r = wait_while_told(op, world, "hold-resume", err);
                if (r < 0)
                        return r;
                if (told_to(world, "fail-resume"))
                        return err_set(err, ERR_PROVIDER, "The fake provider was told to fail.");
                if (!told_to(world, place->id))
                        return err_set(err, ERR_NOT_FOUND,
                                       "The fake sandbox is not there any more.");
        }
        ret->id = place->provider_lease_id;
        ret->metadata = config;
        return 0;
}

static int fake_close(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        CLEAN(cleanup_fd) int world = -1;

        if (!rt->settings.fake_world)
                return 0;
        int r = open_world(rt, &world, err);
        if (r >= 0)
                r = wait_while_told(op, world, "hold-close", err);
        if (r < 0)
                return r;
        if (told_to(world, "fail-close"))
                return err_set(err, ERR_PROVIDER, "The fake provider was told to fail.");
        FAULT("fake.close.before");
        if (unlinkat(world, place->id, 0) < 0 && errno != ENOENT)
                return err_sys(err, ERR_PROVIDER, errno, "remove fake sandbox");
        FAULT("fake.close.after");
        return 0;
}

static int fake_list(struct op *op, struct runtime *rt, const struct kind *kind, kind_found_fn fn,
                     void *ctx, struct err *err)
{
        struct dirent *entry;
        int r = 0;

        if (!rt->settings.fake_world)
                return 0;
        DIR *dir = opendir(rt->settings.fake_world);
        if (!dir)
                return err_sys(err, ERR_PROVIDER, errno, "fake world %s", rt->settings.fake_world);
        while (r >= 0 && (entry = readdir(dir)))
                if (uuid_is_valid(entry->d_name))
                        r = fn(ctx, &(struct kind_thing){ NAME, entry->d_name, "fake sandbox",
                                                          rt->node.id.s });
        closedir(dir);
        return r;
}

static int fake_probe(struct op *op, struct runtime *rt, const struct probe_target *target,
                      json_t *config, struct probe_result *ret, struct err *err)
{
        int r = check_config(config, err);

        if (r < 0)
                return r;
        buf_appendf(&ret->summary, "Fake sandbox provider is ready for image %s.",
                    json_get_string(config, "image"));
        json_object_update(ret->details, config);
        ret->ok = true;
        return 0;
}

/* Without a world a fake sandbox is nothing but a row. */
static bool fake_is_only_rows(const struct runtime *rt)
{
        return !rt->settings.fake_world;
}

/* Using it */

static int fake_normalize(const struct kind *kind, json_t *config, enum config_form form,
                          json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };

        check_init(&c, config);
        check_literal(&c, "provider", CHECK_OPTIONAL, NAME);
        check_text(&c, "Fake sandbox environments require an image.");
        const char *image = check_string(&c, "image", CHECK_TRIM, 1, 0);
        bool reuse = check_bool(&c, "reuseLease", CHECK_OPTIONAL, false);
        check_unknown(&c, (const char *[]){ "provider", "image", "reuseLease", NULL });
        if (!check_failed(&c))
                *ret = json_pack("{s:s, s:s, s:b}", "provider", NAME, "image",
                                 image ? image : "ubuntu:24.04", "reuseLease", reuse);
        return check_end_config(&c, err);
}

static int fake_may_save(const struct op *op, const struct runtime *rt, const json_t *config,
                         struct err *err)
{
        if (rt->settings.allow_fake_provider)
                return 0;
        return err_set(err, ERR_UNPROCESSABLE,
                       "Built-in fake sandbox environments are reserved for internal probes and "
                       "cannot be saved.");
}

static int fake_plan(struct op *op, struct runtime *rt, const struct environment *env,
                     const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        json_t *config = NULL;
        int r = kind_config(op, &kind_fake, env, &config, err);

        if (r < 0)
                return r;
        if (!rt->settings.allow_fake_provider)
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "Built-in fake sandbox environments are reserved for internal probes "
                        "and cannot be leased.");
        return sandbox_plan(op, rt, &kind_fake, config, req, ret, err);
}

static int fake_admit_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                           const struct exec_request *req, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE,
                       "Sandbox driver does not support direct command execution for built-in "
                       "providers.");
}

const struct kind kind_fake = {
        .driver = "sandbox",
        .provider = NAME,
        .is_unnamed = true,
        .label = "sandbox",
        .display_name = "Fake",
        .isolated = true,
        .isolation = "isolated from this machine and from other places",
        .is_disposable = true,
        .reaches_host = sandbox_reaches_host,
        .writes_cleanup_status = true,
        .release_failure_reason = "adapter_or_run_failure",
        .normalize = fake_normalize,
        .may_save = fake_may_save,
        .probe = fake_probe,
        .plan = fake_plan,
        .open = fake_open,
        .resume = fake_resume,
        .close = fake_close,
        .matches = sandbox_matches,
        .list = fake_list,
        .is_only_rows = fake_is_only_rows,
        .describe = sandbox_describe,
        .realize = sandbox_realize,
        .admit_exec = fake_admit_exec,
        .realization = &sandbox_realization,
};
