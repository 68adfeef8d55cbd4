/* Whether a plugin's sandbox gets a box, what is recorded about it, and the route to it. */
#include "core/kinds/plugin/plugin_box.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "box/launch.h"
#include "codec/exchange.h"
#include "core/exec/exec_internal.h"
#include "core/exec/exec_request.h"
#include "core/places/place.h"

#define CONTROL_MS   20000 /* what one control command may take */
#define PUT_MS       180000
#define LEAVE_MS     15000
#define TRIES        4
#define NOT_RUN      126 /* as shells say it: there is a file, and it cannot be run */
#define NOT_THERE    127
#define EXECS_MAX    1000 /* executions that one command line names */
#define CHANNEL_NAME "PAPERCLIP_SANDBOX_EXEC_CHANNEL"

/* What is recorded */

static const struct box_route plugin_box_route;

const struct box_route *plugin_box_route_of(const struct place *place)
{
        CLEAN(json_decrefp) json_t *config = NULL;

        if (!place->config || !strstr(place->config, "\"$box\"") ||
            json_parse(place->config, strlen(place->config), &config, NULL) < 0)
                return NULL;
        return json_get_object(config, "$box") && json_get_object(config, "$plugin")
                       ? &plugin_box_route
                       : NULL;
}

int plugin_box_read(struct op *op, const struct place *place, struct plugin_box *ret,
                    struct err *err)
{
        const json_t *box = json_get_object(json_from_text(op->arena, place->config), "$box");

        ret->base = json_get_string(box, "base");
        ret->program = json_get_string(box, "program");
        ret->env = json_get_object(box, "env");
        return ret->base && ret->program ? 0 : err_set(err, ERR_NOT_FOUND, "no box in the sandbox");
}

