/* Finds the largest range of a user in /etc/subuid or /etc/subgid. */
#include "codec/subid.h"

#include <stdio.h>

/* A whole number; where it ends. NULL when there is none, or too large a one. */
static const char *read_number(const char *at, const char *end, int64_t *ret)
{
        const char *p = at;

        *ret = 0;
        for (; p < end && *p >= '0' && *p <= '9'; p++) {
                *ret = *ret * 10 + (*p - '0');
                if (*ret > UINT32_MAX)
                        return NULL;
        }
        return p == at ? NULL : p;
}

static bool is_user(const char *at, size_t len, const char *name, uid_t uid)
{
        char number[16];

        (void)snprintf(number, sizeof(number), "%u", uid);
        return (name && strlen(name) == len && strncmp(at, name, len) == 0) ||
               (strlen(number) == len && strncmp(at, number, len) == 0);
}

/* user:first:count */
static bool read_line(const char *at, const char *end, const char *name, uid_t uid,
                      struct id_range *ret)
{
        const char *colon = memchr(at, ':', (size_t)(end - at));

        if (!colon || !is_user(at, (size_t)(colon - at), name, uid))
                return false;
        at = read_number(colon + 1, end, &ret->first);
        if (!at || at == end || *at != ':')
                return false;
        at = read_number(at + 1, end, &ret->count);
        return at == end && ret->first > 0 && ret->first + ret->count <= UINT32_MAX;
}

bool subid_largest(const char *text, size_t len, const char *name, uid_t uid, struct id_range *ret)
{
        const char *at = text, *end = text + len;

        *ret = (struct id_range){ 0 };
        while (at < end) {
                const char *line = memchr(at, '\n', (size_t)(end - at));
                struct id_range found;

                if (!line)
                        line = end;
                if (read_line(at, line, name, uid, &found) && found.count > ret->count)
                        *ret = found;
                at = line + 1;
        }
        return ret->count > 0;
}

struct id_range id_range_common(struct id_range a, struct id_range b)
{
        int64_t first = MAX(a.first, b.first);
        int64_t end = MIN(a.first + a.count, b.first + b.count);

        return (struct id_range){ first, MAX(end - first, 0) };
}
