/* The kinds whose places are made by commands: one table, of which each descriptor gets a copy
 * (command_load.c).
 *
 * Opening runs `create` (and `wait`), then reaches the box by `reach`, over whose standard streams
 * everything else goes (core/carriers). Closing ends what runs as far as the box can be reached,
 * runs `destroy`, and settles what is left: after `destroy` there is no box.
 *
 * A place's configuration is the environment's, and once it is open `$there`: {cwd, vars}, what the
 * shell there said. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/carriers/carrier.h"
#include "core/exec/exec.h"
#include "core/exec/exec_request.h"
#include "core/kinds/command/command_load.h"
#include "core/kinds/command/command_run.h"
#include "core/kinds/sandbox.h"
#include "core/places/place.h"
#include "core/places/place_state.h"
#include "core/workspaces/workspace.h"
#include "rt/pool.h"

#define CREATE_S 600
#define REACH_S  60
#define WAIT_S   600
#define POLL_MS  500
#define UNDO_MS  60000
#define LEAVE_MS 10000
#define LIST_MS  30000

extern const struct kind kind_command;

static const struct secret_context for_cleanup = { .for_cleanup = true };

static const struct command_kind *kind_of(const struct runtime *rt, const struct place *place)
{
        return command_kind_of(kind_of_place(rt, place));
}

static bool has(const struct command_kind *k, enum command_verb verb)
{
        return command_of(k->descriptor, verb) != NULL;
}

/* A job about a place; its configuration is kept by the arena. */
static int job_of_place(struct op *op, struct runtime *rt, const struct place *place,
                        const struct secret_context *context, struct command_job *ret,
                        struct err *err)
{
        json_t *recorded = NULL;
        int r = kind_place_config(op, place, &recorded, err);

        *ret = (struct command_job){
                .kind = kind_of(rt, place),
                .company_id = place->company_id,
                .environment_id = place->environment_id,
                .place_id = place->id,
                .ref = place->provider_lease_id,
                .config = recorded,
                .context = context,
        };
        return r < 0 ? r : command_job_begin(op, rt, ret, err);
}

int command_about(struct op *op, struct runtime *rt, const struct place *place,
                  enum command_verb verb, struct err *err)
{
        struct command_result result = { 0 };
        struct command_job job;
        int r = job_of_place(op, rt, place, &for_cleanup, &job, err);

        if (r >= 0)
                r = command_run(op, rt, &job, verb, &result, err);
        command_result_done(&result);
        command_job_done(&job);
        return r;
}

/* Probing */

static void describe_failure(const struct command_result *result, const struct err *why,
                             struct probe_result *ret)
{
        buf_puts(&ret->summary, why->msg);
        if (result->hint)
                buf_puts(&ret->hint, result->hint);
        if (result->said)
                json_object_set_new(ret->details, "error", json_string(result->said));
        json_object_set_new(ret->details, "code",
                            result->status >= 0 ? json_integer(result->status) : json_null());
}

static int command_probe(struct op *op, struct runtime *rt, const struct probe_target *target,
                         json_t *config, struct probe_result *ret, struct err *err)
{
        const struct kind *kind = kind_of_provider(rt, json_get_string(config, "provider"));
        CLEAN(err_done) struct err why = { 0 };
        struct command_result result = { 0 };
        struct command_job job = {
                .kind = command_kind_of(kind),
                .company_id = target->company_id,
                .environment_id = target->environment_id,
                .config = config,
        };
        bool probes = has(job.kind, COMMAND_PROBE);
        int r = command_job_begin(op, rt, &job, err);

        json_object_set_new(ret->details, "provider", json_string(kind->provider));
        if (r < 0) {
                command_job_done(&job);
                return r;
        }
        r = command_run(op, rt, &job, probes ? COMMAND_PROBE : COMMAND_LIST, &result, &why);
        ret->ok = r >= 0;
        if (r >= 0) {
                const char *said = buf_str(&result.out);
                const char *line = arena_strndup(op->arena, said, strcspn(said, "\r\n"));

                buf_appendf(&ret->summary, "%s answers%s%s.", kind->display_name,
                            probes && *line ? ": " : "", probes ? line : "");
        } else if (r == ERR_CANCELLED) {
                err_move(err, &why);
        } else {
                describe_failure(&result, &why, ret);
        }
        command_result_done(&result);
        command_job_done(&job);
        return r == ERR_CANCELLED ? r : 0;
}

/* Opening */

