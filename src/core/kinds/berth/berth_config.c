/* One table says what a configuration may hold; the checks, the defaults and the schema that
 * clients see are all made from it. */
#include "codec/check.h"
#include "codec/host_pattern.h"
#include "codec/private_hosts.h"
#include "core/kinds/berth/berth.h"
#include "core/kinds/berth/snapshot.h"
#include "core/roots/workspace_root.h"
#include "core/sandboxes/sandbox_host.h"
#include "image/reference.h"

#define TIMEOUT_MAX    86400000
#define WALL_MAX       (INT64_C(366) * 86400000)
#define HOSTS_MAX      256
#define NAME_CHARS_MAX 64

enum field_kind { TEXT, CHOICE, INTEGER, NUMBER, TRUTH, HOSTS, VARIABLES };

struct field {
        const char *name;
        enum field_kind kind;
        const char *fallback; /* JSON; NULL: left out when it is not given */
        int64_t min, max;     /* numbers */
        const char *const *choices;
        const char *text;
};

static const char *const users[] = { "agent", "root", NULL };
static const char *const networks[] = { "none", "allowlist", "host", NULL };
static const char *const storages[] = { "memory", "disk", "image", NULL };
static const char *const workspaces[] = { "private", NULL };
static const char *const pulls[] = { "missing", "always", "never", NULL };
static const char *const outputs[] = { "wait", "drop", NULL };

/* The first three come first in what is stored, as with every provider. */
static const struct field fields[] = {
        { "timeoutMs", INTEGER, NULL, 1, TIMEOUT_MAX, NULL,
          "Time limit of a command that brings none of its own, in milliseconds." },
        { "reuseLease", TRUTH, "false", 0, 0, NULL,
          "Keep the sandbox, with its home and workspace, for the environment's next run. It is "
          "frozen in between." },
        { "rootfs", TEXT, NULL, 0, 0, NULL,
          "Directory with the root of a system (debootstrap, an unpacked image), read-only beneath "
          "a private writable layer. It has to lie in one of the daemon's sandbox_rootfs_dirs. "
          "Without it the sandbox gets the host's /usr, read-only, and an /etc made for it." },
        { "image", TEXT, NULL, 0, 0, NULL,
          "The OCI image that the sandbox is made of, instead of a rootfs: debian:12, "
          "ghcr.io/org/name:tag, name@sha256:.... It gives defaults for user, working directory and "
          "variables (docs/images.md)." },
        { "pull", CHOICE, NULL, 0, 0, pulls,
          "When the image is got from its registry. missing: when it is not here. always: before "
          "each new sandbox. never: only by `berth image pull`. Without it: missing." },
        { "user", CHOICE, "\"agent\"", 0, 0, users,
          "Who commands run as: agent, or root of the sandbox with a few capabilities, which needs "
          "rootfs or image. Neither is a user of the host. With an image: the image's user, unless "
          "this is given." },
        { "network", CHOICE, "\"none\"", 0, 0, networks,
          "none: loopback only. allowlist: a proxy that reaches allowedHosts and nothing else. "
          "host: the host's own network; refused while the daemon trusts everybody on loopback." },
        { "allowedHosts", HOSTS, "[]", 0, HOSTS_MAX, NULL,
          "With network allowlist: names, *.names or addresses, each with an optional :port "
          "(otherwise 80 and 443)." },
        { "nestedSandbox", TRUTH, "false", 0, 0, NULL,
          "Allow user namespaces inside, for programs with a sandbox of their own (Chromium, "
          "bubblewrap). More of the kernel can be reached then." },
        { "memoryMb", INTEGER, "2048", 16, 4194304, NULL, "Memory, in MiB." },
        { "cpus", NUMBER, "2", 0, 4096, NULL, "Processors; fractions are fine." },
        { "maxProcesses", INTEGER, "512", 4, 4194304, NULL, "Processes and threads." },
        { "maxOpenFiles", INTEGER, "4096", 64, 1048576, NULL, "Open files of one process." },
        { "diskMb", INTEGER, "2048", 16, 16777216, NULL,
          "What can be written, in MiB. Enforced with storage memory and image. What commands print "
          "is kept beside it: outputPlaceMb." },
        { "outputMb", INTEGER, NULL, 1, 16777216, NULL,
          "What is kept of one command's output, in MiB. Else output_max_mb of the daemon." },
        { "outputPlaceMb", INTEGER, NULL, 1, 16777216, NULL,
          "What is kept of the output of all commands of a sandbox, in MiB. Else "
          "output_place_max_mb of the daemon, but no more than diskMb." },
        { "outputFull", CHOICE, NULL, 0, 0, outputs,
          "What happens at these limits. wait: the command waits for room, for a bounded time, and "
          "is then ended. drop: its oldest output goes. Else output_full of the daemon." },
        { "storage", CHOICE, "\"memory\"", 0, 0, storages,
          "Where it is written. memory: fast, gone with the sandbox. disk: a directory of the "
          "daemon, for snapshots; its size is not bounded. image: a file with ext4 in it." },
        { "wallTimeMs", INTEGER, NULL, 1000, WALL_MAX, NULL,
          "The sandbox ends after this time, in milliseconds." },
        { "env", VARIABLES, "{}", 0, 0, NULL, "Variables for every command." },
        { "snapshot", TEXT, NULL, 0, 0, NULL,
          "Name of a snapshot to start from (`berth lease snapshot`)." },
        { "workspaceMode", CHOICE, "\"private\"", 0, 0, workspaces,
          "What /workspace is. private: an empty directory of its own." },
        { "poolSize", INTEGER, "0", 0, 256, NULL,
          "Sandboxes made in advance, so that a lease only takes one." },
};

