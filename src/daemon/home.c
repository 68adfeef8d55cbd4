/* Whether the database is at home in this data directory, and what happens when it is not. */
#include "daemon/home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "store/home.h"

#define NODE_FILE   "node-id"
#define PLUGIN_NODE "plugins/node-id" /* core/plugins/plugin_registry.c */
#define LEFT_TEXT                                                                                  \
        "Left to the instance that had it under way: this record is a copy with an identity of its own."

/* -- What is here ------------------------------------------------------------------------------ */

static int read_boot_id(char *ret, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct uuid id;
        int r = file_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &text, err);

        if (r < 0)
                return r;
        if (text.len > UUID_LEN)
                text.data[UUID_LEN] = '\0';
        if (!uuid_parse(buf_str(&text), &id))
                return err_set(err, ERR_INTERNAL, "the kernel's boot id is no UUID");
        memcpy(ret, id.s, sizeof(id.s));
        return 0;
}

/* Where it is from, and a digest, since the id itself is not to be told to others. "" when there is
 * none: in a container the file is often missing or empty. */
static const char *machine_digest(const char *given, struct arena *arena)
{
        static const char salt[] = "berth database home";
        unsigned char digest[crypto_generichash_BYTES_MIN];
        char hex[2 * sizeof(digest) + 1];
        CLEAN(buf_done) struct buf file = BUF_INIT;
        const char *text = given;

        if (!text && file_read_at(AT_FDCWD, "/etc/machine-id", 256, &file, NULL) >= 0)
                text = buf_str(&file);
        if (!text || strspn(text, " \t\r\n") == strlen(text) || str_starts(text, "uninitialized"))
                return "";
        (void)crypto_generichash(digest, sizeof(digest), (const unsigned char *)text,
                                 strcspn(text, "\r\n"), (const unsigned char *)salt,
                                 sizeof(salt) - 1);
        return arena_printf(arena, "%s:%s", given ? "set" : "own",
                            sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest)));
}

/* Everything but the node. */
static int read_here(const struct home_request *q, const struct node *node, struct arena *arena,
                     struct home *ret, struct err *err)
{
        struct stat st;

        if (stat(q->data_dir, &st) < 0)
                return err_sys(err, ERR_IO, errno, "data directory %s", q->data_dir);
        *ret = (struct home){
                .machine = machine_digest(q->machine_id, arena),
                .boot_id = node->boot_id,
                .device = (int64_t)st.st_dev,
                .inode = (int64_t)st.st_ino,
        };
        return 0;
}

/* The node that the directory's own file names. 1, or 0 when there is none. */
static int read_node_file(int dir, const char *path, struct uuid *ret, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int r = file_read_at(dir, NODE_FILE, 64, &text, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r >= 0 && !uuid_parse(buf_str(&text), ret))
                return err_set(err, ERR_CORRUPT,
                               "%s/%s does not hold a node id; remove it, the database knows which "
                               "node it is of",
                               path, NODE_FILE);
        return r < 0 ? r : 1;
}

/* -- An instance without its database ---------------------------------------------------------- */

/* Whether the directory has entries, which only a daemon that had a database has made. One that
 * cannot be read may have entries. */
static bool has_entries(const char *dir, const char *name, struct arena *arena)
{
        DIR *d = opendir(arena_printf(arena, "%s/%s", dir, name));
        struct dirent *entry;
        bool found = !d && errno != ENOENT;

        while (d && !found && (entry = readdir(d)))
                found = uuid_is_valid(entry->d_name);
        if (d)
                closedir(d);
        return found;
}

static const char *find_trace(const char *data_dir, const char *path, struct arena *arena)
{
        static const char *const dirs[] = { "output",    "boxes",   "sandboxes",
                                            "snapshots", "salvage", "workspaces" };
        const char *wal = arena_printf(arena, "%s-wal", path);
        struct stat st;

        if (stat(wal, &st) == 0 ? st.st_size > 0 : errno != ENOENT)
                return wal;
        if (file_life_at(AT_FDCWD, arena_printf(arena, "%s/" NODE_FILE, data_dir)) != LIFE_NO)
                return NODE_FILE;
        for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
                if (has_entries(data_dir, dirs[i], arena))
                        return dirs[i];
        return NULL;
}