static int command_plan(struct op *op, struct runtime *rt, const struct environment *env,
                        const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        const struct kind *kind = kind_of_environment(rt, env);
        const json_t *d = command_kind_of(kind)->descriptor;
        json_t *config = NULL;
        int r = kind_config(op, kind, env, &config, err);

        if (r >= 0)
                r = sandbox_plan(op, rt, kind, config, req, ret, err);
        if (r < 0)
                return r;
        ret->open_ms = command_ms(command_of(d, COMMAND_CREATE), "seconds", CREATE_S) +
                       command_ms(command_of(d, COMMAND_REACH), "seconds", REACH_S);
        if (command_of(d, COMMAND_WAIT))
                ret->open_ms += command_ms(command_of(d, COMMAND_WAIT), "seconds", WAIT_S);
        return 0;
}

struct looking {
        const char *tag, *ref;
        json_int_t found;
        struct arena *arena;
};

static int look(void *ctx, const struct command_thing *thing)
{
        struct looking *l = ctx;

        if (streq(thing->tag, l->tag)) {
                l->found++;
                l->ref = arena_strdup(l->arena, thing->ref);
        }
        return 0;
}

/* How often the provider names the place; *ret_ref is what it calls it. */
static int find_made(struct op *op, struct runtime *rt, struct command_job *job,
                     struct looking *ret, struct err *err)
{
        struct command_result result = { 0 };
        int r;

        *ret = (struct looking){ .tag = job->place_id, .arena = op->arena };
        r = command_run(op, rt, job, COMMAND_LIST, &result, err);
        if (r >= 0)
                r = command_read_list(op->arena, command_of(job->kind->descriptor, COMMAND_LIST),
                                      buf_str(&result.out), result.out.len, look, ret, err);
        command_result_done(&result);
        return r;
}

/* What the provider calls the place that was made: by its own words, its list, or our name. */
static int take_ref(struct op *op, struct runtime *rt, struct command_job *job, const char *printed,
                    const char **ret, struct err *err)
{
        const char *pattern =
                json_get_string(command_of(job->kind->descriptor, COMMAND_CREATE), "ref");
        struct looking l = { 0 };
        int r = 0;

        *ret = NULL;
        if (pattern && printed && command_matches(op->arena, pattern, printed, ret))
                return 0;
        if (pattern)
                r = find_made(op, rt, job, &l, err);
        *ret = l.ref ? l.ref : job->vars.words[WORD_NAME];
        return MIN(r, 0);
}

/* Make it, unless it is there: the command may be run again after any crash. */
static int create(struct op *op, struct runtime *rt, struct command_job *job, const char **ret_ref,
                  struct err *err)
{
        const json_t *command = command_of(job->kind->descriptor, COMMAND_CREATE);
        struct command_result result = { 0 };
        int r = 0;

        if (json_is_true(json_object_get(command, "listFirst"))) {
                struct looking l;

                r = find_made(op, rt, job, &l, err);
                *ret_ref = l.ref ? l.ref : job->vars.words[WORD_NAME];
                if (r < 0 || l.found)
                        return r;
        }
        FAULT("command.create.before");
        r = command_run(op, rt, job, COMMAND_CREATE, &result, err);
        FAULT("command.create.after");
        if (r == ERR_CONFLICT) {
                err_clear(err);
                r = take_ref(op, rt, job, NULL, ret_ref, err);
        } else if (r >= 0) {
                r = take_ref(op, rt, job, buf_str(&result.out), ret_ref, err);
        }
        command_result_done(&result);
        return r;
}

/* Until it can be used: a command that waits by itself, or one that is repeated until it prints
 * what it should. */