int plugin_box_lease(struct op *op, struct runtime *rt, const struct place *place,
                     struct plugin_lease *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct lease *lease = arena_new(op->arena, struct lease); /* *ret points to it */
        struct place now;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = places_get(db, place->id, op->arena, &now, err);
        if (r >= 0)
                r = leases_last_of_place(db, place->id, op->arena, lease, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        if (streq(now.state, PLACE_GONE))
                return err_set(err, ERR_NOT_FOUND, "The place is gone.");
        return plugin_lease_load(op, rt, lease, ret, err);
}

struct recording {
        struct op *op;
        struct runtime *rt;
        const struct plugin_lease *l;
        json_t *box;        /* NULL: there is none */
        const char *reason; /* then */
};

/* Recorded on the lease, so that its readers see how its commands run. */
static int record_on_lease(struct db *db, struct recording *q, struct err *err)
{
        struct lease lease;
        json_t *metadata;
        int r = leases_get(db, q->l->lease->id, q->op->arena, &lease, err);

        if (r < 0)
                return r;
        metadata = json_from_text(q->op->arena, lease.metadata);
        if (!metadata)
                metadata = json_keep(q->op->arena, json_object());
        json_object_set_new(metadata, "commands", json_string(q->box ? "box" : "execute"));
        if (q->box)
                json_object_del(metadata, "commandsReason");
        else
                json_object_set_new(metadata, "commandsReason", json_string(q->reason));
        return leases_set_metadata(db, lease.id, json_to_arena(q->op->arena, metadata),
                                   clock_now_us(), err);
}

static int record_box(struct db *db, void *arg, struct err *err)
{
        struct recording *q = arg;
        struct place place;
        json_t *config;
        int r = record_on_lease(db, q, err);

        if (r < 0 || !q->box)
                return r;
        r = places_get(db, q->l->place.id, q->op->arena, &place, err);
        if (r >= 0 && !streq(place.state, PLACE_HELD))
                r = err_set(err, ERR_CONFLICT, "The place of the lease is %s.", place.state);
        if (r < 0)
                return r;
        config = json_from_text(q->op->arena, place.config);
        if (!config)
                return err_set(err, ERR_CORRUPT, "configuration of place %s", place.id);
        json_object_set(config, "$box", q->box);
        place.config = json_to_arena(q->op->arena, config);
        return place_move(db, q->rt, &place, PLACE_HELD, err);
}

/* Control commands */

json_t *plugin_box_params(const struct plugin_lease *l, const char *command,
                          const char *const *args, const char *input)
{
        json_t *list = json_array(), *params;

        for (; *args; args++)
                json_array_append_new(list, json_string(*args));
        /* `/` is there whatever becomes of the workspace. */
        params = json_pack("{s:o, s:s, s:o, s:s, s:{s:s}, s:i, s:b}", "lease", plugin_lease_ref(l),
                           "command", command, "args", list, "cwd", "/", "env", CHANNEL_NAME,
                           "bridge", "timeoutMs", CONTROL_MS, "bypassSession", 1);
        if (input)
                json_object_set_new(params, "stdin", json_string(input));
        return params;
}

int plugin_box_run(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                   const char *command, const char *const *args, const char *input,
                   int64_t *ret_status, const char **ret_printed, struct err *err)
{
        struct plugin_request q = {
                .target = &l->target,
                .scope = &l->scope,
                .method = "environmentExecute",
                .config = l->config,
                .take_params = plugin_box_params(l, command, args, input),
                .limit_ms = CONTROL_MS + PLUGIN_CALL_GRACE_MS,
        };
        /* Much input takes longer to get there: as for a slow line of 256 KiB a second. */
        int64_t carry_ms = input ? (int64_t)(strlen(input) >> 8) : 0;

        json_t *answer = NULL;
        const char *printed;
        int r;

        if (carry_ms > CONTROL_MS) {
                json_object_set_new(q.take_params, "timeoutMs", json_integer(carry_ms));
                q.limit_ms = carry_ms + PLUGIN_CALL_GRACE_MS;
        }
        FAULT("plugin_box.call.before");
        r = plugin_request(op, rt, &q, &answer, err);
        FAULT("plugin_box.call.after");
        if (r < 0)
                return r;
        printed = json_get_string(answer, "stdout");
        *ret_status = json_is_integer(json_object_get(answer, "exitCode"))
                              ? json_integer_value(json_object_get(answer, "exitCode"))
                              : -1;
        *ret_printed = printed ? printed : "";
        return 0;
}

/* Ask the berth-box inside: 1 for yes, 0 for no, ERR_NOT_FOUND when it is not there. */
static int ask_program(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                       const struct plugin_box *box, const char *want, const char *const *execs,
                       struct err *err)
{
        const char **args = arena_alloc(op->arena, (EXECS_MAX + 8) * sizeof(*args));
        const char *printed, *at, *word;
        int64_t status;
        size_t n = 0;
        int r = 0;

        args[n++] = "--ask";
        args[n++] = want;
        args[n++] = "--dir";
        args[n++] = box->base;
        args[n++] = "--id";
        args[n++] = l->place.id;
        for (size_t i = 0; execs && execs[i] && i < EXECS_MAX; i++)
                args[n++] = execs[i];
        /* A lost call is made again: every question may be asked twice. */
        for (int i = 0; i < TRIES; i++) {
                err_clear(err);
                r = plugin_box_run(op, rt, l, box->program, args, NULL, &status, &printed, err);
                if (r != ERR_PROVIDER && r != ERR_UNCERTAIN)
                        break;
        }
        if (r < 0)
                return r;
        at = strstr(printed, ASK_WORD);
        if (!at && (status == NOT_RUN || status == NOT_THERE))
                return err_set(err, ERR_NOT_FOUND, "berth-box in the sandbox does not answer");
        if (!at) /* it was killed, or could not answer: that says nothing about the box */
                return launch_refused("", ERR_PROVIDER, "", err);
        at += strlen(ASK_WORD);
        word = arena_strndup(op->arena, at, strcspn(at, "\r\n"));
        if (!streq(word, "yes") && !streq(word, "no"))
                return launch_refused(word, ERR_PROVIDER, "", err);
        return streq(word, "yes");
}

static int ask_place(struct op *op, struct runtime *rt, const struct place *place, const char *want,
                     const char *const *execs, struct err *err)
{
        struct plugin_lease l;
        struct plugin_box box;
        int r = plugin_box_read(op, place, &box, err);

        if (r >= 0)
                r = plugin_box_lease(op, rt, place, &l, err);
        return r < 0 ? r : ask_program(op, rt, &l, &box, want, execs, err);
}

/* The route */

static int plugin_box_ask_alive(struct op *op, struct runtime *rt, const struct place *place,
                                struct err *err)
{
        int r = ask_place(op, rt, place, "alive", NULL, err);

        if (r > 0)
                plugin_box_note_heard(place->id, true);
        return r == ERR_NOT_FOUND ? 0 : r; /* the place is gone, or is not what it was */
}

static int plugin_box_is_alive(struct op *op, struct runtime *rt, const struct place *place,
                               struct err *err)
{
        return plugin_box_was_heard(place->id) ? 1 : plugin_box_ask_alive(op, rt, place, err);
}

static int put_and_record(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                          struct err *err);

static int plugin_box_ensure(struct op *op, struct runtime *rt, const struct place *place,
                             struct err *err)
{
        struct plugin_lease l;
        int r = ask_place(op, rt, place, "ensure", NULL, err);

        /* The sandbox may have been made anew. */
        if (r == ERR_NOT_FOUND && plugin_box_lease(op, rt, place, &l, NULL) >= 0) {
                err_clear(err);
                r = put_and_record(op, rt, &l, err);
                if (r >= 0)
                        r = ask_place(op, rt, place, "ensure", NULL, err);
        }
        return MIN(r, 0);
}

static int plugin_box_bury(struct op *op, struct runtime *rt, const struct place *place,
                           const char *const *execs, struct err *err)
{
        int r;

        plugin_box_note_heard(place->id, false);
        r = ask_place(op, rt, place, "bury", execs, err);

        if (r != ERR_NOT_FOUND)
                return MIN(r, 0);
        err_clear(err);
        return 0;
}

static const struct box_route plugin_box_route = {
        .connect = plugin_box_connect,
        .ensure = plugin_box_ensure,
        .is_alive = plugin_box_is_alive,
        .bury = plugin_box_bury,
};

void plugin_box_leave(struct op *op, struct runtime *rt, const struct place *place)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op limited = *op;

        if (!rt->hub || !plugin_box_route_of(place))
                return;
        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + LEAVE_MS);
        if (exec_close_place(&limited, rt, place, &err) < 0)
                log_warn("what ran in a sandbox may still run until its provider ends it",
                         LOG_S("place", place->id), LOG_S("error", err.msg));
}

