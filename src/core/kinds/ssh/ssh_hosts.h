/* The daemon's state for ssh environments: recorded host keys, commands without a box, and which
 * connection (core/carriers) leads to which host. One per runtime. Any thread, except where said.
 */
#pragma once

#include <pthread.h>

#include "core/carriers/carrier.h"

struct ssh_plain;

struct ssh_hosts {
        char *known_dir;
        pthread_mutex_t lock;
        struct ssh_plain *plain; /* ssh_plain.c; under the lock, as the next */
        int64_t last_call;
};

int ssh_hosts_new(const char *data_dir, struct ssh_hosts **ret, struct err *err);
/* Loop thread, when no operation runs any more: end the commands without a box. */
void ssh_hosts_close(struct ssh_hosts *hosts);
void ssh_hosts_free(struct ssh_hosts *hosts);

/* The file of the host keys that were recorded for an environment; NULL for none. Heap. */
char *ssh_hosts_record(const struct ssh_hosts *hosts, const char *environment_id);
/* An environment is gone: forget its host key. */
void ssh_hosts_forget(const struct ssh_hosts *hosts, const char *environment_id);

/* One ssh process for the places of one environment and configuration. */
extern const struct carrier_type ssh_carrier;
