/* Bringing berth-box into a sandbox: by the provider's own file verbs where it has them, else by
 * one command that gets it as its input, and where that fails by commands with pieces that fit an
 * argument, each written under a name of its own, so that any of them may be repeated. Whichever
 * way, it is checked by hash and given its name only when it is whole. The name is made from its
 * content, so a file of that name is the right one. */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/utsname.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "codec/shell.h"
#include "core/exec/exec_internal.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_sync.h"

#define PIECE       ((size_t)90 << 10)
#define PROGRAM_MAX ((size_t)64 << 20)
#define WORD        "berth-put:"
#define HASH_LEN    64
#define TRIES       3
#define FILE_MS     60000 /* for the check of a file that was put there */

/* Where it may be kept, what machine this is, what commands find in their environment. $1: the
 * working directory, $2: the program's name. */
static const char look_script[] =
        "umask 077; found=\n"
        "for d in \"$1/.paperclip-runtime/berth\" /tmp/.berth-box; do\n"
        "  case $d in /*) ;; *) continue;; esac\n"
        "  mkdir -p \"$d\" 2>/dev/null && [ -O \"$d\" ] && [ -w \"$d\" ] || continue\n"
        "  printf '#!/bin/sh\\nexit 0\\n' > \"$d/try.$$\" && chmod 700 \"$d/try.$$\" &&\n"
        "    \"$d/try.$$\" 2>/dev/null && found=$d\n"
        "  rm -f \"$d/try.$$\"; [ -z \"$found\" ] || break\n"
        "done\n"
        "echo \"" WORD "machine $(uname -s) $(uname -m)\"\n"
        "[ -n \"$found\" ] && echo \"" WORD "base $found\"\n"
        "[ -n \"$found\" ] && \"$found/$2\" --version >/dev/null 2>&1 && echo \"" WORD
        "have yes\"\n"
        "for n in PATH HOME USER SHELL LANG TMPDIR; do\n"
        "  eval \"v=\\${$n-}\"; [ -z \"$v\" ] || echo \"" WORD "env $n=$v\"\n"
        "done\n"
        "read -r x && echo \"" WORD "input $x\"; exit 0\n";

/* $1: the piece's path, $2: base64. */
static const char piece_script[] = "umask 077; printf %s \"$2\" | base64 -d > \"$1.new\" && mv -f "
                                   "\"$1.new\" \"$1\" && echo \"" WORD "done yes\"\n";

/* Check the file $t, and give it its name. $1: the program's path, $3: its hash, $4: its size. */
#define FINISH                                                                                           \
        "if command -v sha256sum >/dev/null 2>&1; then h=$(sha256sum < \"$t\"); h=${h%% *}\n"            \
        "elif command -v shasum >/dev/null 2>&1; then h=$(shasum -a 256 < \"$t\"); h=${h%% *}\n"         \
        "else h=$3; fi\n"                                                                                \
        "[ \"$h\" = \"$3\" ] && [ \"$(($(wc -c < \"$t\")))\" = \"$4\" ] || { rm -f \"$t\"; echo \"" WORD \
        "bad hash\"; exit 1; }\n"                                                                        \
        "chmod 700 \"$t\" && mv -f \"$t\" \"$1\" && rm -f \"$1\".part.* &&\n"                            \
        "\"$1\" --version >/dev/null 2>&1 && echo \"" WORD "done yes\"\n"

/* $1: the program's path, $2: how many pieces. */
static const char join_script[] =
        "umask 077; i=0; t=\"$1.$$\"; : > \"$t\" || exit 1\n"
        "while [ $i -lt \"$2\" ]; do cat \"$1.part.$i\" >> \"$t\" || exit 1; i=$((i + 1)); done\n" FINISH;

/* The program is the input, as base64. */
static const char input_script[] =
        "umask 077; t=\"$1.$$\"; base64 -d > \"$t\" || { rm -f \"$t\"; exit 1; }\n" FINISH;

/* The value behind WORD and a key, up to the end of the line; NULL when it was not printed. *at
 * goes on behind it. */
static const char *said(struct arena *arena, const char **at, const char *key)
{
        CLEAN(cleanup_free) char *word = xasprintf(WORD "%s ", key);
        const char *found = strstr(*at, word);
        size_t n;

        if (!found)
                return NULL;
        found += strlen(word);
        n = strcspn(found, "\r\n");
        *at = found + n;
        return arena_strndup(arena, found, n);
}

