/* Which specifications of a sandbox are valid, and their encoding. */
#define _GNU_SOURCE
#include "box/sandbox_spec.h"

#include <stdio.h>

#include "codec/frame.h"

#define MAGIC             "BSBX"
#define VERSION           3
#define FIRST_MAPPABLE_ID 1000U /* below it are the users of the system */

static const char *const means_names[] = {
        [SANDBOX_BY_NOTHING] = "",        [SANDBOX_BY_CGROUP2] = "cgroup2",
        [SANDBOX_BY_CGROUP1] = "cgroup1", [SANDBOX_BY_RLIMIT] = "rlimit",
        [SANDBOX_BY_TMPFS] = "tmpfs",     [SANDBOX_BY_IMAGE] = "image",
        [SANDBOX_BY_BOX] = "box",         [SANDBOX_BY_SIGNALS] = "signals",
};

const char *sandbox_means_name(enum sandbox_means means)
{
        return (size_t)means < ARRAY_LEN(means_names) ? means_names[means] : "";
}

/* The supervisor of a daemon that is not root is that daemon's own user. */
uint32_t sandbox_host_id(const struct sandbox_spec *spec, uint32_t inner)
{
        if (inner != SANDBOX_SUPERVISOR)
                return spec->first_id + inner;
        return geteuid() == 0 ? spec->first_id + spec->n_ids - 1 : (uint32_t)geteuid();
}

static bool has_user(const struct sandbox_spec *spec)
{
        return spec->user_id || spec->group_id;
}

uint32_t sandbox_user_id(const struct sandbox_spec *spec)
{
        return has_user(spec) ? spec->user_id : SANDBOX_AGENT;
}

uint32_t sandbox_group_id(const struct sandbox_spec *spec)
{
        return has_user(spec) ? spec->group_id : SANDBOX_AGENT;
}

/* Checking */

static int check_path(const char *what, const char *path, struct err *err)
{
        if (path[0] != '/')
                return err_set(err, ERR_UNPROCESSABLE, "%s must be an absolute path", what);
        if (strlen(path) >= 4096)
                return err_set(err, ERR_UNPROCESSABLE, "%s is too long", what);
        return 0;
}

