/* The machine around the kernel: data directory, programs, id ranges, and whether a daemon is up.
 */
#define _GNU_SOURCE
#include <berth/berth.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "base/fd.h"
#include "cli/doctor.h"

/* Where agents work: companies whose agents have no place, and agents that work on this machine
 * only because they did so before an upgrade. Companies and agents that the caller may not see are
 * left out. */

/* Written by the upgrade that made the place of an agent a stored choice. */
#define KEPT "agent.environment_kept_by_upgrade"

/* NULL for everything but an answer of 200. */
static json_t *ask_daemon(struct doctor_report *d, struct berth *api, const char *path)
{
        CLEAN(berth_response_done) struct berth_response response = { 0 };
        struct berth_error error;
        json_t *answer = NULL;

        if (berth_request(api, "GET", path, NULL, &response, &error) < 0 ||
            response.status != 200 || json_parse(response.body, response.len, &answer, NULL) < 0)
                return NULL;
        return cli_keep(d->cli, answer);
}

static void check_default(struct doctor_report *d, const json_t *company)
{
        const char *name = cli_text(company, "name");

        if (!*cli_text(company, "defaultEnvironmentId"))
                doctor_add(d, cli_printf(d->cli, "default of %s", name), DOCTOR_LIMITED,
                           "no default environment: agents without one of their own do not run",
                           cli_printf(d->cli, "berth company update '%s' --default-environment ENV",
                                      name));
}

/* The agent of an entry, while it is still where the upgrade left it and nothing keeps it apart. */
static const json_t *still_kept(struct doctor_report *d, struct berth *api, const json_t *entry,
                                const char **ret_isolation)
{
        const json_t *agent = ask_daemon(
                d, api, cli_printf(d->cli, "/api/agents/%s", cli_text(entry, "entityId")));
        const char *place = cli_text(json_object_get(entry, "details"), "defaultEnvironmentId");

        if (!agent || !streq(cli_text(agent, "defaultEnvironmentId"), place) ||
            streq(cli_text(agent, "status"), "terminated"))
                return NULL;
        const json_t *environment =
                ask_daemon(d, api, cli_printf(d->cli, "/api/environments/%s", place));
        *ret_isolation = cli_text(environment, "isolation");
        return json_is_true(json_object_get(environment, "isolated")) ? NULL : agent;
}

static void check_kept(struct doctor_report *d, struct berth *api, const json_t *company)
{
        CLEAN(buf_done) struct buf names = BUF_INIT;
        const char *isolation = "", *last = "";
        json_t *entries, *entry;
        size_t i;

        entries = ask_daemon(d, api,
                             cli_printf(d->cli, "/api/companies/%s/activity?limit=500&action=" KEPT,
                                        cli_text(company, "id")));
        json_array_foreach(entries, i, entry)
        {
                const json_t *agent = still_kept(d, api, entry, &isolation);

                if (!agent)
                        continue;
                last = cli_text(agent, "name");
                buf_appendf(&names, "%s%s", names.len ? ", " : "", last);
        }
        if (names.len > 0)
                doctor_add(d, cli_printf(d->cli, "agents of %s", cli_text(company, "name")),
                           DOCTOR_LIMITED,
                           cli_printf(d->cli, "%s: %s, since an upgrade kept them there",
                                      buf_str(&names), isolation),
                           cli_printf(d->cli, "berth agent update '%s' --environment ENV", last));
}

/* Where the agents of a daemon work that answers. */
static void doctor_places(struct doctor_report *d, struct berth *api)
{
        json_t *company, *companies = ask_daemon(d, api, "/api/companies");
        size_t i;

        json_array_foreach(companies, i, company)
        {
                check_default(d, company);
                check_kept(d, api, company);
        }
}

#define MIB               ((uint64_t)1 << 20)
#define DAEMON_TIMEOUT_MS 2000
#define XFS_MAGIC         0x58465342
#define ZFS_MAGIC         0x2fc12fc1
#define CIFS_MAGIC        0xff534d42u
#define BERTH_FUSE_MAGIC  0x65735546

/* -- Data directory --------------------------------------------------------------------------- */