static json_t *fallback_of(const struct field *f)
{
        json_t *v = NULL;

        if (f->fallback)
                (void)json_parse(f->fallback, strlen(f->fallback), &v, NULL);
        return v;
}

/* Schema */

static const char *type_of(enum field_kind kind)
{
        switch (kind) {
        case INTEGER:
                return "integer";
        case NUMBER:
                return "number";
        case TRUTH:
                return "boolean";
        case HOSTS:
                return "array";
        case VARIABLES:
                return "object";
        default:
                return "string";
        }
}

static json_t *describe_field(const struct field *f)
{
        json_t *d = json_pack("{s:s, s:s}", "type", type_of(f->kind), "description", f->text);

        if (f->kind == CHOICE) {
                json_t *list = json_array();

                for (const char *const *c = f->choices; *c; c++)
                        json_array_append_new(list, json_string(*c));
                json_object_set_new(d, "enum", list);
        }
        if (f->kind == INTEGER) {
                json_object_set_new(d, "minimum", json_integer(f->min));
                json_object_set_new(d, "maximum", json_integer(f->max));
        }
        if (f->kind == NUMBER) {
                json_object_set_new(d, "exclusiveMinimum", json_integer(f->min));
                json_object_set_new(d, "maximum", json_integer(f->max));
        }
        if (f->kind == HOSTS) {
                json_object_set_new(d, "items", json_pack("{s:s}", "type", "string"));
                json_object_set_new(d, "maxItems", json_integer(f->max));
        }
        if (f->kind == VARIABLES)
                json_object_set_new(d, "additionalProperties",
                                    json_pack("{s:s}", "type", "string"));
        if (f->fallback)
                json_object_set_new(d, "default", fallback_of(f));
        return d;
}

json_t *berth_schema(const struct kind *kind)
{
        json_t *members = json_object();

        for (size_t i = 0; i < ARRAY_LEN(fields); i++)
                json_object_set_new(members, fields[i].name, describe_field(&fields[i]));
        return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", members,
                         "additionalProperties", 0);
}

/* Checks */

static json_t *check_hosts(struct check *c, const struct field *f)
{
        json_t *hosts = check_strings(c, f->name, CHECK_NULLABLE, 1), *host;
        size_t i;

        check_array_size(c, f->name, hosts, 0, (size_t)f->max);
        json_array_foreach(hosts, i, host)
        {
                CLEAN(err_done) struct err err = { 0 };
                struct host_pattern pattern;

                if (json_is_string(host) &&
                    host_pattern_parse(json_string_value(host), json_string_length(host), &pattern,
                                       &err) < 0)
                        check_custom(c, f->name, err.msg);
        }
        return json_incref(hosts);
}

