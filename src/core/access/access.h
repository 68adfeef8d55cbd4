/* Actors, and the guards that decide what an actor may do.
 *
 * An actor is made once per request from its credentials (auth.h). The guards below are the only
 * places that decide about rights; each returns 0 or Paperclip's status and text. Guards that need
 * rows take a struct db. Actors are immutable once made. */
#pragma once

#include "core/runtime.h"

#define LOCAL_BOARD_USER       "local-board"
#define PERM_ENVIRONMENTS      "environments:manage"
#define PERM_AGENTS_CREATE     "agents:create"
#define PERM_USERS_PERMISSIONS "users:manage_permissions"

enum actor_type { ACTOR_NONE, ACTOR_BOARD, ACTOR_AGENT, ACTOR_SYSTEM };
enum actor_source {
        SOURCE_NONE,
        SOURCE_LOCAL_IMPLICIT, /* the operator: the kernel says so (auth_is_operator()) */
        SOURCE_BOARD_KEY,
        SOURCE_AGENT_KEY,
        SOURCE_AGENT_JWT, /* a run token, or the channel of a run */
        SOURCE_SYSTEM,    /* the daemon itself */
};

struct actor {
        enum actor_type type;
        enum actor_source source;
        const char *user_id; /* board */
        bool is_instance_admin;
        bool is_daemon_user; /* the kernel says so of the peer of the Unix socket, and no key was
                                used */
        const char *agent_id, *company_id; /* agent */
        bool can_create_agents;
        const char *key_id; /* the key that was used, or NULL */
        const char *run_id; /* the run that the actor works for, where the credentials name one; or
                               NULL */
};

extern const struct actor actor_system;

const char *actor_source_name(enum actor_source source);

/* 401 Unauthorized for a request without an identity. */
int access_authenticated(const struct actor *a, struct err *err);
/* 403 Board access required. */
int access_board(const struct actor *a, struct err *err);
/* 403 Company membership or instance admin access required: for board users without a company. */
int access_board_org(struct db *db, const struct actor *a, struct err *err);
/* 403 Instance admin access required, or the text given. */
int access_admin(const struct actor *a, const char *text, struct err *err);

/* Whether the actor may see the company; with `write`, change things in it. For the local operator
 * also 404 when there is no such company. */
int access_company(struct db *db, const struct actor *a, const char *company_id, bool write,
                   struct err *err);

/* Whether the actor holds a permission in a company it may access. */
int access_has(struct db *db, const struct actor *a, const char *company_id, const char *permission,
               bool *ret, struct err *err);
/* 403 Missing permission: environments:manage. Checks access_company() first. */
int access_manage_environments(struct db *db, const struct actor *a, const char *company_id,
                               struct err *err);
/* 403 Missing permission: agents:create (board) or can create agents (agent). */
int access_manage_agents(struct db *db, const struct actor *a, const char *company_id,
                         struct err *err);

/* Whether the acting agent is a CEO. */
int access_is_ceo(struct db *db, const struct op *op, bool *ret, struct err *err);

/* Whether the actor may decide what runs on this machine (environments/host_use.h). */
bool access_may_use_host(const struct runtime *rt, const struct actor *actor);
