/* Builds the command line and the environment of ssh. */
#include "ssh/command.h"

#define WORDS_MAX 64

struct words {
        const char **list;
        size_t n;
        struct arena *arena;
};

static void add_word(struct words *w, const char *word)
{
        w->list[w->n++] = word;
}

static void add_option(struct words *w, const char *text)
{
        add_word(w, "-o");
        add_word(w, text);
}

/* Who the host is. A key that is new is taken only when the operator said so, a key that changed
 * never. */
static void add_trust(struct words *w, const struct ssh_target *t, const struct ssh_files *files)
{
        add_option(w, t->strict ? "StrictHostKeyChecking=yes" : "StrictHostKeyChecking=accept-new");
        if (files->known_hosts) {
                add_option(w, arena_printf(w->arena, "UserKnownHostsFile=%s%s", files->known_hosts,
                                           files->also_own ? " ~/.ssh/known_hosts" : ""));
                if (!files->also_own)
                        add_option(w, "GlobalKnownHostsFile=/dev/null");
                add_option(w, "HashKnownHosts=no");
        }
        add_option(w, "UpdateHostKeys=no");
        add_option(w, "VerifyHostKeyDNS=no");
}

/* Who we are. */
static void add_identity(struct words *w, const struct ssh_target *t, const struct ssh_files *files)
{
        if (files->agent)
                add_option(w, arena_printf(w->arena, "IdentityAgent=%s", files->agent));
        else if (!t->use_ssh_config)
                add_option(w, "IdentityAgent=none");
        if (!t->use_ssh_config) {
                add_option(w, "IdentityFile=none");
                add_option(w, "PreferredAuthentications=publickey");
        }
}

static int alive_seconds(const struct ssh_target *t)
{
        return t->patience_s > 0 ? MIN(t->patience_s, 10) : 10;
}

const char *const *ssh_command(const struct ssh_target *t, const struct ssh_files *files,
                               const char *remote, struct arena *arena)
{
        struct words w = { .list = arena_alloc(arena, WORDS_MAX * sizeof(char *)), .arena = arena };

        add_word(&w, "ssh");
        if (!t->use_ssh_config) {
                add_word(&w, "-F");
                add_word(&w, "none");
        }
        add_option(&w, "BatchMode=yes");
        add_option(&w, arena_printf(arena, "ConnectTimeout=%d", alive_seconds(t)));
        add_trust(&w, t, files);
        add_identity(&w, t, files);
        add_option(&w, "LogLevel=ERROR");
        add_option(&w, arena_printf(arena, "ServerAliveInterval=%d", alive_seconds(t)));
        add_option(&w, "ServerAliveCountMax=3");
        add_option(&w, "ForwardAgent=no");
        add_option(&w, "ForwardX11=no");
        add_option(&w, "ClearAllForwardings=yes");
        add_option(&w, "PermitLocalCommand=no");
        add_option(&w, "RemoteCommand=none");
        add_option(&w, "ControlMaster=no");
        add_option(&w, "ControlPath=none");
        add_option(&w, "EscapeChar=none");
        add_option(&w, "RequestTTY=no");
        add_word(&w, "-T");
        /* With the operator's configuration an alias may say the port; 22 is what we assume. */
        if (!t->use_ssh_config || t->port != 22) {
                add_word(&w, "-p");
                add_word(&w, arena_printf(arena, "%d", t->port));
        }
        add_word(&w, "-l");
        add_word(&w, t->username);
        add_word(&w, "--");
        add_word(&w, t->host);
        add_word(&w, remote);
        return w.list;
}

static const char *add_variable(const char *name, const char *otherwise, struct arena *arena)
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
                add_variable("PATH", "/usr/local/bin:/usr/bin:/bin", arena),
                add_variable("HOME", NULL, arena),
                t->use_ssh_config ? add_variable("USER", NULL, arena) : NULL,
                t->use_ssh_config ? add_variable("SSH_AUTH_SOCK", NULL, arena) : NULL,
                "SSH_ASKPASS_REQUIRE=never",
        };
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_LEN(candidates); i++)
                if (candidates[i])
                        list[n++] = candidates[i];
        return list;
}
