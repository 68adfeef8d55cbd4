/* The statuses of a plugin and every move that exists between them. This is the only file that
 * decides which moves are allowed; the registry asks it before each compare-and-set.
 *
 *   installed        it is present and about to be loaded
 *   ready            its worker should run
 *   disabled         an operator does not want it to run
 *   error            it could not be started, or ended too often
 *   upgrade_pending  it runs; a newer version that wants more rights waits for approval
 *   uninstalled      its files are gone; the row is kept
 *
 * Pure functions; any thread. */
#pragma once

#include "base/err.h"

#define PLUGIN_INSTALLED       "installed"
#define PLUGIN_READY           "ready"
#define PLUGIN_DISABLED        "disabled"
#define PLUGIN_ERROR           "error"
#define PLUGIN_UPGRADE_PENDING "upgrade_pending"
#define PLUGIN_UNINSTALLED     "uninstalled"

/* All statuses, NULL-terminated. */
extern const char *const plugin_statuses[];

/* 0, or ERR_INVALID "Invalid lifecycle transition: a → b for plugin key". */
int plugin_transition_check(const char *from, const char *to, const char *key, struct err *err);

/* Whether a plugin with this status is meant to have a worker. */
bool plugin_status_runs(const char *status);
