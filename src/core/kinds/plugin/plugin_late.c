/* Destroying a lease that a worker granted too late. */
#include "core/kinds/plugin/plugin_late.h"

#include "base/fault.h"
#include "base/log.h"
#include "codec/secret_refs.h"
#include "core/access/access.h"
#include "core/leases/lease.h"
#include "core/places/place.h"
#include "rt/mail.h"
#include "rt/pool.h"

struct late_lease {
        struct runtime *rt;
        char place_id[UUID_LEN + 1];
        struct lane_name lane;
        char *provider_lease_id; /* what came late */
        char *metadata;          /* JSON object */
        json_t *secret_paths;
        struct letter letter;
        struct pool_job job;
        struct op *op; /* while the job runs */
        struct place place;
};

struct late_lease *late_lease_new(struct runtime *rt, const struct place *place,
                                  json_t *take_secret_paths)
{
        struct late_lease *late = xcalloc(1, sizeof(*late));

        late->rt = rt;
        late->secret_paths = take_secret_paths;
        memcpy(late->place_id, place->id, UUID_LEN + 1);
        late->lane = lane_name(place->company_id, place->environment_id);
        return late;
}

void late_lease_free(struct late_lease *late)
{
        free(late->provider_lease_id);
        free(late->metadata);
        json_decref(late->secret_paths);
        free(late);
}

/* The operation that gave up may not have recorded that yet (`intended`). */
static int take_up(struct db *db, void *arg, struct err *err)
{
        struct late_lease *late = arg;
        struct arena *a = late->op->arena;
        json_t *config;
        int r = places_get(db, late->place_id, a, &late->place, err);

        if (r < 0)
                return r;
        late->place.provider_lease_id = late->provider_lease_id;
        /* What the provider said goes with it, so that closing it after a crash has the same
         * knowledge. */
        config = json_from_text(a, late->place.config);
        if (config && json_object_set(config, "$lease", json_from_text(a, late->metadata)) == 0)
                late->place.config = json_to_arena(a, config);
        if (!streq(late->place.state, PLACE_INTENDED) && !streq(late->place.state, PLACE_UNCERTAIN))
                return 0;
        late->place.note = "the lease came after its caller had given up";
        late->place.next_attempt_at = place_closing_until(late->rt);
        place_insist(&late->place);
        r = place_move(db, late->rt, &late->place, PLACE_CLOSING, err);
        return r < 0 ? r : 1;
}

static void late_run(struct pool_job *job, struct op *op)
{
        struct late_lease *late = container_of(job, struct late_lease, job);
        CLEAN(err_done) struct err err = { 0 };
        const struct kind *kind;
        int r;

        op->actor = &actor_system;
        late->op = op;
        FAULT("provider.late.before");
        r = store_write(op, late->rt->store, take_up, late, &err);
        FAULT("provider.late.after");
        if (r > 0) {
                r = lease_finish_closing(op, late->rt, &late->place, &err);
        } else if (r == 0) { /* written off, or closed without knowing the id */
                place_insist(&late->place);
                kind = kind_of_place(late->rt, &late->place);
                r = kind_required(kind, late->place.driver, &err);
                if (r >= 0)
                        r = kind->close(op, late->rt, &late->place, &err);
        }
        log_warn(r < 0 ? "a lease that came too late could not be destroyed"
                       : "a lease that came too late was destroyed",
                 LOG_S("place", late->place_id), LOG_S("providerLease", late->provider_lease_id),
                 LOG_S("error", err.msg));
}

static void late_done(struct pool_job *job)
{
        late_lease_free(container_of(job, struct late_lease, job));
}

static void late_submit(struct letter *letter)
{
        struct late_lease *late = container_of(letter, struct late_lease, letter);

        late->job = (struct pool_job){ .run = late_run,
                                       .done = late_done,
                                       .timeout_ms = late->rt->settings.close_timeout_ms,
                                       .urgent = true };
        pool_job_lane(&late->job, LANE_PEERS, late->lane);
        if (pool_submit(late->rt->pool, &late->job, NULL) >= 0)
                return;
        log_warn("a lease came while the daemon stops; its place stays uncertain",
                 LOG_S("place", late->place_id), LOG_S("providerLease", late->provider_lease_id));
        late_lease_free(late);
}

static char *stripped_text(const struct late_lease *late, const json_t *metadata)
{
        json_t *stripped = metadata ? json_deep_copy(metadata) : json_object(), *path;
        char *text;
        size_t i;

        json_array_foreach(late->secret_paths, i, path)
                json_path_prune(stripped, json_string_value(path));
        text = json_to_text(stripped);
        json_decref(stripped);
        return text;
}

void late_lease_arrived(void *ctx, const json_t *result)
{
        struct late_lease *late = ctx;
        const char *id = json_get_string(result, "providerLeaseId");
        json_t *metadata = json_get_object(result, "metadata");

        if (!id || !*id || !late->rt->mail) {
                late_lease_free(late);
                return;
        }
        late->provider_lease_id = xstrdup(id);
        late->metadata = stripped_text(late, metadata);
        mail_post(late->rt->mail, &late->letter, late_submit);
}
