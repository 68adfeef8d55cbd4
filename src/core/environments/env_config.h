/* The configuration of an environment, per driver: what is accepted, what is stored.
 *
 * One rule set, three forms: what a reader of a stored row accepts, what a caller may submit for
 * saving, and what a caller may submit for a probe. They differ only in whether an ssh private key
 * may stand in it in clear. Pure functions; any thread. */
#ifndef BERTH_CORE_ENV_CONFIG_H
#define BERTH_CORE_ENV_CONFIG_H

#include "codec/json.h"

enum config_form {
        CONFIG_STORED,    /* a row: no secret in clear */
        CONFIG_SUBMITTED, /* to be saved or probed: an ssh private key may be given */
};

/* Check and normalise `config` (NULL counts as {}). *ret is a new reference. ERR_UNPROCESSABLE with
 * the first issue's text and all issues as details. */
int env_config_normalize(const char *driver, json_t *config, enum config_form form, json_t **ret,
                         struct err *err);

/* ^[a-z0-9][a-z0-9._-]*$ */
bool env_config_is_key(const char *s);

#endif
