/* Which ids of the host sandboxes may have.
 *
 * A daemon that is root has a range by its settings, in which no account may lie; the range of
 * another user is what /etc/subuid and /etc/subgid both give to that user. Each living sandbox has
 * a slice of its own; the row in `sandboxes` says which (store/sandboxes.h).
 *
 * Two daemons of one machine should have ranges of their own. Where they share one, each begins at
 * another slice, by its node's id, and goes round, so that they hardly ever collide.
 *
 * Pure but for reading files; any thread. */
#pragma once

#include "base/err.h"
#include "codec/subid.h"

#define HOST_IDS_FIRST 0x70000000 /* above the range that systemd gives to containers */
#define HOST_IDS_COUNT 0x0fff0000

/* The range of this process. `first` and `count` are the settings, for root. ERR_UNPROCESSABLE with
 * a text that says what to do. */
int host_ids_find(int64_t first, int64_t count, struct id_range *ret, struct err *err);

/* Whether no user and no group of the machine has an id of the range. The message says that `whose`
 * get the range, by the settings SETTING_uid_first and SETTING_uid_count. */
int host_ids_are_free(struct id_range range, const char *whose, const char *setting,
                      struct err *err);

/* How many ids one sandbox gets: those of a whole system where there are plenty, else enough. */
int64_t host_ids_slice(struct id_range range);
