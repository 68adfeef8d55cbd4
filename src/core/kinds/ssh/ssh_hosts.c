/* Finding the boxes for hosts, and the daemon's table of connections and recorded host keys. */
#include "core/kinds/ssh/ssh_hosts.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/kinds/ssh/ssh_config.h"
#include "core/kinds/ssh/ssh_conn.h"
#include "core/kinds/ssh/ssh_plain.h"

#define BOX_MAX ((size_t)16 << 20)

/* A box that is not installed is brought to no host. */
static void hash_box(struct ssh_box *box)
{
        CLEAN(buf_done) struct buf program = { .max = BOX_MAX };
        unsigned char digest[crypto_hash_sha256_BYTES];

        if (file_read_at(AT_FDCWD, box->path, BOX_MAX, &program, NULL) < 0)
                return;
        (void)crypto_hash_sha256(digest, (unsigned char *)program.data, program.len);
        (void)sodium_bin2hex(box->hash, sizeof(box->hash), digest, sizeof(digest));
}

/* The box of this machine is berth-box itself; those of others lie beside it with their name. */
static void find_boxes(struct ssh_hosts *h, const char *program)
{
        static const char *const machines[SSH_N_BOXES] = { "x86_64", "aarch64" };
#ifdef __x86_64__
        const size_t own = 0;
#else
        const size_t own = 1;
#endif

        for (size_t i = 0; i < SSH_N_BOXES; i++) {
                struct ssh_box *box = &h->setup.boxes[i];

                h->box_paths[i] =
                        i == own ? xstrdup(program) : xasprintf("%s-%s", program, machines[i]);
                *box = (struct ssh_box){ .machine = machines[i], .path = h->box_paths[i] };
        }
}

int ssh_hosts_new(struct runtime *rt, uv_loop_t *loop, const char *data_dir,
                  const char *box_program, struct ssh_hosts **ret, struct err *err)
{
        struct ssh_hosts *h = xcalloc(1, sizeof(*h));

        h->rt = rt;
        h->loop = loop;
        pthread_mutex_init(&h->lock, NULL);
        pthread_mutex_init(&h->hash_lock, NULL);
        h->run_dir = xasprintf("%s/ssh/run", data_dir);
        h->known_dir = xasprintf("%s/ssh/known", data_dir);
        h->setup.trampoline = rt->settings.trampoline;
        h->setup.run_dir = h->run_dir;
        h->setup.timeout_ms = rt->settings.ssh_timeout_ms;
        find_boxes(h, box_program);
        ssh_rundir_sweep(h->run_dir);
        *ret = h;
        return 0;
}

void ssh_hosts_close(struct ssh_hosts *h)
{
        if (!h)
                return;
        h->closing = true;
        ssh_plain_stop(h);
        for (struct ssh_conn *c = h->conns; c; c = c->next)
                ssh_carrier_close(c);
        while (h->carriers > 0) /* their processes were killed */
                uv_run(h->loop, UV_RUN_ONCE);
}

static void free_conns(struct ssh_hosts *h)
{
        struct ssh_conn *c;

        while ((c = h->conns)) {
                struct ssh_user *u;

                h->conns = c->next;
                while ((u = c->users)) {
                        c->users = u->next;
                        kept_place_free(u->kept);
                        free(u);
                }
                ssh_hello_done(&c->hello);
                free(c->key);
                free(c->company_id);
                free(c->environment_id);
                free(c->config);
                free(c);
        }
}

void ssh_hosts_free(struct ssh_hosts *h)
{
        if (!h)
                return;
        for (size_t i = 0; i < SSH_N_BOXES; i++)
                free(h->box_paths[i]);
        free_conns(h);
        pthread_mutex_destroy(&h->hash_lock);
        pthread_mutex_destroy(&h->lock);
        free(h->run_dir);
        free(h->known_dir);
        free(h);
}

/* Reading the boxes takes longer than all the rest of a start, so only operations that use ssh wait
 * for it. */
const struct ssh_setup *ssh_hosts_setup(struct ssh_hosts *h)
{
        pthread_mutex_lock(&h->hash_lock);
        for (size_t i = 0; i < SSH_N_BOXES && !h->has_hashes; i++)
                hash_box(&h->setup.boxes[i]);
        h->has_hashes = true;
        pthread_mutex_unlock(&h->hash_lock);
        return &h->setup;
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

int ssh_hosts_reach(struct op *op, struct runtime *rt, const struct place *place,
                    const struct secret_context *context, struct ssh_hello *ret, struct err *err)
{
        struct ssh_conn *c;
        int r = ssh_conn_of(rt->ssh, place, &c, err);

        if (r >= 0)
                r = ssh_conn_reach(op, c, context, ret, err);
        if (r >= 0)
                ssh_conn_use(c, place);
        return r;
}

void ssh_hosts_leave(struct runtime *rt, const struct place *place)
{
        struct ssh_conn *c;

        if (ssh_conn_of(rt->ssh, place, &c, NULL) >= 0)
                ssh_conn_leave(c, place->id);
}
