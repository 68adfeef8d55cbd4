/* Decides what the settings of the instance may be, and merges the stored ones over the
 * defaults. */
#include "core/access/instance.h"

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "store/settings.h"

#define SANDBOX_ONLY "enableManagedSandboxOnly"

static const char *const defaults[] = {
        [INSTANCE_GENERAL] =
                "{\"censorUsernameInLogs\":false,\"keyboardShortcuts\":false,"
                "\"feedbackDataSharingPreference\":\"prompt\","
                "\"backupRetention\":{\"dailyDays\":7,\"weeklyWeeks\":4,\"monthlyMonths\":1}}",
        [INSTANCE_EXPERIMENTAL] =
                "{\"enableEnvironments\":false,\"enableIsolatedWorkspaces\":false,"
                "\"autoRestartDevServerWhenIdle\":false,"
                "\"enableIssueGraphLivenessAutoRecovery\":false,"
                "\"issueGraphLivenessAutoRecoveryLookbackHours\":24,"
                "\"" SANDBOX_ONLY "\":false}",
};

struct request {
        struct op *op;
        enum instance_section section;
        json_t *body;
        const char *text; /* what it became */
};

/* The settings are open only when they say so, or do not mention it. */
static bool is_closed(const json_t *experimental)
{
        const json_t *value = json_object_get(experimental, SANDBOX_ONLY);

        return !json_is_object(experimental) || (value && !json_is_false(value));
}

int instance_isolated_only(struct db *db, struct arena *arena, bool *ret, struct err *err)
{
        struct instance_settings row;
        json_t *stored = NULL;
        int r = settings_get(db, arena, &row, err);

        if (r < 0)
                return r;
        if (!row.experimental ||
            json_parse(row.experimental, strlen(row.experimental), &stored, NULL) < 0)
                stored = NULL;
        *ret = is_closed(stored);
        json_decref(stored);
        return 0;
}

/* The defaults with the stored settings over them. A new reference. */
static int effective_settings(struct db *db, struct op *op, enum instance_section section,
                              struct instance_settings *row, json_t **ret, struct err *err)
{
        json_t *document = NULL, *stored = NULL;
        int r = settings_get(db, op->arena, row, err);

        if (r < 0)
                return r;
        const char *text = section == INSTANCE_GENERAL ? row->general : row->experimental;
        r = json_parse(defaults[section], strlen(defaults[section]), &document, err);
        if (r >= 0)
                r = json_parse(text, strlen(text), &stored, err);
        if (r >= 0)
                json_object_update_existing(document, stored);
        if (r >= 0 && section == INSTANCE_EXPERIMENTAL)
                json_object_set_new(document, SANDBOX_ONLY, json_boolean(is_closed(stored)));
        json_decref(stored);
        *ret = document;
        return r;
}

int instance_get(struct op *op, struct runtime *rt, enum instance_section section,
                 struct buf *ret_json, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *document = NULL;
        struct instance_settings row;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_board_org(db, op->actor, err);
        if (r >= 0)
                r = effective_settings(db, op, section, &row, &document, err);
        if (r >= 0)
                json_put(ret_json, document);
        return r;
}

/* Retention: whole numbers, and no unknown members. */
static void check_numbers(struct check *c, const char *key, const json_t *standard)
{
        json_t *given = check_record(c, key, CHECK_OPTIONAL);
        const char *known[8] = { NULL };
        struct check n;
        const char *name;
        json_t *value;
        size_t i = 0;

        check_nested(&n, c, key, given);
        json_object_foreach((json_t *)standard, name, value)
        {
                (void)check_int(&n, name, CHECK_REQUIRED, 1, 100000, NULL);
                if (i + 1 < ARRAY_LEN(known))
                        known[i++] = name;
        }
        check_unknown(&n, known);
}

/* A member may be replaced by a value of the type that its default has. */
static int check_settings(json_t *body, const json_t *document, struct err *err)
{
        static const char *const preferences[] = { "allowed", "not_allowed", "prompt", NULL };
        CLEAN(check_done) struct check c = { 0 };
        const char *known[16] = { NULL };
        const char *key;
        json_t *standard;
        size_t n = 0;

        check_init(&c, body);
        json_object_foreach((json_t *)document, key, standard)
        {
                if (json_is_boolean(standard))
                        (void)check_bool(&c, key, CHECK_OPTIONAL, false);
                else if (json_is_integer(standard))
                        (void)check_int(&c, key, CHECK_OPTIONAL, 1, 100000, NULL);
                else if (json_is_object(standard))
                        check_numbers(&c, key, standard);
                else
                        (void)check_enum(&c, key, CHECK_OPTIONAL, preferences);
                known[n++] = key;
        }
        check_unknown(&c, known);
        return check_end(&c, err);
}

static int instance_merge(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct instance_settings row;
        json_t *document = NULL;
        int r = effective_settings(db, q->op, q->section, &row, &document, err);

        if (r >= 0)
                r = check_settings(q->body, document, err);
        if (r >= 0) {
                json_object_update(document, q->body);
                q->text = json_to_arena(q->op->arena, document);
                if (q->section == INSTANCE_GENERAL)
                        row.general = q->text;
                else
                        row.experimental = q->text;
                r = settings_put(db, &row, clock_now_us(), err);
        }
        json_decref(document);
        return r;
}

int instance_patch(struct op *op, struct runtime *rt, enum instance_section section, json_t *body,
                   struct buf *ret_json, struct err *err)
{
        struct request q = { op, section, body, NULL };
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r < 0)
                return r;
        FAULT("instance.patch.before");
        r = store_write(op, rt->store, instance_merge, &q, err);
        FAULT("instance.patch.after");
        if (r >= 0)
                buf_puts(ret_json, q.text);
        return r;
}
