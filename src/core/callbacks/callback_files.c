/* The commands of a file queue, and the files as HTTP messages. Everything that a command prints
 * was made by programs in the place and is untrusted. */
#include "core/callbacks/callback_files.h"

#include <sodium.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/embedded.h"
#include "codec/http1.h"
#include "codec/shell.h"
#include "core/callbacks/callback_routes.h"
#include "core/exec/exec_transfer.h"

#define PROGRAM "paperclip-bridge-server.mjs"
#define WORD    "berth-queue:"
#define HEX4    "[0-9a-f][0-9a-f][0-9a-f][0-9a-f]"
/* Names of request files. Other files are ignored: a file that cannot be answered must not hold up
 * others. */
#define NAMES HEX4 HEX4 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX4 HEX4 HEX4 ".json"

/* Take a lock that is a directory with the pid of its holder; $lock, and what the text calls it. */
#define LOCK(what)                                                                                  \
        "n=0; until mkdir \"$lock\" 2>/dev/null; do\n"                                              \
        "  p=$(cat \"$lock/pid\" 2>/dev/null)\n"                                                    \
        "  if [ -n \"$p\" ] && ! kill -0 \"$p\" 2>/dev/null; then rm -rf \"$lock\"; continue; fi\n" \
        "  n=$((n + 1)); [ $n -lt 600 ] ||\n"                                                       \
        "    { echo 'Timed out acquiring sandbox callback bridge " what " lock.'; exit 1; }\n"      \
        "  sleep 0.05\n"                                                                            \
        "done\n"                                                                                    \
        "echo $$ > \"$lock/pid\"\n"

/* $1: directory, $2: its SHA-256; base64 on standard input. */
static const char sync_script[] =
        "umask 077; exec 2>&1; f=\"$1/" PROGRAM "\"; lock=\"$1/.paperclip-bridge-upload.lock\"\n"
        "mkdir -p \"$1\" || exit 1\n" LOCK(
                "upload") "trap 'rm -rf \"$lock\" \"$f.partial\" \"$f.paperclip-upload.b64\"' EXIT\n"
                          "trap 'exit 1' HUP INT TERM\n"
                          "hash() {\n"
                          "  if command -v sha256sum >/dev/null 2>&1; then h=$(sha256sum < \"$1\")\n"
                          "  elif command -v shasum >/dev/null 2>&1; then h=$(shasum -a 256 < \"$1\")\n"
                          "  else h=; fi; echo \"${h%% *}\"\n"
                          "}\n"
                          "cat > \"$f.paperclip-upload.b64\" || exit 1\n"
                          "if [ -f \"$f\" ] && [ \"$(hash \"$f\")\" = \"$2\" ]; then\n"
                          "  echo '{\"uploaded\":false}'; exit 0; fi\n"
                          "base64 -d < \"$f.paperclip-upload.b64\" > \"$f.partial\" || exit 1\n"
                          "got=$(hash \"$f.partial\")\n"
                          "[ -n \"$got\" ] || { echo 'no tool for SHA-256 here: not verified'; got=$2; }\n"
                          "[ \"$got\" = \"$2\" ] ||\n"
                          "  { echo 'Sandbox callback bridge entrypoint upload sha mismatch.'; exit 1; }\n"
                          "mv -f \"$f.partial\" \"$f\" && echo '{\"uploaded\":true}'\n";

