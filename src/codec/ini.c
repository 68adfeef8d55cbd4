/* Finds the value of a setting in an INI text. */
#include "codec/ini.h"

struct line {
        const char *at;
        size_t len;
};

static bool is_blank(char c)
{
        return c == ' ' || c == '\t' || c == '\r';
}

static struct line trim(struct line l)
{
        while (l.len > 0 && is_blank(l.at[0])) {
                l.at++;
                l.len--;
        }
        while (l.len > 0 && is_blank(l.at[l.len - 1]))
                l.len--;
        return l;
}

static bool line_is(struct line l, const char *text)
{
        return l.len == strlen(text) && memcmp(l.at, text, l.len) == 0;
}

/* `wanted` has single blanks between its words; the line may have more. */
static bool section_is(struct line l, const char *wanted)
{
        size_t i = 0;

        for (; i < l.len && *wanted; wanted++) {
                if (*wanted == ' ') {
                        if (!is_blank(l.at[i]))
                                return false;
                        while (i < l.len && is_blank(l.at[i]))
                                i++;
                } else if (l.at[i++] != *wanted) {
                        return false;
                }
        }
        return i == l.len && !*wanted;
}

static bool next_line(const char **at, const char *end, struct line *ret)
{
        const char *stop;

        if (*at >= end)
                return false;
        stop = memchr(*at, '\n', (size_t)(end - *at));
        if (!stop)
                stop = end;
        *ret = (struct line){ *at, (size_t)(stop - *at) };
        *at = stop + 1;
        return true;
}

enum kind { NOTHING, SECTION, SETTING, BROKEN };

/* What the line says. *ret_name is the section or the key, *ret_value what is set. */
static enum kind read_line(struct line raw, struct line *ret_name, struct line *ret_value)
{
        struct line l = trim(raw);
        const char *mark;

        /* An indented line goes on with the setting before it. */
        if (l.len == 0 || l.at[0] == '#' || l.at[0] == ';' || is_blank(raw.at[0]))
                return NOTHING;
        if (memchr(l.at, '\0', l.len))
                return BROKEN;
        if (l.at[0] == '[') {
                mark = memchr(l.at, ']', l.len);
                if (!mark)
                        return BROKEN;
                *ret_name = trim((struct line){ l.at + 1, (size_t)(mark - l.at) - 1 });
                return SECTION;
        }
        mark = memchr(l.at, '=', l.len);
        if (!mark || mark == l.at)
                return BROKEN;
        *ret_name = trim((struct line){ l.at, (size_t)(mark - l.at) });
        *ret_value = trim((struct line){ mark + 1, (size_t)(l.at + l.len - mark) - 1 });
        return SETTING;
}

static int search(const char *text, size_t len, const char *section, const char *key,
                  struct line *ret, struct err *err)
{
        const char *at = text, *end = text + len;
        struct line raw, name = { 0 }, value = { 0 };
        bool inside = false;
        int found = 0, number = 0;

        if (len > INI_MAX_BYTES)
                return err_set(err, ERR_TOO_LARGE, "larger than %zu KiB", INI_MAX_BYTES >> 10);
        while (next_line(&at, end, &raw)) {
                number++;
                switch (read_line(raw, &name, &value)) {
                case NOTHING:
                        break;
                case BROKEN:
                        return err_set(err, ERR_INVALID,
                                       "line %d: neither [section] nor name = value", number);
                case SECTION:
                        inside = section_is(name, section);
                        break;
                case SETTING:
                        if (inside && line_is(name, key)) {
                                *ret = value;
                                found = 1;
                        }
                        break;
                }
        }
        return found;
}

int ini_find(const char *text, size_t len, const char *section, const char *key,
             const char **ret_value, size_t *ret_len, struct err *err)
{
        struct line value = { 0 };
        int r = search(text, len, section, key, &value, err);

        if (r > 0) {
                *ret_value = value.at;
                *ret_len = value.len;
        }
        return r;
}
