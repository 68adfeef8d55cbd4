/* Reads WWW-Authenticate: schemes, each with parameters, all with commas between them. */
#include "image/challenge.h"

#include <strings.h>

struct text {
        const char *at, *end;
};

static bool is_token_byte(char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c && strchr("!#$%&'*+-.^_`|~", c));
}

static void skip(struct text *t, const char *bytes)
{
        while (t->at < t->end && *t->at && strchr(bytes, *t->at))
                t->at++;
}

static struct text take_token(struct text *t)
{
        struct text token = { t->at, t->at };

        while (t->at < t->end && is_token_byte(*t->at))
                t->at++;
        token.end = t->at;
        return token;
}

static bool is_word(struct text token, const char *word)
{
        size_t len = (size_t)(token.end - token.at);

        return len == strlen(word) && strncasecmp(token.at, word, len) == 0;
}

/* A token, or a text in quotes. False when it is neither, or does not fit. */
static bool take_value(struct text *t, char ret[CHALLENGE_TEXT])
{
        size_t len = 0;

        if (t->at == t->end || *t->at != '"') {
                struct text token = take_token(t);

                len = (size_t)(token.end - token.at);
                if (len == 0 || len >= CHALLENGE_TEXT)
                        return false;
                memcpy(ret, token.at, len);
                ret[len] = '\0';
                return true;
        }
        for (t->at++; t->at < t->end && *t->at != '"'; t->at++) {
                if (*t->at == '\\' && t->at + 1 < t->end)
                        t->at++;
                if (*t->at < ' ' || *t->at > '~' || len + 1 >= CHALLENGE_TEXT)
                        return false;
                ret[len++] = *t->at;
        }
        ret[len] = '\0';
        return t->at < t->end && t->at++;
}

/* "name=value" into the challenge; false when the next thing is no parameter. *t is behind it then,
 * or as it was. */
static bool take_parameter(struct text *t, struct challenge *c, bool *ret_bad)
{
        struct text at = *t, name;
        char value[CHALLENGE_TEXT];

        skip(&at, ", \t");
        name = take_token(&at);
        skip(&at, " \t");
        if (name.at == name.end || at.at == at.end || *at.at != '=')
                return false;
        at.at++;
        skip(&at, " \t");
        if (!take_value(&at, value)) {
                *ret_bad = true;
                return false;
        }
        char *to = is_word(name, "realm")     ? c->realm
                   : is_word(name, "service") ? c->service
                   : is_word(name, "scope")   ? c->scope
                                              : NULL;
        if (to)
                memcpy(to, value, strlen(value) + 1);
        *t = at;
        return true;
}

void challenge_add(struct challenge *c, const char *value, size_t len)
{
        struct text t = { value, value + len };
        bool bad = false;

        while (!bad) {
                struct challenge next = { 0 };
                struct text scheme;

                skip(&t, ", \t");
                scheme = take_token(&t);
                if (scheme.at == scheme.end)
                        return;
                next.kind = is_word(scheme, "Bearer")  ? CHALLENGE_BEARER
                            : is_word(scheme, "Basic") ? CHALLENGE_BASIC
                                                       : CHALLENGE_NONE;
                while (take_parameter(&t, &next, &bad))
                        ;
                if (bad || (next.kind == CHALLENGE_BEARER && !*next.realm))
                        continue;
                if (next.kind > c->kind)
                        *c = next;
        }
}
