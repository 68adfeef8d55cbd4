/* environmentSyncIn and environmentSyncOut by three verbs: a file is put under another name and
 * renamed; a directory travels as one tar archive, made and unpacked by the tar of either side. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fd.h"
#include "codec/shell.h"
#include "provider/service.h"

#define RUN_MS     300000
#define EXTRA      12 /* words of a tar command besides what is excluded */
#define SCRIPT_MAX ((size_t)1 << 20)

struct sync_run {
        struct berth_call *call;
        const struct service_files *f;
        uint64_t files, bytes;
        unsigned serial;
};

static int sync_sh(struct sync_run *s, const struct buf *script, int64_t limit_ms)
{
        CLEAN(buf_done) struct buf out = { .max = SCRIPT_MAX };
        int status;

        if (buf_failed(script))
                return berth_fail(s->call, "a path of the sync is too long");
        status = s->f->run(s->call, s->f->ctx, buf_str(script), limit_ms, &out);
        if (status > 0)
                return berth_fail(s->call, "a command of the sync ended with status %d: %.500s",
                                  status, buf_str(&out));
        return status;
}

/* tar on this side, with the archive as its standard input or output. */
static int sync_tar(struct sync_run *s, const struct berth_sync_file *file, bool pack, int archive)
{
        extern char **environ;
        const char *dir = pack ? file->source : file->target;
        size_t n = 0, room = EXTRA;
        const char **words;
        posix_spawn_file_actions_t files;
        int status = -1, e;
        pid_t pid;

        for (const char *const *x = file->exclude; *x; x++)
                room++;
        words = arena_alloc(&s->call->arena, room * sizeof(*words));
        words[n++] = "tar";
        words[n++] = "-C";
        words[n++] = dir;
        words[n++] = pack ? "-cf" : "-xf";
        words[n++] = "-";
        words[n++] = "--no-same-owner";
        if (pack && file->follow_links)
                words[n++] = "-h";
        for (const char *const *x = file->exclude; pack && *x; x++)
                words[n++] = arena_printf(&s->call->arena, "--exclude=%s", *x);
        if (pack)
                words[n++] = ".";
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, archive, pack ? STDOUT_FILENO : STDIN_FILENO);
        if (!pack)
                posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        e = posix_spawnp(&pid, "tar", &files, NULL, (char **)words, environ);
        posix_spawn_file_actions_destroy(&files);
        if (e == 0 && (waitpid(pid, &status, 0) < 0 || status != 0))
                e = EIO;
        return e ? berth_fail(s->call, "tar of %s failed: %s", dir, strerror(e)) : 0;
}

static void count_tree(struct sync_run *s, const char *path)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *dir = fd >= 0 ? fdopendir(dup(fd)) : NULL;
        struct stat st;

        for (struct dirent *e; dir && (e = readdir(dir));) {
                CLEAN(cleanup_free) char *below = xasprintf("%s/%s", path, e->d_name);

                if (streq(e->d_name, ".") || streq(e->d_name, "..") ||
                    fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                if (S_ISDIR(st.st_mode)) {
                        count_tree(s, below);
                } else {
                        s->files++;
                        s->bytes += (uint64_t)st.st_size;
                }
        }
        if (dir)
                closedir(dir);
}

static int count_file(struct sync_run *s, int fd)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return berth_fail(s->call, "cannot read a file of the sync: %s", strerror(errno));
        s->files++;
        s->bytes += (uint64_t)st.st_size;
        return 0;
}

/* A name there for what travels, which no other sync has. */
static const char *travel_name(struct sync_run *s)
{
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        return arena_printf(&s->call->arena, "/tmp/berth-sync.%llx%lx.%u",
                            (unsigned long long)now.tv_sec, (unsigned long)now.tv_nsec,
                            s->serial++);
}

static int put_directory(struct sync_run *s, const struct berth_sync_file *file, struct buf *script)
{
        const char *upload = travel_name(s);
        const char *words[] = { "rm -rf ",    file->target,  " && mkdir -p ",
                                file->target, " && tar -C ", file->target,
                                " -xf ",      upload,        " && rm -f ",
                                upload,       "\n" };
        CLEAN(cleanup_fd) int archive = memfd_create("sync", MFD_CLOEXEC);
        int r;

        if (archive < 0)
                return berth_fail(s->call, "cannot make an archive: %s", strerror(errno));
        r = sync_tar(s, file, true, archive);
        if (r == 0 && lseek(archive, 0, SEEK_SET) < 0)
                r = berth_fail(s->call, "cannot read an archive: %s", strerror(errno));
        if (r == 0)
                r = s->f->put(s->call, s->f->ctx, archive, upload);
        if (r != 0)
                return r;
        count_tree(s, file->source);
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
                if (i % 2)
                        shell_quote(script, words[i]);
                else
                        buf_puts(script, words[i]);
        return 0;
}

