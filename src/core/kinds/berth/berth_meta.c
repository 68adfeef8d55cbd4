/* What a lease's metadata says of its sandbox: which limits are enforced and by what, which are
 * not, and how strong the isolation is. */
#include <fcntl.h>
#include <stdio.h>

#include "base/fd.h"
#include "core/kinds/berth/berth.h"
#include "core/kinds/berth/snapshot.h"

#define REPORT_MAX ((size_t)256 << 10)

/* Values of variables may be secrets, and the size of the pool says nothing of this lease. */
static const char *const left_out[] = { "env", "poolSize" };

static void add_limit(json_t *limits, json_t *missing, const char *name, json_t *take_value,
                      enum sandbox_means means, bool enforced)
{
        if (!take_value)
                return;
        if (!enforced)
                json_array_append_new(missing, json_string(name));
        json_object_set_new(
                limits, name,
                json_pack("{s:o, s:b, s:o}", "value", take_value, "enforced", enforced, "by",
                          means == SANDBOX_BY_NOTHING ? json_null()
                                                      : json_string(sandbox_means_name(means))));
}

static json_t *member(const json_t *config, const char *key)
{
        json_t *v = json_object_get(config, key);

        return v ? json_incref(v) : NULL;
}

static void add_limits(json_t *sandbox, const json_t *config, const struct sandbox_report *r)
{
        json_t *limits = json_object(), *missing = json_array();
        const struct {
                const char *name;
                enum sandbox_means by;
        } all[] = {
                { "memoryMb", r->memory },
                { "cpus", r->cpu },
                { "maxProcesses", r->processes },
                { "maxOpenFiles", r->open_files },
                { "diskMb", r->disk },
                { "outputMb", SANDBOX_BY_BOX },
                { "outputPlaceMb", SANDBOX_BY_BOX },
                { "wallTimeMs", r->wall },
        };

        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                bool enforced = all[i].by != SANDBOX_BY_NOTHING;

                /* An rlimit holds each process to what it maps for itself; together they may take
                 * more, and shared memory does not count. */
                if (streq(all[i].name, "memoryMb") && all[i].by == SANDBOX_BY_RLIMIT)
                        enforced = false;
                add_limit(limits, missing, all[i].name, member(config, all[i].name), all[i].by,
                          enforced);
        }
        json_object_set_new(sandbox, "limits", limits);
        json_object_set_new(sandbox, "notEnforced", missing);
}

static json_t *words(const char *text)
{
        json_t *list = json_array();

        while (*text) {
                size_t n = strcspn(text, " ");

                if (n > 0)
                        json_array_append_new(list, json_stringn(text, n));
                text += n + (text[n] == ' ');
        }
        return list;
}

json_t *berth_describe(const json_t *config, const struct sandbox_report *report)
{
        json_t *m = json_copy((json_t *)config), *sandbox;

        for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
                json_object_del(m, left_out[i]);
        json_t *fork = json_object_get(m, FORK_MEMBER);
        if (fork) {
                json_object_set_new(m, "fork",
                                    json_pack("{s:O, s:O}", "leaseId",
                                              json_object_get(fork, "leaseId"), "filesBy",
                                              json_object_get(fork, "filesBy")));
                json_object_del(m, FORK_MEMBER);
        }
        json_object_set_new(m, "remoteCwd", json_string(BERTH_WORKSPACE));
        json_object_set_new(m, "isolation", json_string("shared kernel"));
        sandbox = json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "pid", (int)report->pid,
                            "namespaces", words(report->namespaces), "seccomp", report->seccomp,
                            "noNewPrivileges", report->no_new_privs, "hiddenPids",
                            report->hidden_pids, "rootless", report->rootless, "idMapped",
                            report->idmapped);
        /* Only root can give files to other users, and show them with other owners. */
        if (json_get_string(config, "image"))
                json_object_set_new(sandbox, "imageOwners",
                                    json_string(report->rootless ? "flat" : "kept"));
        json_object_set_new(sandbox, "hostIds",
                            json_pack("{s:I, s:I, s:I}", "root", (json_int_t)report->root_id,
                                      "agent", (json_int_t)report->agent_id, "supervisor",
                                      (json_int_t)report->supervisor_id));
        json_object_set_new(sandbox, "pausedBy",
                            report->freeze == SANDBOX_BY_NOTHING
                                    ? json_null()
                                    : json_string(sandbox_means_name(report->freeze)));
        add_limits(sandbox, config, report);
        json_object_set_new(m, "sandbox", sandbox);
        return m;
}

/* For readers, so it need not be on the disk before the lease is. */
void berth_keep_report(const char *dir, const json_t *metadata)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/report", dir);
        CLEAN(cleanup_free) char *text = json_to_text(metadata);
        CLEAN(cleanup_fd) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        if (fd >= 0)
                (void)fd_write_all(fd, text, strlen(text), NULL);
}

json_t *berth_read_report(const char *dir)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/report", dir);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        json_t *metadata = NULL;

        if (file_read_at(AT_FDCWD, path, REPORT_MAX, &text, NULL) < 0 ||
            json_parse(buf_str(&text), text.len, &metadata, NULL) < 0)
                return json_object();
        return metadata;
}
