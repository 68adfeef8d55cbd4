/* Which operation works on which workspace now, and the names of workspace directories. */
#include "core/workspaces/workspace_host.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <time.h>

#include "base/path.h"

#define WAIT_MS 50

int workspace_host_new(const char *data_dir, struct workspace_host **ret, struct err *err)
{
        struct workspace_host *host = xcalloc(1, sizeof(*host));
        int r;

        host->dir = xasprintf("%s/workspaces", data_dir);
        host->salvage_dir = xasprintf("%s/salvage", data_dir);
        host->locks_dir = xasprintf("%s/workspace-locks", data_dir);
        pthread_mutex_init(&host->lock, NULL);
        pthread_cond_init(&host->changed, NULL);
        r = path_make_durable_dirs(host->dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(host->salvage_dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(host->locks_dir, 0700, err);
        if (r < 0) {
                workspace_host_free(host);
                return r;
        }
        *ret = host;
        return 0;
}

void workspace_host_free(struct workspace_host *host)
{
        if (!host)
                return;
        pthread_cond_destroy(&host->changed);
        pthread_mutex_destroy(&host->lock);
        free(host->dir);
        free(host->salvage_dir);
        free(host->locks_dir);
        free(host);
}

/* Work in progress */

static struct workspace_work *find_work(struct workspace_host *host, const char *id)
{
        struct workspace_work *w = host->works;

        while (w && !streq(w->id, id))
                w = w->next;
        return w;
}

/* With the lock held. The other operation lives as long as it is in the list. */
static int wait_for_work(struct op *op, struct workspace_host *host, const char *id,
                         struct err *err)
{
        struct workspace_work *other;
        int r = 0;

        while (r >= 0 && (other = find_work(host, id))) {
                struct timespec until;

                if (other->may_cancel && other->op->cancel)
                        op_cancel_set(other->op->cancel);
                clock_gettime(CLOCK_REALTIME, &until);
                until.tv_nsec += WAIT_MS * 1000000;
                until.tv_sec += until.tv_nsec / 1000000000;
                until.tv_nsec %= 1000000000;
                (void)pthread_cond_timedwait(&host->changed, &host->lock, &until);
                r = op_check(op, err);
        }
        return r;
}

int workspace_work_begin(struct op *op, struct workspace_host *host, const char *id, bool wait,
                         struct workspace_work *work, struct err *err)
{
        int r = 0;

        pthread_mutex_lock(&host->lock);
        if (wait)
                r = wait_for_work(op, host, id, err);
        else if (find_work(host, id))
                r = err_set(err, ERR_CONFLICT,
                            "Somebody is staging or restoring this workspace just now.");
        if (r >= 0) {
                *work = (struct workspace_work){
                        .next = host->works,
                        .id = id,
                        .phase = "starting",
                        .op = op,
                        .host = host,
                };
                host->works = work;
        }
        pthread_mutex_unlock(&host->lock);
        return r;
}

void workspace_work_end(struct workspace_work *work)
{
        struct workspace_host *host = work->host;
        struct workspace_work **at;

        if (!host)
                return;
        pthread_mutex_lock(&host->lock);
        for (at = &host->works; *at != work;)
                at = &(*at)->next;
        *at = work->next;
        work->host = NULL;
        pthread_cond_broadcast(&host->changed);
        pthread_mutex_unlock(&host->lock);
}

void workspace_work_may_cancel(struct workspace_work *work)
{
        pthread_mutex_lock(&work->host->lock);
        work->may_cancel = true;
        pthread_mutex_unlock(&work->host->lock);
}

void workspace_work_progress(void *ctx, const char *phase, uint64_t done, uint64_t total)
{
        struct workspace_work *work = ctx;

        pthread_mutex_lock(&work->host->lock);
        work->phase = phase;
        work->done = done;
        work->total = total;
        pthread_mutex_unlock(&work->host->lock);
}

bool workspace_work_look(struct workspace_host *host, const char *id, struct workspace_work *ret)
{
        const struct workspace_work *w;

        pthread_mutex_lock(&host->lock);
        w = find_work(host, id);
        if (w)
                *ret = *w;
        pthread_mutex_unlock(&host->lock);
        return w != NULL;
}

/* Names */

char *workspace_dir(const struct workspace_host *host, const char *id)
{
        return xasprintf("%s/%s", host->dir, id);
}

char *salvage_dir(const struct workspace_host *host, const char *id)
{
        return xasprintf("%s/%s", host->salvage_dir, id);
}

char *workspace_lock_path(const struct workspace_host *host, const char *path)
{
        unsigned char hash[16];
        char name[2 * sizeof(hash) + 1];

        crypto_generichash(hash, sizeof(hash), (const unsigned char *)path, strlen(path), NULL, 0);
        sodium_bin2hex(name, sizeof(name), hash, sizeof(hash));
        return xasprintf("%s/%s", host->locks_dir, name);
}
