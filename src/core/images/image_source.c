/* Where an image may come from for a caller: with which credentials, and which files of this
 * machine. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "core/access/access.h"
#include "core/images/image.h"
#include "core/roots/own_files.h"
#include "core/roots/workspace_root.h"
#include "core/secrets/secret.h"

static bool is_operator(const struct op *op)
{
        return op->actor && op->actor->source == SOURCE_LOCAL_IMPLICIT;
}

/* Credentials */

static int login_of_secret(struct op *op, struct runtime *rt, const char *company_id,
                           const char *secret_id, struct image_login *ret, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        int r = secret_may(op, rt, company_id, true, err);

        if (r >= 0)
                r = secret_resolve(op, rt, company_id, secret_id, 0, NULL, &value, err);
        if (r < 0)
                return r;
        char *colon = memchr(value.data, ':', value.len);
        if (colon)
                *colon = '\0';
        image_login_set(ret, colon ? value.data : NULL, colon ? colon + 1 : value.data);
        return 0;
}

static int login_of_operator(struct op *op, const char *reference, struct image_login *ret,
                             struct err *err)
{
        const char *home = getenv("HOME");
        const char *path = arena_printf(op->arena, "%s/.docker/config.json", home ? home : "");
        struct image_ref ref;
        CLEAN(cleanup_fd) int fd = home ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        /* A bad reference is reported by who uses it. */
        if (fd < 0 || image_ref_parse(reference, &ref, NULL) < 0)
                return 0;
        int r = image_login_read(op, fd, &ref, ret, err);
        return r < 0 ? err_wrap(err, ERR_UNPROCESSABLE, "%s", path) : 0;
}

int image_login_for(struct op *op, struct runtime *rt, const char *company_id,
                    const char *reference, const char *secret_id, struct image_login *ret,
                    struct err *err)
{
        *ret = (struct image_login){ 0 };
        if (secret_id)
                return login_of_secret(op, rt, company_id, secret_id, ret, err);
        return is_operator(op) ? login_of_operator(op, reference, ret, err) : 0;
}

/* Files */

static int open_any(struct runtime *rt, const char *path, int *ret, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, ERR_UNPROCESSABLE, errno, "%s", path);
        if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
                return err_set(err, ERR_UNPROCESSABLE, "%s is neither a file nor a directory.",
                               path);
        int r = S_ISDIR(st.st_mode) ? own_files_check(rt, fd, path, err)
                                    : own_files_check_file(rt, fd, path, err);
        if (r >= 0)
                *ret = take_fd(&fd);
        return r;
}

static int open_in_roots(struct op *op, struct runtime *rt, const char *company_id,
                         const char *path, int *ret, struct err *err)
{
        CLEAN(cleanup_fd) int dir = -1;
        CLEAN(err_done) struct err first = { 0 };
        const char *real, *name = strrchr(path, '/');
        int r = workspace_root_open(
                rt, &(struct workspace_asker){ company_id, op->actor->is_daemon_user }, path,
                op->arena, &dir, &real, &first);

        if (r >= 0) {
                *ret = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                return *ret < 0 ? err_sys(err, ERR_UNPROCESSABLE, errno, "%s", path) : 0;
        }
        if (name && name[1] && name > path)
                r = workspace_root_open(
                        rt, &(struct workspace_asker){ company_id, op->actor->is_daemon_user },
                        arena_strndup(op->arena, path, (size_t)(name - path)), op->arena, &dir,
                        &real, NULL);
        if (r < 0)
                return err_set(err, r, "%s", first.msg);
        r = path_open_plain(dir, name + 1, O_RDONLY | O_NONBLOCK, 0, ret, err);
        return r < 0 ? err_wrap(err, ERR_UNPROCESSABLE, "%s", path) : 0;
}

int image_open_source(struct op *op, struct runtime *rt, const char *company_id, const char *path,
                      int *ret_fd, struct err *err)
{
        if (*path != '/')
                return err_set(err, ERR_UNPROCESSABLE, "%s is not an absolute path.", path);
        return is_operator(op) ? open_any(rt, path, ret_fd, err)
                               : open_in_roots(op, rt, company_id, path, ret_fd, err);
}
