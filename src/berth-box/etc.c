/* The sandbox's /etc: written here, or named here. Nothing else of the host's /etc exists inside.
 *
 * Works in the new root as working directory, before the change to it: absolute paths are the
 * host's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mount.h"
#include "berth-box/sandbox.h"

#define READ_ONLY (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define MAX_COPY  ((size_t)64 << 10)

static const char nsswitch[] = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                               "services: files\nprotocols: files\n";
static const char profile[] = "PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}\nexport PATH\n";

/* Too large to copy, or a directory: shown as they are. Without the host's settings for them,
 * programs that lie in /usr would not work: Java, fonts, the libraries' list, certificates. */
static const char *const shown[] = {
        "alternatives",    "ssl/certs",       "ld.so.cache",     "fonts",         "java-11-openjdk",
        "java-17-openjdk", "java-21-openjdk", "ca-certificates", "pki/tls/certs", "pki/ca-trust",
};

static const char *const copied[] = { "services", "protocols", "debian_version", "ssl/openssl.cnf",
                                      "mime.types" };

static const char *const links[] = { "localtime", "os-release" };

int etc_write(const char *path, const char *text)
{
        CLEAN(cleanup_fd)
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);

        return fd >= 0 ? fd_write_all(fd, text, strlen(text), NULL) : -1;
}

static void copy_file(const char *from, const char *to)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_fd) int fd = -1;

        if (file_read_at(AT_FDCWD, from, MAX_COPY, &text, NULL) < 0)
                return;
        fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0)
                (void)fd_write_all(fd, buf_str(&text), text.len, NULL);
}

static const char *spec_hostname(const struct box *b)
{
        return b->sandbox->spec.hostname ? b->sandbox->spec.hostname : "sandbox";
}

/* With the host's network also its resolver; otherwise there is no resolver to ask. */
static int write_network(const struct box *b)
{
        char text[512];

        snprintf(text, sizeof(text),
                 "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n",
                 spec_hostname(b));
        /* In a rootfs or an image they may be links. */
        (void)unlink("etc/hosts");
        (void)unlink("etc/hostname");
        (void)unlink("etc/resolv.conf");
        if (etc_write("etc/hosts", text) < 0)
                return -1;
        snprintf(text, sizeof(text), "%s\n", spec_hostname(b));
        if (etc_write("etc/hostname", text) < 0)
                return -1;
        if (b->sandbox->spec.network != SANDBOX_NET_HOST)
                return etc_write("etc/resolv.conf", "# no network\n");
        copy_file("/etc/resolv.conf", "etc/resolv.conf");
        return 0;
}

static int write_users(void)
{
        const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
        char text[512];

        snprintf(text, sizeof(text),
                 "root:x:0:0:root:/root:%s\n"
                 "agent:x:%u:%u:agent:/home/agent:%s\n"
                 "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
                 shell, SANDBOX_AGENT, SANDBOX_AGENT, shell);
        if (etc_write("etc/passwd", text) < 0)
                return -1;
        snprintf(text, sizeof(text), "root:x:0:\ntty:x:5:\nagent:x:%u:\nnogroup:x:65534:\n",
                 SANDBOX_AGENT);
        return etc_write("etc/group", text);
}

static void write_machine_id(const struct box *b)
{
        char text[40];
        size_t n = 0;

        for (const char *p = b->name; *p; p++)
                if (*p != '-')
                        text[n++] = *p;
        text[n++] = '\n';
        text[n] = '\0';
        (void)etc_write("etc/machine-id", text);
}

static int show_entry(const char *name)
{
        char from[64], to[64];
        struct stat st;

        snprintf(from, sizeof(from), "/etc/%s", name);
        snprintf(to, sizeof(to), "etc/%s", name);
        if (stat(from, &st) < 0)
                return 0;
        if (S_ISDIR(st.st_mode) ? mkdir(to, 0755) < 0 : etc_write(to, "") < 0)
                return -1;
        return mount_bind(from, to, READ_ONLY);
}

static void copy_link(const char *name)
{
        char from[64], to[64], target[256];

        snprintf(from, sizeof(from), "/etc/%s", name);
        snprintf(to, sizeof(to), "etc/%s", name);
        ssize_t n = readlink(from, target, sizeof(target) - 1);
        if (n <= 0) {
                copy_file(from, to);
                return;
        }
        target[n] = '\0';
        (void)!symlink(target, to);
}

int etc_build(const struct box *b, struct err *err)
{
        char from[64];

        if (mkdir("etc", 0755) < 0 || mkdir("etc/ssl", 0755) < 0 || mkdir("etc/pki", 0755) < 0 ||
            mkdir("etc/pki/tls", 0755) < 0 || write_users() < 0 || write_network(b) < 0 ||
            etc_write("etc/nsswitch.conf", nsswitch) < 0 || etc_write("etc/profile", profile) < 0 ||
            etc_write("etc/shells", "/bin/sh\n/bin/bash\n") < 0 ||
            symlink("../proc/self/mounts", "etc/mtab") < 0)
                return err_sys(err, ERR_PROVIDER, errno, "write /etc of the sandbox");
        write_machine_id(b);
        for (size_t i = 0; i < ARRAY_LEN(shown); i++)
                if (show_entry(shown[i]) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "show /etc/%s in the sandbox",
                                       shown[i]);
        for (size_t i = 0; i < ARRAY_LEN(copied); i++) {
                snprintf(from, sizeof(from), "/etc/%s", copied[i]);
                copy_file(from, from + 1);
        }
        for (size_t i = 0; i < ARRAY_LEN(links); i++)
                copy_link(links[i]);
        return 0;
}

/* A rootfs brings its own; only the agent may be unknown there. */
static int add_line(const char *path, uint32_t id, const char *line)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char wanted[32];

        snprintf(wanted, sizeof(wanted), ":%u:", id);
        if (file_read_at(AT_FDCWD, path, (size_t)1 << 20, &text, NULL) < 0 ||
            strstr(buf_str(&text), wanted))
                return 0;
        CLEAN(cleanup_fd) int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);

        return fd < 0 ? -1 : fd_write_all(fd, line, strlen(line), NULL);
}

int etc_amend(const struct box *b, struct err *err)
{
        if (write_network(b) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "amend /etc of the rootfs");
        if (!b->sandbox->spec.own_users &&
            (add_line("etc/passwd", SANDBOX_AGENT,
                      "agent:x:1000:1000:agent:/home/agent:/bin/sh\n") < 0 ||
             add_line("etc/group", SANDBOX_AGENT, "agent:x:1000:\n") < 0))
                return err_sys(err, ERR_PROVIDER, errno, "amend /etc of the rootfs");
        return 0;
}
