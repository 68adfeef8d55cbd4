/* The user that commands are, as the image's own files name it. Nothing of the image is followed:
 * its layers are opened one by one, without links. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "base/path.h"
#include "core/images/image_layers.h"
#include "core/sandboxes/sandbox_host.h"

#define PASSWD_MAX ((size_t)1 << 20)

/* The uppermost layer that says anything about the name decides. */
static int read_of_image(struct op *op, const struct runtime *rt, const struct layer_work *layers,
                         size_t n, const char *name, struct buf *ret)
{
        while (n-- > 0) {
                const char *root = arena_printf(op->arena, "%s/%s/root", rt->sandbox->images_dir,
                                                layers[n].row.id);
                CLEAN(cleanup_fd) int dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                CLEAN(cleanup_fd) int etc = -1;
                CLEAN(cleanup_fd) int fd = -1;
                struct stat st;

                if (dir < 0)
                        return ERR_IO;
                if (fstatat(dir, "etc", &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                if (!S_ISDIR(st.st_mode))
                        return 0;
                if (path_open_plain(dir, "etc", O_RDONLY | O_DIRECTORY, 0, &etc, NULL) < 0)
                        return ERR_IO;
                if (fstatat(etc, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (fgetxattr(etc, "user.overlay.opaque", NULL, 0) > 0)
                                return 0;
                        continue;
                }
                if (!S_ISREG(st.st_mode) || path_open_plain(etc, name, O_RDONLY, 0, &fd, NULL) < 0)
                        return 0;
                ret->max = PASSWD_MAX;
                return fd_read_to_end(fd, ret) < 0 ? ERR_IO : 1;
        }
        return 0;
}

/* Field `i` of a line with colons between them; "" when it has fewer. */
static const char *line_field(struct arena *arena, const char *line, size_t len, int i)
{
        for (; i > 0; i--) {
                const char *colon = memchr(line, ':', len);

                if (!colon)
                        return "";
                len -= (size_t)(colon + 1 - line);
                line = colon + 1;
        }
        const char *end = memchr(line, ':', len);
        return arena_strndup(arena, line, end ? (size_t)(end - line) : len);
}

static bool parse_id(const char *text, uint32_t *ret)
{
        char *end;

        if (!*text || *text < '0' || *text > '9')
                return false;
        unsigned long n = strtoul(text, &end, 10);
        *ret = (uint32_t)n;
        return !*end && n < UINT32_MAX;
}

/* The line whose name is `name`, or whose id (the third field) is; its fields 0 and 2 to 5. */
static bool find_line(struct arena *arena, const char *text, const char *name, const char *ret[6])
{
        while (*text) {
                size_t len = strcspn(text, "\n");

                for (int i = 0; i < 6; i++)
                        ret[i] = line_field(arena, text, len, i);
                if (*ret[0] && (streq(ret[0], name) || streq(ret[2], name)))
                        return true;
                text += len + (text[len] == '\n');
        }
        return false;
}

int image_find_user(struct op *op, const struct runtime *rt, const struct layer_work *layers,
                    size_t n, const char *wanted, struct image_user *ret, struct err *err)
{
        CLEAN(buf_done) struct buf users = BUF_INIT, groups = BUF_INIT;
        size_t len = strcspn(wanted, ":");
        const char *user = len ? arena_strndup(op->arena, wanted, len) : "0";
        const char *group = wanted[len] ? wanted + len + 1 : "";
        const char *line[6];
        uint32_t gid = 0;
        bool known;

        if (read_of_image(op, rt, layers, n, "passwd", &users) < 0 ||
            read_of_image(op, rt, layers, n, "group", &groups) < 0)
                return err_set(err, ERR_IO, "The image's users cannot be read.");
        *ret = (struct image_user){ .name = user, .home = "/" };
        known = find_line(op->arena, buf_str(&users), user, line);
        if (known) {
                known = parse_id(line[2], &ret->uid) && parse_id(line[3], &gid);
                ret->name = line[0];
                ret->home = line[5][0] == '/' ? line[5] : "/";
        } else {
                known = parse_id(user, &ret->uid);
                if (known && ret->uid == 0)
                        ret->home = "/root";
        }
        ret->gid = gid;
        if (known && *group)
                known = find_line(op->arena, buf_str(&groups), group, line)
                                ? parse_id(line[2], &ret->gid)
                                : parse_id(group, &ret->gid);
        return known ? 0
                     : err_set(err, ERR_UNPROCESSABLE,
                               "The image runs as \"%s\", whom its /etc/passwd and /etc/group do "
                               "not have.",
                               wanted);
}

struct image_user image_user_of(const json_t *config)
{
        const json_t *u = json_get_object(config, "runsAs");
        const char *name = json_get_string(u, "name"), *home = json_get_string(u, "home");

        return (struct image_user){
                .uid = (uint32_t)json_integer_value(json_object_get(u, "uid")),
                .gid = (uint32_t)json_integer_value(json_object_get(u, "gid")),
                .name = name ? name : "root",
                .home = home ? home : "/root",
        };
}
