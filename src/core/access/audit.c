/* Writes the audit trail, and decides which names are sensitive. */
#define _GNU_SOURCE
#include "core/access/audit.h"

#include "base/clock.h"
#include "store/activity.h"

/* A name is sensitive when it contains one of these, whatever its case. */
static const char *const sensitive[] = {
        "apikey",      "api_key",          "api-key",
        "accesstoken", "access_token",     "access-token",
        "authtoken",   "auth_token",       "authorization",
        "bearer",      "secret",           "passwd",
        "password",    "credential",       "jwt",
        "privatekey",  "private_key",      "private-key",
        "cookie",      "connectionstring", "connection_string",
        "token",
};

bool audit_is_sensitive(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(sensitive); i++)
                if (strcasestr(name, sensitive[i]))
                        return true;
        return false;
}

void audit_redact(json_t *value)
{
        const char *key;
        json_t *member;
        size_t i;

        if (json_is_array(value)) {
                json_array_foreach(value, i, member) audit_redact(member);
                return;
        }
        json_object_foreach(value, key, member)
        {
                if (audit_is_sensitive(key))
                        json_object_set_new(value, key, json_string(REDACTED));
                else
                        audit_redact(member);
        }
}

const char *audit_redacted(struct arena *arena, const char *text)
{
        CLEAN(json_decrefp) json_t *value = NULL;

        if (!text || json_parse(text, strlen(text), &value, NULL) < 0)
                return "null";
        audit_redact(value);
        return json_to_arena(arena, value);
}

static void name_actor(const struct actor *a, struct activity *row)
{
        switch (a->type) {
        case ACTOR_AGENT:
                row->actor_type = "agent";
                row->actor_id = row->agent_id = a->agent_id;
                break;
        case ACTOR_BOARD:
                row->actor_type = "user";
                row->actor_id = a->user_id;
                break;
        case ACTOR_SYSTEM:
        case ACTOR_NONE:
                row->actor_type = "system";
                row->actor_id = "berth";
                break;
        }
}

/* The entry as the company's listeners receive it (http-api 4.1). */
static json_t *event_of(const struct activity *row, json_t *take_details)
{
        json_t *event = json_object();

        json_object_set_new(event, "actorType", json_string(row->actor_type));
        json_object_set_new(event, "actorId", json_string_or_null(row->actor_id));
        json_object_set_new(event, "action", json_string(row->action));
        json_object_set_new(event, "entityType", json_string(row->entity_type));
        json_object_set_new(event, "entityId", json_string_or_null(row->entity_id));
        json_object_set_new(event, "agentId", json_string_or_null(row->agent_id));
        json_object_set_new(event, "runId", json_string_or_null(row->run_id));
        json_object_set_new(event, "details", take_details ? take_details : json_null());
        return event;
}

int audit(struct db *db, const struct op *op, const char *company_id, const char *action,
          const char *entity_type, const char *entity_id, json_t *take_details, struct err *err)
{
        CLEAN(cleanup_free) char *details = NULL;
        struct uuid id = uuid_new();
        struct activity row = {
                .id = id.s,
                .company_id = company_id,
                .action = action,
                .entity_type = entity_type,
                .entity_id = entity_id,
                .run_id = op->run_id,
                .created_at = clock_now_us(),
        };

        name_actor(op->actor ? op->actor : &actor_system, &row);
        if (take_details) {
                audit_redact(take_details);
                details = json_to_text(take_details);
                row.details = details;
        }
        int r = activity_insert(db, &row, err);
        if (r >= 0 && company_id)
                db_announce(db, company_id, "activity.logged", event_of(&row, take_details));
        else
                json_decref(take_details);
        return r;
}

int audit_lease(struct db *db, const struct op *op, const char *company_id, const char *run_id,
                const char *action, const char *lease_id, json_t *take_details, struct err *err)
{
        struct op named = *op;

        if (!named.run_id)
                named.run_id = run_id;
        return audit(db, &named, company_id, action, "environment_lease", lease_id, take_details,
                     err);
}
