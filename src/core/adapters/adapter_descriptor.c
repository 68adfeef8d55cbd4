/* Decides which descriptors are accepted, and keeps the list of them. */
#include "core/adapters/adapter_descriptor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#include "base/embedded.h"
#include "base/fd.h"
#include "core/adapters/adapter_check.h"
#include "core/adapters/adapter_expr.h"

/* Checking */

static int check_args(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "when", CONDITION, NULL, NULL },
                                                         { "args", WORDS, NULL, NULL },
                                                         { "list", PATHS, NULL, NULL },
                                                         { 0 } };
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                CLEAN(cleanup_free) char *inner = xasprintf("%s[%zu]", where, i);
                int r = json_is_string(one) ? 0 : adapter_check_members(one, members, inner, err);

                if (r < 0)
                        return r;
        }
        return 0;
}

static int check_hosts(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "when", CONDITION, NULL, NULL },
                                                         { "hosts", WORDS, NULL, NULL },
                                                         { 0 } };
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                CLEAN(cleanup_free) char *inner = xasprintf("%s[%zu]", where, i);
                int r = json_is_string(one) ? 0 : adapter_check_members(one, members, inner, err);

                if (r < 0)
                        return r;
        }
        return 0;
}

static int check_conditions(const json_t *list, const char *where, struct err *err)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                const char *fault = adapter_condition_fault(one);

                if (fault)
                        return adapter_check_bad(err, where, "", fault);
        }
        return 0;
}

static int check_env(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "when", CONDITION, NULL, NULL },
                                                         { "name", TEXT, NULL, NULL },
                                                         { "value", TEXT, NULL, NULL },
                                                         { "force", FLAG, NULL, NULL },
                                                         { 0 } };

        size_t i;
        json_t *one;
        int r = adapter_check_each(list, members, where, err);

        json_array_foreach((json_t *)list, i, one)
        {
                if (r >= 0 && (!json_get_string(one, "name") || !json_get_string(one, "value")))
                        r = adapter_check_bad(err, where, "", "needs `name` and `value`");
        }
        return r;
}

static int check_wrap(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "when", CONDITION, NULL, NULL },
                                                         { "args", WORDS, NULL, NULL },
                                                         { 0 } };

        return adapter_check_each(list, members, where, err);
}

static int check_require(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "that", CONDITION, NULL, NULL },
                                                         { "error", TEXT, NULL, NULL },
                                                         { 0 } };

        size_t i;
        json_t *one;
        int r = adapter_check_each(list, members, where, err);

        json_array_foreach((json_t *)list, i, one)
        {
                if (r >= 0 && (!json_object_get(one, "that") || !json_get_string(one, "error")))
                        r = adapter_check_bad(err, where, "", "needs `that` and `error`");
        }
        return r;
}

/* Texts that hold under conditions: the first one counts. */
static int check_choice(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "when", CONDITION, NULL, NULL },
                                                         { "is", TEXT, NULL, NULL },
                                                         { 0 } };

        return adapter_check_each(list, members, where, err);
}

static int check_models(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "id", TEXT, NULL, NULL },
                                                         { "label", TEXT, NULL, NULL },
                                                         { 0 } };

        return adapter_check_each(list, members, where, err);
}

static int check_model_list(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "args", WORDS, NULL, NULL },
                                                         { "seconds", NUMBER, NULL, NULL },
                                                         { "sandboxSeconds", NUMBER, NULL, NULL },
                                                         { 0 } };

        return adapter_check_members(list, members, where, err);
}

static int check_fields(const json_t *fields, const char *where, struct err *err)
{
        static const struct adapter_member members[] = {
                { "session", PATHS, NULL, NULL },  { "model", PATHS, NULL, NULL },
                { "text", PATHS, NULL, NULL },     { "summary", PATHS, NULL, NULL },
                { "input", PATHS, NULL, NULL },    { "cached", PATHS, NULL, NULL },
                { "output", PATHS, NULL, NULL },   { "cost", PATHS, NULL, NULL },
                { "error", PATHS, NULL, NULL },    { "failure", PATHS, NULL, NULL },
                { "question", PATHS, NULL, NULL }, { "reasoning", PATHS, NULL, NULL },
                { "delta", PATHS, NULL, NULL },    { 0 }
        };

        return adapter_check_members(fields, members, where, err);
}

static int check_match(const json_t *match, const char *where, struct err *err)
{
        const char *path;
        json_t *value;

        json_object_foreach((json_t *)match, path, value)
        {
                const char *fault = adapter_path_fault(path);

                if (fault)
                        return adapter_check_bad(err, where, path, fault);
        }
        return 0;
}

