/* Starting executions: the part that runs on operation threads, and what it hands to the loop. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "core/exec/exec_agent.h"
#include "core/exec/exec_internal.h"
#include "core/exec/exec_request.h"
#include "core/kinds/kind.h"
#include "core/places/place.h"

/* Recording the intent */

struct intent {
        struct op *op;
        struct runtime *rt;
        const struct lease_record *record;
        const struct exec_request *req;
        struct execution row;
        struct place place;
        const struct box_route *route;
        struct egress_policy *egress; /* NULL: none; the loop's once it is posted */
        bool existed;
        uid_t writer; /* of the output, where that is not this user; (uid_t)-1: it is */
};

static int exec_intend(struct db *db, void *arg, struct err *err)
{
        struct intent *q = arg;
        struct execution other;
        struct lease lease;
        struct place *place = &q->place;
        int r = leases_get(db, q->record->lease.id, q->op->arena, &lease, err);

        if (r < 0)
                return r;
        if (q->req->idempotency_key) {
                r = executions_by_key(db, lease.id, q->req->idempotency_key, q->op->arena, &other,
                                      err);
                if (r >= 0 && !exec_lacked_means(&other)) {
                        q->row = other;
                        q->existed = true;
                        return 0;
                }
                /* Nothing was begun under the key, and its caller was told to try again. */
                if (r >= 0)
                        r = executions_free_key(db, other.id, err);
                if (r < 0 && r != ERR_NOT_FOUND)
                        return r;
        }
        if (!streq(lease.status, LEASE_ACTIVE))
                return err_set(err, ERR_CONFLICT, "The lease is %s and cannot be used any more.",
                               lease.status);
        r = places_get(db, lease.place_id, q->op->arena, place, err);
        if (r >= 0 && !streq(place->state, PLACE_HELD))
                r = err_set(err, ERR_CONFLICT, "The place of the lease is %s.", place->state);
        if (r >= 0 && !place->has_world) {
                place->has_world = true;
                r = place_move(db, q->rt, place, PLACE_HELD, err);
        }
        q->writer = (uid_t)-1;
        const struct kind *kind = r < 0 ? NULL : kind_of_place(q->rt, place);
        if (kind && kind->admit_command)
                r = kind->admit_command(db, place, q->op->arena, &q->writer, err);
        return r < 0 ? r : executions_insert(db, &q->row, err);
}

static void describe_row(struct intent *q)
{
        CLEAN(json_decrefp) json_t *args = json_array();
        int64_t now = clock_now_us();

        for (const char *const *arg = q->req->args; arg && *arg; arg++)
                json_array_append_new(args, json_string(*arg));
        q->row = (struct execution){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .company_id = q->record->lease.company_id,
                .lease_id = q->record->lease.id,
                .place_id = q->record->lease.place_id,
                .command = q->req->command,
                .args = json_to_arena(q->op->arena, args),
                .cwd = q->req->cwd,
                .is_terminal = q->req->terminal,
                .timeout_ms = q->req->timeout_ms,
                .idempotency_key = q->req->idempotency_key,
                .status = EXEC_STARTING,
                .exit_code = -1,
                .created_at = now,
                .updated_at = now,
                .boot_id = q->rt->node.boot_id,
        };
}

/* The execution was recorded and will not run: record that. */
static void record_failure(struct intent *q, const struct err *cause)
{
        struct op shield = op_shield(q->op, 5000);

        q->row.status = EXEC_FAILED;
        q->row.reason = cause->is_transient
                                ? arena_printf(q->op->arena, EXEC_NOT_NOW_REASON "%s", cause->msg)
                                : cause->msg;
        q->row.ended_at = clock_wall_us();
        q->row.updated_at = clock_now_us();
        (void)store_write(&shield, q->rt->store, exec_write_end, &q->row, NULL);
}

/* Making sure there is a box */

/* While the lock is held the place is not being closed; once it was closed, the row has its end. */
static int ensure_box(struct intent *q, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct box_locks *locks = &q->rt->hub->locks;
        struct execution row;

        if (q->route->is_alive(q->op, q->rt, &q->place, NULL) > 0)
                return 0;
        int r = box_locks_take(q->op, locks, q->place.id, err);
        if (r < 0)
                return r;
        r = store_read_begin(q->op, q->rt->store, &db, err);
        if (r >= 0)
                r = executions_get(db, q->row.id, q->op->arena, &row, err);
        store_read_end(&db);
        if (r >= 0 && !streq(row.status, EXEC_STARTING))
                r = err_set(err, ERR_CONFLICT, "The lease has ended.");
        FAULT("exec.launch.before");
        if (r >= 0)
                r = q->route->ensure(q->op, q->rt, &q->place, err);
        FAULT("exec.launch.after");
        box_locks_give(locks, q->place.id);
        return r;
}

