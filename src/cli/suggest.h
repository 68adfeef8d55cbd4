/* "Did you mean": the nearest of some known words. Any thread. */
#pragma once

#include "base/util.h"

struct suggest {
        const char *typed;
        const char *best; /* NULL until a word was near enough; borrowed */
        size_t distance;
};

void suggest_init(struct suggest *s, const char *typed);
/* Offer one word. A word counts when it needs few edits for its length, or begins with what was
 * typed. */
void suggest_offer(struct suggest *s, const char *word);