static int check_events(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "match", OBJECT, NULL, check_match },
                                                         { "when", CONDITION, NULL, NULL },
                                                         { "clear", WORDS, NULL, NULL },
                                                         { "set", OBJECT, NULL, check_fields },
                                                         { "add", OBJECT, NULL, check_fields },
                                                         { "keep", FLAG, NULL, NULL },
                                                         { "end", FLAG, NULL, NULL },
                                                         { "times", NUMBER, NULL, NULL },
                                                         { 0 } };

        return adapter_check_each(list, members, where, err);
}

static int check_tokens(const json_t *tokens, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "input", PATHS, NULL, NULL },
                                                         { "cached", PATHS, NULL, NULL },
                                                         { "output", PATHS, NULL, NULL },
                                                         { 0 } };

        return adapter_check_members(tokens, members, where, err);
}

static int check_transcript(const json_t *list, const char *where, struct err *err)
{
        static const char *const kinds[] = { "text",   "delta", "thinking", "plan", "tool",
                                             "result", "usage", "error",    NULL };
        static const struct adapter_member members[] = {
                { "match", OBJECT, NULL, check_match }, { "when", CONDITION, NULL, NULL },
                { "each", PATHS, NULL, NULL },          { "kind", CHOICE, kinds, NULL },
                { "text", PATHS, NULL, NULL },          { "id", PATHS, NULL, NULL },
                { "name", PATHS, NULL, NULL },          { "input", PATHS, NULL, NULL },
                { "failed", CONDITION, NULL, NULL },    { "tokens", OBJECT, NULL, check_tokens },
                { "event", TEXT, NULL, NULL },          { 0 }
        };
        size_t i;
        json_t *one;
        int r = adapter_check_each(list, members, where, err);

        json_array_foreach((json_t *)list, i, one)
        {
                if (r >= 0 && (!json_get_string(one, "kind") ||
                               (json_object_get(one, "each") &&
                                !json_is_string(json_object_get(one, "each")))))
                        r = adapter_check_bad(err, where, "",
                                              "needs `kind`, and one path as `each`");
        }
        return r;
}

static int check_errors(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "code", TEXT, NULL, NULL },
                                                         { "family", TEXT, NULL, NULL },
                                                         { "when", CONDITION, NULL, NULL },
                                                         { "like", PATTERNS, NULL, NULL },
                                                         { "clearSession", FLAG, NULL, NULL },
                                                         { "loginUrl", FLAG, NULL, NULL },
                                                         { "retryAt", WORDS, NULL, NULL },
                                                         { "retryIn", WORDS, NULL, NULL },
                                                         { "retrySec", NUMBER, NULL, NULL },
                                                         { "message", TEXT, NULL, NULL },
                                                         { 0 } };

        size_t i;
        json_t *one;
        int r = adapter_check_each(list, members, where, err);

        json_array_foreach((json_t *)list, i, one)
        {
                if (r >= 0 && !json_get_string(one, "code"))
                        r = adapter_check_bad(err, where, "", "needs `code`");
        }
        return r;
}

static int check_output(const json_t *output, const char *where, struct err *err)
{
        static const char *const formats[] = { "text", "json-lines", NULL };
        static const struct adapter_member members[] = {
                { "format", CHOICE, formats, NULL },    { "prefixes", WORDS, NULL, NULL },
                { "events", LIST, NULL, check_events }, { "ignore", PATTERNS, NULL, NULL },
                { "cumulative", WORDS, NULL, NULL },    { "errorFails", FLAG, NULL, NULL },
                { "errorExit", NUMBER, NULL, NULL },    { "unparsed", TEXT, NULL, NULL },
                { "lingerSec", NUMBER, NULL, NULL },    { 0 }
        };

        return adapter_check_members(output, members, where, err);
}

static int check_header(const json_t *header, const char *where, struct err *err)
{
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)header, name, value)
        {
                if (!json_is_string(value))
                        return adapter_check_bad(err, where, name, "has to be a text");
        }
        return 0;
}

static int check_session(const json_t *session, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "new", TEXT, NULL, NULL },
                                                         { "dir", LIST, NULL, check_choice },
                                                         { "files", WORDS, NULL, NULL },
                                                         { "move", TEXT, NULL, NULL },
                                                         { "freshWhen", CONDITION, NULL, NULL },
                                                         { "unknown", PATTERNS, NULL, NULL },
                                                         { "bundle", TEXT, NULL, NULL },
                                                         { "header", OBJECT, NULL, check_header },
                                                         { 0 } };

        return adapter_check_members(session, members, where, err);
}

