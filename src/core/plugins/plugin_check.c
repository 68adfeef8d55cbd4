/* `berth plugin sandbox-check`: what a worker could reach. The probes run in the worker's place,
 * confined like the worker (plugin/confine_probe.c); this file decides which of them may
 * succeed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/uuid.h"
#include "core/plugins/plugin_internal.h"
#include "plugin/env.h"
#include "rt/tool.h"

#define PROBES_MAX     200
#define PROBE_LIMIT_MS 30000
#define OUTPUT_MAX     ((size_t)256 << 10)

struct sandbox_check {
        struct op *op;
        struct plugin_registry *reg;
        const struct plugin *p;
        const struct worker_spec *spec;
        const char *probes[PROBES_MAX + 1];
        size_t n;
        struct buf errors; /* the trampoline's answer */
        struct plugin_sandbox *ret;
};

static void add_probe(struct sandbox_check *k, const char *kind, const char *value)
{
        if (k->n < PROBES_MAX && value)
                k->probes[k->n++] = arena_printf(k->op->arena, "%s=%s", kind, value);
}

static int add_other(void *ctx, const char *name)
{
        struct sandbox_check *k = ctx;

        if (!streq(name, k->p->id))
                add_probe(k, "read",
                          arena_printf(k->op->arena, "%s/%s", k->reg->private_dir, name));
        return 0;
}

/* Things that a worker must not reach. A missing one counts as refused, and its line says so. */
static void choose_probes(struct sandbox_check *k, const char *decoy)
{
        struct arena *a = k->op->arena;
        const struct runtime *rt = k->reg->config.rt;
        const char *home = getenv("HOME"), *port = rt->api_url ? strrchr(rt->api_url, ':') : NULL;

        add_probe(k, "read", k->reg->data_dir);
        add_probe(k, "read", arena_printf(a, "%s/secrets/master.key", k->reg->data_dir));
        add_probe(k, "read", arena_printf(a, "%s/berth.db", k->reg->data_dir));
        add_probe(k, "read", k->reg->packages_dir);
        if (home)
                add_probe(k, "read", home);
        if (home)
                add_probe(k, "read", arena_printf(a, "%s/.ssh", home));
        add_probe(k, "read", "/etc/shadow");
        (void)tree_each(k->reg->private_dir, add_other, k, NULL);
        add_probe(k, "read", decoy);
        add_probe(k, "decoy", decoy);
        add_probe(k, "process", arena_printf(a, "%d", (int)getpid()));
        if (port)
                add_probe(k, "connect", port + 1);
}

struct granted {
        const char *path;
        bool is;
};

static void look_at_grant(void *ctx, const char *item)
{
        struct granted *g = ctx;
        size_t n = strlen(item);

        if (strncmp(item, g->path, n) == 0 && (g->path[n] == '/' || !g->path[n]))
                g->is = true;
}

/* Workers may use the network, and may read the paths that the operator named. */
static bool is_allowed(const struct sandbox_check *k, const char *name, const char *what)
{
        const struct settings *s = &k->reg->config.rt->settings;
        struct granted g = { .path = what };

        if (streq(name, "read"))
                plugin_setting_each(s->plugin_paths, k->p->key, k->op->arena, look_at_grant, &g);
        return g.is || streq(name, "network");
}

/* name, what, reached or refused, why: a line of another form ends the check. */
static int read_probes(struct sandbox_check *k, struct buf *out, struct err *err)
{
        char *rest = arena_strdup(k->op->arena, buf_str(out)), *line;
        struct plugin_sandbox *s = k->ret;

        s->ok = true;
        s->probes = arena_alloc(k->op->arena, (out->len / 4 + 1) * sizeof(*s->probes));
        while ((line = strsep(&rest, "\n"))) {
                struct plugin_probe *p = &s->probes[s->n_probes];
                char *field[4];

                if (!*line)
                        continue;
                for (size_t i = 0; i < ARRAY_LEN(field); i++) {
                        field[i] = strsep(&line, "\t");
                        if (!field[i])
                                return err_set(err, ERR_PROVIDER, "the probes ended in the middle");
                }
                *p = (struct plugin_probe){ .name = field[0],
                                            .what = field[1],
                                            .detail = field[3],
                                            .reached = streq(field[2], "reached"),
                                            .allowed = is_allowed(k, field[0], field[1]) };
                s->ok = s->ok && (!p->reached || p->allowed);
                s->n_probes++;
        }
        return 0;
}

