/* Recorded host keys, and how the connection to a host is opened. */
#include "core/kinds/ssh/ssh_hosts.h"

#include <unistd.h>

#include "core/kinds/ssh/ssh_config.h"
#include "core/kinds/ssh/ssh_plain.h"

int ssh_hosts_new(const char *data_dir, struct ssh_hosts **ret, struct err *err)
{
        struct ssh_hosts *h = xcalloc(1, sizeof(*h));

        pthread_mutex_init(&h->lock, NULL);
        h->known_dir = xasprintf("%s/ssh/known", data_dir);
        *ret = h;
        return 0;
}

void ssh_hosts_close(struct ssh_hosts *h)
{
        if (h)
                ssh_plain_stop(h);
}

void ssh_hosts_free(struct ssh_hosts *h)
{
        if (!h)
                return;
        pthread_mutex_destroy(&h->lock);
        free(h->known_dir);
        free(h);
}

char *ssh_hosts_record(const struct ssh_hosts *h, const char *environment_id)
{
        return environment_id ? xasprintf("%s/%s", h->known_dir, environment_id) : NULL;
}

void ssh_hosts_forget(const struct ssh_hosts *h, const char *environment_id)
{
        CLEAN(cleanup_free) char *path = ssh_hosts_record(h, environment_id);

        if (path)
                (void)unlink(path);
}

/* Connections */

static int host_key(const struct place *place, char **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *document = NULL;
        CLEAN(cleanup_free) char *text = NULL;

        (void)json_parse(place->config, strlen(place->config), &document, NULL);
        const json_t *config = json_get_object(document, "ssh");
        if (!config || !place->environment_id)
                return err_set(err, ERR_CORRUPT, "the place does not say which ssh host it is on");
        text = json_to_text(config);
        *ret = xasprintf("%s %s", place->environment_id, text);
        return 0;
}

static int host_open(struct op *op, struct runtime *rt, const struct place *place,
                     const struct secret_context *context, struct ssh_call *ret, struct err *err)
{
        CLEAN(cleanup_free) char *record = ssh_hosts_record(rt->ssh, place->environment_id);
        CLEAN(json_decrefp) json_t *document = NULL, *resolved = NULL;
        struct ssh_target target;
        int r = json_parse(place->config, strlen(place->config), &document, err);

        if (r >= 0)
                r = ssh_config_resolve(op, rt, place->company_id, place->environment_id,
                                       json_get_object(document, "ssh"), context, &target,
                                       &resolved, err);
        return r < 0 ? r
                     : ssh_call_stream(op, carriers_setup(rt->carriers), &target, record, ret, err);
}

const struct carrier_type ssh_carrier = {
        .what = "ssh host",
        .lane = "ssh",
        .key = host_key,
        .open = host_open,
};
