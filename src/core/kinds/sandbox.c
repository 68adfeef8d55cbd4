#include "core/kinds/sandbox.h"

const struct provider *const builtin_providers[] = { &provider_fake, &provider_berth, NULL };

const struct provider *provider_lookup(const char *key)
{
        for (const struct provider *const *p = builtin_providers; *p; p++)
                if (streq((*p)->key, key))
                        return *p;
        return NULL;
}

int provider_find(const char *key, const struct provider **ret, struct err *err)
{
        const struct provider *p = provider_lookup(key);

        if (!p)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Sandbox provider \"%s\" is not registered as a built-in provider.",
                               key);
        *ret = p;
        return 0;
}

int provider_check(const struct runtime *rt, const json_t *config, struct err *err)
{
        const char *key = json_get_string(config, "provider");
        const struct provider *p = key ? provider_lookup(key) : NULL;

        return p && p->check ? p->check(rt, config, err) : 0;
}

const char *provider_key_of(const json_t *config, struct arena *arena)
{
        const char *key = arena_strtrim(arena, json_get_string(config, "provider"));

        return key ? key : PROVIDER_FAKE;
}

bool provider_config_matches(const json_t *recorded, const json_t *config)
{
        const char *have = json_get_string(recorded, "provider");
        const char *want = json_get_string(config, "provider");
        const char *key;
        json_t *value;

        if (!have || !want || !streq(have, want) ||
            !json_is_true(json_object_get(recorded, "reuseLease")))
                return false;
        json_object_foreach((json_t *)config, key, value)
        {
                json_t *other = json_object_get(recorded, key);

                if (streq(key, "provider") || streq(key, "reuseLease"))
                        continue;
                if (!other || !json_equal(other, value))
                        return false;
        }
        return true;
}

json_t *provider_config_from_metadata_strict(const json_t *metadata)
{
        const char *provider = json_get_string(metadata, "provider");
        const char *image = json_get_string(metadata, "image");

        if (!provider || !streq(provider, PROVIDER_FAKE) || !image)
                return NULL;
        return json_pack("{s:s, s:s, s:b}", "provider", provider, "image", image, "reuseLease",
                         json_is_true(json_object_get(metadata, "reuseLease")));
}

json_t *provider_config_from_metadata_loose(const json_t *metadata)
{
        const char *provider = json_get_string(metadata, "provider");
        json_t *config;

        if (!provider)
                return NULL;
        if (provider_lookup(provider))
                return provider_config_from_metadata_strict(metadata);
        config = json_copy((json_t *)metadata);
        json_object_set_new(config, "reuseLease",
                            json_boolean(json_is_true(json_object_get(metadata, "reuseLease"))));
        return config;
}
