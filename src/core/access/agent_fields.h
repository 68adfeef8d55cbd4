/* The fields that an agent's key may set: one table of (object, field, rule). For board users the
 * table has one rule: only users with the right to manage environments may set a field that becomes
 * a command where the work is done (FIELD_COMMAND), whatever object the field is a part of.
 *
 * An agent works with a key of its own, and a person who talks the agent into something controls
 * that key. So no such key, whatever the agent's role and rights, makes anything run outside an
 * isolated place (kind.h), for itself or for another: no command, argument, variable, URL, header,
 * directory or environment. And no such key widens the agent's own rights, or gives others rights
 * that the agent does not have.
 *
 * The table is closed: a field that it does not name follows the rule of its object, and for
 * objects that say what runs that rule is never the open one. docs/agent-keys.md is this table as
 * text; a test compares the two, and another test tries every field in every role.
 *
 * Checks compare the stored object with the one about to be stored. A member that stays as it was
 * is not a change; a removed member is. Inside store functions. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/agents.h"

enum field_object {
        FIELD_OF_AGENT,
        FIELD_OF_PERMISSIONS,
        FIELD_OF_ADAPTER_CONFIG,
        FIELD_OF_RUNTIME_CONFIG,
        FIELD_OF_PROJECT,
        FIELD_OF_PROJECT_POLICY,
        FIELD_OF_ISSUE,
        FIELD_OF_ISSUE_SETTINGS,
        FIELD_OF_WORKSPACE,
        FIELD_OF_WORKSPACE_METADATA,
        FIELD_OF_WORKSPACE_CONFIG,
        FIELD_OF_ENVIRONMENT,
        FIELD_OF_ENVIRONMENT_CONFIG,
        FIELD_OF_ANY, /* a member of that name in any of them, at any depth */
        FIELD_OBJECTS,
};

enum field_rule {
        FIELD_OPEN,    /* every caller that may change the object */
        FIELD_MEMBERS, /* the members decide, each by its own rule */
        /* In the order in which refusals are reported. */
        FIELD_COMMAND,      /* no agent; board users that manage environments */
        FIELD_DIRECTORY,    /* no agent: it is a directory of the host */
        FIELD_INSTRUCTIONS, /* no agent: the host reads the file */
        FIELD_OTHERS,       /* not the agent's own */
        FIELD_RIGHT,        /* a CEO gives others what it has itself; no agent changes its own */
        FIELD_PLACE,        /* not the agent's own, and the place has to be isolated */
        FIELD_BOARD,        /* no agent */
        FIELD_ISOLATED,     /* what runs there: the place has to be isolated */
        FIELD_RULES,
};

struct agent_field {
        enum field_object of;
        const char *name;
        enum field_rule rule;
        enum field_object members; /* FIELD_MEMBERS: where they are listed */
        const char *safe; /* JSON: a value that any caller may choose; NULL: there is none */
};

extern const struct agent_field agent_fields[]; /* ends with a name of NULL */
extern const char *const field_object_names[FIELD_OBJECTS];
extern const char *const field_rule_texts[FIELD_RULES]; /* who may set it, for the documentation */
/* The rule of members that the table does not name. */
extern const enum field_rule field_object_rules[FIELD_OBJECTS];

struct field_change {
        enum field_object of;
        const char *company_id; /* the object's company; NULL: only agents' keys are judged here */
        const char *path;       /* where the members are, for texts; NULL: at the top */
        const json_t *before, *after; /* objects, or NULL: nothing there */
        bool is_own;                  /* the object is the acting agent */
        bool is_isolated;             /* what is set runs in an isolated place, afterwards */
};

/* 403 naming the members that the acting agent or board user may not set. *ret_runs (may be NULL):
 * whether an agent's key set something that runs, or where. */
int agent_fields_check(struct db *db, const struct op *op, const struct field_change *change,
                       bool *ret_runs, struct err *err);