/* $1: queue, $2: program; on standard input what is to be in its environment, as a script. */
static const char start_script[] =
        "umask 077; exec 2>&1; q=$1; p=$(cat \"$q/server.pid\" 2>/dev/null)\n"
        "[ -z \"$p\" ] || kill -9 \"$p\" 2>/dev/null\n"
        "rm -rf \"$q\"; mkdir -p \"$q/requests\" \"$q/responses\" \"$q/logs\" || exit 1\n"
        "eval \"$(cat)\"\n"
        "nohup node \"$2\" >> \"$q/logs/bridge.log\" 2>&1 < /dev/null &\n"
        "p=$!; echo $p > \"$q/server.pid\"\n"
        "n=0; while [ $n -lt 200 ]; do\n"
        "  if [ -s \"$q/ready.json\" ]; then printf '" WORD "'; cat \"$q/ready.json\"; exit 0; fi\n"
        "  kill -0 $p 2>/dev/null || { cat \"$q/logs/bridge.log\"; exit 1; }\n"
        "  n=$((n + 1)); sleep 0.05\n"
        "done\n"
        "kill -9 $p; echo 'Timed out waiting for bridge readiness.'; exit 1\n";

/* $1: queue, $2: name of the answer's file or nothing, $3: rounds, $4: `force`, $5: bytes of a
 * request; the answer on standard input. */
static const char turn_script[] =
        "umask 077; exec 2>&1; q=$1; [ -d \"$q/requests\" ] || exit 3\n"
        "if [ -n \"$2\" ]; then\n"
        "  r=\"$q/responses/$2\"; lock=\"$r.paperclip-write.lock\"\n" LOCK(
                "response") "  trap 'rm -rf \"$lock\" \"$r.tmp\"' EXIT; trap 'exit 1' HUP INT TERM\n"
                            "  if [ -e \"$r\" ] || { [ ! -e \"$q/requests/$2\" ] && [ \"$4\" != force ]; }; then\n"
                            "    cat > /dev/null; echo '{\"wrote\":false}'\n"
                            "  else cat > \"$r.tmp\" && mv -f \"$r.tmp\" \"$r\" && echo '{\"wrote\":true}' || exit 1; fi\n"
                            "  rm -f \"$q/requests/$2\"; rm -rf \"$lock\" \"$r.tmp\"; trap - EXIT\n"
                            "fi\n"
                            "n=0; while :; do\n"
                            "  for f in \"$q\"/requests/" NAMES "; do\n"
                            "    [ -f \"$f\" ] || continue\n"
                            "    printf '" WORD
                            "%s ' \"${f##*/}\"; head -c \"$5\" \"$f\" | base64 | tr -d '\\n'\n"
                            "    echo; exit 0\n"
                            "  done\n"
                            "  [ $n -lt \"$3\" ] || break; n=$((n + 1)); sleep 0.1\n"
                            "done; echo '" WORD "none'\n";

static const char refuse_script[] = "p=$(cat \"$1/server.pid\" 2>/dev/null); [ -z \"$p\" ] || "
                                    "kill \"$p\" 2>/dev/null; exit 0\n";

static const char stop_script[] =
        "p=$(cat \"$1/server.pid\" 2>/dev/null); if [ -n \"$p\" ]; then\n"
        "  kill \"$p\" 2>/dev/null; n=0\n"
        "  while kill -0 \"$p\" 2>/dev/null && [ $n -lt 40 ]; do n=$((n + 1)); sleep 0.05; done\n"
        "  kill -9 \"$p\" 2>/dev/null\n"
        "fi; rm -rf \"$1\"; exit 0\n";

/* A command that failed. A message that the place lacks node or a shell's tools stays true; every
 * other failure may pass: a full disk, a process that was killed before it could say anything, a
 * machine too busy to be in time, a file that was cut. */
static int queue_command_failed(const char *what, const char *printed, struct err *err)
{
        static const char *const signs[] = { "Timed out ", "sha mismatch" };
        bool passes = !*printed || exec_transfer_tells_of_want(printed);

        for (size_t i = 0; i < ARRAY_LEN(signs); i++)
                passes = passes || strstr(printed, signs[i]);
        (void)err_set(err, ERR_PROVIDER, "%s: %.400s", what,
                      *printed ? printed : "it ended without a word");
        if (passes)
                err_mark_transient(err);
        return ERR_PROVIDER;
}