static const struct {
        unsigned long magic;
        const char *name;
        bool remote; /* SQLite's write-ahead log needs shared memory, which these do not have */
} file_systems[] = {
        { EXT4_SUPER_MAGIC, "ext4", false }, { BTRFS_SUPER_MAGIC, "btrfs", false },
        { XFS_MAGIC, "xfs", false },         { ZFS_MAGIC, "zfs", false },
        { TMPFS_MAGIC, "tmpfs", false },     { OVERLAYFS_SUPER_MAGIC, "overlayfs", false },
        { NFS_SUPER_MAGIC, "nfs", true },    { SMB_SUPER_MAGIC, "smb", true },
        { CIFS_MAGIC, "cifs", true },        { V9FS_MAGIC, "9p", true },
        { BERTH_FUSE_MAGIC, "fuse", true },  { F2FS_SUPER_MAGIC, "f2fs", false },
};

/* The directory itself, or the nearest one above it that exists: that is where it will be made. */
static const char *existing_part(struct cli *c, const char *path)
{
        char *at = cli_printf(c, "%s", path);
        struct stat st;

        while (stat(at, &st) < 0) {
                char *slash = strrchr(at, '/');

                if (!slash)
                        return ".";
                if (slash == at)
                        return "/";
                *slash = '\0';
        }
        return at;
}

/* Made and removed again; asking for permission would not notice a read-only or full disk. */
static int try_write(struct cli *c, const char *dir)
{
        const char *path = cli_printf(c, "%s/.berth-doctor-%d", dir, (int)getpid());
        CLEAN(cleanup_fd) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0)
                return errno;
        int e = write(fd, "berth", 5) == 5 && fsync(fd) == 0 ? 0 : errno;
        (void)unlink(path);
        return e;
}

static void check_file_system(struct doctor_report *d, const char *dir)
{
        const char *name = NULL;
        bool remote = false;
        struct statfs s;

        if (statfs(dir, &s) < 0)
                return;
        for (size_t i = 0; i < ARRAY_LEN(file_systems); i++) {
                if (file_systems[i].magic != (unsigned long)s.f_type)
                        continue;
                name = file_systems[i].name;
                remote = file_systems[i].remote;
        }
        if (!name)
                name = cli_printf(d->cli, "type 0x%lx", (unsigned long)s.f_type);
        if (streq(name, "tmpfs"))
                doctor_add(d, "file system", DOCTOR_LIMITED, "tmpfs: gone when the machine stops",
                           "put the data on a disk: --data");
        else
                doctor_add(d, "file system", remote ? DOCTOR_LIMITED : DOCTOR_OK,
                           remote ? cli_printf(d->cli, "%s: the database may not work on it", name)
                                  : name,
                           "put the data on a local disk: --data");
}

void doctor_data(struct doctor_report *d)
{
        const char *dir = d->cli->data;
        const char *exists = existing_part(d->cli, dir);
        int e = try_write(d->cli, exists);

        if (e != 0)
                doctor_add_needed(d, "data directory", DOCTOR_MISSING,
                                  cli_printf(d->cli, "%s: %s", exists, strerror(e)),
                                  "make it writable for this user, or choose another: --data DIR");
        else
                doctor_add_needed(d, "data directory", DOCTOR_OK,
                                  streq(exists, dir) ? dir
                                                     : cli_printf(d->cli, "%s (will be made)", dir),
                                  NULL);
        check_file_system(d, exists);
        struct statvfs s;

        if (statvfs(exists, &s) < 0)
                return;
        uint64_t mib = (uint64_t)s.f_bavail * s.f_frsize / MIB;
        doctor_add(d, "free space", mib >= 1024 ? DOCTOR_OK : DOCTOR_LIMITED,
                   mib >= 10240 ? cli_printf(d->cli, "%llu GiB", (unsigned long long)(mib / 1024))
                                : cli_printf(d->cli, "%llu MiB", (unsigned long long)mib),
                   "make room, or put the data elsewhere: --data");
}

/* -- Programs --------------------------------------------------------------------------------- */

static const char *find_program(struct cli *c, const char *name)
{
        const char *path = getenv("PATH");

        if (!path)
                path = "/usr/local/bin:/usr/bin:/bin";
        while (*path) {
                size_t len = strcspn(path, ":");
                const char *file = cli_printf(c, "%.*s/%s", (int)len, path, name);
                struct stat st;

                if (len > 0 && stat(file, &st) == 0 && S_ISREG(st.st_mode) &&
                    access(file, X_OK) == 0)
                        return file;
                path += len + (path[len] == ':');
        }
        return NULL;
}