/* Running commands */

/* How commands of the lease run, as far as that was tried: "box", "execute" or NULL. In the arena.
 */
static const char *commands_of(struct op *op, const struct lease *lease)
{
        return json_get_string(json_from_text(op->arena, lease->metadata), "commands");
}

/* Whether a command is to be run in a box: there is a box, the command needs one (a terminal), or
 * all commands run in one (setting plugin_box). False where putting one inside failed before. */
static bool plugin_box_wanted(struct op *op, const struct runtime *rt, const struct lease *lease,
                              bool terminal)
{
        const char *commands;

        if (!rt->hub || rt->settings.plugin_box == PLUGIN_BOX_OFF)
                return false;
        commands = commands_of(op, lease);
        if (commands && streq(commands, "execute"))
                return false; /* it was tried */
        return commands || rt->settings.plugin_box == PLUGIN_BOX_ALWAYS || terminal;
}

/* A box that runs is the proof that one can. */
static int put_and_try(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                       json_t **ret_box, struct err *err)
{
        struct plugin_box box;
        int r = plugin_box_put(op, rt, l, ret_box, err);

        if (r < 0)
                return r;
        (void)json_keep(op->arena, *ret_box);
        box.base = json_get_string(*ret_box, "base");
        box.program = json_get_string(*ret_box, "program");
        r = ask_program(op, rt, l, &box, "ensure", NULL, err);
        if (r > 0)
                plugin_box_note_heard(l->place.id, true);
        return MIN(r, 0);
}

