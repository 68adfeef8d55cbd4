/* Which fields an agent's key may set. */
#include "core/access/agent_fields.h"

const char *const field_object_names[FIELD_OBJECTS] = {
        [FIELD_OF_AGENT] = "agent",
        [FIELD_OF_PERMISSIONS] = "permissions",
        [FIELD_OF_ADAPTER_CONFIG] = "adapterConfig",
        [FIELD_OF_RUNTIME_CONFIG] = "runtimeConfig",
        [FIELD_OF_PROJECT] = "project",
        [FIELD_OF_PROJECT_POLICY] = "executionWorkspacePolicy",
        [FIELD_OF_ISSUE] = "issue",
        [FIELD_OF_ISSUE_SETTINGS] = "executionWorkspaceSettings",
        [FIELD_OF_WORKSPACE] = "execution workspace",
        [FIELD_OF_WORKSPACE_METADATA] = "metadata of an execution workspace",
        [FIELD_OF_WORKSPACE_CONFIG] = "config of an execution workspace",
        [FIELD_OF_ENVIRONMENT] = "environment",
        [FIELD_OF_ENVIRONMENT_CONFIG] = "config of an environment",
        [FIELD_OF_ANY] = "any of them, at any depth",
};

const enum field_rule field_object_rules[FIELD_OBJECTS] = {
        [FIELD_OF_AGENT] = FIELD_BOARD,
        [FIELD_OF_PERMISSIONS] = FIELD_BOARD,
        [FIELD_OF_ADAPTER_CONFIG] = FIELD_ISOLATED,
        [FIELD_OF_RUNTIME_CONFIG] = FIELD_ISOLATED,
        [FIELD_OF_PROJECT] = FIELD_OPEN,
        [FIELD_OF_PROJECT_POLICY] = FIELD_BOARD,
        /* The content of the work. An issue moves no agent out of an isolated place:
         * host_use_check_run(). */
        [FIELD_OF_ISSUE] = FIELD_OPEN,
        [FIELD_OF_ISSUE_SETTINGS] = FIELD_BOARD,
        /* Told to the agent; the host fetches nothing. */
        [FIELD_OF_WORKSPACE] = FIELD_OPEN,
        [FIELD_OF_WORKSPACE_METADATA] = FIELD_OPEN,
        [FIELD_OF_WORKSPACE_CONFIG] = FIELD_BOARD,
        [FIELD_OF_ENVIRONMENT] = FIELD_BOARD,
        [FIELD_OF_ENVIRONMENT_CONFIG] = FIELD_ISOLATED,
        [FIELD_OF_ANY] = FIELD_OPEN,
};

const char *const field_rule_texts[FIELD_RULES] = {
        [FIELD_OPEN] = "an agent that may change the object",
        [FIELD_MEMBERS] = "by member",
        [FIELD_COMMAND] = "no agent",
        [FIELD_DIRECTORY] = "no agent",
        [FIELD_INSTRUCTIONS] = "no agent",
        [FIELD_BOARD] = "no agent",
        [FIELD_OTHERS] = "an agent that may change the object, but for itself",
        [FIELD_RIGHT] =
                ("an agent that may change the object, but for itself; what gives a right (`ceo`, "
                 "`true`) a CEO, and only what it has"),
        [FIELD_PLACE] = "an agent that manages environments, but for itself, and an isolated place",
        [FIELD_ISOLATED] = "an agent that may change the object, in an isolated place",
};

static const char *const refusals[FIELD_RULES] = {
        [FIELD_COMMAND] = "Agent keys cannot modify host-executed workspace commands (%s).",
        [FIELD_DIRECTORY] = "Agent keys cannot choose directories of the host (%s).",
        [FIELD_INSTRUCTIONS] =
                "Agent-authenticated callers cannot modify instructions path or bundle "
                "configuration (%s)",
        [FIELD_BOARD] = "Agent keys cannot set this (%s); ask the board",
        [FIELD_OTHERS] = "Agents cannot change their own %s; ask the board",
        [FIELD_RIGHT] = "Agent keys cannot give rights that the agent does not have (%s); ask the "
                        "board",
        [FIELD_PLACE] = "Agent keys choose isolated environments only (%s). Name one, or ask the "
                        "board",
        [FIELD_ISOLATED] = "Agent keys cannot set what runs outside an isolated environment (%s); "
                           "ask the board",
};

