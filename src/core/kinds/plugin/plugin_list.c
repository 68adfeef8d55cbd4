/* What exists at a provider, for providers that can tell (environmentListLeases, a method of
 * Berth's own): the list of a report of leaks, and the sandbox of one place whose id never came
 * back. */
#include "core/access/access.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/plugins/plugin_registry.h"
#include "rt/pool.h"
#include "store/environments.h"

#define LIST     "environmentListLeases"
#define LIST_MS  30000
#define LIST_MAX 100000 /* sandboxes in one answer */

static bool supports_list(const struct runtime *rt, const char *plugin_id)
{
        return rt->plugins && plugin_id &&
               plugin_host_supports(plugin_registry_host(rt->plugins), plugin_id, LIST);
}

bool plugin_target_lists(const struct runtime *rt, const struct plugin_target *target)
{
        return supports_list(rt, target->plugin_id);
}

bool plugin_place_can_list(const struct runtime *rt, const struct place *place)
{
        CLEAN(json_decrefp) json_t *config = NULL;

        return place->config &&
               json_parse(place->config, strlen(place->config), &config, NULL) >= 0 &&
               supports_list(rt, json_get_string(json_get_object(config, "$plugin"), "id"));
}

json_t *plugin_owner(const struct runtime *rt, const char *place_id)
{
        return json_pack("{s:s, s:s*}", "instance", rt->node.id.s, "place", place_id);
}

/* Ask once; *ret is the array, kept by the arena. */
static int ask_list(struct op *op, struct runtime *rt, const struct plugin_target *target,
                    const struct plugin_scope *scope, const json_t *config, const char *place_id,
                    json_t **ret, struct err *err)
{
        struct plugin_request q = {
                .target = target,
                .scope = scope,
                .method = LIST,
                .config = config,
                .take_params = json_pack("{s:o}", "owner", plugin_owner(rt, place_id)),
                .limit_ms = LIST_MS,
        };
        json_t *answer = NULL;
        int r = plugin_request(op, rt, &q, &answer, err);

        if (r < 0)
                return r;
        *ret = json_object_get(answer, "leases");
        if (!json_is_array(*ret) || json_array_size(*ret) > LIST_MAX)
                return err_set(err, ERR_PROVIDER,
                               "Plugin \"%s\" answered with something that is no list of leases.",
                               target->plugin_key);
        return 0;
}

int plugin_place_find(struct op *op, struct runtime *rt, const struct place *place,
                      const struct plugin_target *target, const json_t *config, const char **ret_id,
                      struct err *err)
{
        struct plugin_scope scope = { .company_id = place->company_id,
                                      .environment_id = place->environment_id,
                                      .place_id = place->id };
        json_t *list, *item;
        size_t i;
        int r = ask_list(op, rt, target, &scope, config, place->id, &list, err);

        *ret_id = NULL;
        if (r < 0)
                return r;
        json_array_foreach(list, i, item)
        {
                const char *owner = json_get_string(json_get_object(item, "owner"), "place");

                if (owner && streq(owner, place->id))
                        *ret_id = json_get_string(item, "providerLeaseId");
        }
        return 0;
}

/* The report of leaks */

/* One configuration to ask with: of an environment, or of a place that has another one by now. */
struct listing {
        struct listing *next;
        const char *plugin_id, *provider, *company_id, *environment_id, *place_id;
        const char *config; /* clean, as text */
};

struct survey {
        struct op *op;
        struct runtime *rt;
        struct listing *all;
};

static void add_listing(struct survey *s, struct listing l)
{
        for (const struct listing *k = s->all; k; k = k->next)
                if (streq(k->plugin_id, l.plugin_id) && streq(k->config, l.config) &&
                    streq(k->environment_id, l.environment_id))
                        return;
        l.next = s->all;
        s->all = arena_new(s->op->arena, struct listing);
        *s->all = l;
}

static const char *clean_text(struct op *op, const json_t *stored)
{
        return json_to_arena(op->arena, json_keep(op->arena, plugin_clean_config(stored)));
}