static int await(struct op *op, struct runtime *rt, struct command_job *job, struct err *err)
{
        const json_t *command = command_of(job->kind->descriptor, COMMAND_WAIT);
        const char *until = json_get_string(command, "until");
        const char *failed = json_get_string(command, "failed");
        struct op limited = *op;
        const char *said;
        int r;

        if (!command)
                return 0;
        limited.deadline_ms =
                MIN(op->deadline_ms, clock_mono_ms() + command_ms(command, "seconds", WAIT_S));
        for (;;) {
                struct command_result result = { 0 };

                r = command_run(&limited, rt, job, COMMAND_WAIT, &result, err);
                said = arena_strdup(op->arena, buf_str(&result.out));
                command_result_done(&result);
                if (r == ERR_BUSY && until) { /* not yet */
                        err_clear(err);
                        r = 0;
                }
                if (r < 0 || !until || command_matches(op->arena, until, said, NULL))
                        return r;
                if (failed && command_matches(op->arena, failed, said, NULL))
                        return err_set(err, ERR_PROVIDER, "%s: the place did not start: %s",
                                       job->kind->kind.display_name,
                                       arena_strtrim(op->arena, said));
                r = op_wait_fd(&limited, -1, 0, POLL_MS, err);
                if (r == ERR_TIMEOUT)
                        return err_set(err, ERR_BUSY,
                                       "%s: the place has not started in the time that there is; "
                                       "the provider says: %s",
                                       job->kind->kind.display_name,
                                       *said ? arena_strtrim(op->arena, said) : "nothing");
                if (r < 0)
                        return r;
        }
}

static json_t *describe_there(const struct ssh_hello *hello)
{
        json_t *vars = json_object();
        json_t *there = json_pack("{s:s, s:o}", "cwd", hello->cwd, "vars", vars);

        for (size_t i = 0; i < HELLO_N_VARS; i++)
                if (hello->vars[i] && *hello->vars[i])
                        json_object_set_new(vars, hello_vars[i], json_string(hello->vars[i]));
        return there;
}

/* What readers of the lease see: the configuration without what is secret. */
static json_t *metadata_of(const struct command_kind *k, const json_t *config, const char *ref,
                           const char *cwd)
{
        json_t *metadata = command_config_of(config), *option;
        const char *key;

        json_object_foreach(json_object_get(k->descriptor, "options"), key, option)
        {
                if (command_option_is_secret(option))
                        json_object_del(metadata, key);
        }
        json_object_set_new(metadata, "sandboxId", json_string(ref));
        json_object_set_new(metadata, "remoteCwd", json_string(cwd));
        return metadata;
}

/* Reach the box, and answer with what is known then. */
static int reach(struct op *op, struct runtime *rt, const struct place *place,
                 const struct secret_context *context, json_t *config, struct provider_lease *ret,
                 struct err *err)
{
        const struct command_kind *k = kind_of(rt, place);
        struct ssh_hello hello = { 0 };
        json_t *own;
        int r = carrier_reach(op, rt, place, context, &hello, err);

        if (r >= 0 && hello.state == HELLO_PLAIN)
                r = err_set(err, ERR_PROVIDER,
                            "%s: Berth's supervisor cannot run in the place: %s. It needs Linux on "
                            "x86-64 or arm64, and a directory that programs can be run from.",
                            k->kind.display_name, hello.why);
        if (r >= 0) {
                own = command_config_of(config);
                json_object_set_new(own, "$there", describe_there(&hello));
                *ret = (struct provider_lease){
                        .id = place->provider_lease_id,
                        .metadata = json_keep(
                                op->arena,
                                metadata_of(k, config, place->provider_lease_id, hello.cwd)),
                        .config = json_to_arena(op->arena, own),
                };
                json_decref(own);
        }
        ssh_hello_done(&hello);
        return r;
}

/* The place could not be used: what was made of it goes again. Where that fails, it is unknown what
 * is left. */
static int undo(struct op *op, struct runtime *rt, const struct place *place, int r,
                struct err *err)
{
        struct op shield = op_shield(op, UNDO_MS);
        CLEAN(err_done) struct err why = { 0 };
        int gone = command_about(&shield, rt, place, COMMAND_DESTROY, &why);

        carrier_leave(rt, place);
        if (gone >= 0 || gone == ERR_NOT_FOUND)
                return r;
        return err_wrap(err, ERR_UNCERTAIN, "something may be left (%s)", why.msg);
}

static int command_open(struct op *op, struct runtime *rt, const struct place *place,
                        const struct lease_request *req, struct provider_lease *ret,
                        struct err *err)
{
        struct secret_context context = { .issue_id = req->issue_id, .run_id = req->run_id };
        struct place made = *place;
        struct command_job job;
        const char *ref = NULL;
        int r = job_of_place(op, rt, place, &context, &job, err);

        if (r < 0) {
                command_job_done(&job);
                return r; /* nothing was begun */
        }
        r = create(op, rt, &job, &ref, err);
        made.provider_lease_id = ref;
        if (r >= 0) {
                job.ref = job.vars.words[WORD_REF] = ref;
                r = await(op, rt, &job, err);
        }
        command_job_done(&job);
        if (r >= 0)
                r = reach(op, rt, &made, &context, job.config, ret, err);
        if (r < 0)
                r = undo(op, rt, &made, r, err);
        return r == ERR_NOT_FOUND ? err_wrap(err, ERR_PROVIDER, "it went again") : r;
}

