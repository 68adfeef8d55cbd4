/* What a provider reads of a call, and the answer that it builds. */
#include "provider/call.h"

#include <math.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/utf8.h"

#define CHANNEL_NAME "PAPERCLIP_SANDBOX_EXEC_CHANNEL"
#define TEXT_MAX     ((size_t)8 << 10) /* of a failure or a complaint */
#define CHUNK_MAX    ((size_t)256 << 10)

/* Life */

struct berth_call *provider_call_new(json_t *take_doc)
{
        struct berth_call *c = xcalloc(1, sizeof(*c));
        const json_t *lease;

        arena_init(&c->arena);
        c->doc = take_doc;
        c->id = json_object_get(take_doc, "id");
        c->method = json_get_string(take_doc, "method");
        c->params = json_get_object(take_doc, "params");
        c->invocation = json_get_string(json_get_object(take_doc, "paperclipInvocation"), "id");
        c->config = json_get_object(c->params, "config");
        lease = json_get_object(c->params, "lease");
        c->lease_metadata = lease ? json_get_object(lease, "metadata")
                                  : json_get_object(c->params, "leaseMetadata");
        c->began_ms = clock_mono_ms();
        c->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        buf_init(&c->failure, TEXT_MAX);
        buf_init(&c->summary, TEXT_MAX);
        buf_init(&c->out, 2 * PROVIDER_OUTPUT_MAX);
        buf_init(&c->err, 2 * PROVIDER_OUTPUT_MAX);
        c->errors = json_array();
        c->metadata = json_object();
        c->found = json_array();
        return c;
}

void provider_call_free(struct berth_call *c)
{
        json_t *owned[] = { c->normal, c->errors,   c->metadata, c->found,
                            c->synced, c->lease_id, c->cwd,      c->doc };

        for (size_t i = 0; i < ARRAY_LEN(owned); i++)
                json_decref(owned[i]);
        buf_wipe(&c->failure);
        buf_done(&c->summary);
        buf_wipe(&c->out);
        buf_wipe(&c->err);
        arena_done(&c->arena);
        if (c->cancel_fd >= 0)
                close(c->cancel_fd);
        free(c);
}

/* What is asked */

static int64_t int_member(const json_t *object, const char *name, int64_t fallback)
{
        const json_t *v = json_object_get(object, name);

        if (json_is_integer(v))
                return json_integer_value(v);
        return json_is_real(v) && fabs(json_real_value(v)) < 0x1p53 ? (int64_t)json_real_value(v)
                                                                    : fallback;
}

const char *berth_config_text(struct berth_call *c, const char *name)
{
        return json_get_string(c->config, name);
}

int64_t berth_config_int(struct berth_call *c, const char *name, int64_t fallback)
{
        return int_member(c->config, name, fallback);
}

bool berth_config_bool(struct berth_call *c, const char *name, bool fallback)
{
        const json_t *v = json_object_get(c->config, name);

        return json_is_boolean(v) ? json_is_true(v) : fallback;
}

const char *berth_lease_text(struct berth_call *c, const char *name)
{
        return json_get_string(c->lease_metadata, name);
}

const char *berth_param_text(struct berth_call *c, const char *name)
{
        return json_get_string(c->params, name);
}

const char *berth_lease(struct berth_call *c)
{
        const json_t *lease = json_get_object(c->params, "lease");
        const char *id = json_get_string(lease ? lease : c->params, "providerLeaseId");

        return id && *id ? id : NULL;
}

const char *berth_owner_instance(struct berth_call *c)
{
        return json_get_string(json_get_object(c->params, "owner"), "instance");
}

const char *berth_owner_place(struct berth_call *c)
{
        return json_get_string(json_get_object(c->params, "owner"), "place");
}

const char *berth_command(struct berth_call *c)
{
        const char *command = json_get_string(c->params, "command");

        return command ? command : "";
}

static const char *const *texts_of(struct arena *a, const json_t *array)
{
        const char **list = arena_alloc(a, (json_array_size(array) + 1) * sizeof(*list));
        json_t *item;
        size_t i, n = 0;

        json_array_foreach(array, i, item)
        {
                if (json_is_string(item))
                        list[n++] = json_string_value(item);
        }
        return list;
}

