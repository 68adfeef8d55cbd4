/* Finds the credentials for a registry in a config.json, or asks the program that has them. */
#define _GNU_SOURCE
#include "image/login.h"

#include <ctype.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <strings.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "codec/json.h"
#include "rt/tool.h"

#define DOCKER_HOST "docker.io"
#define DOCKER_KEY  "https://index.docker.io/v1/" /* what docker calls it, for historic reasons */
#define MAX_AUTH    ((size_t)64 << 10)
#define MAX_SAID    300

static void wipe_string(char **s)
{
        if (*s)
                sodium_memzero(*s, strlen(*s));
        free(*s);
        *s = NULL;
}

void image_login_done(struct image_login *login)
{
        wipe_string(&login->user);
        wipe_string(&login->password);
}

void image_login_set(struct image_login *login, const char *user, const char *password)
{
        image_login_done(login);
        login->user = user ? xstrdup(user) : NULL;
        login->password = xstrdup(password);
}

/* Programs */

static bool helper_name_ok(const char *name)
{
        if (!*name || strlen(name) > 64)
                return false;
        for (; *name; name++)
                if (!isalnum((unsigned char)*name) && !strchr("-_.", *name))
                        return false;
        return true;
}

struct said {
        char text[MAX_SAID];
};

static void take_line(void *ctx, const char *line)
{
        struct said *said = ctx;

        if (!*said->text)
                (void)snprintf(said->text, sizeof(said->text), "%s", line);
}

/* The question on standard input. */
static int question_fd(const char *text, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = memfd_create("registry", MFD_CLOEXEC);
        int r = fd < 0 ? err_set(err, ERR_BUSY, "no memory for a file")
                       : fd_write_all(fd, text, strlen(text), err);

        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return err_set(err, ERR_INTERNAL, "a file in memory does not seek");
        *ret_fd = take_fd(&fd);
        return 0;
}

static int read_answer(const char *program, const struct buf *out, struct image_login *ret,
                       struct err *err)
{
        json_t *answer = NULL;
        const char *user, *secret;
        int r = json_parse(buf_str(out), out->len, &answer, err);

        if (r < 0)
                return err_set(err, ERR_PROVIDER, "%s did not answer with JSON", program);
        user = json_get_string(answer, "Username");
        secret = json_get_string(answer, "Secret");
        if (user && secret && *secret)
                image_login_set(ret, streq(user, "<token>") ? NULL : user, secret);
        r = ret->password
                    ? 1
                    : err_set(err, ERR_PROVIDER, "%s did not answer with credentials", program);
        json_decref(answer);
        return r;
}

/* 1 found, 0 it has none. */
static int ask_helper(struct op *op, const char *name, const char *server, struct image_login *ret,
                      struct err *err)
{
        static const char *const passed[] = { "PATH",
                                              "HOME",
                                              "USER",
                                              "XDG_RUNTIME_DIR",
                                              "XDG_CONFIG_HOME",
                                              "DBUS_SESSION_BUS_ADDRESS",
                                              "LANG" };
        const char *env[ARRAY_LEN(passed) + 1] = { 0 };
        struct said said = { 0 };
        CLEAN(buf_wipe) struct buf out = { .max = LOGIN_MAX_ANSWER };
        CLEAN(cleanup_fd) int in = -1;
        struct proc_status status;
        size_t n = 0;

        if (!helper_name_ok(name))
                return err_set(err, ERR_INVALID,
                               "the file of credentials names a program whose name cannot be");
        const char *program = arena_printf(op->arena, "docker-credential-%s", name);
        for (size_t i = 0; i < ARRAY_LEN(passed); i++)
                if (getenv(passed[i]))
                        env[n++] = arena_printf(op->arena, "%s=%s", passed[i], getenv(passed[i]));
        int r = question_fd(server, &in, err);
        if (r < 0)
                return r;
        if (!buf_reserve(&out, LOGIN_MAX_ANSWER - 1)) /* never moved, so no copy stays behind */
                return err_set(err, ERR_BUSY, "no memory for an answer");
        struct tool tool = { .path = program,
                             .argv = (const char *const[]){ program, "get", NULL },
                             .env = env,
                             .limit_ms = LOGIN_HELPER_MS,
                             .in_fd = in,
                             .out = &out,
                             .line = take_line,
                             .ctx = &said };
        r = tool_run(op, &tool, &status, err);
        if (r < 0)
                return err_wrap(err, r, "%s", program);
        if (status.exit_code == 0)
                return read_answer(program, &out, ret, err);
        /* The protocol of these programs has no other way to say it. */
        if (strstr(buf_str(&out), "credentials not found"))
                return 0;
        return err_set(err, ERR_PROVIDER, "%s failed with %d: %s", program, status.exit_code,
                       *said.text ? said.text : "it said nothing");
}

