/* Any JSON as the configuration of every driver. What is accepted is an object; in its stored form
 * it is accepted again and comes out the same, so that a row can always be read back. What is
 * refused says why. */
#include "core/kinds/kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct runtime rt = { .kinds = builtin_kinds };
static const char *const drivers[] = { "local", "ssh", "sandbox", "plugin", "unknown" };

/* A private key in clear is saved elsewhere and never stands in a row. */
static void without_key(json_t *config)
{
        if (json_is_string(json_object_get(config, "privateKey")))
                json_object_set_new(config, "privateKey", json_null());
}

static void check_again(const char *driver, json_t *config)
{
        json_t *again = NULL;

        if (kind_normalize(&rt, driver, config, CONFIG_STORED, &again, NULL) < 0 ||
            !json_equal(config, again))
                abort();
        json_decref(again);
}

static void normalize(const char *driver, json_t *given, enum config_form form)
{
        CLEAN(err_done) struct err err = { 0 };
        json_t *before = json_deep_copy(given), *config = NULL;
        int r = kind_normalize(&rt, driver, given, form, &config, &err);

        if (!json_equal(before, given)) /* what was sent is not ours to change */
                abort();
        if (r < 0) {
                if (r != ERR_UNPROCESSABLE || err.code != r || !*err.msg || config)
                        abort();
        } else {
                if (!json_is_object(config))
                        abort();
                if (streq(driver, "ssh"))
                        without_key(config);
                check_again(driver, config);
        }
        json_decref(config);
        json_decref(before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        json_t *given;

        if (json_parse((const char *)data, size, &given, NULL) < 0)
                return 0;
        for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++) {
                normalize(drivers[i], given, CONFIG_STORED);
                normalize(drivers[i], given, CONFIG_SUBMITTED);
        }
        json_decref(given);
        return 0;
}