const char *const *berth_arguments(struct berth_call *c)
{
        return texts_of(&c->arena, json_object_get(c->params, "args"));
}

const char *const *berth_variables(struct berth_call *c)
{
        json_t *env = json_get_object(c->params, "env"), *value;
        const char **list = arena_alloc(&c->arena, (json_object_size(env) + 1) * sizeof(*list));
        const char *name;
        size_t n = 0;

        json_object_foreach(env, name, value)
        {
                if (json_is_string(value) && !streq(name, CHANNEL_NAME))
                        list[n++] =
                                arena_printf(&c->arena, "%s=%s", name, json_string_value(value));
        }
        return list;
}

const char *berth_directory(struct berth_call *c)
{
        const char *cwd = json_get_string(c->params, "cwd");

        return cwd && *cwd ? cwd : json_get_string(c->lease_metadata, "remoteCwd");
}

const char *berth_input(struct berth_call *c, size_t *ret_len)
{
        const json_t *input = json_object_get(c->params, "stdin");

        *ret_len = json_string_length(input);
        return json_is_string(input) ? json_string_value(input) : "";
}

bool berth_is_channel(struct berth_call *c)
{
        const char *said = json_get_string(json_get_object(c->params, "env"), CHANNEL_NAME);

        return said && streq(said, "bridge");
}

int64_t berth_time_left(struct berth_call *c, int64_t fallback)
{
        int64_t limit = int_member(c->params, "timeoutMs", 0);

        if (limit <= 0)
                limit = int_member(c->config, "timeoutMs", 0);
        if (limit <= 0)
                limit = fallback;
        return MAX(MIN(limit, INT32_MAX) - (clock_mono_ms() - c->began_ms), 0);
}

int berth_cancel_fd(struct berth_call *c)
{
        return c->cancel_fd;
}

bool berth_is_cancelled(struct berth_call *c)
{
        return atomic_load(&c->cancelled);
}

static const struct berth_sync_file *sync_files(struct arena *a, const json_t *array, size_t *ret_n)
{
        struct berth_sync_file *files =
                arena_alloc(a, (json_array_size(array) + 1) * sizeof(*files));
        json_t *item;
        size_t i, n = 0;

        json_array_foreach(array, i, item)
        {
                const char *kind = json_get_string(item, "kind");
                struct berth_sync_file f = {
                        .source = json_get_string(item, "sourcePath"),
                        .target = json_get_string(item, "targetPath"),
                        .is_directory = kind && streq(kind, "directory"),
                        .follow_links = json_is_true(json_object_get(item, "followSymlinks")),
                        .mode = (int)int_member(item, "mode", -1),
                        .exclude = texts_of(a, json_object_get(item, "exclude")),
                };

                if (f.source && f.target)
                        files[n++] = f;
        }
        *ret_n = n;
        return files;
}

static const struct berth_sync_command *sync_commands(struct arena *a, const json_t *array,
                                                      size_t *ret_n)
{
        struct berth_sync_command *list =
                arena_alloc(a, (json_array_size(array) + 1) * sizeof(*list));
        json_t *item;
        size_t i, n = 0;

        json_array_foreach(array, i, item)
        {
                struct berth_sync_command k = { json_get_string(item, "command"),
                                                json_get_string(item, "cwd"),
                                                int_member(item, "timeoutMs", 0) };

                if (k.command)
                        list[n++] = k;
        }
        *ret_n = n;
        return list;
}

const struct berth_sync_operation *berth_sync_operations(struct berth_call *c, size_t *ret_n)
{
        json_t *array = json_object_get(c->params, "operations"), *item;
        struct berth_sync_operation *list =
                arena_alloc(&c->arena, (json_array_size(array) + 1) * sizeof(*list));
        size_t i;

        json_array_foreach(array, i, item)
        {
                list[i].files =
                        sync_files(&c->arena, json_object_get(item, "files"), &list[i].n_files);
                list[i].commands =
                        sync_commands(&c->arena, json_object_get(item, "postUploadCommands"),
                                      &list[i].n_commands);
        }
        *ret_n = json_array_size(array);
        return list;
}