static int put_file(struct sync_run *s, const struct berth_sync_file *file, struct buf *script)
{
        CLEAN(cleanup_fd) int fd = open(file->source, O_RDONLY | O_CLOEXEC);
        CLEAN(cleanup_free) char *next = xasprintf("%s.berth-new", file->target);
        CLEAN(cleanup_free) char *parent = xstrdup(file->target);
        const char *upload = travel_name(s);
        const char *words[] = { "mkdir -p ", dirname(parent), " && cp ",    upload,       " ",
                                next,        " && chmod ",    NULL,         " && mv -f ", next,
                                " ",         file->target,    " && rm -f ", upload,       "\n" };
        int r;

        if (fd < 0)
                return berth_fail(s->call, "cannot read %s: %s", file->source, strerror(errno));
        r = s->f->put(s->call, s->f->ctx, fd, upload);
        if (r == 0)
                r = count_file(s, fd);
        if (r != 0)
                return r;
        /* The target appears whole, whatever ends the command in between. */
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
                if (!words[i]) {
                        buf_appendf(script, "%o ",
                                    file->mode >= 0 ? (unsigned)file->mode & 07777u : 0644u);
                        shell_quote(script, next);
                } else if (i % 2) {
                        shell_quote(script, words[i]);
                } else {
                        buf_puts(script, words[i]);
                }
        return 0;
}

/* All that is left to do of an operation is one command. */
static int sync_put(struct sync_run *s, const struct berth_sync_operation *o)
{
        CLEAN(buf_done) struct buf script = { .max = SCRIPT_MAX };
        int64_t limit_ms = RUN_MS;
        int r = 0;

        buf_puts(&script, "set -e; exec 2>&1\n");
        for (size_t i = 0; r == 0 && i < o->n_files; i++)
                r = o->files[i].is_directory ? put_directory(s, &o->files[i], &script)
                                             : put_file(s, &o->files[i], &script);
        for (size_t i = 0; r == 0 && i < o->n_commands; i++) {
                const struct berth_sync_command *k = &o->commands[i];

                buf_puts(&script, "( cd ");
                shell_quote(&script, k->cwd ? k->cwd : "/");
                buf_puts(&script, " && sh -c ");
                shell_quote(&script, k->command);
                buf_puts(&script, " )\n");
                limit_ms += k->timeout_ms;
        }
        return r == 0 ? sync_sh(s, &script, limit_ms) : r;
}

static int get_directory(struct sync_run *s, const struct berth_sync_file *file)
{
        const char *download = travel_name(s);
        CLEAN(buf_done) struct buf script = { .max = SCRIPT_MAX };
        CLEAN(buf_done) struct buf clean = { .max = SCRIPT_MAX };
        CLEAN(cleanup_fd) int archive = memfd_create("sync", MFD_CLOEXEC);
        int r;

        buf_puts(&script, "exec 2>&1; umask 077; tar -C ");
        shell_quote(&script, file->source);
        buf_puts(&script, file->follow_links ? " -h" : "");
        for (const char *const *x = file->exclude; *x; x++) {
                CLEAN(cleanup_free) char *word = xasprintf("--exclude=%s", *x);

                buf_putc(&script, ' ');
                shell_quote(&script, word);
        }
        buf_puts(&script, " -cf ");
        shell_quote(&script, download);
        buf_puts(&script, " .");
        buf_puts(&clean, "rm -f ");
        shell_quote(&clean, download);
        r = archive < 0 ? berth_fail(s->call, "cannot make an archive: %s", strerror(errno))
                        : sync_sh(s, &script, RUN_MS);
        if (r == 0)
                r = s->f->get(s->call, s->f->ctx, download, archive);
        if (r == 0 && lseek(archive, 0, SEEK_SET) < 0)
                r = berth_fail(s->call, "cannot read an archive: %s", strerror(errno));
        if (r == 0 && mkdir(file->target, 0700) < 0 && errno != EEXIST)
                r = berth_fail(s->call, "cannot make %s: %s", file->target, strerror(errno));
        if (r == 0)
                r = sync_sh(s, &clean, RUN_MS);
        if (r == 0)
                r = sync_tar(s, file, false, archive);
        if (r == 0)
                count_tree(s, file->target);
        return r;
}

static int get_file(struct sync_run *s, const struct berth_sync_file *file)
{
        CLEAN(cleanup_fd)
        int fd = open(file->target, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        int r;

        if (fd < 0)
                return berth_fail(s->call, "cannot write %s: %s", file->target, strerror(errno));
        r = s->f->get(s->call, s->f->ctx, file->source, fd);
        return r == 0 ? count_file(s, fd) : r;
}

int service_sync(struct berth_call *call, const struct service_files *f, bool is_in)
{
        struct sync_run s = { .call = call, .f = f };
        size_t n;
        const struct berth_sync_operation *o = berth_sync_operations(call, &n);
        int r = 0;

        for (size_t i = 0; r == 0 && i < n; i++) {
                s.files = s.bytes = 0;
                if (is_in)
                        r = sync_put(&s, &o[i]);
                for (size_t k = 0; r == 0 && !is_in && k < o[i].n_files; k++)
                        r = o[i].files[k].is_directory ? get_directory(&s, &o[i].files[k])
                                                       : get_file(&s, &o[i].files[k]);
                if (r == 0)
                        berth_sync_done(call, i, s.files, s.bytes);
        }
        return r;
}
