/* Which known word is nearest to what was typed. */
#include "cli/suggest.h"

#define WORD_MAX 32

/* Levenshtein distance where swapping two neighbours counts as one edit, because that is the
 * commonest slip of the fingers. Three rows are enough: a swap looks two rows back. */
static size_t edit_distance(const char *a, const char *b)
{
        size_t rows[3][WORD_MAX + 1];
        size_t n = strlen(a), m = strlen(b);
        size_t *before = rows[0], *last = rows[1], *row = rows[2];

        if (n > WORD_MAX || m > WORD_MAX)
                return SIZE_MAX;
        for (size_t j = 0; j <= m; j++)
                last[j] = j;
        for (size_t i = 1; i <= n; i++) {
                size_t *oldest = before;

                row[0] = i;
                for (size_t j = 1; j <= m; j++) {
                        size_t d = last[j - 1] + (a[i - 1] != b[j - 1]);

                        d = MIN(d, MIN(last[j], row[j - 1]) + 1);
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                d = MIN(d, before[j - 2] + 1);
                        row[j] = d;
                }
                before = last;
                last = row;
                row = oldest;
        }
        return last[m];
}

void suggest_init(struct suggest *s, const char *typed)
{
        *s = (struct suggest){ .typed = typed, .distance = SIZE_MAX };
}

void suggest_offer(struct suggest *s, const char *word)
{
        size_t typed_len = strlen(s->typed), allowed = typed_len <= 3 ? 1 : typed_len / 3;
        size_t d = edit_distance(s->typed, word);

        if (typed_len >= 2 && str_starts(word, s->typed))
                d = MIN(d, 1);
        if (d <= allowed && d < s->distance) {
                s->best = word;
                s->distance = d;
        }
}