static int make_output_dir(struct intent *q, char *const path, struct err *err)
{
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "make a directory for the output");
        /* The writer is PID 1 of a sandbox, with a user id of its own; where another user started
         * the sandbox, it is that user. */
        if (q->writer != (uid_t)-1 && geteuid() == 0 && chown(path, q->writer, q->writer) < 0)
                return err_sys(err, ERR_IO, errno, "give the output to the sandbox");
        return 0;
}

/* Handing it to the loop. It is announced before it is recorded, so that the loop can tell every
 * reader of its row about its end. */

struct id_letter {
        struct letter letter;
        struct exec_hub *hub;
        char id[UUID_LEN + 1];
};

static void post_id(struct intent *q, void (*fn)(struct letter *))
{
        struct id_letter *l = xcalloc(1, sizeof(*l));

        l->hub = q->rt->hub;
        memcpy(l->id, q->row.id, UUID_LEN + 1);
        mail_post(l->hub->config.mail, &l->letter, fn);
}

static void announce_on_loop(struct letter *letter)
{
        struct id_letter *l = container_of(letter, struct id_letter, letter);

        (void)exec_add(l->hub, l->id);
        free(l);
}

/* It will not begin: its row tells waiting callers why. */
static void withdraw_on_loop(struct letter *letter)
{
        struct id_letter *l = container_of(letter, struct id_letter, letter);

        exec_drop_ended(exec_find(l->hub, l->id), NULL);
        free(l);
}

struct start_letter {
        struct letter letter;
        struct exec_hub *hub;
        char id[UUID_LEN + 1];
        struct kept_place *place;
        struct box_start start;
        struct egress_policy *egress;
        char *memory;
        size_t memory_size;
        bool open_stdin;
        char *stdin_text;
        size_t stdin_len;
};

static void start_on_loop(struct letter *letter)
{
        struct start_letter *s = container_of(letter, struct start_letter, letter);
        struct box *box = box_add(s->hub, s->place);
        struct exec *e = exec_find(s->hub, s->id);

        box_set_egress(box, s->egress);
        e->start = xcalloc(1, sizeof(*e->start));
        *e->start = s->start;
        e->output = s->start.output;
        e->start_memory = s->memory;
        e->start_size = s->memory_size;
        e->takes_stdin = s->start.flags & BOX_START_STDIN;
        e->box = box;
        if (s->stdin_text)
                (void)stdin_add(
                        e, &(struct stdin_piece){ s->stdin_text, s->stdin_len, !s->open_stdin, -1 },
                        true, NULL, NULL, NULL);
        if (box->job_running) { /* its end is being looked into, in which this has no part */
                e->box_next = box->arrived;
                box->arrived = e;
        } else {
                exec_join_box(e, box);
                exec_submit(e);
        }
        free(s);
}

/* Copy a NULL-terminated list of strings into one allocation, the pointers first. */
static size_t list_size(const char *const *list, size_t *ret_n)
{
        size_t size = 0, n = 0;

        for (; list && list[n]; n++)
                size += strlen(list[n]) + 1;
        *ret_n = n;
        return size + (n + 1) * sizeof(char *);
}

static const char *const *copy_list(const char *const *list, size_t n, char **at)
{
        const char **copy = (const char **)(void *)*at;
        char *text = *at + (n + 1) * sizeof(char *);

        for (size_t i = 0; i < n; i++) {
                copy[i] = text;
                text = stpcpy(text, list[i]) + 1;
        }
        copy[n] = NULL;
        *at = text;
        return copy;
}

static size_t aligned(size_t n)
{
        return (n + sizeof(void *) - 1) & ~(sizeof(void *) - 1);
}

