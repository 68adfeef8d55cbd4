/* Writes what the documentation says about settings, from their table: settings-page
 * file|variables| secrets|tests is a part of berth.toml(5), settings-page docs is the table of
 * docs/settings.md. scripts/settings puts them in place. */
#include <stdio.h>

#include "base/buf.h"
#include "base/util.h"
#include "daemon/settings.h"

#define WIDTH 88

static bool ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), m = strlen(end);

        return n >= m && streq(text + n - m, end);
}

/* The same in a unit that people think in; nothing when there is none. */
static void put_unit(struct buf *b, const struct setting *s, int64_t n)
{
        static const struct {
                const char *suffix, *unit;
                int64_t size;
        } units[] = {
                { "_ms", "day", 86400000 },   { "_ms", "hour", 3600000 },
                { "_ms", "minute", 60000 },   { "_ms", "second", 1000 },
                { "_seconds", "day", 86400 }, { "_bytes", "MiB", INT64_C(1) << 20 },
        };

        for (size_t i = 0; s->key && i < ARRAY_LEN(units); i++) {
                int64_t count = n / units[i].size;

                if (!ends_with(s->key, units[i].suffix) || n == 0 || n % units[i].size)
                        continue;
                buf_appendf(b, " (%lld %s%s)", (long long)count, units[i].unit,
                            count == 1 || *units[i].unit == 'M' ? "" : "s");
                return;
        }
}

static void put_default(struct buf *b, const struct setting *s)
{
        if (s->otherwise) {
                buf_puts(b, s->otherwise);
                return;
        }
        switch (s->type) {
        case SETTING_NUMBER:
        case SETTING_COUNT:
                buf_appendf(b, "_%lld_", (long long)s->number);
                put_unit(b, s, s->number);
                break;
        case SETTING_SWITCH:
                buf_puts(b, s->number ? "_true_" : "_false_");
                break;
        case SETTING_WORD:
        case SETTING_SECOND:
        case SETTING_NAME:
                buf_appendf(b, "_%s_", s->words[s->number]);
                break;
        default:
                buf_appendf(b, s->text ? "_\"%s\"_" : "none", s->text);
        }
}

static void put_allowed(struct buf *b, const struct setting *s)
{
        if (s->type == SETTING_NUMBER || s->type == SETTING_COUNT)
                buf_appendf(b, "From %lld to %lld", (long long)s->min, (long long)s->max);
        else if (s->type == SETTING_LIST)
                buf_appendf(b, "A list; in the variable, separated by %s",
                            s->separator == ',' ? "commas" : "colons");
        else if (s->type == SETTING_SWITCH)
                buf_puts(b, "_true_ or _false_");
        for (size_t i = 0; s->words && s->words[i]; i++)
                buf_appendf(b, "%s_%s_",
                            i == 0            ? ""
                            : s->words[i + 1] ? ", "
                                              : " or ",
                            s->words[i]);
}

/* One paragraph, indented by a tab and broken at blanks. */
static void print_wrapped(const char *text)
{
        size_t column = 0;

        while (*text) {
                size_t n = strcspn(text, " ");

                if (column > 0 && column + 1 + n > WIDTH) {
                        putchar('\n');
                        column = 0;
                }
                printf("%s%.*s", column ? " " : "\t", (int)n, text);
                column += n + 1;
                text += n + (text[n] == ' ');
        }
        puts("\n");
}

static void print_entry(const struct setting *s)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        if (s->key) {
                printf("*%s* (*%s*", s->key, s->variable);
                if (s->paperclip)
                        printf(", *%s*", s->paperclip);
                if (s->flag)
                        printf(", *%s*", s->flag);
                puts(")");
        } else {
                printf("*%s*\n", s->variable);
                if (s->paperclip)
                        buf_appendf(&b, "(*%s*) ", s->paperclip);
        }
        buf_appendf(&b, "%s ", s->help);
        if (s->type != SETTING_TEXT && s->type != SETTING_SWITCH) {
                buf_puts(&b, s->words ? "Either " : "");
                put_allowed(&b, s);
                buf_puts(&b, ". ");
        }
        buf_puts(&b, "Default: ");
        put_default(&b, s);
        buf_puts(&b, ".");
        print_wrapped(buf_str(&b));
}

/* A cell of a table, the manual's markup made Markdown's. */
static void print_cell(const char *text, size_t len)
{
        putchar(' ');
        for (size_t i = 0; i < len; i++) {
                bool inside = i > 0 && i + 1 < len && text[i - 1] != ' ' && text[i + 1] != ' ' &&
                              !strchr("(\"", text[i - 1]) && !strchr(".,;:)", text[i + 1]);

                if (text[i] == '*' || (text[i] == '_' && !inside))
                        putchar('`');
                else
                        putchar(text[i]);
        }
        fputs(" |", stdout);
}

static void print_row(const struct setting *s)
{
        CLEAN(buf_done) struct buf allowed = BUF_INIT;
        CLEAN(buf_done) struct buf fallback = BUF_INIT;
        const char *end = strstr(s->help, ". ");

        put_allowed(&allowed, s);
        put_default(&fallback, s);
        printf("| %s%s%s | `%s` |", s->key ? "`" : "", s->key ? s->key : "", s->key ? "`" : "",
               s->variable);
        print_cell(buf_str(&fallback), fallback.len);
        print_cell(buf_str(&allowed), allowed.len);
        print_cell(s->help, end ? (size_t)(end - s->help) : strlen(s->help) - 1);
        putchar('\n');
}

int main(int argc, char **argv)
{
        static const char *const sections[] = { "file", "variables", "secrets", "tests" };
        const char *what = argc == 2 ? argv[1] : "";
        bool known = streq(what, "docs");

        if (known)
                puts("| setting | variable | default | allowed | what it is for |\n"
                     "|---|---|---|---|---|");
        for (const struct setting *s = settings_table; s->variable; s++) {
                if (streq(what, "docs")) {
                        print_row(s);
                } else if (streq(what, sections[s->section])) {
                        print_entry(s);
                        known = true;
                }
        }
        if (!known)
                fputs("usage: settings-page file|variables|secrets|tests|docs\n", stderr);
        return known ? 0 : 2;
}