static int check_paths(const struct sandbox_spec *s, struct err *err)
{
        const struct {
                const char *what, *path;
        } paths[] = {
                { "output directory", s->output_dir },   { "storage", s->storage_path },
                { "workspace", s->workspace_dir },       { "workspace path", s->workspace_path },
                { "working directory", s->working_dir },
        };
        int r;

        for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
                r = paths[i].path ? check_path(paths[i].what, paths[i].path, err) : 0;
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; i < s->n_base; i++) {
                if (!s->base[i])
                        return err_set(err, ERR_UNPROCESSABLE, "a base has no path");
                r = check_path("base", s->base[i], err);
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; i < s->n_layers; i++) {
                if (!s->layers[i].path)
                        return err_set(err, ERR_UNPROCESSABLE, "a layer has no path");
                r = check_path("layer", s->layers[i].path, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

bool sandbox_path_is_plain(const char *path)
{
        if (*path != '/')
                return false;
        for (const char *at = path; at; at = strchr(at + 1, '/'))
                if (str_starts(at, "/./") || str_starts(at, "/../") || str_starts(at, "//") ||
                    streq(at, "/") || streq(at, "/.") || streq(at, "/.."))
                        return false;
        return true;
}

/* Where the workspace may lie inside: not over what makes the sandbox one. */
static int check_inside(const char *path, struct err *err)
{
        static const char *const taken[] = { "/proc", "/dev", "/sys",   "/usr", "/bin",
                                             "/sbin", "/lib", "/lib64", "/etc", "/run" };

        if (!path)
                return 0;
        if (!sandbox_path_is_plain(path))
                return err_set(err, ERR_UNPROCESSABLE,
                               "workspace path '%s' must be plain, without '.', '..' or empty "
                               "parts",
                               path);
        for (size_t i = 0; i < ARRAY_LEN(taken); i++) {
                size_t n = strlen(taken[i]);

                if (str_starts(path, taken[i]) && (!path[n] || path[n] == '/'))
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "workspace path '%s' lies in %s, which the sandbox makes "
                                       "itself",
                                       path, taken[i]);
        }
        return 0;
}

static int check_hostname(const char *name, struct err *err)
{
        size_t n = name ? strlen(name) : 1;

        if (n == 0 || n > 63)
                return err_set(err, ERR_UNPROCESSABLE, "hostname must have 1 to 63 characters");
        if (name &&
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != n)
                return err_set(err, ERR_UNPROCESSABLE,
                               "hostname may only have letters, digits and '-'");
        return 0;
}

static int check_ids(const struct sandbox_spec *s, struct err *err)
{
        if (s->n_ids < SANDBOX_MIN_IDS)
                return err_set(err, ERR_UNPROCESSABLE, "a sandbox needs at least %u ids",
                               SANDBOX_MIN_IDS);
        if (s->first_id < FIRST_MAPPABLE_ID || s->n_ids > SANDBOX_SUPERVISOR ||
            s->first_id > UINT32_MAX - 1 - s->n_ids)
                return err_set(err, ERR_UNPROCESSABLE,
                               "ids %u to %llu cannot be given to a sandbox", s->first_id,
                               (unsigned long long)s->first_id + s->n_ids - 1);
        return 0;
}

static int check_values(const struct sandbox_spec *s, struct err *err)
{
        if (s->n_layers > SANDBOX_MAX_LAYERS)
                return err_set(err, ERR_UNPROCESSABLE, "more than %d layers", SANDBOX_MAX_LAYERS);
        if (s->n_base > SANDBOX_MAX_BASE)
                return err_set(err, ERR_UNPROCESSABLE, "more than %d layers in an image",
                               SANDBOX_MAX_BASE);
        if (s->root_inside && !s->n_base)
                return err_set(err, ERR_UNPROCESSABLE, "root inside needs a rootfs or an image");
        /* The last id is the supervisor's. */
        if (sandbox_user_id(s) >= s->n_ids - 1 || sandbox_group_id(s) >= s->n_ids - 1)
                return err_set(err, ERR_UNPROCESSABLE,
                               "commands cannot be user %u, group %u: the sandbox has ids up to "
                               "%u",
                               sandbox_user_id(s), sandbox_group_id(s), s->n_ids - 2);
        /* It is made before the root is changed: nothing may lead out of it. */
        if (s->working_dir && !sandbox_path_is_plain(s->working_dir))
                return err_set(err, ERR_UNPROCESSABLE,
                               "working directory '%s' must be plain, without '.', '..' or empty "
                               "parts",
                               s->working_dir);
        if (s->storage != SANDBOX_STORE_TMPFS && !s->storage_path)
                return err_set(err, ERR_UNPROCESSABLE, "this kind of storage needs a path");
        if (s->workspace != SANDBOX_WORK_PRIVATE && !s->workspace_dir)
                return err_set(err, ERR_UNPROCESSABLE, "this kind of workspace needs a directory");
        return 0;
}

int sandbox_spec_check(const struct sandbox_spec *s, struct err *err)
{
        int r = check_ids(s, err);

        if (r >= 0)
                r = check_values(s, err);
        if (r >= 0)
                r = check_paths(s, err);
        if (r >= 0)
                r = check_inside(s->workspace_path, err);
        return r < 0 ? r : check_hostname(s->hostname, err);
}

/* The spec: magic, version, then the fields in the order of the struct; an empty string is NULL. */

enum { FLAG_NESTED = 1, FLAG_ROOT = 2, FLAG_OWN_USERS = 4, FLAG_ALL = 7 };

static void put_text(struct frame_out *o, const char *s)
{
        frame_put_str(o, s ? s : "", s ? strlen(s) : 0);
}

void sandbox_spec_encode(const struct sandbox_spec *s, struct buf *out)
{
        struct frame_out o = { out, 0 };

        frame_put_blob(&o, MAGIC, 4);
        frame_put_u16(&o, VERSION);
        frame_put_u32(&o, s->first_id);
        frame_put_u32(&o, s->n_ids);
        put_text(&o, s->output_dir);
        frame_put_u32(&o, s->n_base);
        for (uint32_t i = 0; i < s->n_base; i++)
                put_text(&o, s->base[i]);
        frame_put_u32(&o, s->n_layers);
        for (uint32_t i = 0; i < s->n_layers; i++) {
                put_text(&o, s->layers[i].path);
                frame_put_u32(&o, s->layers[i].first_id);
                frame_put_u8(&o, (uint8_t)s->layers[i].form);
        }
        frame_put_u8(&o, (uint8_t)s->storage);
        put_text(&o, s->storage_path);
        frame_put_u8(&o, (uint8_t)s->workspace);
        put_text(&o, s->workspace_dir);
        put_text(&o, s->workspace_path);
        frame_put_u8(&o, (uint8_t)s->network);
        frame_put_u8(&o, (uint8_t)((s->nested_sandbox ? FLAG_NESTED : 0) |
                                   (s->root_inside ? FLAG_ROOT : 0) |
                                   (s->own_users ? FLAG_OWN_USERS : 0)));
        frame_put_u32(&o, s->user_id);
        frame_put_u32(&o, s->group_id);
        put_text(&o, s->working_dir);
        put_text(&o, s->hostname);
        frame_put_u64(&o, s->limits.memory_bytes);
        frame_put_u64(&o, s->limits.disk_bytes);
        frame_put_u64(&o, s->limits.inodes);
        frame_put_u64(&o, s->limits.wall_ms);
        frame_put_u32(&o, s->limits.processes);
        frame_put_u32(&o, s->limits.cpu_millis);
        frame_put_u32(&o, s->limits.open_files);
}

/* Strings are copied behind one another; there is room because each is shorter than its encoding.
 */
struct decoder {
        struct frame_in in;
        char *store;
};

static const char *get_text(struct decoder *d)
{
        struct frame_bytes s = frame_get_str(&d->in);
        char *at = d->store;

        if (d->in.bad || s.len == 0)
                return NULL;
        memcpy(at, s.p, s.len);
        at[s.len] = '\0';
        d->store += s.len + 1;
        return at;
}

static int get_choice(struct decoder *d, uint8_t last)
{
        uint8_t v = frame_get_u8(&d->in);

        if (v > last)
                d->in.bad = true;
        return v > last ? 0 : v;
}

static uint32_t get_count(struct decoder *d, uint32_t max)
{
        uint32_t n = frame_get_u32(&d->in);

        if (n > max)
                d->in.bad = true;
        return n > max ? 0 : n;
}

static void get_fields(struct decoder *d, struct sandbox_spec *s)
{
        s->first_id = frame_get_u32(&d->in);
        s->n_ids = frame_get_u32(&d->in);
        s->output_dir = get_text(d);
        s->n_base = get_count(d, SANDBOX_MAX_BASE);
        for (uint32_t i = 0; i < s->n_base; i++)
                s->base[i] = get_text(d);
        s->n_layers = get_count(d, SANDBOX_MAX_LAYERS);
        for (uint32_t i = 0; i < s->n_layers; i++) {
                s->layers[i].path = get_text(d);
                s->layers[i].first_id = frame_get_u32(&d->in);
                s->layers[i].form = (enum sandbox_layer_form)get_choice(d, SANDBOX_LAYER_PLACE);
        }
        s->storage = (enum sandbox_storage)get_choice(d, SANDBOX_STORE_IMAGE);
        s->storage_path = get_text(d);
        s->workspace = (enum sandbox_workspace)get_choice(d, SANDBOX_WORK_OVERLAY);
        s->workspace_dir = get_text(d);
        s->workspace_path = get_text(d);
        s->network = (enum sandbox_network)get_choice(d, SANDBOX_NET_HOST);
        int flags = get_choice(d, FLAG_ALL);
        s->nested_sandbox = flags & FLAG_NESTED;
        s->root_inside = flags & FLAG_ROOT;
        s->own_users = flags & FLAG_OWN_USERS;
        s->user_id = frame_get_u32(&d->in);
        s->group_id = frame_get_u32(&d->in);
        s->working_dir = get_text(d);
        s->hostname = get_text(d);
        s->limits.memory_bytes = frame_get_u64(&d->in);
        s->limits.disk_bytes = frame_get_u64(&d->in);
        s->limits.inodes = frame_get_u64(&d->in);
        s->limits.wall_ms = frame_get_u64(&d->in);
        s->limits.processes = frame_get_u32(&d->in);
        s->limits.cpu_millis = frame_get_u32(&d->in);
        s->limits.open_files = frame_get_u32(&d->in);
}

int sandbox_spec_decode(const void *bytes, size_t len, struct sandbox_spec *ret, char **ret_store,
                        struct err *err)
{
        struct sandbox_spec s = { 0 };
        CLEAN(cleanup_free) char *store = NULL;
        struct decoder d;

        if (len > SANDBOX_MAX_SPEC || len < 6 || memcmp(bytes, MAGIC, 4) != 0)
                return err_set(err, ERR_INVALID, "this is not the description of a sandbox");
        store = xcalloc(1, len + 1);
        d.store = store;
        frame_in_init(&d.in, (const char *)bytes + 4, len - 4);
        if (frame_get_u16(&d.in) != VERSION)
                return err_set(err, ERR_INVALID,
                               "the description of the sandbox is of another version");
        get_fields(&d, &s);
        if (frame_in_end(&d.in, NULL) < 0)
                return err_set(err, ERR_INVALID, "the description of the sandbox is malformed");
        int r = sandbox_spec_check(&s, err);
        if (r < 0)
                return r;
        *ret = s;
        *ret_store = take_ptr(&store);
        return 0;
}

/* The report */

static const struct {
        const char *name;
        size_t offset;
} report_means[] = {
        { "memory", offsetof(struct sandbox_report, memory) },
        { "processes", offsetof(struct sandbox_report, processes) },
        { "cpu", offsetof(struct sandbox_report, cpu) },
        { "open_files", offsetof(struct sandbox_report, open_files) },
        { "disk", offsetof(struct sandbox_report, disk) },
        { "inodes", offsetof(struct sandbox_report, inodes) },
        { "wall", offsetof(struct sandbox_report, wall) },
        { "freeze", offsetof(struct sandbox_report, freeze) },
};

static const struct {
        const char *name;
        size_t offset;
} report_flags[] = {
        { "rootless", offsetof(struct sandbox_report, rootless) },
        { "idmapped", offsetof(struct sandbox_report, idmapped) },
        { "seccomp", offsetof(struct sandbox_report, seccomp) },
        { "no_new_privs", offsetof(struct sandbox_report, no_new_privs) },
        { "hidden_pids", offsetof(struct sandbox_report, hidden_pids) },
};

void sandbox_report_encode(const struct sandbox_report *r, struct buf *out)
{
        for (size_t i = 0; i < ARRAY_LEN(report_means); i++) {
                enum sandbox_means m;

                memcpy(&m, (const char *)r + report_means[i].offset, sizeof(m));
                if (m != SANDBOX_BY_NOTHING)
                        buf_appendf(out, "%s %s\n", report_means[i].name, sandbox_means_name(m));
        }
        for (size_t i = 0; i < ARRAY_LEN(report_flags); i++)
                if (*((const char *)r + report_flags[i].offset))
                        buf_appendf(out, "%s yes\n", report_flags[i].name);
        buf_appendf(out, "exec_kill %u\nids %u %u %u\nnamespaces %s\n", r->exec_kill_method,
                    r->root_id, r->agent_id, r->supervisor_id, r->namespaces);
        if (r->cgroup[0])
                buf_appendf(out, "cgroup %s\n", r->cgroup);
}

static void copy_text(char *to, size_t size, const char *from)
{
        size_t n = strnlen(from, size - 1);

        memcpy(to, from, n);
        to[n] = '\0';
}

static void report_line(struct sandbox_report *r, const char *name, const char *value)
{
        enum sandbox_means m = SANDBOX_BY_NOTHING;
        unsigned number;

        for (size_t i = 0; i < ARRAY_LEN(means_names); i++)
                if (streq(means_names[i], value))
                        m = (enum sandbox_means)i;
        for (size_t i = 0; i < ARRAY_LEN(report_means); i++)
                if (streq(name, report_means[i].name))
                        memcpy((char *)r + report_means[i].offset, &m, sizeof(m));
        for (size_t i = 0; i < ARRAY_LEN(report_flags); i++)
                if (streq(name, report_flags[i].name))
                        *((bool *)((char *)r + report_flags[i].offset)) = streq(value, "yes");
        if (streq(name, "exec_kill") && sscanf(value, "%u", &number) == 1)
                r->exec_kill_method = (uint8_t)number;
        else if (streq(name, "ids"))
                (void)sscanf(value, "%u %u %u", &r->root_id, &r->agent_id, &r->supervisor_id);
        else if (streq(name, "namespaces"))
                copy_text(r->namespaces, sizeof(r->namespaces), value);
        else if (streq(name, "cgroup"))
                copy_text(r->cgroup, sizeof(r->cgroup), value);
        else if (streq(name, "ready") && sscanf(value, "%d %u", &r->pid, &number) == 2)
                r->kill_method = (uint8_t)number;
}

void sandbox_report_decode(const char *text, struct sandbox_report *ret)
{
        *ret = (struct sandbox_report){ 0 };
        while (*text) {
                char name[32], value[640];

                if (sscanf(text, "%31[^ \n] %639[^\n]", name, value) == 2)
                        report_line(ret, name, value);
                text = strchrnul(text, '\n');
                text += *text == '\n';
        }
}
