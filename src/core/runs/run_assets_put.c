/* Brings assets to a place: over the file worker of a box, or as an archive where only commands
 * run. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "codec/shell.h"
#include "core/exec/box_route.h"
#include "core/exec/box_service.h"
#include "core/exec/exec_transfer.h"
#include "core/places/place.h"
#include "core/runs/run_assets.h"
#include "workspace/archive.h"
#include "workspace/sync.h"

#define TRIES      5
#define PAUSE_MS   100
#define COMMAND_MS 300000
#define MARK       ".berth-asset"
#define LOCK       ".berth-lock"
#define NOTHING    "/dev/null" /* there is nothing in it */

struct putting {
        const struct run_asset *a;
        struct op *op;
        struct runtime *rt;
        struct place place;
        int tree_fd, dir_fd; /* the tree, and the directory that it is in */
        const char *const *keep;
};

static void putting_done(struct putting *p)
{
        cleanup_fd(&p->tree_fd);
        cleanup_fd(&p->dir_fd);
}

static int open_dir(const char *path, int *ret, struct err *err)
{
        *ret = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return *ret < 0 ? err_sys(err, ERR_IO, errno, "open %s", path) : 0;
}

static const char *parent_of(const struct run_asset *a, const char *path)
{
        return arena_strndup(a->t->op->arena, path, (size_t)(strrchr(path, '/') - path));
}

/* Over a box */

static int push_once(struct putting *p, struct err *err)
{
        const struct run_asset *a = p->a;
        const char *beside = parent_of(a, a->dir);
        struct sync_options options = {
                .remote_dir = a->dir,
                .remote_cache = arena_printf(p->op->arena, "%s/.berth", beside),
                .preserve = p->keep,
                .silence_ms = p->rt->settings.peer_silence_ms,
        };
        struct sync_progress moved;
        CLEAN(cleanup_fd) int fd = -1;
        int r = box_service_open(p->op, p->rt, p->place.id, BOX_SERVICE_FILES, &fd, err);

        if (r < 0)
                return r;
        return sync_push(p->op, fd, p->tree_fd, NULL, p->dir_fd,
                         arena_printf(p->op->arena, ".%s-baseline", a->key), &options, &moved, err);
}

static int push_to_box(struct putting *p, struct err *err)
{
        int64_t pause = PAUSE_MS;
        int r = 0;

        for (int i = 0; i < TRIES; i++, pause *= 2) {
                err_clear(err);
                r = push_once(p, err);
                if (r != ERR_UNCERTAIN || op_wait_fd(p->op, -1, 0, pause, NULL) < 0)
                        break;
        }
        return r == ERR_UNCERTAIN ? err_wrap(err, ERR_PROVIDER, "the connection was lost") : r;
}

/* By commands */

static int pack_tree(struct putting *p, int archive, struct err *err)
{
        const struct scan_options options = { 0 };
        struct scan *scan = NULL;
        uint64_t files, bytes;
        int fd = fcntl(p->tree_fd, F_DUPFD_CLOEXEC, 3);
        int r = fd < 0 ? err_sys(err, ERR_IO, errno, "open the tree")
                       : scan_open(fd, &options, &scan, err);

        if (r < 0)
                return r;
        r = archive_pack(p->op, p->tree_fd, scan_source(scan), archive, p->dir_fd,
                         arena_printf(p->op->arena, ".%s-baseline", p->a->key), &files, &bytes,
                         err);
        scan_close(scan);
        if (r >= 0 && lseek(archive, 0, SEEK_SET) < 0)
                r = err_sys(err, ERR_IO, errno, "read an archive");
        return r;
}

static void put_beginning(const struct putting *p, struct buf *s)
{
        buf_puts(s, "set -e\numask 077\n");
        runtime_script(s, p->a->dir);
}

static void put_unpacking(const struct putting *p, const char *upload, struct buf *s)
{
        put_beginning(p, s);
        buf_puts(s, "d=");
        shell_quote(s, p->a->dir);
        buf_puts(s, "\na=");
        shell_quote(s, upload);
        buf_puts(s, "\nmkdir -p \"$d\"\nfor f in \"$d\"/* \"$d\"/.*; do case \"${f##*/}\" in .|..");
        for (const char *const *name = p->keep; *name; name++) {
                buf_putc(s, '|');
                shell_quote(s, *name);
        }
        buf_puts(s, ") ;; *) if [ -e \"$f\" ] || [ -L \"$f\" ]; then rm -rf \"$f\"; fi ;; esac; "
                    "done\ntar -xpf \"$a\" -C \"$d\"\nrm -f \"$a\"\n");
}