/* ---- The table ---- */

#define OPEN(of, name)                                                                             \
        {                                                                                          \
                (of), (name), FIELD_OPEN, FIELD_OF_ANY, NULL                                       \
        }
#define RULE(of, name, r)                                                                          \
        {                                                                                          \
                (of), (name), (r), FIELD_OF_ANY, NULL                                              \
        }
#define IN(of, name, m)                                                                            \
        {                                                                                          \
                (of), (name), FIELD_MEMBERS, (m), NULL                                             \
        }

const struct agent_field agent_fields[] = {
        OPEN(FIELD_OF_AGENT, "name"),
        OPEN(FIELD_OF_AGENT, "title"),
        OPEN(FIELD_OF_AGENT, "icon"),
        OPEN(FIELD_OF_AGENT, "capabilities"),
        OPEN(FIELD_OF_AGENT, "metadata"),
        OPEN(FIELD_OF_AGENT, "desiredSkills"),
        RULE(FIELD_OF_AGENT, "role", FIELD_RIGHT), /* `ceo`; the other roles give no rights */
        RULE(FIELD_OF_AGENT, "reportsTo", FIELD_OTHERS),
        RULE(FIELD_OF_AGENT, "budgetMonthlyCents", FIELD_OTHERS),
        RULE(FIELD_OF_AGENT, "status", FIELD_BOARD),
        RULE(FIELD_OF_AGENT, "keys", FIELD_BOARD),
        RULE(FIELD_OF_AGENT, "adapterType", FIELD_PLACE),
        RULE(FIELD_OF_AGENT, "defaultEnvironmentId", FIELD_PLACE),
        IN(FIELD_OF_AGENT, "adapterConfig", FIELD_OF_ADAPTER_CONFIG),
        IN(FIELD_OF_AGENT, "runtimeConfig", FIELD_OF_RUNTIME_CONFIG),
        IN(FIELD_OF_AGENT, "permissions", FIELD_OF_PERMISSIONS),

        RULE(FIELD_OF_PERMISSIONS, "canCreateAgents", FIELD_RIGHT),
        RULE(FIELD_OF_PERMISSIONS, "canAssignTasks", FIELD_RIGHT),

        OPEN(FIELD_OF_ADAPTER_CONFIG, "timeoutSec"),
        OPEN(FIELD_OF_ADAPTER_CONFIG, "graceSec"),
        OPEN(FIELD_OF_ADAPTER_CONFIG, "paperclipSkillSync"), /* among the operator's skills */
        RULE(FIELD_OF_ADAPTER_CONFIG, "command", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "args", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "extraArgs", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "env", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "url", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "method", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "headers", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "payloadTemplate", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "timeoutMs", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "promptTemplate", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "bootstrapPromptTemplate", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "workspaceStrategy", FIELD_ISOLATED),
        /* Each of these becomes an argument of the program. */
        RULE(FIELD_OF_ADAPTER_CONFIG, "agent", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "agentCommand", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "alwaysApprove", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "authMethod", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "checkpoints", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "chrome", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "dangerouslyBypassApprovalsAndSandbox", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "dangerouslyBypassSandbox", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "dangerouslySkipPermissions", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "disableWebSearch", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "effort", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "engine", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "fastMode", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "hermesCommand", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "maxTurns", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "maxTurnsPerRun", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "mode", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "model", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "modelReasoningEffort", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "permissionMode", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "provider", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "reasoningEffort", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "sandbox", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "search", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "sessionMode", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "startSec", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "thinking", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "toolsets", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "variant", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "verbose", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "worktreeMode", FIELD_ISOLATED),
        RULE(FIELD_OF_ADAPTER_CONFIG, "instructionsBundleMode", FIELD_INSTRUCTIONS),
        RULE(FIELD_OF_ADAPTER_CONFIG, "instructionsRootPath", FIELD_INSTRUCTIONS),
        RULE(FIELD_OF_ADAPTER_CONFIG, "instructionsEntryFile", FIELD_INSTRUCTIONS),
        RULE(FIELD_OF_ADAPTER_CONFIG, "instructionsFilePath", FIELD_INSTRUCTIONS),
        RULE(FIELD_OF_ADAPTER_CONFIG, "agentsMdPath", FIELD_INSTRUCTIONS),

        OPEN(FIELD_OF_RUNTIME_CONFIG, "heartbeat"),

        /* The variables of all agents that work in the project. */
        RULE(FIELD_OF_PROJECT, "env", FIELD_BOARD),
        IN(FIELD_OF_PROJECT, "executionWorkspacePolicy", FIELD_OF_PROJECT_POLICY),

        OPEN(FIELD_OF_PROJECT_POLICY, "enabled"),
        OPEN(FIELD_OF_PROJECT_POLICY, "defaultMode"),
        OPEN(FIELD_OF_PROJECT_POLICY, "allowIssueOverride"),
        OPEN(FIELD_OF_PROJECT_POLICY, "defaultProjectWorkspaceId"),
        RULE(FIELD_OF_PROJECT_POLICY, "environmentId", FIELD_PLACE),
        OPEN(FIELD_OF_PROJECT_POLICY, "workspaceStrategy"),
        OPEN(FIELD_OF_PROJECT_POLICY, "branchPolicy"),
        OPEN(FIELD_OF_PROJECT_POLICY, "pullRequestPolicy"),
        OPEN(FIELD_OF_PROJECT_POLICY, "runtimePolicy"),
        OPEN(FIELD_OF_PROJECT_POLICY, "cleanupPolicy"),

        /* A project's policy says where its issues are worked on. */
        RULE(FIELD_OF_ISSUE, "projectId", FIELD_ISOLATED),
        RULE(FIELD_OF_ISSUE, "executionWorkspaceId", FIELD_PLACE),
        RULE(FIELD_OF_ISSUE, "executionWorkspacePreference", FIELD_PLACE),
        IN(FIELD_OF_ISSUE, "executionWorkspaceSettings", FIELD_OF_ISSUE_SETTINGS),

        OPEN(FIELD_OF_ISSUE_SETTINGS, "mode"),
        RULE(FIELD_OF_ISSUE_SETTINGS, "environmentId", FIELD_PLACE),
        OPEN(FIELD_OF_ISSUE_SETTINGS, "workspaceStrategy"),

        /* An archived workspace no longer says where the work is done. */
        RULE(FIELD_OF_WORKSPACE, "status", FIELD_BOARD),
        IN(FIELD_OF_WORKSPACE, "metadata", FIELD_OF_WORKSPACE_METADATA),
        IN(FIELD_OF_WORKSPACE, "config", FIELD_OF_WORKSPACE_CONFIG),
        IN(FIELD_OF_WORKSPACE_METADATA, "config", FIELD_OF_WORKSPACE_CONFIG),
        RULE(FIELD_OF_WORKSPACE_CONFIG, "environmentId", FIELD_PLACE),
        OPEN(FIELD_OF_WORKSPACE_CONFIG, "desiredState"),
        OPEN(FIELD_OF_WORKSPACE_CONFIG, "serviceStates"),

        OPEN(FIELD_OF_ENVIRONMENT, "name"),
        OPEN(FIELD_OF_ENVIRONMENT, "description"),
        OPEN(FIELD_OF_ENVIRONMENT, "metadata"),
        RULE(FIELD_OF_ENVIRONMENT, "status", FIELD_ISOLATED),
        RULE(FIELD_OF_ENVIRONMENT, "driver", FIELD_PLACE),
        /* It moves all work there, including the agent's own and the company's default. */
        RULE(FIELD_OF_ENVIRONMENT, "moveTo", FIELD_BOARD),
        IN(FIELD_OF_ENVIRONMENT, "config", FIELD_OF_ENVIRONMENT_CONFIG),
        /* How far the sandbox is closed. */
        { FIELD_OF_ENVIRONMENT_CONFIG, "network", FIELD_BOARD, FIELD_OF_ANY, "\"none\"" },
        { FIELD_OF_ENVIRONMENT_CONFIG, "allowedHosts", FIELD_BOARD, FIELD_OF_ANY, "[]" },
        { FIELD_OF_ENVIRONMENT_CONFIG, "nestedSandbox", FIELD_BOARD, FIELD_OF_ANY, "false" },
        { FIELD_OF_ENVIRONMENT_CONFIG, "user", FIELD_BOARD, FIELD_OF_ANY, "\"agent\"" },

        RULE(FIELD_OF_ANY, "provisionCommand", FIELD_COMMAND),
        RULE(FIELD_OF_ANY, "runtimeProvisionCommand", FIELD_COMMAND),
        RULE(FIELD_OF_ANY, "teardownCommand", FIELD_COMMAND),
        RULE(FIELD_OF_ANY, "cleanupCommand", FIELD_COMMAND),
        RULE(FIELD_OF_ANY, "setupCommand", FIELD_COMMAND),
        RULE(FIELD_OF_ANY, "workspaceRuntime", FIELD_COMMAND),
        RULE(FIELD_OF_ANY, "cwd", FIELD_DIRECTORY),
        RULE(FIELD_OF_ANY, "worktreeParentDir", FIELD_DIRECTORY),
        RULE(FIELD_OF_ANY, "localPath", FIELD_DIRECTORY),
        { FIELD_OF_ANY, NULL, FIELD_OPEN, FIELD_OF_ANY, NULL },
};

