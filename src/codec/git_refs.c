/* Which names and ids of git are valid, and reading HEAD, refs and packed-refs. */
#include "codec/git_refs.h"

#include "base/utf8.h"

/* What case-insensitive file systems drop from a name before they compare it: the code points that
 * Unicode calls default ignorable. */
static const struct {
        uint32_t first, last;
} ignorable[] = {
        { 0xad, 0xad },       { 0x34f, 0x34f },   { 0x61c, 0x61c },     { 0x115f, 0x1160 },
        { 0x17b4, 0x17b5 },   { 0x180b, 0x180f }, { 0x200b, 0x200f },   { 0x202a, 0x202e },
        { 0x2060, 0x206f },   { 0x3164, 0x3164 }, { 0xfe00, 0xfe0f },   { 0xfeff, 0xfeff },
        { 0xffa0, 0xffa0 },   { 0xfff0, 0xfff8 }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
        { 0xe0000, 0xe0fff },
};

static bool is_ignorable(uint32_t point)
{
        for (size_t i = 0; i < ARRAY_LEN(ignorable); i++)
                if (point >= ignorable[i].first && point <= ignorable[i].last)
                        return true;
        return false;
}

/* Two letters beyond ASCII are the other case of one within it. */
static char fold_point(uint32_t point)
{
        if (point < 0x80)
                return (char)(point >= 'A' && point <= 'Z' ? point - 'A' + 'a' : point);
        return point == 0x17f ? 's' : point == 0x212a ? 'k' : '\0';
}

static bool folds_to(const char *name, size_t len, const char *plain)
{
        while (len > 0) {
                uint32_t point;
                size_t n;

                if (!utf8_next(name, len, &n, &point))
                        return false;
                name += n;
                len -= n;
                if (point >= 0x80 && is_ignorable(point))
                        continue;
                if (*plain == '\0' || fold_point(point) != *plain)
                        return false;
                plain++;
        }
        return *plain == '\0';
}

bool git_part_is(const char *name, size_t len, const char *plain)
{
        while (len > 0 && (name[len - 1] == '.' || name[len - 1] == ' '))
                len--;
        return folds_to(name, len, plain) || (streq(plain, ".git") && folds_to(name, len, "git~1"));
}

static bool part_ok(const char *part, size_t len)
{
        static const char lock[] = ".lock";

        if (len == 0 || part[0] == '.' || part[0] == '-' || part[len - 1] == '.')
                return false;
        if (len >= sizeof(lock) - 1 &&
            memcmp(part + len - (sizeof(lock) - 1), lock, sizeof(lock) - 1) == 0)
                return false;
        for (size_t i = 0; i < len; i++) {
                const unsigned char c = (unsigned char)part[i];
                const char next = i + 1 < len ? part[i + 1] : '\0';

                if (c <= ' ' || c == 0x7f || strchr("~^:?*[\\\"'`$&|;<>", part[i]))
                        return false;
                if ((c == '.' && next == '.') || (c == '@' && next == '{'))
                        return false;
        }
        return !(len == 1 && part[0] == '@');
}

bool git_ref_name_ok(const char *name)
{
        const char *part = name;

        if (!str_starts(name, "refs/") || strlen(name) > GIT_NAME_MAX)
                return false;
        for (;;) {
                size_t len = strcspn(part, "/");

                if (!part_ok(part, len))
                        return false;
                if (part[len] == '\0')
                        return true;
                part += len + 1;
        }
}

static bool all_hex(const char *s)
{
        for (size_t i = 0; i < GIT_HEX; i++)
                if (!(s[i] >= '0' && s[i] <= '9') && !(s[i] >= 'a' && s[i] <= 'f'))
                        return false;
        return true;
}

bool git_oid_ok(const char *hex)
{
        return strlen(hex) == GIT_HEX && all_hex(hex);
}

static size_t without_newline(const char *bytes, size_t len)
{
        return len > 0 && bytes[len - 1] == '\n' ? len - 1 : len;
}

bool git_parse_oid(const char *bytes, size_t len, char ret[GIT_HEX + 1])
{
        if (without_newline(bytes, len) != GIT_HEX || !all_hex(bytes))
                return false;
        memcpy(ret, bytes, GIT_HEX);
        ret[GIT_HEX] = '\0';
        return true;
}

static bool take_name(const char *bytes, size_t len, struct git_ref *ret)
{
        if (len > GIT_NAME_MAX || memchr(bytes, '\0', len))
                return false;
        memcpy(ret->name, bytes, len);
        ret->name[len] = '\0';
        return git_ref_name_ok(ret->name);
}

bool git_parse_head(const char *bytes, size_t len, struct git_ref *ret)
{
        static const char prefix[] = "ref: ";
        const size_t n = sizeof(prefix) - 1;

        *ret = (struct git_ref){ 0 };
        if (git_parse_oid(bytes, len, ret->oid))
                return true;
        len = without_newline(bytes, len);
        return len > n && memcmp(bytes, prefix, n) == 0 && take_name(bytes + n, len - n, ret) &&
               str_starts(ret->name, "refs/heads/");
}

bool git_packed_next(const char *bytes, size_t len, size_t *at, struct git_ref *ret)
{
        while (*at < len) {
                const char *line = bytes + *at;
                const char *end = memchr(line, '\n', len - *at);
                size_t n = end ? (size_t)(end - line) : len - *at;

                *at += n + (end ? 1 : 0);
                *ret = (struct git_ref){ 0 };
                if (n > GIT_HEX + 1 && line[GIT_HEX] == ' ' &&
                    git_parse_oid(line, GIT_HEX, ret->oid) &&
                    take_name(line + GIT_HEX + 1, n - GIT_HEX - 1, ret))
                        return true;
        }
        return false;
}