static void copy_start(struct start_letter *s, const struct exec_request *req, const char *spool)
{
        size_t n_args, n_env, n_redact, n_acp;
        size_t args = aligned(list_size(req->args, &n_args)),
               env = aligned(list_size(req->env, &n_env)),
               redact = aligned(list_size(req->redact, &n_redact)),
               acp = aligned(list_size(req->acp, &n_acp));
        const char *texts[] = { req->command, req->cwd ? req->cwd : "", spool };
        size_t size = args + env + redact + acp;

        for (size_t i = 0; i < ARRAY_LEN(texts); i++)
                size += strlen(texts[i]) + 1;
        char *at = s->memory = xcalloc(1, size);
        s->memory_size = size;
        s->start.args = copy_list(req->args, n_args, &at);
        at = s->memory + args;
        s->start.env = copy_list(req->env, n_env, &at);
        at = s->memory + args + env;
        s->start.redact = copy_list(req->redact, n_redact, &at);
        at = s->memory + args + env + redact;
        s->start.acp = copy_list(req->acp, n_acp, &at);
        at = s->memory + args + env + redact + acp;
        s->start.command = at;
        at = stpcpy(at, texts[0]) + 1;
        s->start.cwd = at;
        at = stpcpy(at, texts[1]) + 1;
        s->start.spool_dir = at;
        (void)stpcpy(at, texts[2]);
}

static void post_start(struct intent *q, const char *spool)
{
        struct start_letter *s = xcalloc(1, sizeof(*s));
        const struct exec_request *req = q->req;

        s->hub = q->rt->hub;
        s->place = kept_place_new(&q->place);
        memcpy(s->id, q->row.id, UUID_LEN + 1);
        (void)frame_uuid_bytes(q->row.id, s->start.id);
        s->start.flags = (q->route->is_here ? BOX_START_SHARED : 0) |
                         (req->terminal ? BOX_START_TERMINAL : 0) |
                         (req->open_stdin || req->stdin_text ? BOX_START_STDIN : 0) |
                         (req->redact && req->redact[0] ? BOX_START_REDACT : 0) |
                         (req->acp ? BOX_START_ACP : 0) | BOX_START_OUTPUT;
        s->start.output = exec_output_limits(q->rt, &q->place);
        s->start.timeout_ms = (uint64_t)req->timeout_ms;
        s->start.grace_ms = SIGNAL_GRACE_MS;
        s->start.columns = req->columns;
        s->start.rows = req->rows;
        s->open_stdin = req->open_stdin;
        s->egress = take_ptr(&q->egress);
        if (req->stdin_text) {
                s->stdin_text = xstrndup(req->stdin_text, req->stdin_len);
                s->stdin_len = req->stdin_len;
        }
        copy_start(s, req, q->route->is_here ? spool : "");
        mail_post(s->hub->config.mail, &s->letter, start_on_loop);
}

int exec_start(struct op *op, struct runtime *rt, const struct lease_record *record,
               const struct exec_request *req, const char **ret_id, struct err *err)
{
        struct exec_request full = *req, wrapped;
        struct intent q = { .op = op, .rt = rt, .record = record, .req = &full };
        CLEAN(exec_variables_done) struct exec_variables variables = { 0 };
        CLEAN(cleanup_free) char *spool = NULL;
        int r = exec_agent_find(op, rt, record, &full, err);

        if (r < 0)
                return r;
        describe_row(&q);
        const char *id = q.row.id;
        intended_add(rt->hub, id);
        post_id(&q, announce_on_loop);
        FAULT("exec.intend.before");
        r = store_write(op, rt->store, exec_intend, &q, err);
        FAULT("exec.intend.after");
        *ret_id = q.row.id;
        if (r < 0 || q.existed) {
                q.row.id = id;
                post_id(&q, withdraw_on_loop);
                return r;
        }
        spool = xasprintf("%s/%s", rt->hub->output_dir, q.row.id);
        q.route = box_route_of(rt, &q.place);
        r = full.agent_id ? exec_agent_resolve(op, rt, record, &full, &variables, err) : 0;
        if (r >= 0 && full.agent_id) {
                full.env = variables.env;
                full.redact = variables.redact;
        }
        if (r >= 0 && full.wrap) {
                full.wrap(op->arena, &full, &wrapped);
                q.req = &wrapped;
                r = exec_request_check_size(q.req, err);
        }
        if (r >= 0)
                r = make_output_dir(&q, spool, err);
        if (r >= 0)
                r = egress_policy_read(q.place.config, &q.egress, err);
        if (r >= 0)
                r = req->remote ? exec_remote_begin(rt->hub, &q.row, &q.place, q.req, spool, err)
                                : ensure_box(&q, err);
        /* The last step that can be cut off and prove that nothing was sent: reaching a host and
         * starting a box on it takes long. */
        if (r >= 0 && !req->remote && !q.route->is_here)
                r = exec_spool_prepare(spool, err);
        if (r < 0) {
                egress_policy_free(q.egress);
                record_failure(&q, err);
                post_id(&q, withdraw_on_loop);
                return r;
        }
        if (req->remote)
                return 0;
        FAULT("exec.post.before");
        post_start(&q, spool);
        return 0;
}
