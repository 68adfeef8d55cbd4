/* The audit trail: one row per thing done, in the transaction that did it.
 *
 * Details never carry configuration values; on top of that every member with a sensitive name is
 * replaced before it is stored. Inside a store_write() function. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"

#define REDACTED "***REDACTED***"

/* Record `action` by the operation's actor. take_details is an object or NULL; its reference is
 * taken. */
int audit(struct db *db, const struct op *op, const char *company_id, const char *action,
          const char *entity_type, const char *entity_id, json_t *take_details, struct err *err);

/* The same for an acquired or released lease: the entry names the lease's run when the caller named
 * none. */
int audit_lease(struct db *db, const struct op *op, const char *company_id, const char *run_id,
                const char *action, const char *lease_id, json_t *take_details, struct err *err);

/* Whether a name suggests that its value is secret. */
bool audit_is_sensitive(const char *name);

/* Replace the values of all members with sensitive names, at any depth, in place. */
void audit_redact(json_t *value);
/* The same for a text of JSON; null for one that is not. */
const char *audit_redacted(struct arena *arena, const char *text);