/* -- Whether it is at home --------------------------------------------------------------------- */

struct settling {
        struct home known, here, to;
        bool is_known, has_work;
        const char *file_id; /* of the directory's node; NULL: none */
        bool leave_work;
};

/* Why it is not; NULL: it is. A database from before there were homes belongs to the node that the
 * directory names, or to no node. */
static const char *why_not_at_home(const struct settling *s)
{
        const struct home *a = &s->known, *b = &s->here;

        if (!s->is_known)
                return s->has_work && !s->file_id ? "the directory does not say which node it is of"
                                                  : NULL;
        if (s->file_id && !streq(s->file_id, a->node_id))
                return "the directory is another node's";
        if (*a->machine && strncmp(a->machine, b->machine, 4) == 0 &&
            !streq(a->machine, b->machine))
                return "it was used on another machine";
        if (a->inode != b->inode)
                return "it was used in another directory";
        if (streq(a->boot_id, b->boot_id) && a->device != b->device)
                return "it was used on another file system";
        return NULL;
}

static bool is_same_home(const struct home *a, const struct home *b)
{
        return streq(a->node_id, b->node_id) && streq(a->machine, b->machine) &&
               streq(a->boot_id, b->boot_id) && a->device == b->device && a->inode == b->inode;
}

static int write_home(struct db *db, void *arg, struct err *err)
{
        struct settling *s = arg;
        int r = 0;

        if (s->leave_work)
                r = home_leave_work(db, s->to.node_id, LEFT_TEXT, clock_now_us(), err);
        return r < 0 ? r : home_set(db, &s->to, err);
}

/* A crash in between leaves the directory without a node id, never with a wrong one. The plugins in
 * the directory came with it; a plugin directory outside may be the other's. */
int home_forget_node(const char *data_dir, struct err *err)
{
        static const char *const files[] = { NODE_FILE, PLUGIN_NODE };
        CLEAN(cleanup_fd) int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open data directory %s", data_dir);
        for (size_t i = 0; i < ARRAY_LEN(files); i++)
                if (unlinkat(dir, files[i], 0) < 0 && errno != ENOENT && errno != ENOTDIR)
                        return err_sys(err, ERR_IO, errno, "remove %s/%s", data_dir, files[i]);
        return 0;
}

static int take_identity(struct op *op, struct store *store, struct settling *s, bool is_new,
                         struct err *err)
{
        s->to = s->here;
        s->leave_work = is_new;
        s->to.node_id = !is_new && s->file_id ? s->file_id : arena_strdup(op->arena, uuid_new().s);
        s->to.taken_at = clock_now_us();
        return store_write(op, store, write_home, s, err);
}

int home_take_new(struct op *op, struct store *store, const struct home_request *q, struct err *err)
{
        struct settling s = { 0 };
        struct node node;
        int r = read_boot_id(node.boot_id, err);

        if (r >= 0)
                r = read_here(q, &node, op->arena, &s.here, err);
        return r < 0 ? r : take_identity(op, store, &s, true, err);
}

static int settle_home(struct op *op, struct store *store, const struct home_request *q,
                       struct settling *s, bool *ret_is_new, struct err *err)
{
        CLEAN(err_done) struct err why_not = { 0 };
        const char *why = why_not_at_home(s);
        int r = 0;