static int check_install(const json_t *install, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "npm", TEXT, NULL, NULL },
                                                         { "node", NUMBER, NULL, NULL },
                                                         { "shell", TEXT, NULL, NULL },
                                                         { 0 } };

        return adapter_check_members(install, members, where, err);
}

static int check_probe(const json_t *probe, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "seconds", NUMBER, NULL, NULL },
                                                         { "expect", PATTERNS, NULL, NULL },
                                                         { "auth", PATTERNS, NULL, NULL },
                                                         { 0 } };

        return adapter_check_members(probe, members, where, err);
}

static bool needs_command(const json_t *json)
{
        return !json_is_false(json_object_get(json, "runs")) &&
               !json_is_true(json_object_get(json, "http"));
}

int adapter_descriptor_check(const json_t *json, struct err *err)
{
        static const char *const prompts[] = { "stdin", "argument", "none", NULL };
        static const char *const instructions[] = { "prefix", "fresh-prefix", "argument", "none",
                                                    NULL };
        static const struct adapter_member members[] = {
                { "type", TEXT, NULL, NULL },
                { "base", TEXT, NULL, NULL },
                { "label", TEXT, NULL, NULL },
                { "key", TEXT, NULL, NULL },
                { "keyVariable", TEXT, NULL, NULL },
                { "runs", FLAG, NULL, NULL },
                { "remote", FLAG, NULL, NULL },
                { "http", FLAG, NULL, NULL },
                { "command", TEXT, NULL, NULL },
                { "commands", LIST, NULL, check_choice },
                { "missing", TEXT, NULL, NULL },
                { "args", LIST, NULL, check_args },
                { "acp", LIST, NULL, check_args },
                { "assets", LIST, NULL, adapter_check_assets },
                { "wrap", LIST, NULL, check_wrap },
                { "env", LIST, NULL, check_env },
                { "services", FLAG, NULL, NULL },
                { "require", LIST, NULL, check_require },
                { "hosts", LIST, NULL, check_hosts },
                { "moreHosts", WORDS, NULL, NULL },
                { "baseUrl", LIST, NULL, check_conditions },
                { "prompt", CHOICE, prompts, NULL },
                { "showStdin", FLAG, NULL, NULL },
                { "instructions", CHOICE, instructions, NULL },
                { "defaultModel", TEXT, NULL, NULL },
                { "models", LIST, NULL, check_models },
                { "modelList", OBJECT, NULL, check_model_list },
                { "graceSec", NUMBER, NULL, NULL },
                { "install", OBJECT, NULL, check_install },
                { "probe", OBJECT, NULL, check_probe },
                { "session", OBJECT, NULL, check_session },
                { "output", OBJECT, NULL, check_output },
                { "errors", LIST, NULL, check_errors },
                { "transcript", LIST, NULL, check_transcript },
                { "provider", LIST, NULL, check_choice },
                { "biller", LIST, NULL, check_choice },
                { "billing", LIST, NULL, check_choice },
                { 0 }
        };
        int r = adapter_check_members(json, members, "", err);

        if (r < 0)
                return r;
        if (!adapter_check_is_word(json_get_string(json, "type")))
                return adapter_check_bad(err, "", "type", "has to be a word of a-z, 0-9, _ and -");
        if (json_object_get(json, "key") && !adapter_check_is_word(json_get_string(json, "key")))
                return adapter_check_bad(err, "", "key", "has to be a word of a-z, 0-9, _ and -");
        if (needs_command(json) && !json_get_string(json, "command") &&
            !json_get_string(json, "missing"))
                return adapter_check_bad(err, "", "command", "is missing");
        return 0;
}

/* The list */

static struct {
        pthread_once_t once;
        struct adapter_descriptor list[ADAPTERS_MAX];
        size_t n;
} all = { .once = PTHREAD_ONCE_INIT };

static struct adapter_descriptor *lookup(const char *type)
{
        for (size_t i = 0; i < all.n; i++)
                if (streq(all.list[i].type, type))
                        return &all.list[i];
        return NULL;
}

static void fill(struct adapter_descriptor *d, json_t *take_json)
{
        const char *type = json_get_string(take_json, "type");
        const char *key = json_get_string(take_json, "key");
        const char *label = json_get_string(take_json, "label");

        *d = (struct adapter_descriptor){
                .type = type,
                .label = label ? label : type,
                .key = key ? key : type,
                .runs = !json_is_false(json_object_get(take_json, "runs")),
                .is_remote = json_is_true(json_object_get(take_json, "remote")),
                .is_http = json_is_true(json_object_get(take_json, "http")),
                .json = take_json,
        };
}

