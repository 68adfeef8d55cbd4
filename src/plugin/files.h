/* The files of a worker with a user of its own: its directory, and what it may read.
 *
 * The user is one of a range (confine.h). The owner of a worker's private directory says which, so
 * it stays the same over restarts and no two have the same; a new one is looked for from a place on
 * that the worker's id decides, so that one that was removed does not hand its files on.
 *
 * Reading: files that every user may read are shown as they are. Of the rest, a key or known_hosts
 * for example, the worker gets a copy that belongs to it, and sees it under the name of the
 * original.
 *
 * Operation threads. */
#pragma once

#include "plugin/confine.h"

/* First of all for a worker: make the directory where it is missing, with `tmp` in it, and give it
 * with all that is in it to the user, which is chosen for `id` unless it has one. *ret is 0 where
 * workers have no users of their own. */
int files_own_dir(const struct op *op, struct confine_policy *policy, const char *dir,
                  const char *id, uid_t *ret, struct err *err);

/* `paths` (NULL-terminated) as the user may read them; files that have to be copied go to `copies`,
 * which is emptied first. ERR_TOO_LARGE says what to do about a tree that is too large. */
int files_for_reading(const struct op *op, struct confine_policy *policy, uid_t uid,
                      const char *const *paths, const char *copies, struct arena *arena,
                      const struct confine_path **ret, struct err *err);
