/* Layers of images: a table of archives, hostile ones first, and what is there afterwards. */
#define _GNU_SOURCE
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <zlib.h>
#include <zstd.h>

#include "base/fd.h"
#include "codec/tar.h"
#include "image/digest.h"
#include "image/layer.h"

/* scratch/outside has what must not change, scratch/tree is unpacked into. */
struct world {
        char path[SCRATCH_PATH_MAX];
        int root_fd, outside_fd, tree_fd;
        struct arena arena;
        struct op op;
};

static int set_up(void **state)
{
        struct world *w = xcalloc(1, sizeof(*w));

        assert_true(sodium_init() >= 0);
        make_scratch(w->path);
        w->root_fd = open(w->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(w->root_fd, "outside", 0755), 0);
        assert_int_equal(mkdirat(w->root_fd, "tree", 0755), 0);
        w->outside_fd = openat(w->root_fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        w->tree_fd = openat(w->root_fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(file_write_at(w->outside_fd, "secret", "mine", 4, 0600, NULL), 0);
        arena_init(&w->arena);
        w->op = (struct op){ .arena = &w->arena, .deadline_ms = OP_NO_DEADLINE };
        *state = w;
        return 0;
}

static int tear_down(void **state)
{
        struct world *w = *state;
        struct err err = { 0 };

        close(w->outside_fd);
        close(w->tree_fd);
        close(w->root_fd);
        assert_int_equal(layer_remove(&w->op, AT_FDCWD, w->path, &err), 0);
        assert_int_not_equal(access(w->path, F_OK), 0);
        arena_done(&w->arena);
        free(w);
        return 0;
}

static void new_tree(struct world *w)
{
        close(w->tree_fd);
        assert_int_equal(layer_remove(&w->op, w->root_fd, "tree", NULL), 0);
        assert_int_equal(mkdirat(w->root_fd, "tree", 0755), 0);
        w->tree_fd = openat(w->root_fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Archives */

struct entry {
        char type;
        const char *name, *target, *content;
        unsigned mode;
        uint32_t uid;
};

static void put_number(uint8_t *at, size_t size, uint64_t value)
{
        for (size_t i = size - 1; i-- > 0; value >>= 3)
                at[i] = (uint8_t)('0' + (value & 7));
        at[size - 1] = '\0';
}

static void put_sum(uint8_t h[TAR_BLOCK])
{
        unsigned sum = 0;

        memset(h + 148, ' ', 8);
        for (int i = 0; i < TAR_BLOCK; i++)
                sum += h[i];
        snprintf((char *)h + 148, 8, "%06o", sum);
}

static void add(struct buf *b, const struct entry *e)
{
        uint8_t h[TAR_BLOCK] = { 0 };
        size_t size = e->content ? strlen(e->content) : 0;

        memcpy(h, e->name, strnlen(e->name, 100));
        put_number(h + 100, 8, e->mode ? e->mode : e->type == '5' ? 0755 : 0644);
        put_number(h + 108, 8, e->uid);
        put_number(h + 116, 8, e->uid);
        put_number(h + 124, 12, size);
        put_number(h + 136, 12, 1000000000);
        h[156] = (uint8_t)e->type;
        if (e->target)
                memcpy(h + 157, e->target, strnlen(e->target, 100));
        memcpy(h + 257, (const char[8]){ "ustar" }, 8);
        put_sum(h);
        buf_append(b, h, sizeof(h));
        buf_append(b, e->content ? e->content : "", size);
        tar_pad(b, size);
}

static int file_of(struct world *w, const struct buf *b)
{
        int fd = openat(w->root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        assert_int_equal(fd_write_all(fd, buf_str(b), b->len, NULL), 0);
        return fd;
}

static struct layer_spec spec_of(struct world *w, enum layer_form form)
{
        return (struct layer_spec){ .media = IMAGE_MEDIA_TAR,
                                    .dir_fd = w->tree_fd,
                                    .form = form,
                                    .owners = geteuid() ? LAYER_OWNERS_CALLER : LAYER_OWNERS_KEPT };
}

static int unpack(struct world *w, const struct buf *b, struct layer_spec spec,
                  struct layer_result *ret, struct err *err)
{
        CLEAN(cleanup_fd) int fd = file_of(w, b);

        spec.from = (struct layer_source){ .fd = fd, .size = b->len };
        return layer_unpack(&w->op, &spec, ret, err);
}

/* The tree as one line: "d/ d/f=text l->target w! p|"; an opaque directory has a star behind its
 * slash. */

static int by_name(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static void list(struct buf *out, int at, const char *prefix)
{
        struct dirent **found;
        int n = scandirat(at, ".", &found, NULL, by_name);

        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
                char text[256] = "", path[512];
                struct stat st;

                if (found[i]->d_name[0] == '.' && strlen(found[i]->d_name) <= 2 &&
                    (found[i]->d_name[1] == '\0' || found[i]->d_name[1] == '.')) {
                        free(found[i]);
                        continue;
                }
                assert_int_equal(fstatat(at, found[i]->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
                snprintf(path, sizeof(path), "%s%s/", prefix, found[i]->d_name);
                buf_appendf(out, "%s%s%s", out->len ? " " : "", prefix, found[i]->d_name);
                if (S_ISDIR(st.st_mode)) {
                        CLEAN(cleanup_fd)
                        int fd = openat(at, found[i]->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

                        buf_puts(out,
                                 fgetxattr(fd, "user.overlay.opaque", text, 8) == 1 ? "/*" : "/");
                        list(out, fd, path);
                } else if (S_ISLNK(st.st_mode)) {
                        assert_true(readlinkat(at, found[i]->d_name, text, 255) > 0);
                        buf_appendf(out, "->%s", text);
                } else if (S_ISREG(st.st_mode)) {
                        CLEAN(cleanup_fd) int fd = openat(at, found[i]->d_name, O_RDONLY);

                        assert_true(read(fd, text, 255) >= 0);
                        buf_appendf(out, "=%s", text);
                } else {
                        buf_puts(out, S_ISCHR(st.st_mode) && st.st_rdev == 0 ? "!"
                                      : S_ISFIFO(st.st_mode)                 ? "|"
                                                                             : "?");
                }
                free(found[i]);
        }
        free(found);
}

static void assert_tree(struct world *w, const char *expected)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        list(&b, w->tree_fd, "");
        assert_string_equal(buf_str(&b), expected);
}

static void assert_outside_untouched(struct world *w)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct stat st;

        list(&b, w->outside_fd, "");
        assert_string_equal(buf_str(&b), "secret=mine");
        assert_int_equal(fstatat(w->outside_fd, "secret", &st, 0), 0);
        assert_int_equal(st.st_nlink, 1);
        assert_int_equal(st.st_mode & 07777, 0600);
}

#define DIR(n)                                                                                     \
        {                                                                                          \
                '5', n, NULL, NULL, 0, 0                                                           \
        }
#define FILE_(n, c)                                                                                \
        {                                                                                          \
                '0', n, NULL, c, 0, 0                                                              \
        }
#define LINK(n, t)                                                                                 \
        {                                                                                          \
                '2', n, t, NULL, 0777, 0                                                           \
        }
#define HARD(n, t)                                                                                 \
        {                                                                                          \
                '1', n, t, NULL, 0, 0                                                              \
        }
#define WH(n)                                                                                      \
        {                                                                                          \
                '0', n, NULL, NULL, 0, 0                                                           \
        }
#define MAX_ENTRIES 8

static const struct hostile {
        const char *what;
        struct entry entries[MAX_ENTRIES];
        int code; /* 0: accepted, with this tree */
        const char *says;
} table[] = {
        { "climbs", { FILE_("../outside/new", "x") }, ERR_INVALID, "a name" },
        { "climbs in the middle", { FILE_("a/../../outside/new", "x") }, ERR_INVALID, "a name" },
        { "a directory climbs", { DIR("..") }, ERR_INVALID, "a name" },
        { "absolute is relative", { FILE_("/f", "x") }, 0, "f=x" },
        { "dots and slashes", { FILE_(".//a/b", "x"), DIR("./") }, 0, "a/ a/b=x" },
        { "an empty part", { FILE_("a//b", "x") }, ERR_INVALID, "a name" },
        { "through a link out",
          { LINK("l", "../outside"), FILE_("l/new", "x") },
          ERR_INVALID,
          "goes through a link" },
        { "through an absolute link",
          { LINK("l", "/tmp"), DIR("l/new") },
          ERR_INVALID,
          "goes through a link" },
        { "through chained links",
          { LINK("a", "."), LINK("b", "a/.."), FILE_("b/outside/new", "x") },
          ERR_INVALID,
          "goes through a link" },
        { "a link in the middle",
          { DIR("d"), LINK("d/l", "../../outside"), FILE_("d/l/secret", "x") },
          ERR_INVALID,
          "goes through a link" },
        { "written through a link", { LINK("f", "../outside/secret"), FILE_("f", "x") }, 0, "f=x" },
        { "a directory becomes a link, and is used",
          { DIR("d"), FILE_("d/f", "x"), LINK("d", "../outside"), FILE_("d/secret", "x") },
          ERR_INVALID,
          "goes through a link" },
        { "a link becomes a directory",
          { LINK("d", "../outside"), DIR("d"), FILE_("d/secret", "x") },
          0,
          "d/ d/secret=x" },
        { "a directory becomes a file, and a directory again",
          { FILE_("d/f", "x"), FILE_("d", "y"), DIR("d"), FILE_("d/g", "z") },
          0,
          "d/ d/g=z" },
        { "beneath a file",
          { FILE_("f", "x"), FILE_("f/g", "x") },
          ERR_INVALID,
          "not a directory" },
        { "hard link out", { HARD("h", "../outside/secret") }, ERR_INVALID, "a name" },
        { "hard link through a link",
          { LINK("l", "../outside"), HARD("h", "l/secret") },
          ERR_INVALID,
          "is not in the layer" },
        { "hard link to a link, then written",
          { LINK("l", "../outside/secret"), HARD("h", "l"), FILE_("h", "x") },
          0,
          "h=x l->../outside/secret" },
        { "hard link to an absolute path",
          { HARD("h", "/etc/passwd") },
          ERR_INVALID,
          "is not in the layer" },
        { "hard link to a directory", { DIR("d"), HARD("h", "d") }, ERR_INVALID, "a directory" },
        { "hard link to itself", { HARD("h", "h") }, ERR_INVALID, "itself" },
        { "hard link", { FILE_("f", "x"), HARD("d/h", "f") }, 0, "d/ d/h=x f=x" },
        { "the root as a file", { FILE_("./", "x") }, ERR_INVALID, "the root" },
        { "a directory of the oldest kind", { { '0', "d/", NULL, NULL, 0755, 0 } }, 0, "d/" },
        { "the root as a link",
          { LINK(".", "../outside"), FILE_("secret", "x") },
          ERR_INVALID,
          "the root" },
        { "devices are left out",
          { { '3', "null", NULL, NULL, 0666, 0 },
            { '4', "disk", NULL, NULL, 0666, 0 },
            { '6', "p", NULL, NULL, 0644, 0 } },
          0,
          "p|" },
        { "an unknown kind", { { 'Z', "z", NULL, NULL, 0, 0 } }, ERR_INVALID, "unknown kind" },
        { "whiteout that climbs", { WH("d/.wh...") }, ERR_INVALID, "names no file" },
        { "whiteout of the directory", { WH("d/.wh..") }, ERR_INVALID, "names no file" },
        { "whiteout of nothing", { WH(".wh.") }, ERR_INVALID, "names no file" },
        { "whiteout as a directory", { FILE_(".wh.d/f", "x") }, ERR_INVALID, "as a directory" },
        { "whiteout through a link",
          { LINK("l", "../outside"), WH("l/.wh.secret") },
          0,
          "l->../outside" },
        { "opaque through a link",
          { LINK("l", "../outside"), WH("l/.wh..wh..opq") },
          0,
          "l->../outside" },
        { "whiteout beneath a file", { FILE_("f", "x"), WH("f/.wh.y") }, 0, "f=x" },
        { "hard link to a whiteout",
          { WH(".wh.x"), HARD("h", "x") },
          ERR_INVALID,
          "is not in the layer" },
        { "what aufs keeps", { WH(".wh..wh.plnk"), FILE_(".wh..wh.orph/f", "x") }, 0, "" },
        { "whiteouts", { WH("d/.wh.x"), WH(".wh.y") }, 0, "d/ d/x! y!" },
        { "opaque", { DIR("d"), WH("d/.wh..wh..opq"), FILE_("d/f", "x") }, 0, "d/* d/f=x" },
        { "hidden and made again",
          { WH(".wh.f"), FILE_("f", "x"), WH(".wh.d"), DIR("d"), FILE_("d/g", "y") },
          0,
          "d/* d/g=y f=x" },
        { "made and hidden below",
          { FILE_("f", "x"), WH(".wh.f"), FILE_("d/g", "y"), WH(".wh.d") },
          0,
          "d/* d/g=y f=x" },
        { "beneath what is hidden", { WH(".wh.d"), FILE_("d/g", "y") }, 0, "d/* d/g=y" },
        { "an opaque root", { WH(".wh..wh..opq") }, ERR_INVALID, "hides all layers" },
        { "a file becomes a directory", { FILE_("a", "x"), DIR("a") }, 0, "a/" },
};

static void pack(struct buf *b, const struct entry *entries)
{
        for (size_t i = 0; i < MAX_ENTRIES && entries[i].type; i++)
                add(b, &entries[i]);
        tar_end(b);
}

static void test_hostile(void **state)
{
        struct world *w = *state;

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                CLEAN(err_done) struct err err = { 0 };
                struct layer_result result;

                new_tree(w);
                pack(&b, table[i].entries);
                int r = unpack(w, &b, spec_of(w, LAYER_OVERLAY), &result, &err);

                if (r != table[i].code || (r < 0 && !strstr(err.msg, table[i].says)))
                        fail_msg("%s: %d %s", table[i].what, r, err.msg);
                if (r >= 0)
                        assert_tree(w, table[i].says);
                assert_outside_untouched(w);
        }
}

/* What several layers are together, and what the last one does to the ones below it. */
static const struct {
        const char *what;
        struct entry lower[MAX_ENTRIES], upper[MAX_ENTRIES];
        const char *tree;
} flat[] = {
        { "whiteouts remove",
          { FILE_("d/x", "1"), FILE_("d/y", "1"), FILE_("z/z", "1") },
          { WH("d/.wh.x"), WH(".wh.z"), WH(".wh.nothing") },
          "d/ d/y=1" },
        { "opaque after its content",
          { FILE_("d/x", "1"), FILE_("d/e/old", "1"), LINK("d/l", "../../outside") },
          { FILE_("d/e/new", "2"), WH("d/.wh..wh..opq") },
          "d/ d/e/ d/e/new=2" },
        { "opaque before its content",
          { FILE_("d/x", "1"), FILE_("d/e/old", "1") },
          { WH("d/.wh..wh..opq"), FILE_("d/e/new", "2") },
          "d/ d/e/ d/e/new=2" },
        { "the root is opaque",
          { FILE_("x", "1"), FILE_("d/e", "1") },
          { FILE_("d/f", "2"), WH(".wh..wh..opq") },
          "d/ d/f=2" },
        { "what the layer has is not hidden",
          { FILE_("f", "1"), FILE_("d/x", "1") },
          { FILE_("f", "2"), WH(".wh.f"), FILE_("d/y", "2"), WH(".wh.d") },
          "d/ d/y=2 f=2" },
        { "a link below becomes a directory",
          { LINK("d", "../outside") },
          { FILE_("d/secret", "2"), WH("d/.wh.secret") },
          "d/ d/secret=2" },
        { "whiteout of a link below", { LINK("d", "../outside") }, { WH(".wh.d") }, "" },
        { "a directory below becomes a file",
          { FILE_("d/x/y", "1") },
          {
                  FILE_("d", "2"),
          },
          "d=2" },
        { "a file below is not written into",
          { FILE_("f", "1"), HARD("g", "f") },
          { FILE_("f", "2") },
          "f=2 g=1" },
        { "a closed directory below",
          { { '5', "d", NULL, NULL, 0500, 0 }, FILE_("d/x", "1") },
          { FILE_("d/y", "2"), WH("d/.wh.x") },
          "d/ d/y=2" },
};

static void test_flat(void **state)
{
        struct world *w = *state;

        for (size_t i = 0; i < ARRAY_LEN(flat); i++) {
                CLEAN(buf_done) struct buf lower = BUF_INIT, upper = BUF_INIT;
                CLEAN(err_done) struct err err = { 0 };
                struct layer_result result;

                new_tree(w);
                pack(&lower, flat[i].lower);
                pack(&upper, flat[i].upper);
                if (unpack(w, &lower, spec_of(w, LAYER_FLAT), &result, &err) < 0 ||
                    unpack(w, &upper, spec_of(w, LAYER_FLAT), &result, &err) < 0)
                        fail_msg("%s: %s", flat[i].what, err.msg);
                assert_tree(w, flat[i].tree);
                assert_outside_untouched(w);
        }
        /* What is in the closed one changed; it looks as before. */
        struct stat st;

        assert_int_equal(fstatat(w->tree_fd, "d", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0500);
        assert_int_equal(st.st_mtime, 1000000000);
}

static void test_modes_owners_times(void **state)
{
        struct world *w = *state;
        const struct entry entries[] = { { '5', "./", NULL, NULL, 0751, 3 },
                                         { '5', "d", NULL, NULL, 0500, 7 },
                                         { '0', "d/su", NULL, "x", 04755, 7 },
                                         { '5', "t", NULL, NULL, 01777, 0 },
                                         { '2', "l", "x", NULL, 0777, 9 } };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct layer_result result;
        struct stat st;

        for (size_t i = 0; i < ARRAY_LEN(entries); i++)
                add(&b, &entries[i]);
        for (int keep = 0; keep < 2; keep++) {
                struct layer_spec spec;
                bool kept;

                new_tree(w);
                spec = spec_of(w, LAYER_OVERLAY);
                spec.first_id = 100000;
                spec.keep_setid = keep;
                kept = spec.owners == LAYER_OWNERS_KEPT;
                assert_int_equal(unpack(w, &b, spec, &result, NULL), 0);
                assert_int_equal(result.setids, keep ? 0 : 1);
                assert_int_equal(fstat(w->tree_fd, &st), 0);
                assert_int_equal(st.st_mode & 07777, 0751);
                assert_int_equal(fstatat(w->tree_fd, "d", &st, 0), 0);
                assert_int_equal(st.st_mode & 07777, 0500);
                assert_int_equal(st.st_uid, kept ? 100007 : geteuid());
                assert_int_equal(st.st_mtime, 1000000000);
                assert_int_equal(fstatat(w->tree_fd, "d/su", &st, 0), 0);
                assert_int_equal(st.st_mode & 07777, keep ? 04755 : 0755);
                assert_int_equal(st.st_gid, kept ? 100007 : getegid());
                assert_int_equal(fstatat(w->tree_fd, "t", &st, 0), 0);
                assert_int_equal(st.st_mode & 07777, 01777);
                assert_int_equal(fstatat(w->tree_fd, "l", &st, AT_SYMLINK_NOFOLLOW), 0);
                assert_int_equal(st.st_uid, kept ? 100009 : geteuid());
                assert_int_equal(st.st_mtime, 1000000000);
        }
        /* An owner that the sandbox does not have. */
        struct layer_spec spec = spec_of(w, LAYER_OVERLAY);

        spec.max_id = 8;
        new_tree(w);
        spec.dir_fd = w->tree_fd;
        assert_int_equal(unpack(w, &b, spec, &result, NULL),
                         spec.owners == LAYER_OWNERS_KEPT ? ERR_UNPROCESSABLE : 0);
}

/* Extended attributes: the file's own are kept, those that steer the kernel or the overlay not. */
static void test_xattrs(void **state)
{
        static const char *const names[] = {
                "user.mine",           "user.overlay.redirect",  "user.overlay.opaque",
                "security.capability", "trusted.overlay.opaque", "system.posix_acl_access"
        };
        struct world *w = *state;
        CLEAN(buf_done) struct buf b = BUF_INIT, xattrs = BUF_INIT;
        struct tar_entry file = { .kind = TAR_FILE, .path = "f", .mode = 0644 };
        struct tar_entry dir = { .kind = TAR_DIR, .path = "d", .mode = 0755 };
        struct layer_result result;
        char value[16], listed[256];

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                tar_put_xattr(&xattrs, names[i], "a\0b", 3);
        tar_put_layer(&b, &file, &xattrs);
        tar_put_layer(&b, &dir, &xattrs);
        tar_end(&b);
        assert_int_equal(unpack(w, &b, spec_of(w, LAYER_OVERLAY), &result, NULL), 0);
        assert_int_equal(result.xattrs, 2 * (ARRAY_LEN(names) - 1));
        CLEAN(cleanup_fd) int fd = openat(w->tree_fd, "f", O_RDONLY | O_CLOEXEC);
        assert_int_equal(fgetxattr(fd, "user.mine", value, sizeof(value)), 3);
        assert_memory_equal(value, "a\0b", 3);
        assert_int_equal(flistxattr(fd, listed, sizeof(listed)), sizeof("user.mine"));
        assert_tree(w, "d/ f=");
}

/* Sparse files of all four kinds: "head", a hole, "tail". */
static void test_sparse(void **state)
{
        struct world *w = *state;
        const struct {
                const char *pax; /* NULL: GNU's own */
                const char *content;
        } kinds[] = {
                { NULL, "headtail" },
                { "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n22 GNU.sparse.name=f\n"
                  "28 GNU.sparse.realsize=8192\n",
                  NULL },
                { "24 GNU.sparse.size=8192\n27 GNU.sparse.map=0,4,8188,4\n", "headtail" },
                { "24 GNU.sparse.size=8192\n23 GNU.sparse.offset=0\n25 GNU.sparse.numbytes=4\n"
                  "26 GNU.sparse.offset=8188\n25 GNU.sparse.numbytes=4\n",
                  "headtail" },
        };

        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                CLEAN(err_done) struct err err = { 0 };
                char text[8193] = { 0 }, map[2 * TAR_BLOCK] = "2\n0\n4\n8188\n4\n";
                struct layer_result result;

                new_tree(w);
                if (kinds[i].pax) {
                        CLEAN(buf_done) struct buf pax = BUF_INIT;

                        /* The lengths in front are put right. */
                        for (const char *at = kinds[i].pax; *at; at = strchr(at, '\n') + 1) {
                                const char *body = strchr(at, ' ');
                                int len = (int)(strchr(body, '\n') - body);

                                buf_appendf(&pax, "%d%.*s\n", len + 3, len, body);
                        }
                        add(&b, &(struct entry){ 'x', "pax", NULL, buf_str(&pax), 0, 0 });
                }
                if (!kinds[i].content) {
                        struct entry e = { '0', "GNUSparseFile.0/f", NULL, NULL, 0, 0 };
                        uint8_t *h;

                        snprintf(map + TAR_BLOCK, 9, "headtail");
                        add(&b, &e);
                        h = (uint8_t *)b.data + b.len - TAR_BLOCK;
                        put_number(h + 124, 12, TAR_BLOCK + 8);
                        put_sum(h);
                        buf_append(&b, map, TAR_BLOCK + 8);
                        tar_pad(&b, 8);
                } else {
                        struct entry e = { kinds[i].pax ? '0' : 'S', "f", NULL,
                                           kinds[i].content,         0,   0 };
                        uint8_t *h;

                        add(&b, &e);
                        h = (uint8_t *)b.data + b.len - 2 * TAR_BLOCK;
                        if (!kinds[i].pax) {
                                memcpy(h + 257, "ustar  ", 8);
                                put_number(h + 386, 12, 0);
                                put_number(h + 398, 12, 4);
                                put_number(h + 410, 12, 8188);
                                put_number(h + 422, 12, 4);
                                put_number(h + 483, 12, 8192);
                                put_sum(h);
                        }
                }
                tar_end(&b);
                if (unpack(w, &b, spec_of(w, LAYER_OVERLAY), &result, &err) < 0)
                        fail_msg("sparse %zu: %s", i, err.msg);
                CLEAN(cleanup_fd) int fd = openat(w->tree_fd, "f", O_RDONLY | O_CLOEXEC);
                assert_int_equal(read(fd, text, sizeof(text)), 8192);
                assert_memory_equal(text, "head\0", 5);
                assert_memory_equal(text + 8187, "\0tail", 5);
                assert_int_equal(result.bytes, 8192);
        }
}

/* A map that does not fit the bytes that follow: too much, too little, out of order, past the end.
 */
static void test_sparse_lies(void **state)
{
        static const struct {
                uint64_t at[2], len[2], size;
        } maps[] = { { { 0, 100 }, { 4, 5 }, 8192 }, { { 0, 100 }, { 4, 3 }, 8192 },
                     { { 100, 0 }, { 4, 4 }, 8192 }, { { 0, 3 }, { 4, 4 }, 8192 },
                     { { 0, 100 }, { 4, 4 }, 103 },  { { 0, 0777777777777 }, { 4, 4 }, 8192 } };
        struct world *w = *state;

        for (size_t i = 0; i < ARRAY_LEN(maps); i++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                struct layer_result result;
                uint8_t *h;

                add(&b, &(struct entry){ 'S', "f", NULL, "headtail", 0, 0 });
                h = (uint8_t *)b.data;
                for (size_t k = 0; k < 2; k++) {
                        put_number(h + 386 + 24 * k, 12, maps[i].at[k]);
                        put_number(h + 398 + 24 * k, 12, maps[i].len[k]);
                }
                put_number(h + 483, 12, maps[i].size);
                put_sum(h);
                tar_end(&b);
                assert_int_equal(unpack(w, &b, spec_of(w, LAYER_OVERLAY), &result, NULL),
                                 ERR_INVALID);
        }
}

/* Sizes that a few bytes claim, and each limit at the limit and one past it. */
static void test_limits(void **state)
{
        struct world *w = *state;
        const struct entry ten[] = { FILE_("a/b/c", "0123456789"), FILE_("f", "x") };
        CLEAN(buf_done) struct buf b = BUF_INIT, bomb = BUF_INIT;
        struct layer_result result;
        uint8_t *h;

        add(&b, &ten[0]); /* 2 directories, 1 file, 4 blocks with the end */
        tar_end(&b);
        const struct {
                struct layer_limits at, past;
                int code;
        } limits[] = {
                { { .bytes = b.len }, { .bytes = b.len - 1 }, ERR_TOO_LARGE },
                { { .entries = 2 }, { .entries = 0 }, 0 },
                { { .depth = 3 }, { .depth = 2 }, ERR_INVALID },
        };
        for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
                struct layer_spec spec;

                new_tree(w);
                spec = spec_of(w, LAYER_OVERLAY);
                spec.limits = limits[i].at;
                assert_int_equal(unpack(w, &b, spec, &result, NULL), 0);
                spec.limits = limits[i].past;
                assert_int_equal(unpack(w, &b, spec, &result, NULL), limits[i].code);
        }
        /* Entries: three for the first file, and then there is no room. */
        struct layer_spec spec = spec_of(w, LAYER_OVERLAY);

        new_tree(w);
        b.len -= 2 * TAR_BLOCK;
        add(&b, &ten[1]);
        spec.dir_fd = w->tree_fd;
        spec.limits.entries = 4;
        assert_int_equal(unpack(w, &b, spec, &result, NULL), 0);
        assert_int_equal(result.entries, 4);
        new_tree(w);
        spec.dir_fd = w->tree_fd;
        spec.limits.entries = 3;
        assert_int_equal(unpack(w, &b, spec, &result, NULL), ERR_TOO_LARGE);

        /* A sparse file of eight terabytes in one block. */
        new_tree(w);
        add(&bomb, &(struct entry){ 'S', "bomb", NULL, NULL, 0, 0 });
        h = (uint8_t *)bomb.data;
        memcpy(h + 257, "ustar  ", 8);
        h[483] = 0x80;
        h[483 + 6] = 8;
        put_sum(h);
        tar_end(&bomb);
        assert_int_equal(unpack(w, &bomb, spec_of(w, LAYER_OVERLAY), &result, NULL), ERR_TOO_LARGE);
        assert_tree(w, "");
}

static void compress_gzip(const struct buf *in, struct buf *out)
{
        z_stream z = { 0 };

        assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
        z.next_in = (uint8_t *)in->data;
        z.avail_in = (uInt)in->len;
        z.next_out = (uint8_t *)buf_reserve(out, in->len + 1024);
        z.avail_out = (uInt)(in->len + 1024);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        buf_grew(out, z.total_out);
        deflateEnd(&z);
}

/* Compression is found by the bytes; several members are one stream; a cut is noticed everywhere.
 */
static void test_compression(void **state)
{
        struct world *w = *state;
        const struct entry e = FILE_("f", "content");
        CLEAN(buf_done) struct buf plain = BUF_INIT, first = BUF_INIT, second = BUF_INIT;
        CLEAN(buf_done) struct buf gzip = BUF_INIT, zstd = BUF_INIT;
        char diff_id[IMAGE_DIGEST_SIZE];

        add(&plain, &e);
        tar_end(&plain);
        buf_append(&plain, "behind the end", 14);
        digest_of(plain.data, plain.len, diff_id);
        buf_append(&first, plain.data, 700);
        buf_append(&second, plain.data + 700, plain.len - 700);
        compress_gzip(&first, &gzip);
        compress_gzip(&second, &gzip);
        for (int part = 0; part < 2; part++) {
                const struct buf *p = part ? &second : &first;
                size_t room = ZSTD_compressBound(p->len);

                buf_grew(&zstd, ZSTD_compress(buf_reserve(&zstd, room), room, p->data, p->len, 3));
        }
        const struct buf *all[] = { &plain, &gzip, &zstd };
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                struct layer_result result = { 0 };
                struct buf cut = *all[i];
                struct layer_spec spec;

                new_tree(w);
                spec = spec_of(w, LAYER_OVERLAY);
                spec.diff_id = diff_id;
                assert_int_equal(unpack(w, all[i], spec, &result, NULL), 0);
                assert_string_equal(result.diff_id, diff_id);
                assert_tree(w, "f=content");
                for (cut.len = 0; cut.len < all[i]->len; cut.len++)
                        assert_true(unpack(w, &cut, spec, &result, NULL) < 0);
                spec.diff_id = "sha256:"
                               "0000000000000000000000000000000000000000000000000000000000000000";
                assert_int_equal(unpack(w, all[i], spec, &result, NULL), ERR_UNPROCESSABLE);
        }
}

/* 300 MiB of zeros in a few hundred KiB: more than the ratio allows. */
static void test_bomb(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf b = BUF_INIT;
        CLEAN(err_done) struct err err = { 0 };
        ZSTD_CCtx *z = ZSTD_createCCtx();
        static uint8_t zeros[1 << 20];
        uint8_t h[TAR_BLOCK];
        CLEAN(buf_done) struct buf head = BUF_INIT;
        struct layer_result result;

        add(&head, &(struct entry){ '0', "zeros", NULL, NULL, 0, 0 });
        memcpy(h, head.data, sizeof(h));
        put_number(h + 124, 12, UINT64_C(300) << 20);
        put_sum(h);
        for (int i = -1; i < 300; i++) {
                ZSTD_inBuffer in = { i < 0 ? h : zeros, i < 0 ? sizeof(h) : sizeof(zeros), 0 };
                int end;

                do {
                        ZSTD_outBuffer out = { buf_reserve(&b, 1 << 17), 1 << 17, 0 };

                        end = ZSTD_compressStream2(z, &out, &in,
                                                   i == 299 ? ZSTD_e_end : ZSTD_e_continue) == 0;
                        buf_grew(&b, out.pos);
                } while (i == 299 ? !end : in.pos < in.size);
        }
        ZSTD_freeCCtx(z);
        assert_int_equal(unpack(w, &b, spec_of(w, LAYER_OVERLAY), &result, &err), ERR_TOO_LARGE);
        assert_non_null(strstr(err.msg, "times its size"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_flat, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_modes_owners_times, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_xattrs, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_sparse, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_sparse_lies, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_limits, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_compression, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_bomb, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
