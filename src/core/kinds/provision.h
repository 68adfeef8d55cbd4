/* Provisioning: the command that prepares an execution workspace in a place that is not this
 * machine, once it was realized there (environment-runtime 5.4). Pure; any thread. */
#pragma once

#include "base/arena.h"
#include "codec/json.h"

/* What was realized for whom, and for which environment. Strings may be NULL where they may be
 * absent. */
struct realization_input {
        const char *adapter_type, *company_id, *environment_id, *run_id;
        const char *execution_workspace_id, *issue_id;
        const char *mode; /* the persisted workspace's, else the effective one */
        const char *source_kind, *strategy, *local_path;
        const char *project_id, *project_workspace_id, *repo_url, *repo_ref, *branch_name;
        const char *worktree_path;
        const json_t *config; /* of the persisted workspace; NULL: none */
};

/* The realization request, version 1. A new reference. */
json_t *realization_request(const struct realization_input *input);

#define PROVISION_TIMEOUT_MS 300000

/* The script for bash that provisions, borrowed from the request; NULL when nothing is to be done:
 * there is none, or the place works in the directory itself. */
const char *provision_script(const json_t *request, bool is_local);
/* Where it works: the first that is not blank, trimmed. In the arena. */
const char *provision_cwd(struct arena *arena, const char *realized_cwd, const char *remote_cwd,
                          const char *local_cwd);

/* How it ended. */
struct provision_end {
        bool timed_out;
        bool has_code;
        int code;
        const char *signal; /* NULL: none */
        const char *out, *err;
};

/* NULL when it went well; else `Failed to provision workspace for environment "…" (…): …`. Heap. */
char *provision_failure(const char *environment, const char *driver,
                        const struct provision_end *end);