static const char *said_once(struct arena *arena, const char *printed, const char *key)
{
        return said(arena, &printed, key);
}

static json_t *said_env(struct arena *arena, const char *printed)
{
        json_t *env = json_object();
        const char *line;

        while ((line = said(arena, &printed, "env"))) {
                size_t n = strcspn(line, "=");

                if (line[n] == '=' && json_object_size(env) < 16)
                        json_object_set_new(env, arena_strndup(arena, line, n),
                                            json_string(line + n + 1));
        }
        return env;
}

/* The same command, a few times: one that was lost may be repeated. 0 when it said `done`. */
static int run_sure(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                    const char *script, const char *const *args, struct err *err)
{
        const char *argv[8] = { "-c", script, "sh" }, *printed;
        int64_t status;
        int r = 0;

        for (size_t i = 0; args[i] && i + 4 < ARRAY_LEN(argv); i++)
                argv[i + 3] = args[i];
        for (int i = 0; i < TRIES; i++) {
                err_clear(err);
                r = plugin_box_run(op, rt, l, "sh", argv, NULL, &status, &printed, err);
                if (r >= 0 && said_once(op->arena, printed, "done"))
                        return 0;
                if (r >= 0)
                        r = err_set(err, ERR_PROVIDER,
                                    "writing in the sandbox failed (status %lld)",
                                    (long long)status);
                if (r == ERR_CANCELLED || op_check(op, err) < 0)
                        break;
        }
        return r;
}

static int send_pieces(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                       const char *path, const struct buf *program, struct err *err)
{
        size_t size = sodium_base64_encoded_len(PIECE, sodium_base64_VARIANT_ORIGINAL);
        CLEAN(cleanup_free) char *text = xcalloc(1, size);
        int r = 0;

        for (size_t at = 0, i = 0; r >= 0 && at < program->len; at += PIECE, i++) {
                CLEAN(cleanup_free) char *part = xasprintf("%s.part.%zu", path, i);
                const char *args[] = { part, text, NULL };

                sodium_bin2base64(text, size, (const uint8_t *)program->data + at,
                                  MIN(PIECE, program->len - at), sodium_base64_VARIANT_ORIGINAL);
                r = run_sure(op, rt, l, piece_script, args, err);
        }
        return r;
}

/* What is brought. */
struct program {
        const char *path; /* there */
        struct buf bytes;
        char hash[HASH_LEN + 1];
};

static int bring_in_pieces(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                           const struct program *p, struct err *err)
{
        CLEAN(cleanup_free) char *pieces = xasprintf("%zu", (p->bytes.len + PIECE - 1) / PIECE);
        CLEAN(cleanup_free) char *size = xasprintf("%zu", p->bytes.len);
        const char *args[] = { p->path, pieces, p->hash, size, NULL };
        int r = send_pieces(op, rt, l, p->path, &p->bytes, err);

        return r < 0 ? r : run_sure(op, rt, l, join_script, args, err);
}

static int bring_as_input(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                          const struct program *p, struct err *err)
{
        size_t room = sodium_base64_encoded_len(p->bytes.len, sodium_base64_VARIANT_ORIGINAL);
        CLEAN(cleanup_free) char *text = xcalloc(1, room);
        CLEAN(cleanup_free) char *size = xasprintf("%zu", p->bytes.len);
        const char *argv[] = { "-c", input_script, "sh", p->path, "1", p->hash, size, NULL };
        const char *printed;
        int64_t status;
        int r;

        sodium_bin2base64(text, room, (const uint8_t *)p->bytes.data, p->bytes.len,
                          sodium_base64_VARIANT_ORIGINAL);
        r = plugin_box_run(op, rt, l, "sh", argv, text, &status, &printed, err);
        if (r >= 0 && !said_once(op->arena, printed, "done"))
                r = err_set(err, ERR_PROVIDER, "the input of a command ended with status %lld",
                            (long long)status);
        return r;
}

