/* Which manifests of plugins are valid. */
#include "plugin/manifest.h"

#include "codec/check.h"
#include "plugin/semver.h"

#define BAD_KEY                                                                                    \
        "must begin with a lower-case letter or a digit and hold nothing but lower-case letters, " \
        "digits, '.', '_' and '-'"
#define BAD_VERSION "must be a version like 1.2.3 or 1.2.3-beta.1"
#define BAD_SCHEMA  "must be a JSON schema: an object with a type, $ref, oneOf, anyOf or allOf"

static const char *const capabilities[] = {
        "companies.read",
        "projects.read",
        "project.workspaces.read",
        "issues.read",
        "issue.relations.read",
        "issue.subtree.read",
        "issue.comments.read",
        "issue.documents.read",
        "agents.read",
        "goals.read",
        "goals.create",
        "goals.update",
        "activity.read",
        "costs.read",
        "issues.orchestration.read",
        "database.namespace.read",
        "issues.create",
        "issues.update",
        "issue.relations.write",
        "issues.checkout",
        "issues.wakeup",
        "issue.comments.create",
        "issue.interactions.create",
        "issue.documents.write",
        "projects.managed",
        "routines.managed",
        "skills.managed",
        "agents.pause",
        "agents.resume",
        "agents.invoke",
        "agents.managed",
        "agent.sessions.create",
        "agent.sessions.list",
        "agent.sessions.send",
        "agent.sessions.close",
        "activity.log.write",
        "metrics.write",
        "telemetry.track",
        "database.namespace.migrate",
        "database.namespace.write",
        "plugin.state.read",
        "plugin.state.write",
        "events.subscribe",
        "events.emit",
        "jobs.schedule",
        "webhooks.receive",
        "api.routes.register",
        "http.outbound",
        "secrets.read-ref",
        CAPABILITY_DRIVERS,
        "local.folders",
        "agent.tools.register",
        "instance.settings.register",
        "ui.sidebar.register",
        "ui.page.register",
        "ui.detailTab.register",
        "ui.dashboardWidget.register",
        "ui.commentAnnotation.register",
        "ui.action.register",
        "execution.workspaces.read",
        "issue.interactions.read",
        "issue.attachments.read",
        "approvals.read",
        "access.members.read",
        "access.invites.read",
        "authorization.grants.read",
        "authorization.policies.read",
        "authorization.audit.read",
        "issue.comments.create_human_attributed",
        "issue.interactions.respond",
        "approvals.respond",
        "access.members.write",
        "access.invites.write",
        "authorization.grants.write",
        "authorization.policies.write",
        "external.objects.detect",
        "external.objects.read",
        "external.objects.write",
        "external.objects.refresh",
        NULL,
};

/* The members that the stored document may have, in the order in which they are written. */
static const char *const manifest_members[] = {
        "id",           "apiVersion",         "version",
        "displayName",  "description",        "author",
        "categories",   "minimumHostVersion", "minimumPaperclipVersion",
        "capabilities", "entrypoints",        "instanceConfigSchema",
        "jobs",         "webhooks",           "tools",
        "database",     "apiRoutes",          "environmentDrivers",
        "agents",       "projects",           "routines",
        "skills",       "localFolders",       "launchers",
        "ui",           "objectReferences",   NULL,
};

static const char *const driver_members[] = {
        "driverKey",
        "kind",
        "displayName",
        "description",
        "configSchema",
        "supportsReusableLeases",
        "sandboxCapabilities",
        "supportsInteractiveSetup",
        "supportsTemplateCapture",
        "supportsTemplateDelete",
        "supportsLoginPty",
        "interactiveSetupConnectionTypes",
        "templateRefKind",
        "templateConfigBinding",
        "templateIdentityPaths",
        NULL,
};

static const char *const sandbox_capabilities[] = {
        "reusableLeases",
        "nativeSyncIn",
        "nativeSyncOut",
        "persistentProcessSessions",
        "independentControlCommands",
        "incrementalSessionOutput",
        "concurrentSyncOperations",
        "duplexCommandStream",
        "runnerWebSocketIngress",
        NULL,
};