static const struct agent_field *field_find(enum field_object of, const char *name)
{
        for (const struct agent_field *f = agent_fields; f->name; f++)
                if (f->of == of && streq(f->name, name))
                        return f;
        return NULL;
}

/* ---- Comparing ---- */

struct comparison {
        const struct op *op;
        const struct field_change *change;
        bool is_ceo; /* the acting agent */
        bool runs;
        struct buf refused[FIELD_RULES]; /* paths, by the rule that they break */
};

static bool is_same(const json_t *a, const json_t *b)
{
        return (!a || json_is_null(a)) ? !b || json_is_null(b) : json_equal(a, b);
}

static bool is_safe(const struct agent_field *f, const json_t *after)
{
        json_t *safe = NULL;
        bool same = f->safe && json_parse(f->safe, strlen(f->safe), &safe, NULL) >= 0 &&
                    json_equal(safe, after);

        json_decref(safe);
        return same;
}

static bool is_ceo_role(const json_t *role)
{
        return json_is_string(role) && streq(json_string_value(role), "ceo");
}

/* Only a CEO manages rights, and gives only rights that it has: otherwise an agent could give a
 * right to another agent that follows its orders. */
static bool may_give(const struct comparison *c, const char *name, const json_t *before,
                     const json_t *after)
{
        if (streq(name, "role"))
                return !(is_ceo_role(before) || is_ceo_role(after)) || c->is_ceo;
        if (!json_is_true(after))
                return true; /* taken away; the route checks who may do that */
        return c->is_ceo && (!streq(name, "canCreateAgents") || c->op->actor->can_create_agents);
}

