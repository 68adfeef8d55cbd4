/* Reads the operator's list of registries, and decides what it allows. */
#include "image/registry_rules.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "codec/host_pattern.h"

#define HTTP  "http://"
#define HTTPS "https://"

static int wrong_rule(struct err *err, const char *entry, size_t len, const char *why)
{
        return err_set(err, ERR_INVALID, "the entry \"%.*s\" in the list of registries: %s",
                       (int)MIN(len, (size_t)200), entry, why);
}

static int read_host(const char *entry, size_t entry_len, const char *at, size_t len,
                     char ret[IMAGE_HOST_SIZE], struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        struct host_target target;

        if (len >= IMAGE_HOST_SIZE || host_target_parse(at, len, 443, &target, &why) < 0)
                return wrong_rule(err, entry, entry_len,
                                  *why.msg ? why.msg : "the name is too long");
        for (size_t i = 0; i < len; i++)
                ret[i] = (char)tolower((unsigned char)at[i]);
        ret[len] = '\0';
        return 0;
}

static int read_rule(const char *entry, size_t len, struct registry_rule *ret, struct err *err)
{
        const char *at = entry, *equals = memchr(entry, '=', len);
        size_t left = len;
        int r;

        if (equals) {
                r = read_host(entry, len, entry, (size_t)(equals - entry), ret->mirror_of, err);
                if (r < 0)
                        return r;
                at = equals + 1;
                left = (size_t)(entry + len - at);
        }
        if (left > strlen(HTTP) && strncasecmp(at, HTTP, strlen(HTTP)) == 0) {
                ret->plain_http = true;
                at += strlen(HTTP);
                left -= strlen(HTTP);
        } else if (left > strlen(HTTPS) && strncasecmp(at, HTTPS, strlen(HTTPS)) == 0) {
                at += strlen(HTTPS);
                left -= strlen(HTTPS);
        }
        if (left > 0 && at[left - 1] == '/')
                left--;
        return read_host(entry, len, at, left, ret->host, err);
}

int registry_rules_parse(const char *text, struct registry_rules *ret, struct err *err)
{
        ret->n = 0;
        for (const char *at = text ? text : ""; *at;) {
                size_t len = strcspn(at, ","), blank = strspn(at, " \t");
                const char *entry = at + MIN(blank, len);
                size_t n = len - MIN(blank, len);

                at += len + (at[len] == ',');
                while (n > 0 && (entry[n - 1] == ' ' || entry[n - 1] == '\t'))
                        n--;
                if (n == 0)
                        continue;
                if (ret->n == REGISTRY_MAX_RULES)
                        return err_set(err, ERR_INVALID,
                                       "the list of registries has more than %d entries",
                                       REGISTRY_MAX_RULES);
                ret->at[ret->n] = (struct registry_rule){ 0 };
                int r = read_rule(entry, n, &ret->at[ret->n], err);
                if (r < 0)
                        return r;
                ret->n++;
        }
        return 0;
}

static bool rule_is_for(const struct registry_rule *rule, const char *host, uint16_t port)
{
        struct host_target target;

        return host_target_parse(rule->host, strlen(rule->host), rule->plain_http ? 80 : 443,
                                 &target, NULL) >= 0 &&
               target.port == port && strcasecmp(target.name, host) == 0;
}

bool rules_name(const struct registry_rules *rules, const char *host, uint16_t port)
{
        for (size_t i = 0; i < rules->n; i++)
                if (rule_is_for(&rules->at[i], host, port))
                        return true;
        return false;
}

bool rules_allow_http(const struct registry_rules *rules, const char *host, uint16_t port)
{
        for (size_t i = 0; i < rules->n; i++)
                if (rules->at[i].plain_http && rule_is_for(&rules->at[i], host, port))
                        return true;
        return false;
}
