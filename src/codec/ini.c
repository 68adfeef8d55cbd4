/* Finds the value of a setting in an INI text. */
#include "codec/ini.h"

struct view {
        const char *at;
        size_t len;
};

static bool is_blank(char c)
{
        return c == ' ' || c == '\t' || c == '\r';
}

static struct view trimmed(const char *at, const char *end)
{
        while (at < end && is_blank(*at))
                at++;
        while (at < end && is_blank(end[-1]))
                end--;
        return (struct view){ at, (size_t)(end - at) };
}

/* `wanted` has single blanks between its words; the section's name may have more. */
static bool section_is(struct view name, const char *wanted)
{
        size_t i = 0;

        for (; i < name.len && *wanted; wanted++) {
                if (*wanted == ' ') {
                        if (!is_blank(name.at[i]))
                                return false;
                        while (i < name.len && is_blank(name.at[i]))
                                i++;
                } else if (name.at[i++] != *wanted) {
                        return false;
                }
        }
        return i == name.len && !*wanted;
}

int ini_find(const char *text, size_t len, const char *section, const char *key,
             const char **ret_value, size_t *ret_len, struct err *err)
{
        const char *end = text + len, *line, *stop, *mark;
        bool inside = false;
        int found = 0, number = 0;

        if (len > INI_MAX_BYTES)
                return err_set(err, ERR_TOO_LARGE, "larger than %zu KiB", INI_MAX_BYTES >> 10);
        for (line = text; line < end; line = stop + 1) {
                struct view l, name;

                number++;
                stop = memchr(line, '\n', (size_t)(end - line));
                if (!stop)
                        stop = end;
                l = trimmed(line, stop);
                /* An indented line goes on with the setting before it. */
                if (l.len == 0 || *l.at == '#' || *l.at == ';' || is_blank(*line))
                        continue;
                mark = memchr(l.at, *l.at == '[' ? ']' : '=', l.len);
                if (!mark || mark == l.at || memchr(l.at, '\0', l.len))
                        return err_set(err, ERR_INVALID,
                                       "line %d: neither [section] nor name = value", number);
                if (*l.at == '[') {
                        inside = section_is(trimmed(l.at + 1, mark), section);
                        continue;
                }
                name = trimmed(l.at, mark);
                if (inside && name.len == strlen(key) && memcmp(name.at, key, name.len) == 0) {
                        struct view value = trimmed(mark + 1, l.at + l.len);

                        *ret_value = value.at;
                        *ret_len = value.len;
                        found = 1;
                }
        }
        return found;
}