/* 0 when it could be run and its status was 0; what it printed is then in *ret_printed. */
static int run_script(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                      const char *script, const char *const *args, const char *input,
                      const char **ret_printed, struct err *err)
{
        const char *argv[10] = { "-c", script, "sh" };
        int64_t status = -1;

        for (size_t i = 0; args[i] && i + 4 < ARRAY_LEN(argv); i++)
                argv[i + 3] = args[i];
        *ret_printed = "";
        int r = plugin_box_run(op, rt, l, "sh", argv, input ? input : "", &status, ret_printed,
                               err);
        if (r >= 0 && status != 0)
                r = queue_command_failed("a command of the callback bridge failed", *ret_printed,
                                         err);
        return r;
}

int queue_paths_of(struct op *op, const struct plugin_lease *l, const char *adapter_type,
                   const char *run_id, struct queue_paths *ret, struct err *err)
{
        const char *cwd = json_get_string(l->metadata, "remoteCwd");

        if (!cwd || *cwd != '/' ||
            strspn(adapter_type, "abcdefghijklmnopqrstuvwxyz0123456789_-") != strlen(adapter_type))
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "The provider does not say in which directory work is done; there is "
                        "no place for a callback bridge.");
        const char *root = arena_printf(op->arena, "%s/.paperclip-runtime/%s/paperclip-bridge", cwd,
                                        adapter_type);
        ret->server = arena_printf(op->arena, "%s/server", root);
        ret->queue = arena_printf(op->arena, "%s/queue/%s", root, run_id);
        return 0;
}

/* The program */

static const struct embedded_file *bridge_program(void)
{
        return &callback_programs[0];
}

int queue_sync_program(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                       const struct queue_paths *paths, bool *ret_uploaded, struct err *err)
{
        const struct embedded_file *file = bridge_program();
        size_t size = sodium_base64_encoded_len(file->len, sodium_base64_VARIANT_ORIGINAL);
        CLEAN(cleanup_free) char *text = xcalloc(1, size);
        unsigned char sum[crypto_hash_sha256_BYTES];
        char hex[2 * sizeof(sum) + 1];
        const char *const args[] = { paths->server, hex, NULL };
        const char *printed;

        (void)crypto_hash_sha256(sum, (const unsigned char *)file->data, file->len);
        sodium_bin2hex(hex, sizeof(hex), sum, sizeof(sum));
        sodium_bin2base64(text, size, (const unsigned char *)file->data, file->len,
                          sodium_base64_VARIANT_ORIGINAL);
        int r = run_script(op, rt, l, sync_script, args, text, &printed, err);
        *ret_uploaded = r >= 0 && strstr(printed, "{\"uploaded\":true}");
        if (r >= 0 && !*ret_uploaded && !strstr(printed, "{\"uploaded\":false}"))
                r = queue_command_failed("The callback bridge could not be brought", printed, err);
        return r;
}

static void add_variable(struct buf *b, const char *name, const char *value)
{
        buf_appendf(b, "%s=", name);
        shell_quote(b, value);
        buf_appendf(b, "; export %s\n", name);
}

static int read_ready(const char *printed, uint16_t *ret, struct err *err)
{
        const char *at = strstr(printed, WORD);
        json_t *ready = NULL;
        json_int_t port = 0;

        at = at ? at + strlen(WORD) : "";
        if (json_parse(at, strcspn(at, "\r\n"), &ready, NULL) >= 0)
                port = json_integer_value(json_object_get(ready, "port"));
        json_decref(ready);
        if (port < 1 || port > UINT16_MAX) {
                (void)err_set(err, ERR_PROVIDER,
                              "Sandbox callback bridge did not report a listening port.");
                if (!strchr(at, '}')) /* it has not written all of it, or could not */
                        err_mark_transient(err);
                return ERR_PROVIDER;
        }
        *ret = (uint16_t)port;
        return 0;
}

