/* The vault provider for AWS from the outside, for tests that are written in Python: each line of
 * standard input is a call, each line of standard output what came of it.
 *
 *     {"call": "create", "vault": {"id", "provider", "status", "config"}, "subject": {...},
 * "value": "..."}
 *     {"material": {"material", "externalRef", "versionRef", "mark", "fingerprint"}}
 *     {"error": {"code": "access_denied", "status": 403, "text": "...", "failure": 2}}
 *
 * "deadlineMs" and "cancelFile" (cancelled once that file is there) end the operation early;
 * "threads" makes the same call from so many threads at once and answers with the number that
 * succeeded. Usage: awsdrive */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "secret/vault.h"

#define MAX_THREADS 32
#define CANCEL_LOOK 5000 /* microseconds between looks for the file */

struct ask {
        const json_t *in;
        struct vault_config config;
        struct vault_subject subject;
        struct vault_material material;
        struct secret_value value;
};

static void ask_done(struct ask *a)
{
        secret_value_done(&a->value);
}

static void read_ask(struct ask *a, const json_t *in)
{
        const json_t *vault = json_get_object(in, "vault"), *s = json_get_object(in, "subject");
        const json_t *m = json_get_object(in, "material");
        const char *value = json_get_string(in, "value");

        *a = (struct ask){
                .in = in,
                .config = { json_get_string(vault, "id"), json_get_string(vault, "provider"),
                            json_get_string(vault, "status"), json_get_object(vault, "config") },
                .subject = { json_get_string(s, "companyId"), json_get_string(s, "secretId"),
                             json_get_string(s, "secretKey"), json_get_string(s, "secretName"),
                             json_integer_value(json_object_get(s, "version")) },
                .material = { json_get_string(m, "material"), json_get_string(m, "externalRef"),
                              json_get_string(m, "versionRef"), NULL, NULL },
        };
        if (value && secret_value_set(&a->value, value, strlen(value), NULL) < 0)
                abort();
}

static json_t *material_json(const struct vault_material *m)
{
        return json_pack("{s:{s:s,s:s?,s:s?,s:s,s:s}}", "material", "material", m->material,
                         "externalRef", m->external_ref, "versionRef", m->version_ref, "mark",
                         m->value_mark, "fingerprint", m->fingerprint);
}

static json_t *health_json(const struct vault_health *h)
{
        return json_pack("{s:s,s:s,s:O,s:O,s:O}", "status", h->status, "message", h->message,
                         "details", h->details, "warnings", h->warnings, "guidance", h->guidance);
}

/* *ret is a new reference, or NULL for calls that only succeed. */
static int perform(struct op *op, const struct ask *a, json_t **ret, struct err *err)
{
        const struct vault_provider *p = &vault_aws;
        const char *call = json_get_string(a->in, "call");
        const struct vault_config *config = a->config.id ? &a->config : NULL;
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        struct vault_material m = { 0 };
        struct vault_health health = { 0 };
        bool has_material = false;
        int r;

        if (streq(call, "create")) {
                r = p->create(op, config, &a->subject, &a->value, &m, err);
                has_material = true;
        } else if (streq(call, "create_version")) {
                r = p->create_version(op, config, &a->subject, &a->material, &a->value, &m, err);
                has_material = true;
        } else if (streq(call, "link")) {
                r = p->link(op, config, &a->subject, json_get_string(a->in, "ref"),
                            json_get_string(a->in, "versionRef"), &m, err);
                has_material = true;
        } else if (streq(call, "promote")) {
                r = p->promote(op, config, &a->subject, &a->material, err);
        } else if (streq(call, "remove") || streq(call, "archive")) {
                r = p->remove(op, config, &a->subject, &a->material,
                              streq(call, "remove") ? VAULT_DELETE : VAULT_ARCHIVE, err);
        } else if (streq(call, "list")) {
                struct vault_page page = { json_get_string(a->in, "query"),
                                           json_get_string(a->in, "nextToken"),
                                           json_integer_value(json_object_get(a->in, "pageSize")) };

                r = p->list(op, config, &page, ret, err);
        } else if (streq(call, "health")) {
                r = p->health(op, config, &health, err);
                if (r == 0)
                        *ret = health_json(&health);
        } else if (streq(call, "configured")) {
                *ret = json_boolean(p->is_configured());
                r = 0;
        } else {
                r = p->resolve(op, config, &a->subject, &a->material, &value, err);
                if (r == 0)
                        *ret = json_pack("{s:s%}", "value", value.data, value.len);
        }
        if (r == 0 && has_material)
                *ret = material_json(&m);
        return r;
}

