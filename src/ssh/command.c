/* Builds the command line and the environment of ssh. */
#include "ssh/command.h"

#define WORDS_MAX 64

struct words {
        const char **list;
        size_t n;
        struct arena *arena;
};

static void add(struct words *w, const char *word)
{
        w->list[w->n++] = word;
}

static void option(struct words *w, const char *text)
{
        add(w, "-o");
        add(w, text);
}

/* Who the host is. A key that is new is taken only when the operator said so, a key that changed
 * never. */
static void add_trust(struct words *w, const struct ssh_target *t, const struct ssh_files *files)
{
        option(w, t->strict ? "StrictHostKeyChecking=yes" : "StrictHostKeyChecking=accept-new");
        if (files->known_hosts) {
                option(w, arena_printf(w->arena, "UserKnownHostsFile=%s%s", files->known_hosts,
                                       files->also_own ? " ~/.ssh/known_hosts" : ""));
                if (!files->also_own)
                        option(w, "GlobalKnownHostsFile=/dev/null");
                option(w, "HashKnownHosts=no");
        }
        option(w, "UpdateHostKeys=no");
        option(w, "VerifyHostKeyDNS=no");
}

/* Who we are. */
static void add_identity(struct words *w, const struct ssh_target *t, const struct ssh_files *files)
{
        if (files->agent)
                option(w, arena_printf(w->arena, "IdentityAgent=%s", files->agent));
        else if (!t->use_ssh_config)
                option(w, "IdentityAgent=none");
        if (!t->use_ssh_config) {
                option(w, "IdentityFile=none");
                option(w, "PreferredAuthentications=publickey");
        }
}

static int patience(const struct ssh_target *t)
{
        return t->patience_s > 0 ? MIN(t->patience_s, 10) : 10;
}

const char *const *ssh_command(const struct ssh_target *t, const struct ssh_files *files,
                               const char *remote, struct arena *arena)
{
        struct words w = { .list = arena_alloc(arena, WORDS_MAX * sizeof(char *)), .arena = arena };

        add(&w, "ssh");
        if (!t->use_ssh_config) {
                add(&w, "-F");
                add(&w, "none");
        }
        option(&w, "BatchMode=yes");
        option(&w, arena_printf(arena, "ConnectTimeout=%d", patience(t)));
        add_trust(&w, t, files);
        add_identity(&w, t, files);
        option(&w, "LogLevel=ERROR");
        option(&w, arena_printf(arena, "ServerAliveInterval=%d", patience(t)));
        option(&w, "ServerAliveCountMax=3");
        option(&w, "ForwardAgent=no");
        option(&w, "ForwardX11=no");
        option(&w, "ClearAllForwardings=yes");
        option(&w, "PermitLocalCommand=no");
        option(&w, "RemoteCommand=none");
        option(&w, "ControlMaster=no");
        option(&w, "ControlPath=none");
        option(&w, "EscapeChar=none");
        option(&w, "RequestTTY=no");
        add(&w, "-T");
        /* With the operator's configuration an alias may say the port; 22 is what we assume. */
        if (!t->use_ssh_config || t->port != 22) {
                add(&w, "-p");
                add(&w, arena_printf(arena, "%d", t->port));
        }
        add(&w, "-l");
        add(&w, t->username);
        add(&w, "--");
        add(&w, t->host);
        add(&w, remote);
        return w.list;
}

static const char *variable(const char *name, const char *otherwise, struct arena *arena)
{
        const char *value = getenv(name);

        if (!value)
                value = otherwise;
        return value ? arena_printf(arena, "%s=%s", name, value) : NULL;
}

const char *const *ssh_environment(const struct ssh_target *t, struct arena *arena)
{
        const char **list = arena_alloc(arena, 8 * sizeof(char *));
        const char *candidates[] = {
                variable("PATH", "/usr/local/bin:/usr/bin:/bin", arena),
                variable("HOME", NULL, arena),
                t->use_ssh_config ? variable("USER", NULL, arena) : NULL,
                t->use_ssh_config ? variable("SSH_AUTH_SOCK", NULL, arena) : NULL,
                "SSH_ASKPASS_REQUIRE=never",
        };
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_LEN(candidates); i++)
                if (candidates[i])
                        list[n++] = candidates[i];
        return list;
}
