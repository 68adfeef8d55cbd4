/* Which manifests of plugins are valid. */
#include "plugin/manifest.h"

#include "codec/check.h"
#include "plugin/semver.h"

#define BAD_KEY                                                                                    \
        "must begin with a lower-case letter or a digit and hold nothing but lower-case letters, " \
        "digits, '.', '_' and '-'"
#define BAD_VERSION "must be a version like 1.2.3 or 1.2.3-beta.1"
#define BAD_SCHEMA  "must be a JSON schema: an object with a type, $ref, oneOf, anyOf or allOf"

/* The known ones, in one text: each is followed by a blank. */
static const char capabilities[] =
        "companies.read projects.read project.workspaces.read issues.read "
        "issue.relations.read issue.subtree.read issue.comments.read issue.documents.read "
        "agents.read goals.read goals.create goals.update activity.read costs.read "
        "issues.orchestration.read database.namespace.read issues.create issues.update "
        "issue.relations.write issues.checkout issues.wakeup issue.comments.create "
        "issue.interactions.create issue.documents.write projects.managed routines.managed "
        "skills.managed agents.pause agents.resume agents.invoke agents.managed "
        "agent.sessions.create agent.sessions.list agent.sessions.send agent.sessions.close "
        "activity.log.write metrics.write telemetry.track database.namespace.migrate "
        "database.namespace.write plugin.state.read plugin.state.write events.subscribe "
        "events.emit jobs.schedule webhooks.receive api.routes.register http.outbound "
        "secrets.read-ref " CAPABILITY_DRIVERS " "
        "local.folders agent.tools.register instance.settings.register ui.sidebar.register "
        "ui.page.register ui.detailTab.register ui.dashboardWidget.register "
        "ui.commentAnnotation.register ui.action.register execution.workspaces.read "
        "issue.interactions.read issue.attachments.read approvals.read access.members.read "
        "access.invites.read authorization.grants.read authorization.policies.read "
        "authorization.audit.read issue.comments.create_human_attributed "
        "issue.interactions.respond approvals.respond access.members.write "
        "access.invites.write authorization.grants.write authorization.policies.write "
        "external.objects.detect external.objects.read external.objects.write "
        "external.objects.refresh ";

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

/* Fields */