/* The members that it leaves to another descriptor, which is known already. */
static int inherit(json_t *json, struct err *err)
{
        static const char *const own[] = { "type", "label", "key" };
        const char *base = json_get_string(json, "base");
        const struct adapter_descriptor *d = base ? lookup(base) : NULL;
        json_t *from;

        if (!base)
                return 0;
        if (!d)
                return adapter_check_bad(err, "", "base", "names no adapter");
        from = json_copy((json_t *)d->json);
        for (size_t i = 0; i < ARRAY_LEN(own); i++)
                json_object_del(from, own[i]);
        json_object_update_missing(json, from);
        json_decref(from);
        return 0;
}

static int add(const char *text, size_t len, struct err *err)
{
        CLEAN(json_decrefp) json_t *json = NULL;
        struct adapter_descriptor *d;
        int r = json_parse(text, len, &json, err);

        if (r >= 0)
                r = inherit(json, err);
        if (r >= 0)
                r = adapter_descriptor_check(json, err);
        if (r < 0)
                return r;
        d = lookup(json_get_string(json, "type"));
        if (!d && all.n == ADAPTERS_MAX)
                return err_set(err, ERR_INVALID, "there are %d adapters already", ADAPTERS_MAX);
        d = d ? d : &all.list[all.n++];
        json_decref((json_t *)d->json);
        fill(d, take_ptr(&json));
        return 0;
}

static void forget(void)
{
        for (size_t i = 0; i < all.n; i++)
                json_decref((json_t *)all.list[i].json);
        all.n = 0;
}

static void load_own(void)
{
        for (const struct embedded_file *f = adapter_files; f->name; f++) {
                CLEAN(err_done) struct err e = { 0 };

                if (add(f->data, f->len, &e) < 0) {
                        (void)fprintf(stderr, "berth: %s: %s\n", f->name, e.msg);
                        abort(); /* a bug of ours: test_adapter_descriptor finds it first */
                }
        }
        (void)atexit(forget);
}

static void ready(void)
{
        (void)pthread_once(&all.once, load_own);
}

const struct adapter_descriptor *adapter_at(size_t i)
{
        ready();
        return i < all.n ? &all.list[i] : NULL;
}

const struct adapter_descriptor *adapter_find(const char *type)
{
        ready();
        return lookup(type);
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_descriptor_name(const char *name)
{
        size_t n = strlen(name);

        return *name != '.' && n > 5 && streq(name + n - 5, ".json");
}

/* The *.json of a directory, by name, so that the winner does not depend on the file system. */
static size_t list_names(DIR *dir, const char **names, size_t max, struct arena *arena)
{
        const struct dirent *entry;
        size_t n = 0;

        while (n < max && (entry = readdir(dir)))
                if (is_descriptor_name(entry->d_name))
                        names[n++] = arena_strdup(arena, entry->d_name);
        qsort(names, n, sizeof(*names), by_name);
        return n;
}

static int load_file(int dirfd, const char *name, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int r = file_read_at(dirfd, name, ADAPTER_FILE_MAX, &text, err);

        return r < 0 ? r : add(buf_str(&text), text.len, err);
}

int adapter_load(const char *path, void (*complain)(void *ctx, const char *text), void *ctx,
                 struct err *err)
{
        const char *names[ADAPTERS_MAX];
        CLEAN(arena_done) struct arena arena = { 0 };
        DIR *dir;
        size_t n;

        ready();
        dir = opendir(path);
        if (!dir)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "open %s", path);
        n = list_names(dir, names, ARRAY_LEN(names), &arena);
        for (size_t i = 0; i < n; i++) {
                CLEAN(err_done) struct err e = { 0 };

                if (load_file(dirfd(dir), names[i], &e) < 0)
                        complain(ctx, arena_printf(&arena, "%s/%s: %s", path, names[i], e.msg));
        }
        (void)closedir(dir);
        return 0;
}

json_t *adapter_all_hosts(const struct adapter_descriptor *d)
{
        json_t *hosts = json_array(), *one, *host;
        size_t i, k;

        json_array_foreach(json_object_get(d->json, "hosts"), i, one)
        {
                if (json_is_string(one))
                        json_array_append(hosts, one);
                json_array_foreach(json_object_get(one, "hosts"), k, host)
                        json_array_append(hosts, host);
        }
        json_array_extend(hosts, json_object_get(d->json, "moreHosts"));
        return hosts;
}

const char *adapter_text(const struct adapter_descriptor *d, const char *member,
                         const char *fallback)
{
        const char *s = json_get_string(d->json, member);

        return s ? s : fallback;
}
