/* Recognizes the cause of a failure in ssh's standard error, and words it. */
#define _GNU_SOURCE
#include "ssh/explain.h"

#include "ssh/hostkey.h"
#include "ssh/text.h"

struct sign {
        const char *text;
        enum ssh_trouble trouble;
};

/* In this order: what a host prints itself comes last, so that it cannot hide what ssh says. */
static const struct sign signs[] = {
        { "REMOTE HOST IDENTIFICATION HAS CHANGED", SSH_HOSTKEY_CHANGED },
        { "host key is known for", SSH_HOSTKEY_UNKNOWN },
        { "Host key verification failed", SSH_HOSTKEY_UNKNOWN },
        { "Could not resolve hostname", SSH_UNRESOLVED },
        { "Permission denied (", SSH_KEY_REFUSED },
        { "Too many authentication failures", SSH_KEY_REFUSED },
        { "No supported authentication methods", SSH_KEY_REFUSED },
        { "during banner exchange", SSH_SILENT },
        { "Connection refused", SSH_UNREACHABLE },
        { "No route to host", SSH_UNREACHABLE },
        { "Network is unreachable", SSH_UNREACHABLE },
        { "Connection timed out", SSH_UNREACHABLE },
        { "not responding", SSH_SILENT },
        { "Connection closed by", SSH_SILENT },
        { "Connection reset by", SSH_SILENT },
        { "closed by remote host", SSH_SILENT },
        { "Broken pipe", SSH_SILENT },
        { "kex_exchange_identification", SSH_SILENT },
        { "No space left on device", SSH_NO_SPACE },
        { "Disk quota exceeded", SSH_NO_SPACE },
        { "tar is not installed", SSH_NO_TAR },
        { "cannot create directory", SSH_NO_DIRECTORY },
        { "can't create directory", SSH_NO_DIRECTORY },
        { "can't cd to", SSH_NO_DIRECTORY },
        { "Not a directory", SSH_NO_DIRECTORY },
        { "Read-only file system", SSH_NO_DIRECTORY },
        { "cannot write", SSH_NO_DIRECTORY },
        { "ssh: No such file or directory", SSH_NO_CLIENT },
};

enum ssh_trouble ssh_trouble_of(const char *errors)
{
        for (size_t i = 0; i < ARRAY_LEN(signs); i++)
                if (strstr(errors, signs[i].text))
                        return signs[i].trouble;
        return SSH_OTHER;
}

/* What looks like a fingerprint. */
static bool sent_fingerprint(const char *errors, char out[FINGERPRINT_MAX])
{
        const char *at = strstr(errors, "SHA256:");
        size_t n = strlen("SHA256:");

        if (!at)
                return false;
        n += strspn(at + n, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
        if (n >= FINGERPRINT_MAX)
                return false;
        memcpy(out, at, n);
        out[n] = '\0';
        return true;
}

/* "Offending ED25519 key in FILE:3" */
static bool known_fingerprint(const char *errors, const char *known_hosts,
                              char out[FINGERPRINT_MAX])
{
        const char *at = strstr(errors, "Offending "), *end, *line;
        size_t n;

        if (!at || !known_hosts)
                return false;
        end = at + strcspn(at, "\r\n");
        while (end > at && end[-1] >= '0' && end[-1] <= '9')
                end--;
        line = hostkey_line(known_hosts, (size_t)strtoul(end, NULL, 10), &n);
        return line && hostkey_fingerprint(line, n, out);
}

static void explain_changed(const char *errors, const char *known_hosts, struct buf *out)
{
        char sent[FINGERPRINT_MAX] = "an unknown one", known[FINGERPRINT_MAX] = "another";

        (void)sent_fingerprint(errors, sent);
        (void)known_fingerprint(errors, known_hosts, known);
        buf_appendf(out,
                    "The host key has changed: known is %s, the host has %s. Somebody may be in "
                    "between; if the host really got a new key, set knownHosts anew.",
                    known, sent);
}

static void explain_unknown(const struct ssh_target *t, struct buf *out)
{
        buf_appendf(out, "The host key of %s is not known. ", t->host);
        if (t->known_hosts)
                buf_appendf(out,
                            "knownHosts names other hosts or another type of key: compare it with "
                            "`ssh-keyscan -p %d %s`.",
                            t->port, t->host);
        else
                buf_appendf(out,
                            "Put the line of `ssh-keyscan -p %d %s` into knownHosts once you have "
                            "compared it, or let it be recorded at the first connection "
                            "(strictHostKeyChecking false; --accept-host-key).",
                            t->port, t->host);
}

static void explain_refused(const struct ssh_target *t, struct buf *out)
{
        if (t->private_key)
                buf_appendf(out,
                            "The host does not accept the key for %s. Append its public half to "
                            "~%s/.ssh/authorized_keys on %s.",
                            t->username, t->username, t->host);
        else if (t->use_ssh_config)
                buf_appendf(out,
                            "None of your keys is accepted for %s. Try `ssh %s@%s`, or give a key "
                            "with --key FILE.",
                            t->username, t->username, t->host);
        else
                buf_puts(out, "No key is configured. Give one (privateKey, --key FILE), or set "
                              "useSshConfig to use your own keys and agent.");
}

static void explain_other(const char *errors, struct buf *out)
{
        const char *last = errors + strlen(errors);

        while (last > errors && (last[-1] == '\n' || last[-1] == '\r'))
                last--;
        while (last > errors && last[-1] != '\n')
                last--;
        ssh_text_line(last, strlen(last), 400, out);
        if (out->len == 0)
                buf_puts(out, "ssh ended without a word. Try it by hand, with -v.");
}

void ssh_explain(enum ssh_trouble trouble, const char *errors, const struct ssh_target *t,
                 const char *known_hosts, struct buf *out)
{
        switch (trouble) {
        case SSH_UNREACHABLE:
                buf_appendf(out, "%s does not answer on port %d. Is it up, and is sshd running?",
                            t->host, t->port);
                break;
        case SSH_UNRESOLVED:
                buf_appendf(out,
                            "There is no host named %s. Check the spelling, or give its "
                            "address.",
                            t->host);
                break;
        case SSH_SILENT:
                buf_appendf(out,
                            "%s answers on port %d, but does not go on. Is it an SSH server, and "
                            "not overloaded?",
                            t->host, t->port);
                break;
        case SSH_KEY_REFUSED:
                explain_refused(t, out);
                break;
        case SSH_HOSTKEY_UNKNOWN:
                explain_unknown(t, out);
                break;
        case SSH_HOSTKEY_CHANGED:
                explain_changed(errors, known_hosts, out);
                break;
        case SSH_CUT:
                buf_puts(out, "ssh ended without a word: it was killed, or what it talked to was. "
                              "Try it by hand, with -v.");
                break;
        case SSH_NO_DIRECTORY:
                buf_appendf(out,
                            "%s cannot use the directory %s on %s. Choose one it may write to.",
                            t->username, t->path, t->host);
                break;
        case SSH_NO_SPACE:
                buf_appendf(out, "There is no space left for %s on %s. Make room there.", t->path,
                            t->host);
                break;
        case SSH_NO_TAR:
                buf_appendf(out, "There is no tar on %s. Install it there.", t->host);
                break;
        case SSH_NO_CLIENT:
                buf_puts(out, "There is no ssh on this machine: apt install openssh-client.");
                break;
        case SSH_OTHER:
                explain_other(errors, out);
                break;
        }
}
