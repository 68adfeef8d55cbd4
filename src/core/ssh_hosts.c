#include "core/ssh_hosts.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/ssh_config.h"

#define BOX_MAX ((size_t)16 << 20)

struct ssh_hosts {
        struct runtime *rt;
        char *run_dir, *known_dir;
        char *box_paths[SSH_N_BOXES];
        struct ssh_setup setup;
};

/* One that is not installed is one that no host gets. */
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
                hash_box(box);
        }
}

int ssh_hosts_new(struct runtime *rt, const char *data_dir, const char *box_program,
                  struct ssh_hosts **ret, struct err *err)
{
        struct ssh_hosts *h = xcalloc(1, sizeof(*h));

        h->rt = rt;
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

void ssh_hosts_free(struct ssh_hosts *h)
{
        if (!h)
                return;
        for (size_t i = 0; i < SSH_N_BOXES; i++)
                free(h->box_paths[i]);
        free(h->run_dir);
        free(h->known_dir);
        free(h);
}

const struct ssh_setup *ssh_hosts_setup(const struct ssh_hosts *h)
{
        return &h->setup;
}

char *ssh_hosts_record(const struct ssh_hosts *h, const char *environment_id)
{
        return environment_id ? xasprintf("%s/%s", h->known_dir, environment_id) : NULL;
}

void ssh_hosts_forget(const struct ssh_hosts *h, const char *environment_id)
{
        CLEAN(cleanup_free) char *path = ssh_hosts_record(h, environment_id);

        (void)unlink(path);
}

int ssh_hosts_reach(struct op *op, struct runtime *rt, const struct place *place, json_t *config,
                    const struct secret_context *context, struct ssh_hello *ret, struct err *err)
{
        CLEAN(cleanup_free) char *record = ssh_hosts_record(rt->ssh, place->environment_id);
        struct ssh_call call = SSH_CALL_INIT;
        struct ssh_target target;
        json_t *resolved = NULL;
        int r = ssh_config_resolve(op, rt, place->company_id, place->environment_id, config,
                                   context, &target, &resolved, err);

        if (r >= 0)
                r = ssh_call_ready(op, ssh_hosts_setup(rt->ssh), &target, record, &call, err);
        json_decref(resolved);
        if (r >= 0) {
                *ret = call.hello;
                call.hello = (struct ssh_hello){ 0 };
        }
        ssh_call_done(op, &call);
        return r;
}