/* One step by itself */

int command_try(struct op *op, struct runtime *rt, const char *place_id, const char *step,
                json_t **ret, struct err *err)
{
        json_t *answer = json_keep(op->arena, json_pack("{s:s}", "placeId", place_id));
        struct looking l = { 0 };
        struct command_job job;
        struct place place;
        const char *ref = NULL;
        bool is_gone;
        int r = place_load(op, rt, place_id, &place, err);

        if (r < 0)
                return r;
        if (!command_kind_descriptor(kind_of_place(rt, &place), NULL))
                return err_set(err, ERR_UNPROCESSABLE,
                               "No descriptor made the kind of this place.");
        is_gone = streq(place.state, PLACE_GONE);
        r = job_of_place(op, rt, &place, &for_cleanup, &job, err);
        *ret = answer;
        if (r >= 0 && streq(step, "create") && !is_gone) {
                r = create(op, rt, &job, &ref, err);
                json_object_set_new(answer, "ref", json_string_or_null(ref));
        } else if (r >= 0 && streq(step, "list")) {
                r = find_made(op, rt, &job, &l, err);
                json_object_set_new(answer, "found", json_integer(l.found));
        } else if (r >= 0 && streq(step, "renew") && !is_gone && has(job.kind, COMMAND_RENEW)) {
                r = command_about(op, rt, &place, COMMAND_RENEW, err);
        } else if (r >= 0 && streq(step, "destroy") && is_gone) {
                r = command_about(op, rt, &place, COMMAND_DESTROY, err);
                if (r == ERR_NOT_FOUND) {
                        err_clear(err);
                        r = 0;
                }
        } else if (r >= 0) {
                r = err_set(err, ERR_CONFLICT, "\"%s\" cannot be tried on a place that is %s.",
                            step, place.state);
        }
        command_job_done(&job);
        return r;
}

/* Reuse */

static int command_resume(struct op *op, struct runtime *rt, const struct place *place,
                          const struct lease_request *req, struct provider_lease *ret,
                          struct err *err)
{
        struct secret_context context = { .issue_id = req->issue_id, .run_id = req->run_id };
        json_t *config = NULL;
        int r = kind_place_config(op, place, &config, err);

        if (r >= 0 && has(kind_of(rt, place), COMMAND_RESUME)) {
                FAULT("command.resume.before");
                r = command_about(op, rt, place, COMMAND_RESUME, err);
                FAULT("command.resume.after");
        }
        return r < 0 ? r : reach(op, rt, place, &context, config, ret, err);
}

/* Only for kinds that can pause. */
static int command_park(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        int r = exec_end_all(op, rt, place, err);

        if (r >= 0)
                r = carrier_shut(op, rt, place, err);
        if (r < 0)
                return r;
        FAULT("command.pause.before");
        r = command_about(op, rt, place, COMMAND_PAUSE, err);
        FAULT("command.pause.after");
        return r;
}

/* Closing */

/* The end of what runs, with its last output, as far as the box can be reached. */
static void end_commands(struct op *op, struct runtime *rt, const struct place *place)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op limited = *op;

        if (!rt->hub || !place->provider_lease_id)
                return;
        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + LEAVE_MS);
        if (exec_close_place(&limited, rt, place, &err) < 0)
                log_debug("a place is destroyed with what runs in it", LOG_S("place", place->id),
                          LOG_S("error", err.msg));
        /* Nothing may be started in a place that is about to go. */
        (void)carrier_shut(op, rt, place, NULL);
}

static int command_close(struct op *op, struct runtime *rt, const struct place *place,
                         struct err *err)
{
        int r;

        end_commands(op, rt, place);
        FAULT("command.destroy.before");
        r = command_about(op, rt, place, COMMAND_DESTROY, err);
        FAULT("command.destroy.after");
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        carrier_place_gone(rt, place);
        r = 0;
        if (place->provider_lease_id) {
                r = exec_close_place(op, rt, place, err);
                exec_reach_place(rt, place); /* the hub learns that there is nothing to reach */
        }
        carrier_leave(rt, place);
        return r;
}

/* Listing */

/* Where to look: each environment of the kind, and each living place of one that is not there any
 * more, with one configuration each. */