/* What is answered */

#define PRINT_TO(b)                                                                                \
        do {                                                                                       \
                va_list ap;                                                                        \
                va_start(ap, format);                                                              \
                buf_appendv((b), format, ap);                                                      \
                va_end(ap);                                                                        \
        } while (0)

int berth_fail(struct berth_call *c, const char *format, ...)
{
        buf_clear(&c->failure);
        PRINT_TO(&c->failure);
        c->failed = true;
        return -1;
}

int berth_fail_unknown(struct berth_call *c, const char *format, ...)
{
        buf_clear(&c->failure);
        PRINT_TO(&c->failure);
        c->failed = c->unknown = true;
        return -1;
}

int berth_fail_unsupported(struct berth_call *c, const char *format, ...)
{
        buf_clear(&c->failure);
        PRINT_TO(&c->failure);
        c->failed = c->unsupported = true;
        return -1;
}

json_t *provider_clean_string(const char *text, size_t len)
{
        CLEAN(buf_wipe) struct buf clean = { .max = 4 * PROVIDER_OUTPUT_MAX };
        json_t *v = json_stringn(text, len);

        if (v)
                return v;
        for (size_t at = 0, n; at < len; at += n)
                if (utf8_next(text + at, len - at, &n, NULL))
                        buf_append(&clean, text + at, n);
                else
                        buf_puts(&clean, UTF8_REPLACEMENT);
        return json_stringn(buf_str(&clean), clean.len);
}

void berth_complain(struct berth_call *c, const char *format, ...)
{
        CLEAN(buf_done) struct buf text = { .max = TEXT_MAX };

        PRINT_TO(&text);
        json_array_append_new(c->errors, provider_clean_string(buf_str(&text), text.len));
}

void berth_summary(struct berth_call *c, const char *format, ...)
{
        buf_clear(&c->summary);
        PRINT_TO(&c->summary);
}

static json_t *text_or_null(const char *text)
{
        return text ? provider_clean_string(text, strlen(text)) : json_null();
}

static json_t *normal_form(struct berth_call *c)
{
        if (!c->normal)
                c->normal = c->config ? json_copy((json_t *)c->config) : json_object();
        return c->normal;
}

void berth_config_set_text(struct berth_call *c, const char *name, const char *text)
{
        json_object_set_new(normal_form(c), name, text_or_null(text));
}

void berth_config_set_int(struct berth_call *c, const char *name, int64_t value)
{
        json_object_set_new(normal_form(c), name, json_integer(value));
}

void berth_config_set_bool(struct berth_call *c, const char *name, bool value)
{
        json_object_set_new(normal_form(c), name, json_boolean(value));
}

static void replace(json_t **at, json_t *take)
{
        json_decref(*at);
        *at = take;
}

void berth_lease_set(struct berth_call *c, const char *lease_id)
{
        replace(&c->lease_id, text_or_null(lease_id));
}

void berth_metadata_text(struct berth_call *c, const char *name, const char *text)
{
        json_object_set_new(c->metadata, name, text_or_null(text));
}

void berth_metadata_bool(struct berth_call *c, const char *name, bool value)
{
        json_object_set_new(c->metadata, name, json_boolean(value));
}

void berth_cwd_set(struct berth_call *c, const char *cwd)
{
        replace(&c->cwd, text_or_null(cwd));
}

void berth_output(struct berth_call *c, enum berth_stream stream, const char *data, size_t len)
{
        bool is_err = stream == BERTH_STDERR;
        struct buf *b = is_err ? &c->err : &c->out;
        size_t room = PROVIDER_OUTPUT_MAX - MIN(b->len, PROVIDER_OUTPUT_MAX);

        c->cut[is_err] = c->cut[is_err] || len > room;
        buf_append(b, data, MIN(len, room));
        /* A character that is not whole yet waits for its rest. */
        for (size_t n; c->sent[is_err] < b->len; c->sent[is_err] += n) {
                const char *at = b->data + c->sent[is_err];

                n = MIN(CHUNK_MAX, b->len - c->sent[is_err]);
                n -= utf8_unfinished(at, n);
                if (n == 0)
                        break;
                provider_send_output(c, is_err, at, n);
        }
}

