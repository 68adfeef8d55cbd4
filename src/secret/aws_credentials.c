/* The chain of sources, and a cache per region in front of it.
 *
 * A caller that finds no fresh credentials loads them; others that come meanwhile wait for that
 * load and take what it brought. A load that ended because its own operation was cancelled brought
 * nothing, and one of the callers that waited starts another. */
#include "secret/aws.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define CACHE_MS     (INT64_C(300) * 1000)
#define EARLY_MS     (INT64_C(60) * 1000) /* before they expire */
#define MAX_REGIONS  32
#define REGION_BYTES 48

/* One attempt to get credentials; shared by its loader and the callers that wait. */
struct load {
        int fd; /* readable once it has ended */
        unsigned users;
        int failure; /* -1, or the kind of vault_fail() that the others would get as well */
};

struct region {
        char name[REGION_BYTES];
        struct aws_credentials credentials;
        bool present;
        int64_t fresh_until_ms; /* monotonic */
        int64_t used_ms;
        struct load *load; /* NULL: no load is under way */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region regions[MAX_REGIONS];

void aws_credentials_done(struct aws_credentials *c)
{
        secret_value_done(&c->secret);
        secret_value_done(&c->token);
        *c = (struct aws_credentials){ 0 };
}

static int copy_credentials(const struct aws_credentials *from, struct aws_credentials *ret,
                            struct err *err)
{
        int r = aws_credentials_set(ret, from->access_key_id, strlen(from->access_key_id),
                                    from->secret.data, from->secret.len, from->token.data,
                                    from->token.len, err);

        if (r == 0)
                ret->expires_us = from->expires_us;
        return r;
}

/* ---- the chain ---- */

static int load_from_sources(struct op *op, const char *region, struct aws_credentials *ret,
                             struct err *err)
{
        int r = aws_from_environment(ret, err);

        if (r == 0)
                r = aws_from_files(op, ret, err);
        if (r == 0)
                r = aws_from_web_identity(op, region, ret, err);
        if (r == 0)
                r = aws_from_container(op, ret, err);
        if (r == 0) {
                r = aws_from_instance(op, ret, err);
                /* On most machines nothing answers at this address. */
                if (r == ERR_UNREACHABLE)
                        r = 0;
        }
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "no source has AWS credentials");
        return r < 0 ? r : 0;
}

static int unusable(enum vault_failure kind, struct err *err)
{
        return vault_fail(err, kind,
                          kind == VAULT_UNAVAILABLE
                                  ? aws_failure_text(kind)
                                  : "AWS Secrets Manager cannot be used: this server has no valid "
                                    "AWS credentials.");
}

/* The words of a source go to the log only. */
static int load_credentials(struct op *op, const char *region, struct aws_credentials *ret,
                            struct err *err)
{
        CLEAN(err_done) struct err reason = { 0 };
        int r = load_from_sources(op, region, ret, &reason);

        if (r == 0)
                return 0;
        if (r == ERR_CANCELLED || r == ERR_TIMEOUT) {
                err_move(err, &reason);
                return r;
        }
        log_warn("no AWS credentials", LOG_S("region", region),
                 LOG_S("reason", aws_redact(op->arena, reason.msg)));
        return unusable(r == ERR_UNREACHABLE ? VAULT_UNAVAILABLE : VAULT_ACCESS_DENIED, err);
}

/* ---- the cache; all with the lock held ---- */

static struct region *find_region(const char *name)
{
        for (size_t i = 0; i < MAX_REGIONS; i++)
                if (streq(regions[i].name, name))
                        return &regions[i];
        return NULL;
}

/* The region's place, or the one that was used longest ago and is not being loaded. */
static struct region *claim_region(const char *name)
{
        struct region *oldest = NULL, *r = find_region(name);

        for (size_t i = 0; !r && i < MAX_REGIONS; i++)
                if (!regions[i].load && (!oldest || regions[i].used_ms < oldest->used_ms))
                        oldest = &regions[i];
        if (!r && oldest) {
                aws_credentials_done(&oldest->credentials);
                *oldest = (struct region){ 0 };
                memcpy(oldest->name, name, MIN(strlen(name), sizeof(oldest->name) - 1));
                r = oldest;
        }
        if (r)
                r->used_ms = clock_mono_ms();
        return r;
}

static void keep_credentials(struct region *r, const struct aws_credentials *c)
{
        int64_t left = CACHE_MS;

        if (c->expires_us)
                left = MIN(left, (c->expires_us - clock_wall_us()) / US_PER_MS - EARLY_MS);
        aws_credentials_done(&r->credentials);
        r->present = left > 0 && copy_credentials(c, &r->credentials, NULL) == 0;
        r->fresh_until_ms = clock_mono_ms() + left;
}