static bool is_variable_name(const char *s)
{
        if (!*s)
                return false;
        for (; *s; s++)
                if (*s == '=' || (unsigned char)*s <= ' ')
                        return false;
        return true;
}

static json_t *check_variables(struct check *c, const struct field *f)
{
        json_t *env = check_record(c, f->name, CHECK_NULLABLE), *value;
        const char *name;
        struct check n;

        check_nested(&n, c, f->name, env);
        json_object_foreach(env, name, value)
        {
                (void)check_string(&n, name, CHECK_REQUIRED, 0, 0);
                if (!is_variable_name(name))
                        check_custom(&n, name, "Not a name for a variable");
        }
        return json_incref(env);
}

static json_t *number_or_null(bool present, double d)
{
        if (!present)
                return NULL;
        return d == (double)(int64_t)d ? json_integer((json_int_t)d) : json_real(d);
}

/* A new reference, or NULL when it is absent or refused. */
static json_t *check_field(struct check *c, const struct field *f)
{
        const char *text;
        bool present;
        int64_t n;
        double d;

        switch (f->kind) {
        case CHOICE:
                text = check_has(c, f->name) ? check_enum(c, f->name, CHECK_NULLABLE, f->choices)
                                             : NULL;
                return text ? json_string(text) : NULL;
        case INTEGER:
                n = check_int(c, f->name, CHECK_NULLABLE, f->min, f->max, &present);
                return present ? json_integer(n) : NULL;
        case NUMBER:
                d = check_number(c, f->name, CHECK_NULLABLE | CHECK_POSITIVE, f->min, f->max,
                                 &present);
                return number_or_null(present, d);
        case TRUTH:
                if (!check_has(c, f->name))
                        return NULL;
                return json_boolean(check_bool(c, f->name, CHECK_NULLABLE, false));
        case HOSTS:
                return check_hosts(c, f);
        case VARIABLES:
                return check_variables(c, f);
        default:
                text = check_string(c, f->name, CHECK_NULLABLE | CHECK_TRIM, 1, 0);
                return text ? json_string(text) : NULL;
        }
}

bool sandbox_name_is_valid(const char *s)
{
        size_t n = strlen(s);

        if (uuid_is_valid(s)) /* that would be an id */
                return false;
        for (const char *p = s; *p; p++) {
                bool alnum = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                             (*p >= '0' && *p <= '9');

                if (!alnum && (p == s || !strchr("._-", *p)))
                        return false;
        }
        return n >= 1 && n <= NAME_CHARS_MAX;
}

static bool is_plain_path(const char *s)
{
        return *s == '/' && s[1] != '\0' && strlen(s) < 4000 && !strstr(s, "/../") &&
               !strstr(s, "//") && !(strlen(s) > 3 && streq(s + strlen(s) - 3, "/.."));
}

static bool says(const json_t *config, const char *key, const char *value)
{
        const char *s = json_get_string(config, key);

        return s && streq(s, value);
}

/* Checks of fields against each other. */
static void check_together(struct check *c, const json_t *config)
{
        const char *rootfs = json_get_string(config, "rootfs");
        const char *snapshot = json_get_string(config, "snapshot");
        const char *image = json_get_string(config, "image");
        CLEAN(err_done) struct err why = { 0 };
        struct image_ref ref;
        bool lists_hosts = json_array_size(json_object_get(config, "allowedHosts")) > 0;

        if (rootfs && !is_plain_path(rootfs))
                check_custom(c, "rootfs", "rootfs must be an absolute path without `..`.");
        if (image && image_ref_parse(image, &ref, &why) < 0)
                check_custom(c, "image", why.msg);
        if (image && rootfs)
                check_custom(c, "image", "image and rootfs exclude each other.");
        if (json_get_string(config, "pull") && !image)
                check_custom(c, "pull", "pull needs an image.");
        if (says(config, "pull", "always") && berth_stock_size(config) > 0)
                check_custom(c, "pull",
                             "pull \"always\" and poolSize exclude each other: sandboxes made in "
                             "advance have the image of that time.");
        if (says(config, "user", "root") && !berth_has_base(config) && !snapshot)
                check_custom(c, "user",
                             "user \"root\" needs a rootfs: without one the sandbox has the host's "
                             "programs, and nothing in it is root's to change.");
        if (says(config, "network", "allowlist") && !lists_hosts)
                check_custom(c, "allowedHosts",
                             "network \"allowlist\" needs at least one entry in allowedHosts.");
        if (!says(config, "network", "allowlist") && lists_hosts)
                check_custom(c, "allowedHosts", "allowedHosts needs network \"allowlist\".");
        if (snapshot && !sandbox_name_is_valid(snapshot))
                check_custom(c, "snapshot",
                             "A snapshot's name has 1 to 64 letters, digits, dots, hyphens or "
                             "underscores and begins with a letter or digit.");
}

