/* A vault made of files, in the test build only: with it tests see a world that can disagree with
 * the record. With BERTH_FAKE_VAULT=DIR the provider `vault` keeps values there, in clear. A file
 * `fail-create`, `fail-version`, `fail-resolve` or `fail-remove` in it makes that call fail;
 * `lose-create` and `lose-version` make it fail after it was done. */
#include "secret/vault.h"

#ifndef BERTH_FAULTS

const struct vault_provider *vault_stand_in(const struct vault_provider *real)
{
        return real;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/fd.h"

static const char *root(void)
{
        return getenv("BERTH_FAKE_VAULT");
}

static bool is_told(struct op *op, const char *what)
{
        return access(arena_printf(op->arena, "%s/%s", root(), what), F_OK) == 0;
}

static const char *path_of(struct op *op, const struct vault_subject *s, int64_t version)
{
        return arena_printf(op->arena, "%s/%s.%s.%lld", root(), s->company_id, s->secret_key,
                            (long long)version);
}

static int fake_fail(struct err *err)
{
        return vault_fail(err, VAULT_UNAVAILABLE, "The fake vault is unavailable right now.");
}

static int fake_keep(struct op *op, const struct vault_subject *s, const struct secret_value *value,
                     const char *step, struct vault_material *ret, struct err *err)
{
        const char *path = path_of(op, s, s->version);

        if (is_told(op, arena_printf(op->arena, "fail-%s", step)))
                return fake_fail(err);
        int r = file_write_at(AT_FDCWD, path, value->data, value->len, 0600, err);
        if (r < 0)
                return r;
        if (is_told(op, arena_printf(op->arena, "lose-%s", step)))
                return fake_fail(err);
        *ret = (struct vault_material){
                .material = arena_printf(op->arena, "{\"scheme\":\"fake\",\"version\":%lld}",
                                         (long long)s->version),
                .external_ref = arena_printf(op->arena, "fake:%s", s->secret_key),
                .version_ref = arena_printf(op->arena, "v%lld", (long long)s->version),
                .value_mark = "fake",
                .fingerprint = "fake",
        };
        return 0;
}

static bool is_configured(void)
{
        return true;
}

static int fake_create(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct secret_value *value,
                       struct vault_material *ret, struct err *err)
{
        FAULT("vault_fake.create.before");
        int r = fake_keep(op, subject, value, "create", ret, err);
        FAULT("vault_fake.create.after");
        return r;
}

static int create_version(struct op *op, const struct vault_config *config,
                          const struct vault_subject *subject, const struct vault_material *current,
                          const struct secret_value *value, struct vault_material *ret,
                          struct err *err)
{
        FAULT("vault_fake.version.before");
        int r = fake_keep(op, subject, value, "version", ret, err);
        FAULT("vault_fake.version.after");
        return r;
}

static int resolve(struct op *op, const struct vault_config *config,
                   const struct vault_subject *subject, const struct vault_material *material,
                   struct secret_value *ret, struct err *err)
{
        CLEAN(buf_wipe) struct buf text = BUF_INIT;

        if (is_told(op, "fail-resolve"))
                return fake_fail(err);
        int r = file_read_at(AT_FDCWD, path_of(op, subject, subject->version), SECRET_VALUE_MAX,
                             &text, err);
        return r < 0 ? r : secret_value_set(ret, buf_str(&text), text.len, err);
}

static int remove_files(struct op *op, const struct vault_config *config,
                        const struct vault_subject *subject, const struct vault_material *material,
                        enum vault_removal mode, struct err *err)
{
        int64_t first = mode == VAULT_ARCHIVE ? subject->version : 1;

        if (is_told(op, "fail-remove"))
                return fake_fail(err);
        FAULT("vault_fake.remove.before");
        for (int64_t v = first; v <= subject->version; v++)
                if (unlink(path_of(op, subject, v)) < 0 && errno != ENOENT)
                        return err_sys(err, ERR_IO, errno, "fake vault");
        FAULT("vault_fake.remove.after");
        return 0;
}

static int health(struct op *op, const struct vault_config *config, struct vault_health *ret,
                  struct err *err)
{
        *ret = (struct vault_health){ .status = "ok",
                                      .message = "The fake vault is there",
                                      .details = json_keep(op->arena, json_object()) };
        return 0;
}

static const struct vault_provider vault_fake = {
        .key = VAULT_HASHI,
        .label = "Fake vault",
        .keeps_values = true,
        .is_configured = is_configured,
        .create = fake_create,
        .create_version = create_version,
        .resolve = resolve,
        .remove = remove_files,
        .health = health,
};

const struct vault_provider *vault_stand_in(const struct vault_provider *real)
{
        return real == &vault_hashi && root() ? &vault_fake : real;
}

#endif