static json_t *error_json(int code, const struct err *e)
{
        json_t *details = e->details ? json_loads(e->details, 0, NULL) : json_object();
        json_t *out =
                json_pack("{s:{s:s?,s:i,s:s,s:i}}", "error", "code",
                          json_get_string(details, "code"), "status", err_info(code)->http_status,
                          "text", e->msg, "failure", vault_failure_of(e));

        json_decref(details);
        return out;
}

/* ---- cancelling when a file appears ---- */

struct watcher {
        const char *path;
        struct op_cancel *cancel;
        _Atomic bool stop;
};

static void *watch(void *arg)
{
        struct watcher *w = arg;

        while (!atomic_load(&w->stop)) {
                if (access(w->path, F_OK) == 0) {
                        op_cancel_set(w->cancel);
                        break;
                }
                (void)usleep(CANCEL_LOOK);
        }
        return NULL;
}

static json_t *run_one(const json_t *in)
{
        struct op_cancel cancel;
        struct arena arena;
        struct watcher w = { .path = json_get_string(in, "cancelFile"), .cancel = &cancel };
        json_int_t limit = json_integer_value(json_object_get(in, "deadlineMs"));
        struct op op = { .arena = &arena, .cancel = &cancel, .deadline_ms = OP_NO_DEADLINE };
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(ask_done) struct ask a = { 0 };
        json_t *out = NULL;
        pthread_t thread;
        int r;

        arena_init(&arena);
        if (op_cancel_init(&cancel, NULL) < 0)
                abort();
        if (limit > 0)
                op.deadline_ms = clock_mono_ms() + limit;
        if (w.path && pthread_create(&thread, NULL, watch, &w) != 0)
                abort();
        read_ask(&a, in);
        r = perform(&op, &a, &out, &e);
        if (w.path) {
                atomic_store(&w.stop, true);
                pthread_join(thread, NULL);
        }
        if (r < 0)
                out = error_json(r, &e);
        arena_done(&arena);
        op_cancel_done(&cancel);
        return out ? out : json_object();
}

/* ---- many at once ---- */

static void *run_thread(void *arg)
{
        return run_one(arg);
}

static json_t *run_threads(json_t *in, size_t n)
{
        pthread_t threads[MAX_THREADS];
        void *out = NULL;
        json_int_t good = 0;

        n = MIN(n, MAX_THREADS);
        for (size_t i = 0; i < n; i++)
                if (pthread_create(&threads[i], NULL, run_thread, in) != 0)
                        abort();
        for (size_t i = 0; i < n; i++) {
                pthread_join(threads[i], &out);
                good += json_object_get(out, "error") ? 0 : 1;
                json_decref(out);
        }
        return json_pack("{s:I}", "succeeded", good);
}

int main(void)
{
        char *line = NULL, *text;
        size_t size = 0;
        ssize_t n;

        if (sodium_init() < 0)
                return 1;
        (void)signal(SIGPIPE, SIG_IGN);
        while ((n = getline(&line, &size, stdin)) > 0) {
                json_t *in = json_loadb(line, (size_t)n, 0, NULL), *out;
                size_t threads = (size_t)json_integer_value(json_object_get(in, "threads"));

                if (!in)
                        return 2;
                out = threads > 1 ? run_threads(in, threads) : run_one(in);
                text = json_to_text(out);
                (void)printf("%s\n", text);
                (void)fflush(stdout);
                free(text);
                json_decref(out);
                json_decref(in);
        }
        free(line);
        return 0;
}
