/* Choosing an environment: for a company, an agent, a project, an issue or an execution workspace.
 * The choice is checked when it is written. An empty choice needs no check: it stands for the
 * default environment of the company, which was checked when it was chosen. Inside store
 * functions. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/environments.h"

enum env_select_for {
        ENV_FOR_WORK,      /* a project, an issue, a workspace, the company: local, ssh, sandbox */
        ENV_FOR_NEW_AGENT, /* kinds that its adapter can work in */
        ENV_FOR_CHANGED_AGENT /* the same; the texts differ, as in Paperclip */
};

/* 422 with Paperclip's text. `adapter_type` is for agents. An agent needs the right to manage
 * environments to choose one: otherwise it could leave its sandbox by moving its work. */
int env_select(struct db *db, struct runtime *rt, const struct op *op, const char *company_id,
               const char *environment_id, enum env_select_for purpose, const char *adapter_type,
               struct err *err);

/* The same for the member environmentId of settings that are about to replace `before` (JSON text
 * or NULL). */
int env_select_in(struct db *db, struct runtime *rt, const struct op *op, const char *company_id,
                  const json_t *settings, const char *before, struct err *err);

/* ERR_FORBIDDEN when the instance allows only isolated kinds of places and this kind is not
 * isolated. Checked when an environment is chosen, when it is leased, and by every run. */
int env_allowed(struct db *db, struct runtime *rt, struct arena *arena,
                const struct environment *env, struct err *err);
