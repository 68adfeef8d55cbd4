/* Which paths a callback channel accepts, and which routes agents may use. */
#include "core/callbacks/callback_routes.h"

/* Spelling */

static bool is_hidden(int byte)
{
        return byte < 0x20 || byte == 0x7f || byte == '.' || byte == '/' || byte == '\\' ||
               byte == '%';
}

/* What stands behind a percent sign; NULL: fine. */
static const char *escape_problem(const char *at)
{
        int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);

        if (low < 0)
                return "The path has a broken escape.";
        if (is_hidden(high * 16 + low))
                return "The path hides a character behind an escape.";
        return NULL;
}

static const char *byte_problem(const char *at)
{
        unsigned char c = (unsigned char)*at;

        if (c <= 0x20 || c >= 0x7f)
                return "The path has a byte that is no printable character.";
        if (c == '\\' || c == '?' || c == '#')
                return "The path has a character that does not belong into one.";
        return c == '%' ? escape_problem(at) : NULL;
}

static bool is_dots(const char *segment, size_t len)
{
        return len <= 2 && strspn(segment, ".") >= len;
}

const char *callback_path_problem(const char *path)
{
        if (*path != '/')
                return "The path does not begin with a slash.";
        for (const char *at = path; *at; at++) {
                const char *problem = byte_problem(at);

                if (problem)
                        return problem;
                if (*at != '/' || at[1] == '\0')
                        continue;
                if (is_dots(at + 1, strcspn(at + 1, "/")))
                        return "The path has an empty segment or one of dots.";
        }
        return NULL;
}

/* Routes. A star stands for one segment; words in parentheses are alternatives. */

struct rule {
        const char *method, *pattern;
};

static const struct rule rules[] = {
        { "GET", "/api/agents/*" }, /* `me` among them */
        { "GET", "/api/agents/me/inbox-lite" },
        { "GET", "/api/agents/me/inbox/mine" },
        { "GET", "/api/agents/*/skills" },
        { "POST", "/api/agents/*/skills/sync" },
        { "PATCH", "/api/agents/*/instructions-path" },

        { "GET", "/api/companies/*" },
        { "GET", "/api/companies/*/"
                 "(dashboard|agents|issues|projects|goals|org|approvals|routines|skills)" },
        { "GET", "/api/companies/*/agent-configurations" },
        { "POST", "/api/companies/*/(issues|approvals|routines|agent-hires)" },
        { "GET", "/api/projects/*" },
        { "GET", "/api/goals/*" },

        { "GET", "/api/issues/*" },
        { "GET", "/api/issues/*/"
                 "(heartbeat-context|comments|documents|approvals|interactions|work-products)" },
        { "GET", "/api/issues/*/(comments|documents|interactions)/*" },
        { "GET", "/api/issues/*/documents/*/revisions" },
        { "POST", "/api/issues/*/"
                  "(comments|checkout|release|interactions|work-products|approvals)" },
        { "POST", "/api/issues/*/interactions/*/(accept|reject|respond|verdicts|withdraw)" },
        { "PUT", "/api/issues/*/documents/*" },
        { "PATCH", "/api/issues/*" },
        { "PATCH", "/api/work-products/*" },

        { "GET", "/api/approvals/*" },
        { "GET", "/api/approvals/*/(issues|comments)" },
        { "POST", "/api/approvals/*/comments" },

        { "GET", "/api/execution-workspaces/*" },
        { "POST", "/api/execution-workspaces/*/runtime-services/(start|stop|restart)" },

        { "GET", "/api/routines/*" },
        { "GET", "/api/routines/*/runs" },
        { "POST", "/api/routines/*/(run|triggers)" },
        { "PATCH", "/api/routines/*" },
        { "PATCH", "/api/routine-triggers/*" },
        { "DELETE", "/api/routine-triggers/*" },

        { "GET", "/llms/agent-configuration.txt" },
        { "GET", "/llms/agent-icons.txt" },
        { "GET", "/llms/agent-configuration/*.txt" },
};

struct span {
        const char *at;
        size_t len;
};

/* The next segment of "/a/b"; false at the end. */
static bool next_segment(const char **path, struct span *ret)
{
        if (**path != '/')
                return false;
        *ret = (struct span){ *path + 1, strcspn(*path + 1, "/") };
        *path = ret->at + ret->len;
        return true;
}

static bool is_one_of(struct span words, struct span s)
{
        const char *at = words.at + 1, *end = words.at + words.len - 1;

        while (at < end) {
                size_t n = strcspn(at, "|)");

                if (n == s.len && memcmp(at, s.at, n) == 0)
                        return true;
                at += n + 1;
        }
        return false;
}

static bool segment_fits(struct span want, struct span s)
{
        if (s.len == 0)
                return false;
        if (want.at[0] == '(')
                return is_one_of(want, s);
        if (want.at[0] == '*') /* and how it has to end */
                return s.len >= want.len &&
                       memcmp(s.at + s.len - (want.len - 1), want.at + 1, want.len - 1) == 0;
        return want.len == s.len && memcmp(want.at, s.at, s.len) == 0;
}

static bool route_fits(const char *pattern, const char *path)
{
        struct span want, s;

        while (next_segment(&pattern, &want))
                if (!next_segment(&path, &s) || !segment_fits(want, s))
                        return false;
        return *path == '\0';
}

bool callback_route_allowed(const char *method, const char *path)
{
        for (size_t i = 0; i < ARRAY_LEN(rules); i++)
                if (streq(rules[i].method, method) && route_fits(rules[i].pattern, path))
                        return true;
        return false;
}