struct source {
        const char *company_id, *environment_id, *config;
};

struct sources {
        const struct runtime *rt;
        const struct kind *kind;
        struct arena *arena;
        struct source *list;
        size_t n, room;
};

static void add_source(struct sources *s, const char *company_id, const char *environment_id,
                       const char *config)
{
        for (size_t i = 0; i < s->n; i++)
                if (streq(s->list[i].environment_id, environment_id))
                        return;
        s->list = arena_more(s->arena, s->list, s->n, &s->room, sizeof(*s->list));
        s->list[s->n++] = (struct source){ arena_strdup(s->arena, company_id),
                                           arena_strdup(s->arena, environment_id),
                                           arena_strdup(s->arena, config) };
}

static int add_place(void *ctx, const struct place *place)
{
        struct sources *s = ctx;

        if (place->environment_id && kind_of_place(s->rt, place) == s->kind)
                add_source(s, place->company_id, place->environment_id, place->config);
        return 0;
}

static int find_sources(struct op *op, struct runtime *rt, struct sources *s, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct environment *list;
        int n, r = store_read_begin(op, rt->store, &db, err);

        n = r < 0 ? r
                  : environments_of_driver(db, s->kind->driver, "active", op->arena, &list, err);
        for (int i = 0; i < n; i++)
                if (kind_of_environment(rt, &list[i]) == s->kind)
                        add_source(s, list[i].company_id, list[i].id, list[i].config);
        return n < 0 ? n : places_living(db, NULL, op->arena, add_place, s, err);
}

struct listing {
        const struct kind *kind;
        const char *description;
        kind_found_fn fn;
        void *ctx;
};

static int found(void *ctx, const struct command_thing *thing)
{
        struct listing *l = ctx;

        return l->fn(l->ctx, &(struct kind_thing){ l->kind->provider, thing->tag, l->description,
                                                   thing->node });
}

static int list_source(struct op *op, struct runtime *rt, const struct source *s, struct listing *l,
                       struct err *err)
{
        const struct command_kind *k = command_kind_of(l->kind);
        struct lane_name lane = lane_name(s->company_id, s->environment_id);
        CLEAN(json_decrefp) json_t *raw = NULL;
        CLEAN(json_decrefp) json_t *own = NULL;
        CLEAN(json_decrefp) json_t *config = NULL;
        struct command_result result = { 0 };
        struct command_job job;
        int r = json_parse(s->config, strlen(s->config), &raw, err);

        if (r >= 0) {
                own = command_config_of(raw);
                r = command_normalize(l->kind, own, CONFIG_STORED, &config, err);
        }
        if (r >= 0 && !pool_take_seat(op, LANE_PEERS, &lane))
                r = err_set(err, ERR_BUSY, "Too many wait for the provider already.");
        if (r < 0)
                return r;
        job = (struct command_job){ .kind = k,
                                    .company_id = s->company_id,
                                    .environment_id = s->environment_id,
                                    .config = config,
                                    .context = &for_cleanup };
        r = command_job_begin(op, rt, &job, err);
        if (r >= 0)
                r = command_run(op, rt, &job, COMMAND_LIST, &result, err);
        if (r >= 0)
                r = command_read_list(op->arena, command_of(k->descriptor, COMMAND_LIST),
                                      buf_str(&result.out), result.out.len, found, l, err);
        command_result_done(&result);
        command_job_done(&job);
        return r;
}

/* One that does not answer must not hide what the others have. */
static int command_list(struct op *op, struct runtime *rt, const struct kind *kind,
                        kind_found_fn fn, void *ctx, struct err *err)
{
        struct sources s = { .rt = rt, .kind = kind, .arena = op->arena };
        struct listing l = { kind, arena_printf(op->arena, "place made by %s", kind->display_name),
                             fn, ctx };
        struct op limited = *op;
        int r = find_sources(op, rt, &s, err);

        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + LIST_MS);
        for (size_t i = 0; i < s.n && r != ERR_CANCELLED; i++) {
                CLEAN(err_done) struct err one = { 0 };
                int code = list_source(&limited, rt, &s.list[i], &l, &one);

                if (code < 0 && r >= 0) {
                        r = code;
                        err_move(err, &one);
                }
        }
        return r;
}

/* The connection */

struct reaching {
        struct op *op;
        struct command_job *job;
};

