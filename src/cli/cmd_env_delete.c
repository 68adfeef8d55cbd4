/* `berth env delete`: first says what hangs on the environment, then asks, then deletes. Living
 * leases are never ended as a side effect: --close-leases has to say so. Nor does an agent lose its
 * environment: --move-to has to say which one it works in from now on. */
#include <stdio.h>

#include "cli/cmd_env.h"
#include "cli/output.h"

static long long count_of(const json_t *object, const char *key)
{
        return (long long)json_integer_value(json_object_get(object, key));
}

/* Each count that is not zero. */
static void print_radius(const char *name, const json_t *radius)
{
        static const struct {
                const char *group; /* NULL: at the top */
                const char *key;
                const char *text;
        } lines[] = {
                { "activeRuntimeUse", "activeLeaseCount", "leases in use" },
                { NULL, "pendingCleanupLeaseCount", "leases whose clean-up is due" },
                { NULL, "reusableSandboxLeaseCount", "idle places kept for reuse" },
                { "staticReferences", "agentDefaultCount", "agents that use it by default" },
                { "staticReferences", "projectSelectionCount", "projects that select it" },
                { "staticReferences", "issueSelectionCount", "issues that select it" },
                { "staticReferences", "executionWorkspaceSelectionCount",
                  "workspaces that select it" },
                { "staticReferences", "secretBindingCount", "secrets bound to it" },
        };
        bool any = json_is_true(
                json_object_get(json_object_get(radius, "staticReferences"), "isCompanyDefault"));

        if (any) {
                out_note("what hangs on '%s':", name);
                out_note("  it is the default environment of its company");
        }
        for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
                const json_t *from =
                        lines[i].group ? json_object_get(radius, lines[i].group) : radius;
                long long n = count_of(from, lines[i].key);

                if (n == 0)
                        continue;
                if (!any)
                        out_note("what hangs on '%s':", name);
                any = true;
                out_note("  %s: %lld", lines[i].text, n);
        }
        if (!any)
                out_note("nothing uses '%s'", name);
}

static long long living_leases(const json_t *radius)
{
        return count_of(json_object_get(radius, "activeRuntimeUse"), "activeLeaseCount") +
               count_of(radius, "pendingCleanupLeaseCount");
}

static int check_radius(struct cli *c, const json_t *environment, bool close_leases,
                        struct err *err)
{
        const char *name = cli_text(environment, "name");
        json_t *radius;
        int r;

        r = cli_call(c, "GET",
                     cli_printf(c, "/api/environments/%s/delete-blast-radius",
                                cli_text(environment, "id")),
                     NULL, &radius, err);
        if (r < 0)
                return r;
        print_radius(name, radius);
        if (living_leases(radius) > 0 && !close_leases)
                return err_set(err, ERR_CONFLICT,
                               "'%s' has living leases; release them, or end them together with it "
                               "by --close-leases",
                               name);
        return 0;
}

int cmd_env_delete(struct cli *c, const struct args *a, struct err *err)
{
        const char *move_to = args_value(a, "move-to"), *name;
        bool close_leases = args_flag(a, "close-leases");
        json_t *environment, *answer, *other;
        int r;

        r = cli_find(c, &kind_environment, a->words[0], &environment, err);
        if (r >= 0 && move_to)
                r = cli_place(c, move_to, &other, err);
        if (r < 0)
                return r;
        name = cli_text(environment, "name");
        r = check_radius(c, environment, close_leases, err);
        if (r < 0)
                return r;
        if (!args_flag(a, "yes")) {
                r = cli_confirm(cli_printf(c, "Delete environment '%s'?", name), err);
                if (r < 0)
                        return r;
        }
        r = cli_call(c, "DELETE",
                     cli_printf(c, "/api/environments/%s?closeLeases=%s%s%s",
                                cli_text(environment, "id"), close_leases ? "true" : "false",
                                move_to ? "&moveTo=" : "", move_to ? cli_text(other, "id") : ""),
                     NULL, &answer, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(answer);
        else
                out_line("deleted %s", name);
        return 0;
}