static void check_keys(struct check *c)
{
        const char *known[ARRAY_LEN(fields) + 2] = { "provider" };

        for (size_t i = 0; i < ARRAY_LEN(fields); i++)
                known[i + 1] = fields[i].name;
        check_unknown(c, known);
}

int berth_normalize(const struct kind *kind, json_t *config, enum config_form form, json_t **ret,
                    struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        json_t *result = json_pack("{s:s}", "provider", BERTH_PROVIDER);

        check_init(&c, config);
        for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
                json_t *v = check_field(&c, &fields[i]);

                /* An image, or the one that a snapshot stands on, has its own. */
                if (!v && !(streq(fields[i].name, "user") &&
                            (check_has(&c, "image") || check_has(&c, "snapshot"))))
                        v = fallback_of(&fields[i]);
                if (v)
                        json_object_set_new(result, fields[i].name, v);
        }
        check_together(&c, result);
        check_keys(&c);
        int r = check_end_config(&c, err);
        if (r >= 0)
                *ret = result;
        else
                json_decref(result);
        return r;
}

bool berth_matches(const char *recorded, const char *wanted)
{
        CLEAN(json_decrefp) json_t *have = NULL;
        CLEAN(json_decrefp) json_t *want = NULL;

        if (json_parse(recorded, strlen(recorded), &have, NULL) < 0 ||
            json_parse(wanted, strlen(wanted), &want, NULL) < 0)
                return false;
        json_object_del(have, "poolSize");
        json_object_del(want, "poolSize");
        /* One made in advance has the image that there was. */
        if (!json_object_get(have, "imageDigest"))
                json_object_del(want, "imageDigest");
        return json_equal(have, want);
}

int64_t berth_stock_size(const json_t *config)
{
        return json_integer_value(json_object_get(config, "poolSize"));
}

/* What the daemon allows */

static void check_network(struct check *c, const struct runtime *rt, const json_t *config)
{
        if (says(config, "network", "host") && rt->settings.mode == MODE_LOCAL_TRUSTED)
                check_custom(c, "network",
                             "network \"host\" is refused while the daemon runs in mode "
                             "local_trusted: everybody who reaches its port on loopback may do "
                             "everything. Use \"allowlist\", or run the daemon with --mode "
                             "authenticated.");
}

/* An entry that the proxy would refuse anyway: an address that is not public, or this machine. */
static void check_reachable(struct check *c, const struct runtime *rt, const json_t *config)
{
        size_t i;
        json_t *entry;

        json_array_foreach(json_object_get(config, "allowedHosts"), i, entry)
        {
                static const uint16_t usual[] = { 443, 80 };
                const char *text = json_string_value(entry), *kind = NULL;
                struct host_target target;
                struct host_pattern pattern;
                CLEAN(cleanup_free) char *why = NULL;

                if (!text || host_pattern_parse(text, strlen(text), &pattern, NULL) < 0)
                        continue; /* reported as malformed */
                if (streq(pattern.name, "localhost")) {
                        kind = "this sandbox's own";
                } else if (!pattern.any_below &&
                           host_target_parse(text, strlen(text), 443, &target, NULL) >= 0 &&
                           target.is_addr) {
                        for (size_t k = 0; k < (pattern.port ? 1 : ARRAY_LEN(usual)); k++) {
                                kind = private_hosts_refusal(
                                        rt->settings.private_hosts, &target.addr,
                                        pattern.port ? pattern.port : usual[k]);
                                if (!kind)
                                        break;
                        }
                }
                if (!kind)
                        continue;
                why = xasprintf("allowedHosts: %s can never be reached: its address is %s. A model "
                                "server in your own network is allowed by the setting "
                                "private_hosts, as address:port.",
                                text, kind);
                check_custom(c, "allowedHosts", why);
        }
}