static bool is_allowed(const struct comparison *c, enum field_rule rule, const char *name,
                       const json_t *before, const json_t *after)
{
        const struct field_change *change = c->change;

        switch (rule) {
        case FIELD_OPEN:
                return true;
        case FIELD_OTHERS:
                return !change->is_own;
        case FIELD_RIGHT:
                return !change->is_own && may_give(c, name, before, after);
        case FIELD_PLACE:
                return !change->is_own && change->is_isolated;
        case FIELD_ISOLATED:
                return change->is_isolated;
        default:
                return false;
        }
}

static void compare_members(struct comparison *c, enum field_object of, const char *path,
                            const json_t *before, const json_t *after);

static void compare_member(struct comparison *c, enum field_object of, const char *path,
                           const char *name, const json_t *before, const json_t *after)
{
        const struct agent_field *f = field_find(of, name);
        struct buf *refused;

        if (is_same(before, after))
                return;
        f = f ? f : field_find(FIELD_OF_ANY, name);
        enum field_rule rule = f ? f->rule : field_object_rules[of];
        char *here = path ? xasprintf("%s.%s", path, name) : xstrdup(name);
        if (f && rule == FIELD_MEMBERS) {
                compare_members(c, f->members, here, before, after);
                free(here);
                return;
        }
        c->runs = c->runs || rule == FIELD_PLACE || rule == FIELD_ISOLATED;
        if (!(f && is_safe(f, after)) && !is_allowed(c, rule, name, before, after)) {
                /* The agent's own object gives another refusal than a place that is not
                 * isolated. */
                if (c->change->is_own && (rule == FIELD_PLACE || rule == FIELD_RIGHT))
                        rule = FIELD_OTHERS;
                refused = &c->refused[rule];
                buf_appendf(refused, "%s%s", refused->len ? ", " : "", here);
        }
        compare_members(c, FIELD_OF_ANY, here, before, after); /* fields named at any depth */
        free(here);
}