        if (why && !q->new_identity)
                return err_set(
                        err, ERR_CONFLICT,
                        "the database in %s is not at home here: %s. It is a copy, or was moved; "
                        "the instance that it came from may be using what it records. To start it "
                        "as an instance of its own, which leaves all of that alone, run `berth "
                        "serve --new-identity` once (see \"Copies and moves\" in docs/operating.md)",
                        q->data_dir, why);
        if (q->new_identity && !why)
                log_info("--new-identity is not needed: the database is at home",
                         LOG_S("data", q->data_dir));
        *ret_is_new = why != NULL;
        if (why)
                r = home_forget_node(q->data_dir, err);
        if (why || !s->is_known)
                return r < 0 ? r : take_identity(op, store, s, why != NULL, err);
        s->to = s->here;
        s->to.node_id = s->known.node_id;
        s->to.taken_at = s->known.taken_at;
        if (!*s->to.machine)
                s->to.machine = s->known.machine;
        /* Only the boot, the device or the machine's id is another. On a full disk the daemon still
         * starts; the next start compares with the older boot. */
        if (!is_same_home(&s->to, &s->known) && store_write(op, store, write_home, s, &why_not) < 0)
                log_warn("could not record where the database is", LOG_S("error", why_not.msg));
        return 0;
}

/* A database on a server that knows of no home is new, or was copied away. */
static int check_new(const struct home_request *q, struct arena *arena, struct err *err)
{
        const char *file = arena_printf(arena, "%s/berth.db", q->data_dir);
        const char *trace = file_life_at(AT_FDCWD, file) != LIFE_NO
                                    ? "berth.db"
                                    : find_trace(q->data_dir, file, arena);

        return trace ? err_set(err, ERR_CONFLICT,
                               "the database on the server is new or was copied away, and there was "
                               "an instance in %s (%s): nothing was started and nothing changed. "
                               "Bring its record over with `berth db copy` (docs/postgresql.md), or "
                               "choose another directory with --data",
                               q->data_dir, trace)
                     : 0;
}

int home_settle(struct op *op, struct store *store, const struct home_request *q, struct node *ret,
                bool *ret_is_new, struct err *err)
{
        CLEAN(cleanup_fd) int dir = open(q->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CLEAN(store_read_end) struct db *db = NULL;
        struct settling s = { 0 };
        struct uuid file;
        int r = dir < 0 ? err_sys(err, ERR_IO, errno, "open data directory %s", q->data_dir)
                        : read_boot_id(ret->boot_id, err);

        *ret_is_new = false;
        if (r >= 0)
                r = read_here(q, ret, op->arena, &s.here, err);
        if (r >= 0)
                r = read_node_file(dir, q->data_dir, &file, err);
        if (r > 0)
                s.file_id = file.s;
        if (r >= 0)
                r = store_read_begin(op, store, &db, err);
        if (r >= 0)
                r = home_get(db, op->arena, &s.known, err);
        s.is_known = r >= 0;
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = 0;
        }
        if (r >= 0)
                r = home_has_work(db, &s.has_work, err);
        store_read_end(&db);
        if (r >= 0 && q->is_on_server && !s.is_known)
                r = check_new(q, op->arena, err);
        if (r >= 0)
                r = settle_home(op, store, q, &s, ret_is_new, err);
        if (r < 0)
                return r;
        (void)uuid_parse(s.to.node_id, &ret->id);
        ret->instance = uuid_new();
        if (s.file_id && streq(s.file_id, s.to.node_id))
                return 0;
        return file_write_at(dir, NODE_FILE, ret->id.s, UUID_LEN, 0600, err);
}

int home_check_traces(const char *data_dir, const char *path, struct err *err)
{
        struct arena arena;
        struct stat st;
        bool is_missing = stat(path, &st) < 0;
        int r = 0;

        if (is_missing && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "%s", path);
        if (!is_missing && st.st_size > 0)
                return 0;
        arena_init(&arena);
        const char *trace = find_trace(data_dir, path, &arena);
        if (trace)
                r = err_set(err, ERR_CONFLICT,
                            "%s is %s, but there was an instance here (%s): nothing was started "
                            "and nothing changed. Put the file back, or a backup with `berth db "
                            "restore`; to begin anew, choose another directory with --data",
                            path, is_missing ? "missing" : "empty", trace);
        arena_done(&arena);
        return r;
}