int queue_start(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                const struct queue_paths *paths, const char *token, uint16_t port,
                uint16_t *ret_port, struct err *err)
{
        CLEAN(buf_wipe) struct buf variables = BUF_INIT;
        CLEAN(cleanup_free) char *file = xasprintf("%s/" PROGRAM, paths->server);
        CLEAN(cleanup_free) char *number = xasprintf("%u", port);
        const char *const args[] = { paths->queue, file, NULL };
        const char *printed;

        add_variable(&variables, "PAPERCLIP_API_BRIDGE_MODE", "queue_v1");
        add_variable(&variables, "PAPERCLIP_BRIDGE_QUEUE_DIR", paths->queue);
        add_variable(&variables, "PAPERCLIP_BRIDGE_TOKEN", token);
        add_variable(&variables, "PAPERCLIP_BRIDGE_PORT", number);
        int r = run_script(op, rt, l, start_script, args, buf_str(&variables), &printed, err);
        return r < 0 ? r : read_ready(printed, ret_port, err);
}

/* Turns */

void queue_read_printed(struct arena *arena, const char *printed, struct queue_turn *turn)
{
        const char *at = strstr(printed, WORD), *space;
        size_t len, max;
        struct uuid id;

        turn->ret_id = turn->ret_text = NULL;
        turn->ret_len = 0;
        at = at ? at + strlen(WORD) : "";
        space = strchr(at, ' ');
        if (!space || space - at != UUID_LEN + 5 || strncmp(at + UUID_LEN, ".json", 5) != 0 ||
            !uuid_parse(arena_strndup(arena, at, UUID_LEN), &id) || memcmp(id.s, at, UUID_LEN) != 0)
                return;
        turn->ret_id = arena_strdup(arena, id.s);
        at = space + 1;
        max = strcspn(at, "\r\n");
        unsigned char *bytes = arena_alloc(arena, max / 4 * 3 + 4);
        if (max / 4 * 3 <= QUEUE_REQUEST_MAX + 3 &&
            sodium_base642bin(bytes, max / 4 * 3 + 3, at, max, NULL, &len, NULL,
                              sodium_base64_VARIANT_ORIGINAL) == 0) {
                bytes[len] = '\0';
                turn->ret_text = (const char *)bytes;
                turn->ret_len = len;
        }
}

int queue_take_turn(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                    const struct queue_paths *paths, struct queue_turn *turn, struct err *err)
{
        CLEAN(cleanup_free) char *name = turn->id ? xasprintf("%s.json", turn->id) : xstrdup("");
        CLEAN(cleanup_free) char *rounds = xasprintf("%u", turn->rounds);
        CLEAN(cleanup_free) char *limit = xasprintf("%zu", QUEUE_REQUEST_MAX);
        const char *const args[] = { paths->queue, name, rounds, turn->is_forced ? "force" : "",
                                     limit,        NULL };
        const char *printed;
        int r = run_script(op, rt, l, turn_script, args, turn->answer, &printed, err);

        if (r >= 0 && turn->id && !strstr(printed, "{\"wrote\":"))
                r = err_set(err, ERR_PROVIDER, "An answer could not be written: %.300s", printed);
        if (r >= 0)
                queue_read_printed(op->arena, printed, turn);
        return r;
}

int queue_refuse_new(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                     const struct queue_paths *paths, struct err *err)
{
        const char *const args[] = { paths->queue, NULL };
        const char *printed;

        return run_script(op, rt, l, refuse_script, args, NULL, &printed, err);
}

int queue_stop(struct op *op, struct runtime *rt, const struct plugin_lease *l,
               const struct queue_paths *paths, struct err *err)
{
        const char *const args[] = { paths->queue, NULL };
        const char *printed;

        return run_script(op, rt, l, stop_script, args, NULL, &printed, err);
}

/* Files as messages */

static void add_headers(const json_t *headers, struct buf *ret)
{
        static const char *const names[] = { "accept", "content-type", "if-match",
                                             "if-none-match" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                const char *value = json_get_string(headers, names[i]);

                if (value && *value && http1_is_field_value(value))
                        buf_appendf(ret, "%s: %s\r\n", names[i], value);
        }
}