static int put_by_commands(struct putting *p, const struct kind *kind, struct err *err)
{
        const char *upload = arena_printf(p->op->arena, "%s-upload.tar", p->a->dir);
        CLEAN(cleanup_fd) int archive = -1;
        CLEAN(buf_done) struct buf script = BUF_INIT;
        struct exec_transfer way;
        int r = kind->transfer(p->op, p->rt, &p->a->t->record.lease, &way, err);

        if (r < 0)
                return r;
        archive = openat(p->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (archive < 0)
                return err_sys(err, ERR_IO, errno, "create an archive");
        r = pack_tree(p, archive, err);
        put_beginning(p, &script);
        if (r >= 0)
                r = exec_transfer_run(p->op, &way, buf_str(&script), COMMAND_MS, err);
        if (r >= 0)
                r = exec_transfer_write(p->op, &way, upload, archive, 0600, err);
        if (r < 0)
                return r;
        buf_clear(&script);
        put_unpacking(p, upload, &script);
        return exec_transfer_run(p->op, &way, buf_str(&script), COMMAND_MS, err);
}

/* Choosing the way */

int run_asset_put(const struct run_asset *a, struct err *err)
{
        CLEAN(putting_done)
        struct putting p = { .a = a, .op = a->t->op, .rt = a->t->rt, .tree_fd = -1, .dir_fd = -1 };
        const struct lease *lease = &a->t->record.lease;
        const struct kind *kind;
        struct place would;
        int r = place_load(p.op, p.rt, lease->place_id, &p.place, err);

        if (r >= 0)
                r = box_bring(p.op, p.rt, lease, &p.place, err);
        if (r >= 0)
                r = open_dir(a->tree, &p.tree_fd, err);
        if (r >= 0)
                r = open_dir(parent_of(a, a->tree), &p.dir_fd, err);
        if (r < 0)
                return r;
        p.keep = run_asset_names(a, json_object_get(a->plan, "keep"));
        would = p.place;
        would.has_world = true;
        if (box_route_has_box(p.rt, &would))
                return push_to_box(&p, err);
        kind = kind_of_place(p.rt, &p.place);
        if (kind && kind->transfer)
                return put_by_commands(&p, kind, err);
        return err_set(err, ERR_UNPROCESSABLE,
                       "files cannot be brought there: no supervisor of "
                       "ours runs there");
}

/* Afterwards */

/* Only one script at a time: several runs may share a home. A killed script leaves the lock behind;
 * an old lock does not count, and no script takes as long as that age. */
static const char take_lock[] =
        "if [ ! -w \"$to\" ]; then echo \"$to cannot be written to\" >&2; exit 1; fi\n"
        "l=$to/" LOCK "\ni=0\n"
        "until mkdir \"$l\" 2>/dev/null; do\n"
        "if [ -n \"$(find \"$l\" -prune -mmin +3 2>/dev/null)\" ]; then rmdir \"$l\" || :; fi\n"
        "i=$((i + 1))\n"
        "if [ $i -gt 60 ]; then echo \"somebody holds $l\" >&2; exit 1; fi\n"
        "sleep 1\n"
        "done\n"
        "trap 'rmdir \"$l\" 2>/dev/null || :' EXIT\n"
        "trap 'exit 1' HUP INT TERM\n";

static const char drop_lock[] = "rmdir \"$l\"\ntrap - EXIT HUP INT TERM\n";

/* The mark has a line for each agent that uses the entry. */
static const char copy_each[] =
        "new=$to/.berth-new old=$to/.berth-old\n"
        "rm -rf \"$new\" \"$old\"\n"
        "for f in \"$from\"/* \"$from\"/.[!.]*; do\n"
        "[ -e \"$f\" ] || continue\n"
        "t=$to/${f##*/}\n"
        "if [ -d \"$t\" ] && [ ! -e \"$t/" MARK "\" ]; then continue; fi\n"
        "cp -R \"$f\" \"$new\"\n"
        "if [ -d \"$new\" ]; then\n"
        "{ cat \"$t/" MARK "\" 2>/dev/null || :; echo \"$me\"; } | sort -u >\"$new/" MARK "\"\n"
        "fi\n"
        "if [ -e \"$t\" ] || [ -L \"$t\" ]; then mv \"$t\" \"$old\"; fi\n"
        "mv \"$new\" \"$t\"\n"
        "rm -rf \"$old\"\n"
        "done\n";

static const char remove_withdrawn[] =
        "for m in \"$to\"/*/" MARK " \"$to\"/.[!.]*/" MARK "; do\n"
        "d=${m%/*}\n"
        "if [ -e \"$from/${d##*/}\" ] || ! grep -qxF \"$me\" \"$m\" 2>/dev/null; then continue; fi\n"
        "grep -vxF \"$me\" \"$m\" >\"$m-new\" || :\n"
        "if [ -s \"$m-new\" ]; then mv \"$m-new\" \"$m\"; continue; fi\n"
        "mv \"$d\" \"$old\"\n"
        "rm -rf \"$old\"\n"
        "done\n";

static void put_target(const char *to, struct buf *s)
{
        buf_puts(s, "to=");
        if (strncmp(to, "~/", 2) == 0) {
                buf_puts(s, "${HOME:?}/");
                to += 2;
        }
        shell_quote(s, to);
}

/* Copy each entry of the asset beneath `copyTo`, and remove those that the agent does not have any
 * more. An entry of the same name that the host's user put there stays; only our own are
 * replaced. */
static void put_copying(const struct run_asset *a, const char *from, const char *to, struct buf *s)
{
        put_target(to, s);
        buf_puts(s, "\nfrom=");
        shell_quote(s, from);
        buf_puts(s, "\nme=");
        shell_quote(s, a->t->agent.id);
        buf_puts(s, "\nmkdir -p \"$to\"\n");
        buf_puts(s, take_lock);
        buf_puts(s, copy_each);
        buf_puts(s, remove_withdrawn);
        buf_puts(s, drop_lock);
}

/* Makes no directory that does not exist. */
static void put_removing(const struct run_asset *a, const char *to, struct buf *s)
{
        put_target(to, s);
        buf_puts(s, "\nif [ -d \"$to\" ]; then\n");
        put_copying(a, NOTHING, to, s);
        buf_puts(s, "fi\n");
}

/* A file of a variable of the agent: {"NAME": "value"}, or the value as it is. Where the asset is
 * copied, the file belongs among the copies: its own directory is not read by any program. The
 * value is not in any argument of a process: printf is the shell's own. */
static void put_key_file(const struct run_asset *a, const json_t *part, struct buf *s)
{
        const char *variable = json_get_string(part, "variable");
        const char *to = json_get_string(a->plan, "copyTo");
        const char *dir = to ? to : a->dir;
        bool whole = json_is_true(json_object_get(part, "whole"));

        if (*dir == '/')
                runtime_script(s, dir);
        put_target(dir, s);
        buf_puts(s, "\nf=\"$to\"/");
        shell_quote(s, json_get_string(part, "keyFile"));
        buf_appendf(s, "\nif [ -n \"${%s:-}\" ]; then\n", variable);
        if (!whole)
                buf_appendf(
                        s,
                        "v=$(printf %%s \"$%s\" | sed -e 's/\\\\/\\\\\\\\/g' -e 's/\"/\\\\\"/g')\n",
                        variable);
        buf_puts(s, "mkdir -p \"${f%/*}\"\nrm -f \"$f\"\n");
        if (whole)
                buf_appendf(s, "printf '%%s\\n' \"$%s\" >\"$f\"\n", variable);
        else
                buf_appendf(s, "printf '{\"%s\":\"%%s\"}\\n' \"$v\" >\"$f\"\n", variable);
        buf_puts(s, "fi\n");
}

static void add_lines(struct buf *script, const struct buf *lines)
{
        if (lines->len == 0)
                return;
        if (script->len == 0)
                buf_puts(script, "set -e\numask 077\n");
        buf_append(script, buf_str(lines), lines->len);
}

void run_asset_script_empty(const struct run_asset *a, struct buf *script)
{
        const char *home = json_get_string(a->plan, "home");
        const char *to = json_get_string(a->plan, "copyTo");
        CLEAN(buf_done) struct buf s = BUF_INIT;

        if (home)
                runtime_script(&s, home);
        if (to && strncmp(to, "~/", 2) == 0)
                put_removing(a, to, &s);
        add_lines(script, &s);
}

void run_asset_script(const struct run_asset *a, struct buf *script)
{
        const char *to = json_get_string(a->plan, "copyTo");
        CLEAN(buf_done) struct buf s = BUF_INIT;
        size_t i;
        json_t *part;

        if (to) {
                runtime_script(&s, to);
                put_copying(a, a->dir, to, &s);
        }
        json_array_foreach(json_object_get(a->plan, "from"), i, part)
        {
                if (json_object_get(part, "keyFile"))
                        put_key_file(a, part, &s);
        }
        add_lines(script, &s);
}
