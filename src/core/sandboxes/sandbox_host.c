/* Decides whether this machine can make sandboxes, and keeps what they need. */
#include "core/sandboxes/sandbox_host.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/path.h"
#include "box/sandbox.h"

/* Where this node begins, so that two daemons with one range hardly ever collide. */
static uint64_t first_slice(const struct node *node)
{
        return hash_text(node->id.s);
}

/* A machine that cannot have sandboxes runs everything else: the reason is reported when a sandbox
 * is wanted. */
static void find_range(const struct runtime *rt, struct sandbox_host *host)
{
        CLEAN(err_done) struct err err = { 0 };

        host->range_code = host_ids_find(rt->settings.sandbox_uid_first,
                                         rt->settings.sandbox_uid_count, &host->range, &err);
        (void)snprintf(host->range_error, sizeof(host->range_error), "%s", err.msg);
        host->slice = rt->settings.sandbox_ids_per_box ? rt->settings.sandbox_ids_per_box
                                                       : host_ids_slice(host->range);
        if (host->range_code >= 0 && host->range.count < host->slice) {
                host->range_code = ERR_UNPROCESSABLE;
                (void)snprintf(host->range_error, sizeof(host->range_error),
                               "the range of host ids has %lld, and one sandbox needs %lld",
                               (long long)host->range.count, (long long)host->slice);
        }
}

int sandbox_host_new(const struct runtime *rt, const char *data_dir, const char *box_program,
                     struct sandbox_host **ret, struct err *err)
{
        struct sandbox_host *host = xcalloc(1, sizeof(*host));

        pthread_mutex_init(&host->holds_lock, NULL);
        pthread_mutex_init(&host->images_lock, NULL);
        host->dir = xasprintf("%s/sandboxes", data_dir);
        host->snapshots_dir = xasprintf("%s/snapshots", data_dir);
        host->output_dir = xasprintf("%s/output", data_dir);
        host->images_dir = xasprintf("%s/images", data_dir);
        host->box_program = xstrdup(box_program);
        host->cursor = first_slice(&rt->node);
        find_range(rt, host);
        int r = path_make_durable_dirs(host->dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(host->snapshots_dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(host->output_dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(host->images_dir, 0700, err);
        if (r < 0) {
                sandbox_host_free(host);
                return r;
        }
        *ret = host;
        return 0;
}

void sandbox_host_free(struct sandbox_host *host)
{
        if (!host)
                return;
        free(host->dir);
        free(host->snapshots_dir);
        free(host->output_dir);
        free(host->images_dir);
        free(host->box_program);
        pthread_mutex_destroy(&host->holds_lock);
        pthread_mutex_destroy(&host->images_lock);
        free(host);
}

int sandbox_host_check(struct op *op, struct sandbox_host *host, struct err *err)
{
        struct sandbox_check checks[SANDBOX_MAX_CHECKS];
        size_t n = 0;

        if (!host)
                return err_set(err, ERR_UNPROCESSABLE, "this daemon has no sandboxes");
        if (host->range_code < 0)
                return err_set(err, ERR_UNPROCESSABLE, "%s", host->range_error);
        if (atomic_load(&host->is_usable))
                return 0;
        int r = sandbox_checks(op, host->box_program, (uint32_t)host->range.first,
                               (uint32_t)host->slice, checks, &n, err);
        for (size_t i = 0; r >= 0 && i < n; i++)
                if (checks[i].required && !checks[i].ok)
                        r = err_set(err, ERR_UNPROCESSABLE, "%s: %s; %s", checks[i].name,
                                    checks[i].found, checks[i].fix);
        if (r >= 0)
                atomic_store(&host->is_usable, true);
        return r;
}