static struct load *load_new(void)
{
        struct load *l = xcalloc(1, sizeof(*l));

        l->failure = -1;
        l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        l->users = 1;
        if (l->fd < 0) {
                free(l);
                return NULL;
        }
        return l;
}

static void load_unref(struct load *l)
{
        if (--l->users > 0)
                return;
        close(l->fd);
        free(l);
}

/* ---- getting them ---- */

enum finding { FRESH, LOAD, WAIT, NO_ROOM };

/* What to do: *ret is filled with FRESH; *ret_load is ours to finish with LOAD, to wait for with
 * WAIT. */
static enum finding look_in_cache(const char *name, struct aws_credentials *ret,
                                  struct load **ret_load)
{
        struct region *r = claim_region(name);

        if (!r)
                return NO_ROOM;
        if (r->present && clock_mono_ms() < r->fresh_until_ms &&
            copy_credentials(&r->credentials, ret, NULL) == 0)
                return FRESH;
        if (r->load) {
                r->load->users++;
                *ret_load = r->load;
                return WAIT;
        }
        r->load = load_new();
        if (!r->load)
                return NO_ROOM;
        *ret_load = r->load;
        return LOAD;
}

/* c NULL: there are none, and `failure` is why. */
static void finish_load(const char *name, struct load *l, const struct aws_credentials *c,
                        int failure)
{
        uint64_t one = 1;

        pthread_mutex_lock(&lock);
        struct region *r = find_region(name);
        if (r && r->load == l) {
                if (c)
                        keep_credentials(r, c);
                r->load = NULL;
        }
        l->failure = failure;
        (void)!write(l->fd, &one, sizeof(one));
        load_unref(l);
        pthread_mutex_unlock(&lock);
}

static int wait_for(struct op *op, struct load *l, struct err *err)
{
        int r = op_wait_fd(op, l->fd, POLLIN, -1, err);

        pthread_mutex_lock(&lock);
        int failure = l->failure;
        load_unref(l);
        pthread_mutex_unlock(&lock);
        if (r < 0)
                return r;
        return failure < 0 ? 0 : unusable((enum vault_failure)failure, err);
}

int aws_credentials_get(struct op *op, const char *region, struct aws_credentials *ret,
                        struct err *err)
{
        CLEAN(err_done) struct err e = { 0 };
        int r;

        for (;;) {
                struct load *l = NULL;
                enum finding found;

                pthread_mutex_lock(&lock);
                found = look_in_cache(region, ret, &l);
                pthread_mutex_unlock(&lock);
                switch (found) {
                case FRESH:
                        return 0;
                case NO_ROOM:
                        return load_credentials(op, region, ret, err);
                case LOAD:
                        r = load_credentials(op, region, ret, &e);
                        finish_load(region, l, r == 0 ? ret : NULL, vault_failure_of(&e));
                        if (r < 0)
                                err_move(err, &e);
                        return r;
                case WAIT:
                        r = wait_for(op, l, err);
                        if (r < 0)
                                return r;
                        break;
                }
        }
}

void aws_credentials_refused(const char *region, const struct aws_credentials *c)
{
        pthread_mutex_lock(&lock);
        struct region *r = find_region(region);
        if (r && r->present && streq(r->credentials.access_key_id, c->access_key_id)) {
                aws_credentials_done(&r->credentials);
                r->present = false;
        }
        pthread_mutex_unlock(&lock);
}

/* ---- what can be seen without a request ---- */

bool aws_credentials_static_in_env(void)
{
        return aws_env_plain("AWS_ACCESS_KEY_ID") || aws_env_plain("AWS_SECRET_ACCESS_KEY");
}

json_t *aws_credentials_detected(void)
{
        static const struct {
                const char *variable, *source;
        } signs[] = {
                { "AWS_ACCESS_KEY_ID", "environment" },
                { "AWS_PROFILE", "shared_profile" },
                { "AWS_SHARED_CREDENTIALS_FILE", "shared_credentials_file" },
                { "AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity" },
                { "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "container" },
                { "AWS_CONTAINER_CREDENTIALS_FULL_URI", "container" },
        };
        json_t *list = json_array();

        for (size_t i = 0; i < ARRAY_LEN(signs); i++)
                if (aws_env_plain(signs[i].variable))
                        json_array_append_new(list, json_string(signs[i].source));
        return list;
}