void doctor_programs(struct doctor_report *d)
{
        static const struct {
                const char *name;
                const char *fix;
        } programs[] = {
                { "ssh", "for ssh environments: apt install openssh-client" },
                { "node", "for plugins: apt install nodejs" },
                { "git", "for git workspaces: apt install git" },
        };

        for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
                const char *file = find_program(d->cli, programs[i].name);

                doctor_add(d, programs[i].name, file ? DOCTOR_OK : DOCTOR_MISSING,
                           file ? file : "not in PATH", programs[i].fix);
        }
}

/* -- Sub-ids ---------------------------------------------------------------------------------- */

static bool has_range(const char *path, const char *user)
{
        CLEAN(cleanup_free) char *uid = xasprintf("%u:", (unsigned)geteuid());
        CLEAN(cleanup_free) char *name = xasprintf("%s:", user);
        CLEAN(buf_done) struct buf b = BUF_INIT;
        const char *line;

        if (file_read_at(AT_FDCWD, path, MIB, &b, NULL) < 0)
                return false;
        for (line = buf_str(&b); *line; line += strcspn(line, "\n"), line += *line == '\n')
                if (str_starts(line, name) || str_starts(line, uid))
                        return true;
        return false;
}

void doctor_subids(struct doctor_report *d)
{
        const struct passwd *pw = getpwuid(geteuid());
        const char *user = pw ? pw->pw_name : "";

        if (geteuid() == 0) {
                doctor_add(d, "subuid ranges", DOCTOR_OK, "not needed as root", NULL);
                return;
        }
        bool ranges = has_range("/etc/subuid", user) && has_range("/etc/subgid", user);
        bool helper = find_program(d->cli, "newuidmap") && find_program(d->cli, "newgidmap");
        doctor_add(d, "subuid ranges", ranges && helper ? DOCTOR_OK : DOCTOR_LIMITED,
                   ranges && helper ? "there, with newuidmap"
                   : ranges         ? "there, but newuidmap is not"
                                    : "none: no sandbox can be made",
                   ranges ? "apt install uidmap"
                          : cli_printf(d->cli,
                                       "usermod --add-subuids 100000-165535 --add-subgids "
                                       "100000-165535 %s",
                                       user));
}

/* -- Daemon ----------------------------------------------------------------------------------- */

static void add_daemon(struct doctor_report *d, struct berth *api)
{
        CLEAN(berth_response_done) struct berth_response response = { 0 };
        struct berth_error error;
        json_t *health = NULL;

        if (berth_request(api, "GET", "/api/health", NULL, &response, &error) < 0) {
                doctor_add(d, "daemon", DOCTOR_MISSING,
                           cli_printf(d->cli, "none at %s", berth_address(api)),
                           "start one with: berth serve");
                return;
        }
        (void)json_parse(response.body, response.len, &health, NULL);
        const char *version = cli_text(cli_keep(d->cli, health), "version");
        doctor_add(d, "daemon", response.status == 200 ? DOCTOR_OK : DOCTOR_LIMITED,
                   cli_printf(d->cli, "%s at %s%s%s", cli_text(health, "status"),
                              berth_address(api), *version ? ", version " : "", version),
                   "see the daemon's log");
        if (json_is_true(json_object_get(health, "saturated")))
                doctor_add(d, "operations", DOCTOR_LIMITED,
                           "some wait for others of the same environment, or for a thread",
                           "find the slow provider or host in the daemon's log; see peer_threads "
                           "in berth.toml(5)");
        if (response.status == 200)
                doctor_places(d, api);
}

/* A handle of its own, because a diagnosis must not wait as long as a request may. */
void doctor_daemon(struct doctor_report *d)
{
        CLEAN(err_done) struct err err = { 0 };
        struct berth_options options;
        struct berth_error error;
        struct berth *api;

        if (cli_endpoint(d->cli, &options, &err) < 0) {
                doctor_add(d, "daemon", DOCTOR_MISSING, err.msg, "name the daemon with --api-url");
                return;
        }
        options.connect_timeout_ms = options.timeout_ms = DAEMON_TIMEOUT_MS;
        if (berth_open(&options, &api, &error) < 0) {
                doctor_add(d, "daemon", DOCTOR_MISSING, error.text, "mend --api-url");
                return;
        }
        add_daemon(d, api);
        berth_close(api);
}
