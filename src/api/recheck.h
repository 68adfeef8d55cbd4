/* Whether who was let in may stay: streams and sockets last for days, and keys are revoked
 * meanwhile. Embedded in what lasts; loop thread. */
#ifndef BERTH_API_RECHECK_H
#define BERTH_API_RECHECK_H

#include "api/api.h"

struct recheck {
        struct pool_job job;
        struct api *api;
        char *authorization; /* a copy: the check may outlast the call */
        bool is_operator, needs_board;
        char company_id[UUID_LEN + 1];
        bool running; /* then its memory must stay until `done` */
        bool refused;
        void (*done)(struct recheck *r);
};

/* Of the caller's right to see the company; `needs_board`: to manage its
 * environments, as a board user. */
void recheck_init(struct recheck *r, struct call *c, const char *company_id, bool needs_board,
                  void (*done)(struct recheck *r));
void recheck_release(struct recheck *r);
void recheck_start(struct recheck *r);
/* The same at once, on an operation thread. */
int recheck_company(struct op *op, struct runtime *rt, const struct actor *actor,
                    const char *company_id, bool needs_board, struct err *err);

#endif