static void keep_error(void *ctx, const char *line)
{
        struct sandbox_check *k = ctx;

        if (k->errors.len < 1000)
                buf_appendf(&k->errors, "%s%s", k->errors.len ? "; " : "", line);
}

static int run_probes(struct sandbox_check *k, struct buf *out, struct err *err)
{
        struct plugin_host_config config = { .node = k->reg->config.rt->settings.node,
                                             .policy = &k->reg->policy };
        struct worker_spec spec = *k->spec;
        struct proc_status status = { 0 };
        struct tool tool = { .env = spec.env,
                             .cwd = spec.private_dir,
                             .limit_ms = PROBE_LIMIT_MS,
                             .out = out,
                             .line = keep_error,
                             .ctx = k };
        struct op shield = op_shield(k->op, PLUGIN_SHIELD_MS);
        struct stat st;

        /* The running worker uses its own copies. */
        spec.copies = arena_printf(k->op->arena, "%s.check", spec.copies);
        spec.probes = k->probes;
        int r = plugin_host_command(k->op, &config, &spec, k->op->arena, &tool.path, &tool.argv,
                                    err);
        if (r >= 0)
                r = tool_run(k->op, &tool, &status, err);
        if (r >= 0 && (status.exit_code != 0 || out->len == 0))
                r = err_set(err, ERR_PROVIDER, "the probes could not be run: %s",
                            k->errors.len ? buf_str(&k->errors) : "they said nothing");
        k->ret->user = arena_printf(
                k->op->arena, "%u",
                (unsigned)(confine_has_users(&k->reg->policy) && stat(spec.private_dir, &st) == 0
                                   ? st.st_uid
                                   : geteuid()));
        (void)tree_remove(&shield, spec.copies, NULL);
        return r;
}

int plugin_sandbox_check(struct op *op, struct runtime *rt, const char *id_or_key,
                         struct plugin_sandbox *ret, struct err *err)
{
        CLEAN(buf_done) struct buf out = { .max = OUTPUT_MAX };
        struct plugin_registry *reg = rt->plugins;
        struct confine_policy *policy = &reg->policy;
        struct sandbox_check k = { .op = op, .reg = reg, .p = &ret->plugin, .ret = ret };
        struct worker_spec spec;
        int r = access_admin(op->actor, "Instance admin access required", err);

        *ret = (struct plugin_sandbox){ 0 };
        if (r >= 0)
                r = plugin_load_row(op, rt, id_or_key, &ret->plugin, err);
        if (r >= 0 && !policy->trampoline)
                r = err_set(err, ERR_UNPROCESSABLE, "the program that confines was not found");
        if (r >= 0)
                r = plugin_make_spec(op, reg, &ret->plugin, &spec, err);
        if (r < 0)
                return r;
        k.spec = &spec;
        const char *decoy = arena_printf(op->arena, "%s/decoy-%s", reg->plugin_dir, uuid_new().s);
        r = file_write_at(AT_FDCWD, decoy, "", 0, 0600, err);
        if (r < 0)
                return r;
        choose_probes(&k, decoy);
        r = run_probes(&k, &out, err);
        if (r >= 0)
                r = read_probes(&k, &out, err);
        if (!confine_has_view(policy))
                ret->no_view = policy->confine ? policy->view_failure : "plugin_confine is false";
        ret->landlock = policy->confine ? confine_landlock_version() : 0;
        (void)unlink(decoy);
        buf_done(&k.errors);
        return r;
}