static void check_storage(struct check *c, const json_t *config)
{
        if (!says(config, "storage", "memory") && geteuid() != 0)
                check_custom(c, "storage",
                             "storage \"disk\" and \"image\" need a daemon that runs as root; use "
                             "\"memory\".");
}

/* The supervisor is the daemon's own user there, and mapped: root of a namespace inside could
 * become it. */
static void check_nested_root(struct check *c, const json_t *config)
{
        if (says(config, "user", "root") &&
            json_is_true(json_object_get(config, "nestedSandbox")) && geteuid() != 0)
                check_custom(c, "nestedSandbox",
                             "nestedSandbox with user \"root\" needs a daemon that runs as root: "
                             "otherwise root inside could become the daemon's own user. Use user "
                             "\"agent\", or leave nestedSandbox out.");
}

static void check_rootfs(struct check *c, const struct runtime *rt, const json_t *config)
{
        CLEAN(err_done) struct err err = { 0 };
        const char *rootfs = json_get_string(config, "rootfs");

        if (rootfs && rootfs_check(rt, rootfs, &err) < 0)
                check_custom(c, "rootfs", err.msg);
}

int berth_check(const struct runtime *rt, const json_t *config, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };

        check_init(&c, (json_t *)config);
        check_rootfs(&c, rt, config);
        check_network(&c, rt, config);
        check_reachable(&c, rt, config);
        check_storage(&c, config);
        check_nested_root(&c, config);
        return check_end_config(&c, err);
}

/* For the launcher */

static uint64_t mebibytes(const json_t *config, const char *key)
{
        return (uint64_t)json_integer_value(json_object_get(config, key)) << 20;
}

static uint32_t small_number(const json_t *config, const char *key)
{
        return (uint32_t)json_integer_value(json_object_get(config, key));
}

static void set_limits(const json_t *config, struct sandbox_limits *ret)
{
        double cpus = json_number_value(json_object_get(config, "cpus"));

        *ret = (struct sandbox_limits){
                .memory_bytes = mebibytes(config, "memoryMb"),
                .disk_bytes = mebibytes(config, "diskMb"),
                /* One inode for each 4 KiB, as file systems do, so that a flood of empty files ends
                 * too. */
                .inodes = mebibytes(config, "diskMb") >> 12,
                .wall_ms = (uint64_t)json_integer_value(json_object_get(config, "wallTimeMs")),
                .processes = small_number(config, "maxProcesses"),
                .cpu_millis = (uint32_t)MAX(cpus * 1000, 1.0),
                .open_files = small_number(config, "maxOpenFiles"),
        };
}

static void set_storage(struct op *op, const json_t *config, const char *dir,
                        struct sandbox_spec *ret)
{
        if (says(config, "storage", "disk")) {
                ret->storage = SANDBOX_STORE_DIR;
                ret->storage_path = arena_printf(op->arena, "%s/store", dir);
        } else if (says(config, "storage", "image")) {
                ret->storage = SANDBOX_STORE_IMAGE;
                ret->storage_path = arena_printf(op->arena, "%s/image", dir);
        }
}

int berth_spec(struct op *op, const struct runtime *rt, const json_t *config,
               const struct sandbox_row *row, const char *dir, struct sandbox_spec *ret,
               struct err *err)
{
        *ret = (struct sandbox_spec){
                .first_id = (uint32_t)row->first_id,
                .n_ids = (uint32_t)row->n_ids,
                .output_dir = rt->sandbox->output_dir,
                .base = { json_get_string(config, "rootfs") },
                .n_base = json_get_string(config, "rootfs") ? 1 : 0,
                .workspace = SANDBOX_WORK_PRIVATE,
                .workspace_path = BERTH_WORKSPACE,
                .network = says(config, "network", "host")        ? SANDBOX_NET_HOST
                           : says(config, "network", "allowlist") ? SANDBOX_NET_TUNNEL
                                                                  : SANDBOX_NET_NONE,
                .nested_sandbox = json_is_true(json_object_get(config, "nestedSandbox")),
                .root_inside = says(config, "user", "root"),
        };
        set_limits(config, &ret->limits);
        set_storage(op, config, dir, ret);
        return 0;
}