/* As a file, which a command then checks and gives its name: one call. */
static int bring_as_file(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                         const char *base, const struct program *p, struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT;
        CLEAN(cleanup_fd) int fd = -1;
        const char *upload = arena_printf(op->arena, "%s.%.8s", p->path, uuid_new().s);
        struct plugin_sync_file file = {
                .here = "box", .there = upload, .has_mode = true, .mode = 0700
        };
        struct plugin_sync_command command = { .cwd = base, .timeout_ms = FILE_MS };
        struct plugin_sync_operation o = {
                .files = &file, .n_files = 1, .commands = &command, .n_commands = 1
        };
        struct plugin_sync sync;
        int r = plugin_sync_begin(op, rt, l, &sync, err);

        if (r >= 0)
                r = plugin_sync_open(&sync, file.here, O_WRONLY | O_CREAT, &fd, err);
        if (r >= 0)
                r = fd_write_all(fd, p->bytes.data, p->bytes.len, err);
        buf_puts(&script, "umask 077; set -- ");
        shell_quote(&script, p->path);
        buf_appendf(&script, " 1 %s %zu; t=", p->hash, p->bytes.len);
        shell_quote(&script, upload);
        buf_puts(&script, "\n" FINISH);
        command.command = buf_str(&script);
        FAULT("plugin_box.sync.before");
        if (r >= 0)
                r = plugin_sync_in(op, rt, &sync, base, &o, 1, err);
        FAULT("plugin_box.sync.after");
        plugin_sync_end(op, &sync);
        return r;
}

/* The way with the fewest calls that works. A provider may lack what it says it has, and may not
 * give a command so much input. */
static int bring(struct op *op, struct runtime *rt, const struct plugin_lease *l, const char *base,
                 const struct program *p, struct err *err)
{
        int r = plugin_sync_is_native(rt, l) ? bring_as_file(op, rt, l, base, p, err)
                                             : bring_as_input(op, rt, l, p, err);

        if (r >= 0 || op_check(op, NULL) < 0)
                return r;
        log_info("berth-box goes into a sandbox in pieces", LOG_S("lease", l->lease->id),
                 LOG_S("reason", err ? err->msg : ""));
        err_clear(err);
        return bring_in_pieces(op, rt, l, p, err);
}

static void program_done(struct program *p)
{
        buf_done(&p->bytes);
}

static int read_program(const char *path, struct buf *ret, char hash[HASH_LEN + 1], struct err *err)
{
        uint8_t sum[crypto_hash_sha256_BYTES];
        int r = file_read_at(AT_FDCWD, path, PROGRAM_MAX, ret, err);

        if (r < 0)
                return r;
        crypto_hash_sha256(sum, (const uint8_t *)buf_str(ret), ret->len);
        sodium_bin2hex(hash, HASH_LEN + 1, sum, sizeof(sum));
        return 0;
}

static int check_machine(const char *machine, struct err *err)
{
        CLEAN(cleanup_free) char *ours = NULL;
        struct utsname name;

        if (!machine)
                return err_set(err, ERR_PROVIDER, "the sandbox has no shell that answers");
        (void)uname(&name);
        ours = xasprintf("%s %s", name.sysname, name.machine);
        if (!streq(machine, ours))
                return err_set(err, ERR_PROVIDER, "the sandbox is %.60s, and berth-box is for %s",
                               machine, ours);
        return 0;
}

int plugin_box_put(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                   json_t **ret_box, struct err *err)
{
        CLEAN(program_done) struct program program = { .bytes.max = PROGRAM_MAX };
        const char *cwd = json_get_string(l->metadata, "remoteCwd");
        char name[64];
        const char *printed, *base;
        int64_t status;
        int r = read_program(rt->hub->config.box_program, &program.bytes, program.hash, err);

        if (r < 0)
                return r;
        snprintf(name, sizeof(name), "berth-box-%.16s", program.hash);
        r = plugin_box_run(op, rt, l, "sh",
                           (const char *[]){ "-c", look_script, "sh", cwd ? cwd : "", name, NULL },
                           "yes\n", &status, &printed, err);
        if (r >= 0)
                r = check_machine(said_once(op->arena, printed, "machine"), err);
        if (r < 0)
                return r;
        base = said_once(op->arena, printed, "base");
        if (!base || base[0] != '/')
                return err_set(err, ERR_PROVIDER, "no directory to write and run a program in");
        /* The box's input may hold secrets, which must not be in arguments. */
        if (!said_once(op->arena, printed, "input"))
                return err_set(err, ERR_PROVIDER, "the provider gives commands no input");
        program.path = arena_printf(op->arena, "%s/%s", base, name);
        if (!said_once(op->arena, printed, "have"))
                r = bring(op, rt, l, base, &program, err);
        if (r >= 0)
                *ret_box = json_pack("{s:s, s:s, s:o}", "base", base, "program", program.path,
                                     "env", said_env(op->arena, printed));
        return r;
}