static int add_place(void *ctx, const struct place *row)
{
        struct survey *s = ctx;
        const json_t *config, *plugin;

        if (kind_of_place(s->rt, row) != &kind_plugin_sandbox || !row->has_world)
                return 0;
        config = plugin_object(s->op, row->config);
        plugin = json_get_object(config, "$plugin");
        if (supports_list(s->rt, json_get_string(plugin, "id")))
                add_listing(s, (struct listing){ NULL, json_get_string(plugin, "id"),
                                                 json_get_string(plugin, "driverKey"),
                                                 row->company_id, row->environment_id, row->id,
                                                 clean_text(s->op, config) });
        return 0;
}

/* The rows are read before a worker is waited for: no snapshot is held meanwhile. */
static int add_rows(struct survey *s, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct environment *list;
        int n, r = store_read_begin(s->op, s->rt->store, &db, err);

        if (r >= 0)
                r = places_living(db, NULL, s->op->arena, add_place, s, err);
        n = r < 0 ? r
                  : environments_of_driver(db, kind_plugin_sandbox.driver, "active", s->op->arena,
                                           &list, err);
        store_read_end(&db);
        for (int i = 0; i < n; i++) {
                struct plugin_target target;
                json_t *config;
                const char *provider;

                if (kind_of_environment(s->rt, &list[i]) != &kind_plugin_sandbox ||
                    kind_config(s->op, &kind_plugin_sandbox, &list[i], &config, NULL) < 0)
                        continue;
                provider = json_get_string(config, "provider");
                if (plugin_running_provider(s->op, s->rt, provider, &target, NULL) <= 0 ||
                    !plugin_target_lists(s->rt, &target))
                        continue;
                add_listing(s,
                            (struct listing){ NULL, target.plugin_id, provider, list[i].company_id,
                                              list[i].id, NULL, clean_text(s->op, config) });
        }
        return MIN(n, 0);
}

static int report_listing(struct survey *s, const struct listing *l, kind_found_fn fn, void *ctx,
                          struct err *err)
{
        struct plugin_scope scope = { .company_id = l->company_id,
                                      .environment_id = l->environment_id,
                                      .place_id = l->place_id };
        struct lane_name lane = lane_name(l->company_id, l->environment_id);
        struct plugin_target target = { 0 };
        json_t *list, *item;
        size_t i;
        int r = pool_take_seat(s->op, LANE_PEERS, &lane)
                        ? 0
                        : err_set(err, ERR_BUSY, "Too many wait for the provider already.");

        if (r >= 0)
                r = plugin_ready_driver(s->op, s->rt, l->plugin_id, l->plugin_id, l->provider,
                                        &target, err);
        target.is_sandbox = true;
        if (r >= 0)
                r = ask_list(s->op, s->rt, &target, &scope, json_from_text(s->op->arena, l->config),
                             NULL, &list, err);
        if (r < 0)
                return err_wrap(err, r, "%s", l->provider);
        json_array_foreach(list, i, item)
        {
                const json_t *owner = json_get_object(item, "owner");
                const char *id = json_get_string(item, "providerLeaseId");
                const char *place = json_get_string(owner, "place");
                const char *node = json_get_string(owner, "instance");
                struct kind_thing thing = { l->provider, place, id, node };

                /* Sandboxes that no daemon tagged are the account's other business. */
                if (id && place && node && uuid_is_valid(place)) {
                        r = fn(ctx, &thing);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

int plugin_sandbox_list(struct op *op, struct runtime *rt, const struct kind *kind,
                        kind_found_fn fn, void *ctx, struct err *err)
{
        struct survey s = { op, rt, NULL };
        int r = rt->plugins ? add_rows(&s, err) : 0, failed = 0;

        /* What the others have is reported even where one does not answer. */
        for (const struct listing *l = s.all; r >= 0 && l && op_check(op, NULL) >= 0; l = l->next) {
                CLEAN(err_done) struct err one = { 0 };
                int code = report_listing(&s, l, fn, ctx, &one);

                if (code < 0 && failed == 0) {
                        failed = code;
                        err_move(err, &one);
                }
        }
        return r < 0 ? r : failed;
}
