/* Which texts are versions, and which version is greater. */
#include "plugin/semver.h"

#include <ctype.h>

static bool is_word(char c)
{
        return isalnum((unsigned char)c) || c == '-';
}

static const char *skip_number(const char *s)
{
        const char *start = s;

        while (isdigit((unsigned char)*s))
                s++;
        return s == start ? NULL : s;
}

/* Identifiers between dots; NULL when one is empty. */
static const char *skip_words(const char *s)
{
        for (;;) {
                const char *start = s;

                while (is_word(*s))
                        s++;
                if (s == start)
                        return NULL;
                if (*s != '.')
                        return s;
                s++;
        }
}

/* Past x.y.z, or NULL. */
static const char *skip_core(const char *s)
{
        for (int i = 0; s && i < 3; i++) {
                if (i > 0 && *s++ != '.')
                        return NULL;
                s = skip_number(s);
        }
        return s;
}

bool semver_is_valid(const char *text)
{
        const char *s = skip_core(text);

        if (s && *s == '-')
                s = skip_words(s + 1);
        if (s && *s == '+')
                s = skip_words(s + 1);
        return s && *s == '\0';
}

/* Numbers of any length: without their zeros the longer one is greater. */
static int compare_numbers(const char *a, size_t n, const char *b, size_t m)
{
        for (; n > 1 && *a == '0'; n--)
                a++;
        for (; m > 1 && *b == '0'; m--)
                b++;
        if (n != m)
                return n < m ? -1 : 1;
        return strncmp(a, b, n);
}

static bool is_number(const char *s, size_t n)
{
        return strspn(s, "0123456789") >= n;
}

/* Numbers come before words. */
static int compare_words(const char *a, size_t n, const char *b, size_t m)
{
        bool number_a = is_number(a, n), number_b = is_number(b, m);
        int r;

        if (number_a && number_b)
                return compare_numbers(a, n, b, m);
        if (number_a != number_b)
                return number_a ? -1 : 1;
        r = strncmp(a, b, MIN(n, m));
        return r ? r : (n > m) - (n < m);
}

/* Identifier by identifier, up to the build; the list with more identifiers is greater. */
static int compare_lists(const char *a, const char *b)
{
        for (;;) {
                size_t n = strcspn(a, ".+"), m = strcspn(b, ".+");
                int r = compare_words(a, n, b, m);

                a += n;
                b += m;
                if (r || *a != '.' || *b != '.')
                        return r ? r : (*a == '.') - (*b == '.');
                a++;
                b++;
        }
}

int semver_compare(const char *a, const char *b)
{
        for (int i = 0; i < 3; i++) {
                size_t n = strspn(a, "0123456789"), m = strspn(b, "0123456789");
                int r = compare_numbers(a, n, b, m);

                if (r)
                        return r;
                a += n + (i < 2);
                b += m + (i < 2);
        }
        if (*a != '-' || *b != '-')
                return (*b == '-') - (*a == '-');
        return compare_lists(a + 1, b + 1);
}