static bool is_method(const char *method)
{
        size_t n = strlen(method);

        return n > 0 && n < 8 && strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == n;
}

static bool is_query(const char *query)
{
        if (*query != '?' && *query != '\0')
                return false;
        for (; *query; query++)
                if (*query <= 0x20 || *query == 0x7f || *query == '#')
                        return false;
        return true;
}

static int put_request(const json_t *v, const char *token, struct buf *ret, struct err *err)
{
        const char *method = json_get_string(v, "method"), *path = json_get_string(v, "path");
        const char *query = json_get_string(v, "query"), *body = json_get_string(v, "body");
        size_t len = json_string_length(json_object_get(v, "body"));

        query = query ? query : "";
        if (!method || !path || !is_method(method) || callback_path_problem(path) ||
            !is_query(query) || strlen(path) + strlen(query) > HTTP1_MAX_TARGET)
                return err_set(err, ERR_INVALID, "Invalid bridge request payload.");
        buf_appendf(ret, "%s %s%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n", method,
                    path, query);
        buf_appendf(ret, "Authorization: Bearer %s\r\n", token);
        add_headers(json_object_get(v, "headers"), ret);
        if (body && len > 0 && !streq(method, "GET") && !streq(method, "HEAD"))
                buf_appendf(ret, "Content-Length: %zu\r\n\r\n%s", len, body);
        else
                buf_puts(ret, "\r\n");
        return 0;
}

int queue_request_bytes(const char *text, size_t len, const char *token, struct buf *ret,
                        struct err *err)
{
        json_t *v = NULL;
        int r = -1;

        if (json_parse(text, len, &v, NULL) >= 0 && json_is_object(v))
                r = put_request(v, token, ret, err);
        else
                r = err_set(err, ERR_INVALID, "Invalid bridge request payload.");
        json_decref(v);
        return r;
}

static void write_answer(const char *id, int status, const json_t *headers, const char *body,
                         size_t len, struct buf *ret)
{
        char now[ISO_TIME_LEN + 1];
        struct jw w;

        clock_iso(clock_wall_us(), now);
        jw_init(&w, ret);
        jw_object(&w);
        jw_kstring(&w, "id", id);
        jw_kint(&w, "status", status);
        jw_kvalue(&w, "headers", headers);
        jw_key(&w, "body");
        jw_string_n(&w, body, len);
        jw_kstring(&w, "completedAt", now);
        jw_object_end(&w);
        buf_putc(ret, '\n');
}

int queue_answer_text(const char *id, const char *bytes, size_t len, struct buf *ret,
                      struct err *err)
{
        static const char *const names[] = { "content-type", "etag", "last-modified" };
        struct http1_response head;
        struct http1_refusal why;
        size_t seen = 0;

        if (http1_response_parse(bytes, len, (size_t)64 << 10, &seen, false, &head, &why) !=
            HTTP1_DONE)
                return err_set(err, ERR_PROVIDER, "The API gave no whole answer.");
        json_t *headers = json_object();
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                const struct http1_header *h = http1_find(&head.head, names[i]);

                if (h)
                        json_object_set_new(headers, names[i],
                                            json_stringn(h->value.p, h->value.len));
        }
        write_answer(id, head.status, headers, bytes + head.head.len, len - head.head.len, ret);
        json_decref(headers);
        return 0;
}

void queue_error_text(const char *id, int status, const char *text, struct buf *ret)
{
        CLEAN(buf_done) struct buf body = BUF_INIT;
        json_t *headers = json_pack("{s:s}", "content-type", "application/json");
        struct jw w;

        jw_init(&w, &body);
        jw_object(&w);
        jw_kstring(&w, "error", text);
        jw_object_end(&w);
        write_answer(id, status, headers, buf_str(&body), body.len, ret);
        json_decref(headers);
}