/* The key of a plugin or a driver: ^[a-z0-9][a-z0-9._-]*$ */
static void check_key(struct check *c, const char *name)
{
        static const char chars[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
        const char *key = check_string(c, name, CHECK_REQUIRED, 1, 200);

        if (key && (strchr("._-", *key) || key[strspn(key, chars)]))
                check_invalid_string(c, name, "regex", BAD_KEY);
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

static void check_categories(struct check *c)
{
        static const char *const known[] = { "connector", "workspace", "automation", "ui", NULL };
        json_t *list = check_strings(c, "categories", CHECK_REQUIRED, 1), *item;
        const char *const *name = known;
        size_t i;

        if (list)
                check_array_size(c, "categories", list, 1, 0);
        json_array_foreach(list, i, item)
        {
                for (name = known; *name && !streq(*name, json_string_value(item)); name++)
                        ;
                if (!*name)
                        break;
        }
        if (!*name)
                check_custom(c, "categories",
                             "Invalid enum value. Expected 'connector' | 'workspace' | "
                             "'automation' | 'ui'");
}

static void check_capabilities(struct check *c, json_t *warnings)
{
        json_t *list = check_strings(c, "capabilities", CHECK_REQUIRED, 1), *item;
        size_t i;

        if (list)
                check_array_size(c, "capabilities", list, 1, 500);
        json_array_foreach(list, i, item)
        {
                const char *name = json_string_value(item);
                CLEAN(cleanup_free) char *word = xasprintf("%s ", name);
                const char *found = strchr(name, ' ') ? NULL : strstr(capabilities, word);

                while (found && found > capabilities && found[-1] != ' ')
                        found = strstr(found + 1, word);
                if (!found)
                        json_array_append_new(warnings,
                                              json_sprintf("unknown capability \"%.100s\"", name));
        }
}

/* Drivers */

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

static void check_driver(struct check *c, size_t index, json_t *item)
{
        static const char *const kinds[] = { "environment_driver", "sandbox_provider", NULL };
        static const char *const switches[] = {
                "supportsReusableLeases", "supportsInteractiveSetup", "supportsTemplateCapture",
                "supportsTemplateDelete", "supportsLoginPty",         "supportsSetupTokenLogin",
        };
        json_t *old = json_object_get(item, "supportsSetupTokenLogin");
        json_t *now = json_object_get(item, "supportsLoginPty");
        struct check d, s;

        check_nested_item(&d, c, "environmentDrivers", index, item);
        check_key(&d, "driverKey");
        (void)check_enum(&d, "kind", CHECK_OPTIONAL, kinds);
        (void)check_string(&d, "displayName", CHECK_REQUIRED, 1, 100);
        (void)check_string(&d, "description", CHECK_OPTIONAL, 0, 500);
        check_schema(&d, "configSchema", CHECK_REQUIRED);
        for (size_t i = 0; i < ARRAY_LEN(switches); i++)
                (void)check_bool(&d, switches[i], CHECK_OPTIONAL, false);
        if (json_is_boolean(old) && json_is_boolean(now) && !json_equal(old, now))
                check_custom(&d, "supportsSetupTokenLogin",
                             "must equal supportsLoginPty when both are given");
        check_nested(&s, &d, "sandboxCapabilities",
                     check_record(&d, "sandboxCapabilities", CHECK_OPTIONAL));
        for (const char *const *name = sandbox_capabilities; *name; name++)
                (void)check_bool(&s, *name, CHECK_OPTIONAL, false);
        check_unknown(&s, sandbox_capabilities);
        check_texts(&d, "interactiveSetupConnectionTypes", 10, 100);
        (void)check_string(&d, "templateRefKind", CHECK_OPTIONAL, 1, 100);
        check_template_binding(&d);
        check_texts(&d, "templateIdentityPaths", 20, 200);
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

static void check_across(struct check *c, json_t *manifest)
{
        json_t *drivers = json_object_get(manifest, "environmentDrivers"), *driver;
        CLEAN(json_decrefp) json_t *seen = json_object();
        CLEAN(buf_done) struct buf twice = BUF_INIT;
        size_t i;

        if (json_array_size(drivers) > 0 && !has_capability(manifest, CAPABILITY_DRIVERS))
                check_custom(c, "capabilities",
                             "Capability '" CAPABILITY_DRIVERS
                             "' is required when environmentDrivers are declared");
        json_array_foreach(drivers, i, driver)
        {
                const char *key = json_get_string(driver, "driverKey");
                json_int_t n = json_integer_value(json_object_get(seen, key)) + 1;

                json_object_set_new(seen, key, json_integer(n));
                if (n == 2)
                        buf_appendf(&twice, "%s%s",
                                    twice.len ? ", " : "Duplicate environment driver keys: ", key);
        }
        if (twice.len > 0)
                check_custom(c, "environmentDrivers", buf_str(&twice));
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

static json_t *keep_manifest(const json_t *given)
{
        json_t *kept = keep_members(given, manifest_members);
        json_t *drivers = json_object_get(given, "environmentDrivers"), *item;
        json_t *list = drivers ? json_array() : NULL;
        size_t i;

        json_array_foreach(drivers, i, item)
        {
                json_t *driver = keep_members(item, driver_members);
                json_t *old = json_object_get(item, "supportsSetupTokenLogin");

                if (old && !json_object_get(driver, "supportsLoginPty"))
                        json_object_set(driver, "supportsLoginPty", old);
                json_array_append_new(list, driver);
        }
        if (list)
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

int manifest_check(json_t *given, const char *host_version, json_t *warnings, json_t **ret,
                   struct err *err)
{
        CLEAN(err_done) struct err found = { 0 };
        CLEAN(check_done) struct check c = { 0 };
        json_t *api = json_object_get(given, "apiVersion"), *drivers, *item;
        const char *host, *paperclip, *wanted;
        struct check e;
        size_t i;
        int r;

        check_init(&c, given);
        check_key(&c, "id");
        if (c.object && !(json_is_integer(api) && json_integer_value(api) == 1))
                check_custom(&c, "apiVersion", "Invalid literal value, expected 1");
        (void)check_version(&c, "version", CHECK_REQUIRED);
        (void)check_string(&c, "displayName", CHECK_REQUIRED, 1, 100);
        (void)check_string(&c, "description", CHECK_REQUIRED, 1, 500);
        (void)check_string(&c, "author", CHECK_REQUIRED, 1, 200);
        check_categories(&c);
        /* The two names of one thing. */
        host = check_version(&c, "minimumHostVersion", CHECK_OPTIONAL);
        paperclip = check_version(&c, "minimumPaperclipVersion", CHECK_OPTIONAL);
        if (host && paperclip && !streq(host, paperclip))
                check_custom(&c, "minimumHostVersion",
                             "must equal minimumPaperclipVersion when both are given");
        check_capabilities(&c, warnings);
        check_nested(&e, &c, "entrypoints", check_record(&c, "entrypoints", CHECK_REQUIRED));
        (void)check_string(&e, "worker", CHECK_REQUIRED, 1, 1000);
        (void)check_string(&e, "ui", CHECK_OPTIONAL, 1, 1000);
        check_schema(&c, "instanceConfigSchema", CHECK_OPTIONAL);
        drivers = check_array(&c, "environmentDrivers", CHECK_OPTIONAL);
        if (json_array_size(drivers) > MANIFEST_MAX_DRIVERS)
                check_array_size(&c, "environmentDrivers", drivers, 0, MANIFEST_MAX_DRIVERS);
        else
                json_array_foreach(drivers, i, item) check_driver(&c, i, item);
        if (!check_failed(&c))
                check_across(&c, given);
        wanted = host ? host : paperclip;
        if (check_end(&c, &found) < 0)
                return say_issues(found.details, err);
        r = check_features(given, err);
        if (r >= 0 && wanted && host_version && semver_compare(wanted, host_version) > 0)
                r = err_set(err, ERR_INVALID,
                            "Plugin %s requires host version %s or newer, but this server is "
                            "running %s",
                            json_get_string(given, "id"), wanted, host_version);
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
