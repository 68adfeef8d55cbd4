/* The header WWW-Authenticate, as registries send it: how a request would be let in.
 *
 *     Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repo..."
 *     Basic realm="a name"
 *
 * Pure, any thread. */
#pragma once

#include "base/util.h"

#define CHALLENGE_TEXT 1024

enum challenge_kind { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER };

struct challenge {
        enum challenge_kind kind;
        char realm[CHALLENGE_TEXT], service[CHALLENGE_TEXT], scope[CHALLENGE_TEXT]; /* of Bearer */
};

/* Add what one such header says. Of several challenges the first Bearer with a realm counts, else
 * Basic. What is malformed, too long or has a byte that is not printable is passed over. */
void challenge_add(struct challenge *c, const char *value, size_t len);
