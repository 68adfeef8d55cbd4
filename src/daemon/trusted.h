/* Which users of this machine count as the operator, besides root and the daemon's own user
 * (auth_is_operator()): the setting trusted_uids.
 *
 * A daemon that root runs usually serves a person, who calls it as an ordinary user. Where the
 * setting says nothing, it asks on the terminal once and writes the answer into berth.toml; without
 * a terminal it takes the user who called sudo, and says so in its log. */
#pragma once

#include "daemon/config.h"

/* Read a list of names and numbers, separated by commas, into the settings. ERR_INVALID names the
 * one that is no user. */
int trusted_parse(const char *list, struct arena *arena, struct settings *s, struct err *err);

/* The reverse proxy by its address, or by the user of this machine that it runs as, in the form
 * that http_request_client() compares. */
int trusted_parse_proxy(const char *text, struct arena *arena, struct settings *s, struct err *err);

/* After config_load(): ask the operator where that is needed. */
int trusted_settle(struct config *c, struct arena *arena, struct err *err);
