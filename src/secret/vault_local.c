/* The vault that is always there: values sealed in our own database. Nothing outside is touched, so
 * creating and removing are the caller's transaction alone. */
#include "secret/seal.h"
#include "secret/vault.h"

#include <sys/stat.h>

static struct seal_place place_of(const struct vault_subject *s)
{
        return (struct seal_place){ s->company_id, s->secret_id, s->version };
}

static bool is_configured(void)
{
        return true;
}

static int local_create(struct op *op, const struct vault_config *config,
                        const struct vault_subject *subject, const struct secret_value *value,
                        struct vault_material *ret, struct err *err)
{
        struct seal_place place = place_of(subject);
        char mark[SEAL_MARK_LEN + 1];
        const char *sealed;
        int r = seal(op->arena, &place, value, &sealed, err);

        if (r >= 0)
                r = seal_mark(&place, value, mark, err);
        if (r >= 0)
                *ret = (struct vault_material){
                        .material = sealed,
                        .value_mark = arena_strdup(op->arena, mark),
                        .fingerprint = arena_strdup(op->arena, mark),
                };
        return r;
}

static int create_version(struct op *op, const struct vault_config *config,
                          const struct vault_subject *subject, const struct vault_material *current,
                          const struct secret_value *value, struct vault_material *ret,
                          struct err *err)
{
        return local_create(op, config, subject, value, ret, err);
}

static int refuse_link(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const char *external_ref,
                       const char *version_ref, struct vault_material *ret, struct err *err)
{
        return err_set(err, ERR_INVALID,
                       "local_encrypted does not support external reference secrets");
}

static int resolve(struct op *op, const struct vault_config *config,
                   const struct vault_subject *subject, const struct vault_material *material,
                   struct secret_value *ret, struct err *err)
{
        struct seal_place place = place_of(subject);
        int r = seal_open(&place, material->material, ret, err);

        if (r == ERR_UNPROCESSABLE)
                return err_wrap(err, r, "Secret \"%s\" (version %lld) cannot be opened",
                                subject->secret_name, (long long)subject->version);
        return r;
}

static int forget(struct op *op, const struct vault_config *config,
                  const struct vault_subject *subject, const struct vault_material *material,
                  enum vault_removal mode, struct err *err)
{
        return 0; /* it goes with its row */
}

/* A change of the master key may have come between sealing and storing. */
static bool may_store(const struct vault_material *material)
{
        char id[MASTER_KEY_ID_LEN + 1];

        return seal_key_of(material->material, id) && *id && master_key_is_current(id);
}

static json_t *guidance(struct op *op)
{
        return json_keep(
                op->arena,
                json_pack("[s, s, s]",
                          "Back up the master key together with the database; a backup of the "
                          "database alone cannot be opened.",
                          "Keep the two backups in different places: whoever has both has the "
                          "values.",
                          "Try to restore both before you need to."));
}

static void judge_mode(struct op *op, const struct master_key_state *key, struct vault_health *ret)
{
        ret->message = arena_printf(
                op->arena, "Local encrypted provider configured with key file %s", key->file);
        ret->guidance = guidance(op);
        ret->status = "ok";
        if (!(key->mode & 077))
                return;
        ret->status = "warn";
        ret->warnings = json_keep(
                op->arena, json_pack("[o]", json_sprintf("Secrets key file permissions are %o; run "
                                                         "chmod 600 %s",
                                                         key->mode, key->file)));
}

static int health(struct op *op, const struct vault_config *config, struct vault_health *ret,
                  struct err *err)
{
        struct master_key_state key;

        master_key_state(op->arena, &key);
        *ret = (struct vault_health){
                .details = json_keep(op->arena,
                                     json_pack("{s:s, s:s*}", "keySource", key.source,
                                               "keyFilePath", key.variable ? NULL : key.file)),
        };
        if (key.is_changing)
                json_object_set_new(ret->details, "rekeying", json_true());
        if (key.is_missing) {
                ret->status = "warn";
                ret->message = arena_printf(op->arena, "Secrets key file does not exist yet: %s",
                                            key.file);
                ret->warnings =
                        key.problem ? json_keep(op->arena, json_pack("[s]", key.problem)) : NULL;
                ret->guidance = guidance(op);
        } else if (key.problem) {
                ret->status = "error";
                ret->message = key.problem;
        } else if (key.variable) {
                ret->status = "ok";
                ret->message = arena_printf(op->arena, "Local encrypted provider is using %s",
                                            key.variable);
                ret->guidance = guidance(op);
        } else {
                judge_mode(op, &key, ret);
        }
        return 0;
}

const struct vault_provider vault_local = {
        .key = VAULT_LOCAL,
        .label = "Local encrypted (default)",
        .keeps_values = true,
        .is_inside = true,
        .is_configured = is_configured,
        .create = local_create,
        .create_version = create_version,
        .link = refuse_link,
        .resolve = resolve,
        .remove = forget,
        .health = health,
        .may_store = may_store,
};
