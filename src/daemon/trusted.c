/* Reads the list of trusted users, and decides on it where the setting is missing. */
#include "daemon/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>

#include "base/fd.h"
#include "codec/net_addr.h"
#include "codec/toml.h"
#include "net/http_server.h"

#define USERS_MAX  64
#define ANSWER_MAX 128

/* A number counts whether or not a user has it: names may come from elsewhere later. */
static bool find_uid(const char *name, uid_t *ret)
{
        char *end;

        errno = 0;
        unsigned long n = strtoul(name, &end, 10);
        if (*name >= '0' && *name <= '9' && !*end) {
                *ret = (uid_t)n;
                return !errno && n < (uid_t)-1;
        }
        const struct passwd *pw = getpwnam(name);
        if (pw)
                *ret = pw->pw_uid;
        return pw;
}

int trusted_parse(const char *list, struct arena *arena, struct settings *s, struct err *err)
{
        uid_t *uids = arena_alloc(arena, USERS_MAX * sizeof(*uids));
        size_t n = 0;

        while (list && *list) {
                size_t len;
                const char *name;

                list += strspn(list, ", ");
                len = strcspn(list, ", ");
                if (len == 0)
                        break;
                name = arena_strndup(arena, list, len);
                list += len;
                if (n == USERS_MAX)
                        return err_set(err, ERR_INVALID, "trusted_uids: more than %d users",
                                       USERS_MAX);
                if (!find_uid(name, &uids[n++]))
                        return err_set(err, ERR_INVALID,
                                       "trusted_uids: '%s' is neither a user of this machine nor "
                                       "a number",
                                       name);
        }
        s->trusted_uids = uids;
        s->n_trusted_uids = n;
        return 0;
}

int trusted_parse_proxy(const char *text, struct arena *arena, struct settings *s, struct err *err)
{
        struct net_addr address;
        char name[NET_ADDR_TEXT + 16];
        const char *kind;
        uid_t uid;

        if (net_addr_parse(text, strlen(text), &address)) {
                kind = net_addr_special(&address);
                if (kind && streq(kind, "loopback"))
                        return err_set(err, ERR_INVALID,
                                       "reverse_proxy: every user of this machine has '%s'; name "
                                       "the user that the proxy runs as",
                                       text);
                net_addr_format(&address, name);
        } else if (!find_uid(text, &uid) || !http_client_of_user(uid, name, sizeof(name))) {
                return err_set(err, ERR_INVALID,
                               "reverse_proxy: '%s' is neither an address nor a user of this "
                               "machine with a number below 65536",
                               text);
        }
        s->reverse_proxy = arena_strdup(arena, name);
        return 0;
}

/* In front of what is there: behind a [table] it would be a member of that. */
static int store_answer(const char *data_dir, const char *users, struct err *err)
{
        CLEAN(cleanup_fd) int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CLEAN(buf_done) struct buf old = BUF_INIT;
        CLEAN(buf_done) struct buf text = BUF_INIT;

        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open data directory %s", data_dir);
        int r = file_read_at(dir, CONFIG_FILE, TOML_MAX_BYTES, &old, err);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        buf_appendf(&text, "trusted_uids = \"%s\"\n", users);
        buf_append(&text, buf_str(&old), old.len);
        return file_write_at(dir, CONFIG_FILE, buf_str(&text), text.len, 0600, err);
}

/* Read what the user types, without white space; false at the end of the input. */
static bool ask_user(const char *suggestion, char *ret, size_t size)
{
        char line[ANSWER_MAX];

        fprintf(stderr,
                "berth runs as root. Which user of this machine may use it without a key? "
                "(\"root\": nobody else) [%s] ",
                suggestion);
        if (!fgets(line, sizeof(line), stdin))
                return false;
        const char *from = line + strspn(line, " \t\r\n");
        size_t len = strcspn(from, " \t\r\n");
        (void)snprintf(ret, size, "%.*s", (int)len, from);
        if (!*ret)
                (void)snprintf(ret, size, "%s", suggestion);
        return true;
}

static int ask_and_store(struct config *c, const char *suggestion, struct arena *arena,
                         struct err *err)
{
        char answer[ANSWER_MAX];

        while (ask_user(suggestion, answer, sizeof(answer))) {
                if (trusted_parse(answer, arena, &c->settings, err) >= 0)
                        return store_answer(c->data_dir, answer, err);
                fprintf(stderr, "%s\n", err->msg);
                err_clear(err);
        }
        return 0; /* there is no answer: no other user is trusted */
}

static const char *sudo_user(struct arena *arena)
{
        const char *uid = getenv("SUDO_UID"), *name = getenv("SUDO_USER");
        uid_t by_name, by_number;

        if (!uid || !find_uid(uid, &by_number) || by_number == 0)
                return NULL;
        return name && find_uid(name, &by_name) && by_name == by_number ? arena_strdup(arena, name)
                                                                        : arena_strdup(arena, uid);
}

int trusted_settle(struct config *c, struct arena *arena, struct err *err)
{
        if (c->trusted_users || c->is_private || geteuid() != 0 ||
            c->settings.mode != MODE_LOCAL_TRUSTED)
                return 0;
        const char *user = sudo_user(arena);
        if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
                return ask_and_store(c, user ? user : "root", arena, err);
        if (!user) {
                log_info("only root may use this daemon without a key; name others in "
                         "trusted_uids");
                return 0;
        }
        int r = trusted_parse(user, arena, &c->settings, err);
        if (r >= 0)
                log_info("who called sudo may use this daemon without a key; trusted_uids says "
                         "otherwise",
                         LOG_S("user", user));
        return r;
}
