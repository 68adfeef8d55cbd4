/* One login to a host: the agent with the key, what is known about the host, the ssh process, and
 * what the script at the other end says. As soon as the script speaks, the host has let us in, and
 * the key is taken away again: the agent ends. Operation threads. */
#pragma once

#include "ssh/agent.h"
#include "ssh/explain.h"
#include "ssh/hello.h"
#include "ssh/rundir.h"
#include "ssh/script.h"
#include "ssh/session.h"

/* Settings that do not depend on the host. */
struct ssh_setup {
        const char *trampoline; /* our own program; NULL: none */
        const char *run_dir;    /* where private directories are made */
        int64_t timeout_ms;     /* what a login may take */
        struct ssh_box boxes[SSH_N_BOXES];
};

/* What went wrong, for a probe. */
struct ssh_report {
        struct buf error; /* what ssh said */
        struct buf hint;  /* one line: what it means, and what helps */
        int code;         /* the exit status; -1: none */
        enum ssh_trouble trouble;
};

struct ssh_call {
        struct ssh_session session;
        struct ssh_hello hello;
        struct ssh_report report;
        /* until we are in */
        struct ssh_rundir dir;
        struct ssh_agent agent;
        char *known, *known_path, *record;
        bool is_in;
        int64_t deadline_ms; /* the caller's */
};

#define SSH_CALL_INIT                                                                              \
        (struct ssh_call)                                                                          \
        {                                                                                          \
                .session = SSH_SESSION_INIT, .agent = SSH_AGENT_INIT, .report.code = -1            \
        }

/* Log in and see that the workspace can be used; the call is over when it returns. `record` is the
 * file with the host keys that were recorded for this host, and may not exist yet; NULL: none.
 * After an error `report` says more; ERR_PROVIDER and ERR_TIMEOUT are the host's doing. */
int ssh_call_ready(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                   const char *record, struct ssh_call *call, struct err *err);
/* The same, and bring the box there: HELLO_READY, and the relay waits for ssh_call_go(), or
 * HELLO_PLAIN, and the call is over. */
int ssh_call_stream(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                    const char *record, struct ssh_call *call, struct err *err);
/* The same by another program than ssh: one that runs a shell where the box is to be. `args` makes
 * its command (NULL-terminated, in the operation's arena): `sh` is the argument after `sh -c`,
 * `login` the same as a line for any login shell. The workspace is a directory that `owner` had
 * made: one that has something in it and does not carry its mark is refused. After an error
 * `report.error` is what it said, and the code is ERR_UNREACHABLE for whatever it did. */
struct ssh_other {
        int (*args)(void *ctx, const char *sh, const char *login, const char *const **ret,
                    struct err *err);
        void *ctx;
        const char *const *env; /* NULL-terminated */
        const char *path;       /* of the workspace there */
        const char *owner;
};
int ssh_call_other(struct op *op, const struct ssh_setup *setup, const struct ssh_other *other,
                   struct ssh_call *call, struct err *err);
/* Begin a command that needs no box: once it has begun, the session's streams are its own
 * (ssh_session_follow()). */
int ssh_call_plain(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                   const char *record, const struct ssh_plain_command *command,
                   struct ssh_call *call, struct err *err);
/* End what carries the variable name=id there; the call is over when it returns. */
int ssh_call_kill(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                  const char *record, const char *name, const char *id, unsigned grace_s,
                  struct err *err);
/* The relay may begin. From here on the session's descriptors carry its bytes. */
int ssh_call_go(struct op *op, struct ssh_call *call, struct err *err);
void ssh_call_done(const struct op *op, struct ssh_call *call);
