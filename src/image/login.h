/* Credentials for a registry, as `docker login` and `podman login` leave them.
 *
 * A file like ~/.docker/config.json has them itself (`auths`), or names a program that has
 * (`credHelpers`, `credsStore`). Such a program is "docker-credential-" and the name in the file,
 * found in PATH; the name may have letters, digits, '-', '_' and '.' and nothing else. It is run
 * with our rights, a session of its own, LOGIN_HELPER_MS and LOGIN_MAX_ANSWER: so the file must
 * belong to a user whose programs the caller may run, which is for the caller to decide.
 *
 * Memory is wiped when it is freed. Operation threads. */
#pragma once

#include "image/reference.h"
#include "rt/op.h"

#define LOGIN_MAX_FILE   ((size_t)1 << 20)
#define LOGIN_MAX_ANSWER ((size_t)64 << 10)
#define LOGIN_HELPER_MS  30000

struct image_login {
        char *user;     /* owned; NULL: none */
        char *password; /* owned; or, without a user, an identity token */
};

void image_login_done(struct image_login *login);
/* With copies of both; `user` NULL: `password` is an identity token. */
void image_login_set(struct image_login *login, const char *user, const char *password);

/* The credentials for a registry (image_ref.host, and for entries with a path the repository) in
 * the config.json that fd reads. 1 found, 0 none, which is not an error. ERR_INVALID: not such a
 * file; ERR_PROVIDER: the program failed, with what it said, cut and without what it printed on
 * standard output; ERR_TIMEOUT. */
int image_login_read(struct op *op, int fd, const struct image_ref *ref, struct image_login *ret,
                     struct err *err);