static int put_and_record(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                          struct err *err)
{
        struct recording q = { .op = op, .rt = rt, .l = l };
        int r = put_and_try(op, rt, l, &q.box, err);

        if (r < 0) {
                q.box = NULL;
                q.reason = arena_strdup(op->arena, err->msg);
                if (r != ERR_CANCELLED && r != ERR_TIMEOUT)
                        (void)store_write(op, rt->store, record_box, &q, NULL);
                return r;
        }
        FAULT("plugin_box.record.before");
        r = store_write(op, rt->store, record_box, &q, err);
        FAULT("plugin_box.record.after");
        return r;
}

/* Once for each place; operations that come meanwhile wait for it. */
static int make_sure(struct op *op, struct runtime *rt, struct plugin_lease *l, struct err *err)
{
        struct box_locks *locks = &rt->hub->locks;
        struct op longer = *op;
        int r;

        if (plugin_box_route_of(&l->place))
                return 0;
        if (op->deadline_ms != OP_NO_DEADLINE)
                longer.deadline_ms = MAX(op->deadline_ms, clock_mono_ms() + PUT_MS);
        r = box_locks_take(&longer, locks, l->place.id, err);
        if (r < 0)
                return r;
        r = plugin_box_lease(&longer, rt, &l->place, l, err);
        if (r >= 0 && !plugin_box_route_of(&l->place))
                r = put_and_record(&longer, rt, l, err);
        if (r >= 0)
                r = plugin_box_lease(&longer, rt, &l->place, l, err);
        box_locks_give(locks, l->place.id);
        return r;
}

/* A sandbox that takes no box is not an error for the caller, which does without one. */
static bool does_without(int r)
{
        return r == ERR_PROVIDER || r == ERR_NOT_FOUND || r == ERR_NOT_IMPLEMENTED;
}

int plugin_box_bring(struct op *op, struct runtime *rt, const struct lease *lease, struct err *err)
{
        const char *commands = commands_of(op, lease);
        struct plugin_lease l;
        int r;

        if (!rt->hub || rt->settings.plugin_box == PLUGIN_BOX_OFF ||
            (commands && streq(commands, "execute")))
                return 0;
        r = plugin_lease_load(op, rt, lease, &l, err);
        if (r >= 0)
                r = make_sure(op, rt, &l, err);
        if (!does_without(r))
                return MIN(r, 0);
        err_clear(err);
        return 0;
}

int plugin_box_admit(struct op *op, struct runtime *rt, const struct lease_record *record,
                     bool terminal, struct err *err)
{
        struct plugin_lease l;
        int r;

        if (!plugin_box_wanted(op, rt, &record->lease, terminal))
                return 1;
        r = plugin_lease_load(op, rt, &record->lease, &l, err);
        if (r >= 0)
                r = make_sure(op, rt, &l, err);
        if (r >= 0 || !does_without(r))
                return MIN(r, 0);
        log_info("commands of a lease run without a box", LOG_S("lease", record->lease.id),
                 LOG_S("reason", err->msg));
        err_clear(err);
        return 1;
}

int plugin_box_prepare_exec(struct op *op, const struct plugin_lease *l, struct exec_request *req,
                            struct err *err)
{
        struct plugin_box box;
        json_t *variables, *own;
        int r = plugin_box_read(op, &l->place, &box, err);

        if (r < 0)
                return r;
        own = exec_variables_sanitize(req->own_env);
        variables = json_object();
        exec_variables_update(variables, box.env);
        exec_variables_update(variables, own);
        json_decref(own);
        r = exec_request_set_env(op, variables, req, err);
        json_decref(variables);
        if (!req->cwd)
                req->cwd =
                        arena_strdup(op->arena, json_get_string(plugin_lease_said(l), "remoteCwd"));
        if (!req->cwd)
                req->cwd = "/";
        return r;
}