static void compare_members(struct comparison *c, enum field_object of, const char *path,
                            const json_t *before, const json_t *after)
{
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)after, name, value)
        {
                compare_member(c, of, path, name, json_object_get(before, name), value);
        }
        json_object_foreach((json_t *)before, name, value)
        {
                if (!json_object_get(after, name))
                        compare_member(c, of, path, name, value, NULL);
        }
}

/* A member that may do a company's work may not decide what runs before and after it: that is a
 * part of the place. */
static int check_board(struct db *db, const struct op *op, const struct field_change *change,
                       struct err *err)
{
        struct comparison c = { .op = op, .change = change };
        bool allowed;
        int r = access_has(db, op->actor, change->company_id, PERM_ENVIRONMENTS, &allowed, err);

        if (r < 0 || allowed)
                return r;
        compare_members(&c, change->of, change->path, change->before, change->after);
        if (c.refused[FIELD_COMMAND].len > 0)
                r = err_set(err, ERR_FORBIDDEN,
                            "Missing permission: " PERM_ENVIRONMENTS
                            ", which setting commands of a workspace takes (%s).",
                            buf_str(&c.refused[FIELD_COMMAND]));
        for (enum field_rule rule = 0; rule < FIELD_RULES; rule++)
                buf_done(&c.refused[rule]);
        return r;
}

int agent_fields_check(struct db *db, const struct op *op, const struct field_change *change,
                       bool *ret_runs, struct err *err)
{
        struct comparison c = { .op = op, .change = change };
        int r = 0;

        if (ret_runs)
                *ret_runs = false;
        if (op->actor->type == ACTOR_BOARD && change->company_id)
                return check_board(db, op, change, err);
        if (op->actor->type != ACTOR_AGENT)
                return 0;
        r = access_is_ceo(db, op, &c.is_ceo, err);
        if (r < 0)
                return r;
        compare_members(&c, change->of, change->path, change->before, change->after);
        for (enum field_rule rule = 0; rule < FIELD_RULES; rule++) {
                if (r >= 0 && refusals[rule] && c.refused[rule].len > 0) {
                        CLEAN(buf_done) struct buf text = BUF_INIT;
                        const char *hole = strstr(refusals[rule], "%s");

                        buf_append(&text, refusals[rule], (size_t)(hole - refusals[rule]));
                        buf_puts(&text, buf_str(&c.refused[rule]));
                        buf_puts(&text, hole + 2);
                        r = err_set(err, ERR_FORBIDDEN, "%s", buf_str(&text));
                }
                buf_done(&c.refused[rule]);
        }
        if (r >= 0 && ret_runs)
                *ret_runs = c.runs;
        return r;
}