void berth_exit_set(struct berth_call *c, int status)
{
        c->has_exit = true;
        c->exit_status = status;
}

void berth_timed_out_set(struct berth_call *c)
{
        c->timed_out = true;
}

void berth_sync_done(struct berth_call *c, size_t index, uint64_t files, uint64_t bytes)
{
        const json_t *asked = json_array_get(json_object_get(c->params, "operations"), index);

        if (!c->synced)
                c->synced = json_array();
        json_array_append_new(c->synced,
                              json_pack("{s:O*, s:I, s:I}", "operationId",
                                        json_object_get(asked, "operationId"), "filesTransferred",
                                        (json_int_t)files, "bytesTransferred", (json_int_t)bytes));
}

void berth_found(struct berth_call *c, const char *lease_id, const char *instance,
                 const char *place)
{
        json_array_append_new(c->found,
                              json_pack("{s:o, s:{s:o, s:o}}", "providerLeaseId",
                                        text_or_null(lease_id), "owner", "instance",
                                        text_or_null(instance), "place", text_or_null(place)));
}

/* The answer */

static json_t *validate_result(struct berth_call *c)
{
        bool ok = json_array_size(c->errors) == 0;
        json_t *v = json_pack("{s:b, s:O}", "ok", ok, "errors", c->errors);

        if (ok)
                json_object_set(v, "normalizedConfig", normal_form(c));
        return v;
}

static json_t *probe_result(struct berth_call *c)
{
        bool ok = json_array_size(c->errors) == 0;
        json_t *list = json_array(), *item, *v;
        size_t i;

        json_array_foreach(c->errors, i, item) json_array_append_new(
                list, json_pack("{s:s, s:O}", "severity", "error", "message", item));
        v = json_pack("{s:b, s:o, s:O}", "ok", ok, "diagnostics", list, "metadata", c->metadata);
        if (!ok)
                json_object_set(v, "summary", json_array_get(c->errors, 0));
        else if (c->summary.len > 0)
                json_object_set_new(v, "summary",
                                    provider_clean_string(buf_str(&c->summary), c->summary.len));
        return v;
}

static json_t *execute_result(struct berth_call *c)
{
        static const char note[] = "\n[output beyond 32 MiB was dropped]\n";
        json_t *v;

        if (c->cut[0] || c->cut[1])
                buf_puts(&c->err, note);
        v = json_pack("{s:n, s:b, s:o, s:o}", "signal", "timedOut", c->timed_out, "stdout",
                      provider_clean_string(buf_str(&c->out), c->out.len), "stderr",
                      provider_clean_string(buf_str(&c->err), c->err.len));
        json_object_set_new(v, "exitCode",
                            c->has_exit && !c->timed_out ? json_integer(c->exit_status)
                                                         : json_null());
        return v;
}

json_t *provider_call_result(struct berth_call *c)
{
        switch (c->shape) {
        case SHAPE_HEALTH:
                return json_pack("{s:s}", "status",
                                 json_array_size(c->errors) > 0 ? "error" : "ok");
        case SHAPE_VALIDATE:
                return validate_result(c);
        case SHAPE_PROBE:
                return probe_result(c);
        case SHAPE_LEASE:
                return json_pack("{s:O, s:O}", "providerLeaseId",
                                 c->lease_id ? c->lease_id : json_null(), "metadata", c->metadata);
        case SHAPE_REALIZE:
                return json_pack("{s:o, s:O}", "cwd",
                                 c->cwd ? json_incref(c->cwd) : text_or_null(berth_directory(c)),
                                 "metadata", c->metadata);
        case SHAPE_EXECUTE:
                return execute_result(c);
        case SHAPE_SYNC:
                return json_pack("{s:o}", "operations",
                                 c->synced ? json_incref(c->synced) : json_array());
        case SHAPE_LIST:
                return json_pack("{s:O}", "leases", c->found);
        case SHAPE_NULL:
        default:
                return json_null();
        }
}