static bool contains(const char *const *list, const char *s)
{
        for (; *list; list++)
                if (streq(*list, s))
                        return true;
        return false;
}

/* Fields */

static bool is_key_char(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Whether the text may be a plugin's or a driver's key: ^[a-z0-9][a-z0-9._-]*$ */
static bool manifest_key_is_valid(const char *key)
{
        if (!is_key_char(*key))
                return false;
        while (is_key_char(*key) || *key == '.' || *key == '_' || *key == '-')
                key++;
        return *key == '\0';
}

static const char *check_key(struct check *c, const char *name)
{
        const char *key = check_string(c, name, CHECK_REQUIRED, 1, 200);

        if (key && !manifest_key_is_valid(key))
                check_invalid_string(c, name, "regex", BAD_KEY);
        return key;
}

static const char *check_version(struct check *c, const char *name, unsigned flags)
{
        const char *version = check_string(c, name, flags, 1, 200);

        if (!version || semver_is_valid(version))
                return version;
        check_invalid_string(c, name, "regex", BAD_VERSION);
        return NULL;
}

/* An empty schema accepts everything; one with members has to say what it is. */
static void check_schema(struct check *c, const char *name, unsigned flags)
{
        static const char *const compositions[] = { "$ref", "oneOf", "anyOf", "allOf" };
        json_t *schema = check_record(c, name, flags);
        bool tells = json_get_string(schema, "type") || json_object_size(schema) == 0;

        for (size_t i = 0; i < ARRAY_LEN(compositions); i++)
                tells = tells || json_object_get(schema, compositions[i]);
        if (schema && !tells)
                check_custom(c, name, BAD_SCHEMA);
}

/* Up to `max` texts, each from 1 to `max_len` characters. */
static void check_texts(struct check *c, const char *name, size_t max, size_t max_len)
{
        json_t *texts = check_strings(c, name, CHECK_OPTIONAL, 1), *text;
        size_t i;

        if (!texts)
                return;
        check_array_size(c, name, texts, 0, max);
        json_array_foreach(texts, i, text) if (json_string_length(text) > max_len)
        {
                check_custom(c, name, "has a text that is too long");
                return;
        }
}

static void check_api_version(struct check *c)
{
        json_t *v = json_object_get(c->object, "apiVersion");

        if (c->object && !(json_is_integer(v) && json_integer_value(v) == 1))
                check_custom(c, "apiVersion", "Invalid literal value, expected 1");
}

static void check_categories(struct check *c)
{
        static const char *const known[] = { "connector", "workspace", "automation", "ui", NULL };
        json_t *list = check_strings(c, "categories", CHECK_REQUIRED, 1), *item;
        size_t i;

        if (list)
                check_array_size(c, "categories", list, 1, 0);
        json_array_foreach(list, i, item) if (!contains(known, json_string_value(item)))
        {
                check_custom(c, "categories",
                             "Invalid enum value. Expected 'connector' | 'workspace' | "
                             "'automation' | 'ui'");
                return;
        }
}

static void check_capabilities(struct check *c, json_t *warnings)
{
        json_t *list = check_strings(c, "capabilities", CHECK_REQUIRED, 1), *item;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        size_t i;

        if (list)
                check_array_size(c, "capabilities", list, 1, 500);
        json_array_foreach(list, i, item)
        {
                const char *name = json_string_value(item);

                if (contains(capabilities, name))
                        continue;
                buf_clear(&text);
                buf_appendf(&text, "unknown capability \"%.100s\"", name);
                json_array_append_new(warnings, json_string(buf_str(&text)));
        }
}

/* The two names of one thing. */
static void check_minimum_versions(struct check *c)
{
        const char *host = check_version(c, "minimumHostVersion", CHECK_OPTIONAL);
        const char *seed = check_version(c, "minimumPaperclipVersion", CHECK_OPTIONAL);

        if (host && seed && !streq(host, seed))
                check_custom(c, "minimumHostVersion",
                             "must equal minimumPaperclipVersion when both are given");
}

static void check_entrypoints(struct check *c)
{
        struct check e;

        check_nested(&e, c, "entrypoints", check_record(c, "entrypoints", CHECK_REQUIRED));
        (void)check_string(&e, "worker", CHECK_REQUIRED, 1, 1000);
        (void)check_string(&e, "ui", CHECK_OPTIONAL, 1, 1000);
}

/* Drivers */

static void check_sandbox_capabilities(struct check *d)
{
        struct check s;

        check_nested(&s, d, "sandboxCapabilities",
                     check_record(d, "sandboxCapabilities", CHECK_OPTIONAL));
        for (const char *const *name = sandbox_capabilities; *name; name++)
                (void)check_bool(&s, *name, CHECK_OPTIONAL, false);
        check_unknown(&s, sandbox_capabilities);
}

static bool is_field_name(const char *s)
{
        size_t n = strlen(s);

        return n >= 1 && n <= 100 && !streq(s, "provider") && strspn(s, "0123456789-") == 0 &&
               strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

static void check_template_binding(struct check *d)
{
        static const char *const known[] = { "field", "unsetFields", NULL };
        json_t *binding = check_record(d, "templateConfigBinding", CHECK_OPTIONAL), *item;
        CLEAN(json_decrefp) json_t *seen = json_object();
        const char *field;
        json_t *unset;
        struct check b;
        bool good = true;
        size_t i;

        check_nested(&b, d, "templateConfigBinding", binding);
        field = check_string(&b, "field", CHECK_REQUIRED, 1, 100);
        if (field && !is_field_name(field))
                check_invalid_string(&b, "field", "regex", "is not the name of a field");
        unset = check_strings(&b, "unsetFields", CHECK_OPTIONAL, 1);
        if (unset)
                check_array_size(&b, "unsetFields", unset, 0, 20);
        json_array_foreach(unset, i, item)
        {
                const char *name = json_string_value(item);

                good = good && is_field_name(name) && !(field && streq(field, name)) &&
                       !json_object_get(seen, name);
                json_object_set_new(seen, name, json_true());
        }
        if (!good)
                check_custom(&b, "unsetFields", "must be different names of other fields");
        check_unknown(&b, known);
}

static void check_switches(struct check *d)
{
        static const char *const names[] = {
                "supportsReusableLeases", "supportsInteractiveSetup", "supportsTemplateCapture",
                "supportsTemplateDelete", "supportsLoginPty",         "supportsSetupTokenLogin",
        };
        json_t *old, *now;

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                (void)check_bool(d, names[i], CHECK_OPTIONAL, false);
        old = json_object_get(d->object, "supportsSetupTokenLogin");
        now = json_object_get(d->object, "supportsLoginPty");
        if (json_is_boolean(old) && json_is_boolean(now) && !json_equal(old, now))
                check_custom(d, "supportsSetupTokenLogin",
                             "must equal supportsLoginPty when both are given");
}

static void check_driver(struct check *c, size_t index, json_t *item)
{
        static const char *const kinds[] = { "environment_driver", "sandbox_provider", NULL };
        struct check d;

        check_nested_item(&d, c, "environmentDrivers", index, item);
        (void)check_key(&d, "driverKey");
        (void)check_enum(&d, "kind", CHECK_OPTIONAL, kinds);
        (void)check_string(&d, "displayName", CHECK_REQUIRED, 1, 100);
        (void)check_string(&d, "description", CHECK_OPTIONAL, 0, 500);
        check_schema(&d, "configSchema", CHECK_REQUIRED);
        check_switches(&d);
        check_sandbox_capabilities(&d);
        check_texts(&d, "interactiveSetupConnectionTypes", 10, 100);
        (void)check_string(&d, "templateRefKind", CHECK_OPTIONAL, 1, 100);
        check_template_binding(&d);
        check_texts(&d, "templateIdentityPaths", 20, 200);
}

static void check_drivers(struct check *c)
{
        json_t *drivers = check_array(c, "environmentDrivers", CHECK_OPTIONAL), *item;
        size_t i;

        if (json_array_size(drivers) > MANIFEST_MAX_DRIVERS) {
                check_array_size(c, "environmentDrivers", drivers, 0, MANIFEST_MAX_DRIVERS);
                return;
        }
        json_array_foreach(drivers, i, item) check_driver(c, i, item);
}

/* Rules over several members; only for a manifest whose members are all right. */

static bool has_capability(const json_t *manifest, const char *name)
{
        json_t *item;
        size_t i;

        json_array_foreach(json_object_get(manifest, "capabilities"), i,
                           item) if (streq(json_string_value(item), name)) return true;
        return false;
}

static void find_duplicates(json_t *drivers, struct buf *ret)
{
        CLEAN(json_decrefp) json_t *seen = json_object();
        json_t *driver;
        size_t i;

        json_array_foreach(drivers, i, driver)
        {
                const char *key = json_get_string(driver, "driverKey");
                json_int_t n = json_integer_value(json_object_get(seen, key)) + 1;

                json_object_set_new(seen, key, json_integer(n));
                if (n == 2)
                        buf_appendf(ret, "%s%s", ret->len ? ", " : "", key);
        }
}

static void check_across(struct check *c, json_t *manifest)
{
        json_t *drivers = json_object_get(manifest, "environmentDrivers");
        CLEAN(buf_done) struct buf twice = BUF_INIT;

        if (json_array_size(drivers) > 0 && !has_capability(manifest, CAPABILITY_DRIVERS))
                check_custom(c, "capabilities",
                             "Capability '" CAPABILITY_DRIVERS
                             "' is required when environmentDrivers are declared");
        find_duplicates(drivers, &twice);
        if (twice.len > 0) {
                CLEAN(buf_done) struct buf text = BUF_INIT;

                buf_appendf(&text, "Duplicate environment driver keys: %s", buf_str(&twice));
                check_custom(c, "environmentDrivers", buf_str(&text));
        }
}

/* Features that the host would have to serve, by the right to have them. */
static int check_features(const json_t *manifest, struct err *err)
{
        static const struct {
                const char *member, *capability;
        } features[] = {
                { "tools", "agent.tools.register" },
                { "jobs", "jobs.schedule" },
                { "webhooks", "webhooks.receive" },
                { "database", "database.namespace.migrate" },
                { "apiRoutes", "api.routes.register" },
                { "environmentDrivers", CAPABILITY_DRIVERS },
        };
        CLEAN(buf_done) struct buf missing = BUF_INIT;

        for (size_t i = 0; i < ARRAY_LEN(features); i++) {
                json_t *v = json_object_get(manifest, features[i].member);
                bool declared = json_array_size(v) > 0 || json_object_size(v) > 0;

                if (declared && !has_capability(manifest, features[i].capability))
                        buf_appendf(&missing, "%s%s", missing.len ? ", " : "",
                                    features[i].capability);
        }
        if (missing.len == 0)
                return 0;
        return err_set(err, ERR_INVALID,
                       "Plugin %s manifest has inconsistent capabilities. Missing required "
                       "capabilities for declared features: %s",
                       json_get_string(manifest, "id"), buf_str(&missing));
}

static int check_host(const json_t *manifest, const char *host_version, struct err *err)
{
        const char *wanted = json_get_string(manifest, "minimumHostVersion");

        if (!wanted)
                wanted = json_get_string(manifest, "minimumPaperclipVersion");
        if (!wanted || !host_version || semver_compare(wanted, host_version) <= 0)
                return 0;
        return err_set(err, ERR_INVALID,
                       "Plugin %s requires host version %s or newer, but this server is running %s",
                       json_get_string(manifest, "id"), wanted, host_version);
}

/* The result */

static json_t *keep_members(const json_t *given, const char *const *names)
{
        json_t *kept = json_object();

        for (; *names; names++) {
                json_t *v = json_object_get(given, *names);

                if (v)
                        json_object_set(kept, *names, v);
        }
        return kept;
}

static json_t *keep_driver(const json_t *given)
{
        json_t *driver = keep_members(given, driver_members);
        json_t *old = json_object_get(given, "supportsSetupTokenLogin");

        if (old && !json_object_get(driver, "supportsLoginPty"))
                json_object_set(driver, "supportsLoginPty", old);
        return driver;
}

static json_t *keep_manifest(const json_t *given)
{
        json_t *kept = keep_members(given, manifest_members);
        json_t *drivers = json_object_get(given, "environmentDrivers"), *item, *list;
        size_t i;

        if (!drivers)
                return kept;
        list = json_array();
        json_array_foreach(drivers, i, item) json_array_append_new(list, keep_driver(item));
        json_object_set_new(kept, "environmentDrivers", list);
        return kept;
}

/* "Invalid plugin manifest: path.to.it: text; …" from the issues of the check. */
static int say_issues(const char *issues, struct err *err)
{
        CLEAN(json_decrefp) json_t *list = NULL;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        json_t *issue, *part;
        size_t i, j;

        if (!issues || json_parse(issues, strlen(issues), &list, err) < 0)
                return err_set(err, ERR_INVALID, "Invalid plugin manifest");
        json_array_foreach(list, i, issue)
        {
                buf_puts(&text, i ? "; " : "");
                json_array_foreach(json_object_get(issue, "path"), j, part)
                {
                        if (json_is_integer(part))
                                buf_appendf(&text, "%s%lld", j ? "." : "",
                                            (long long)json_integer_value(part));
                        else
                                buf_appendf(&text, "%s%s", j ? "." : "", json_string_value(part));
                }
                buf_appendf(&text, ": %s", json_get_string(issue, "message"));
        }
        return err_set(err, ERR_INVALID, "Invalid plugin manifest: %s", buf_str(&text));
}

static void check_members(struct check *c, json_t *warnings)
{
        (void)check_key(c, "id");
        check_api_version(c);
        (void)check_version(c, "version", CHECK_REQUIRED);
        (void)check_string(c, "displayName", CHECK_REQUIRED, 1, 100);
        (void)check_string(c, "description", CHECK_REQUIRED, 1, 500);
        (void)check_string(c, "author", CHECK_REQUIRED, 1, 200);
        check_categories(c);
        check_minimum_versions(c);
        check_capabilities(c, warnings);
        check_entrypoints(c);
        check_schema(c, "instanceConfigSchema", CHECK_OPTIONAL);
        check_drivers(c);
}

int manifest_check(json_t *given, const char *host_version, json_t *warnings, json_t **ret,
                   struct err *err)
{
        CLEAN(err_done) struct err found = { 0 };
        CLEAN(check_done) struct check c = { 0 };
        int r;

        check_init(&c, given);
        check_members(&c, warnings);
        if (!check_failed(&c))
                check_across(&c, given);
        if (check_end(&c, &found) < 0)
                return say_issues(found.details, err);
        r = check_features(given, err);
        if (r >= 0)
                r = check_host(given, host_version, err);
        if (r >= 0)
                *ret = keep_manifest(given);
        return r;
}

/* Looking into a manifest that was checked */

json_t *manifest_driver(const json_t *manifest, const char *driver_key, const char *kind)
{
        json_t *driver;
        size_t i;

        json_array_foreach(json_object_get(manifest, "environmentDrivers"), i, driver)
        {
                const char *key = json_get_string(driver, "driverKey");
                const char *is = json_get_string(driver, "kind");

                if (key && streq(key, driver_key) && (!kind || (is && streq(is, kind))))
                        return driver;
        }
        return NULL;
}

json_t *manifest_new_capabilities(const json_t *now, const json_t *next)
{
        json_t *added = json_array(), *item;
        size_t i;

        json_array_foreach(json_object_get(next, "capabilities"), i,
                           item) if (!has_capability(now, json_string_value(item)))
                json_array_append(added, item);
        return added;
}