static int reach_args(void *ctx, const char *sh, const char *login, const char *const **ret,
                      struct err *err)
{
        struct reaching *q = ctx;
        const json_t *command = command_of(q->job->kind->descriptor, COMMAND_REACH);
        const char **args = NULL;
        int r;

        q->job->vars.words[WORD_SH] = arena_strdup(q->op->arena, sh);
        q->job->vars.words[WORD_LOGIN] = arena_strdup(q->op->arena, login);
        r = command_fill_args(q->op->arena, json_object_get(command, "run"), &q->job->vars, &args,
                              err);
        *ret = args;
        return r;
}

static int place_key(const struct place *place, char **ret, struct err *err)
{
        *ret = xstrdup(place->id);
        return 0;
}

static int open_carrier(struct op *op, struct runtime *rt, const struct place *place,
                        const struct secret_context *context, struct ssh_call *ret, struct err *err)
{
        struct ssh_setup setup = *carriers_setup(rt->carriers);
        struct command_result result = { 0 };
        struct command_job job;
        struct reaching q = { op, &job };
        struct ssh_other other = { .args = reach_args, .ctx = &q, .owner = place->id };
        int r = job_of_place(op, rt, place, context, &job, err);

        if (r >= 0) {
                setup.timeout_ms = command_ms(command_of(job.kind->descriptor, COMMAND_REACH),
                                              "seconds", REACH_S);
                other.env = job.env;
                other.path = command_fill_text(
                        op->arena, json_get_string(job.kind->descriptor, "workdir"), &job.vars);
                FAULT("command.reach.before");
                r = ssh_call_other(op, &setup, &other, ret, err);
                FAULT("command.reach.after");
                if (r < 0 && r != ERR_CANCELLED && r != ERR_TIMEOUT)
                        r = command_explain(op, &job, "reach",
                                            ret->report.error.len ? buf_str(&ret->report.error)
                                            : err                 ? err->msg
                                                                  : "",
                                            r, &result, err);
        }
        command_job_done(&job);
        return r;
}

static const struct carrier_type carrier = {
        .what = "place",
        .lane = "place",
        .is_of_place = true,
        .key = place_key,
        .open = open_carrier,
};

static const struct box_route *command_route(const struct place *place)
{
        return place->provider_lease_id ? &carrier_route : NULL;
}

/* Commands */

static int command_prepare_exec(struct op *op, struct runtime *rt,
                                const struct lease_record *record, struct exec_request *req,
                                struct err *err)
{
        json_t *recorded = NULL, *variables, *own;
        const json_t *there;
        struct place place;
        int r = place_load(op, rt, record->lease.place_id, &place, err);

        if (r >= 0)
                r = kind_place_config(op, &place, &recorded, err);
        if (r < 0)
                return r;
        there = json_get_object(recorded, "$there");
        variables = json_object();
        exec_variables_update(variables, json_get_object(there, "vars"));
        if (req->terminal)
                json_object_set_new(variables, "TERM", json_string("xterm-256color"));
        own = exec_variables_sanitize(req->own_env);
        exec_variables_update(variables, own);
        json_decref(own);
        r = exec_request_set_env(op, variables, req, err);
        json_decref(variables);
        if (!req->cwd)
                req->cwd = arena_strdup(op->arena, json_get_string(there, "cwd"));
        if (!req->cwd)
                req->cwd = "/";
        return r;
}

static const struct workspace_way *const synced[] = { &workspace_sync, &workspace_archive, NULL };

/* Its provider, display_name, description, isolation, isolated, has_secrets_by_schema and park are
 * those of the descriptor. */
const struct kind kind_command = {
        .driver = "sandbox",
        .label = "sandbox",
        .isolation = "as its descriptor says",
        .is_elsewhere = true,
        .is_disposable = true,
        .takes_runs = true,
        .board_only = true,
        .can_destroy = true,
        .writes_cleanup_status = true,
        .release_failure_reason = "adapter_or_run_failure",
        .normalize = command_normalize,
        .schema = command_schema,
        .may_save = command_may_save,
        .validate = command_validate,
        .probe = command_probe,
        .plan = command_plan,
        .open = command_open,
        .resume = command_resume,
        .park = command_park,
        .close = command_close,
        .matches = sandbox_matches,
        .list = command_list,
        .describe = sandbox_describe,
        .realize = sandbox_realize,
        .prepare_exec = command_prepare_exec,
        .route = command_route,
        .carrier = &carrier,
        .ways = synced,
        .ways_copy = synced,
        .realization = &sandbox_realization,
};