/* The file */

/* How far a key of `auths` reaches: the longer, the better; 0: not to this image. Keys are hosts,
 * URLs of hosts, or, as podman writes them, hosts with a path. */
static size_t key_fits(const char *key, const struct image_ref *ref)
{
        char image[IMAGE_REF_SIZE], name[IMAGE_REF_SIZE];
        const char *at = strstr(key, "://");
        size_t len;

        (void)snprintf(name, sizeof(name), "%s", at ? at + 3 : key);
        len = strlen(name);
        while (len > 0 && name[len - 1] == '/')
                name[--len] = '\0';
        if (len > 3 && (streq(name + len - 3, "/v1") || streq(name + len - 3, "/v2")))
                name[len -= 3] = '\0';
        if (streq(name, "index.docker.io") || streq(name, "registry-1.docker.io"))
                len = (size_t)snprintf(name, sizeof(name), "%s", DOCKER_HOST);
        (void)snprintf(image, sizeof(image), "%s/%s/", ref->host, ref->repository);
        return len && strncasecmp(image, name, len) == 0 && image[len] == '/' ? len : 0;
}

static int read_auth(const json_t *entry, struct image_login *ret, struct err *err)
{
        const char *token = json_get_string(entry, "identitytoken");
        const char *auth = json_get_string(entry, "auth");
        const char *user = json_get_string(entry, "username");
        const char *password = json_get_string(entry, "password");
        size_t len = 0, room = auth ? strlen(auth) : 0;
        CLEAN(wipe_string) char *text = NULL;
        char *colon;

        if (token && *token) {
                image_login_set(ret, NULL, token);
                return 1;
        }
        if (!auth || !*auth) {
                if (!user || !password)
                        return 0;
                image_login_set(ret, user, password);
                return 1;
        }
        text = xcalloc(room + 1, 1);
        if (room > MAX_AUTH ||
            (sodium_base642bin((uint8_t *)text, room, auth, room, "\r\n", &len, NULL,
                               sodium_base64_VARIANT_ORIGINAL) != 0 &&
             sodium_base642bin((uint8_t *)text, room, auth, room, "\r\n", &len, NULL,
                               sodium_base64_VARIANT_ORIGINAL_NO_PADDING) != 0) ||
            strlen(text) != len || !(colon = strchr(text, ':')))
                return err_set(err, ERR_INVALID,
                               "an entry in the file of credentials is not \"user:password\" in "
                               "base64");
        *colon = '\0';
        image_login_set(ret, text, colon + 1);
        return 1;
}

static int find_login(struct op *op, json_t *file, const struct image_ref *ref,
                      struct image_login *ret, struct err *err)
{
        const char *server = streq(ref->host, DOCKER_HOST) ? DOCKER_KEY : ref->host;
        const char *helper = json_get_string(json_get_object(file, "credHelpers"), ref->host);
        json_t *auths = json_get_object(file, "auths"), *value, *best = NULL;
        const char *key;
        size_t best_fit = 0;
        int r;

        if (helper)
                return ask_helper(op, helper, server, ret, err);
        helper = json_get_string(file, "credsStore");
        if (helper && *helper) {
                r = ask_helper(op, helper, server, ret, err);
                if (r != 0)
                        return r;
        }
        json_object_foreach(auths, key, value)
        {
                if (key_fits(key, ref) > best_fit) {
                        best_fit = key_fits(key, ref);
                        best = value;
                }
        }
        return best ? read_auth(best, ret, err) : 0;
}

int image_login_read(struct op *op, int fd, const struct image_ref *ref, struct image_login *ret,
                     struct err *err)
{
        CLEAN(buf_wipe) struct buf text = { .max = LOGIN_MAX_FILE };
        json_t *file = NULL;
        int r;

        *ret = (struct image_login){ 0 };
        if (!buf_reserve(&text, LOGIN_MAX_FILE - 1))
                return err_set(err, ERR_BUSY, "no memory for a file of credentials");
        if (fd_read_to_end(fd, &text) < 0)
                return err_set(err, ERR_IO, "the file of credentials cannot be read");
        r = json_parse(buf_str(&text), text.len, &file, err);
        if (r < 0)
                return err_wrap(err, ERR_INVALID, "the file of credentials");
        r = json_is_object(file)
                    ? find_login(op, file, ref, ret, err)
                    : err_set(err, ERR_INVALID, "the file of credentials is not a JSON object");
        json_decref(file);
        if (r <= 0)
                image_login_done(ret);
        return r;
}
