/* How values look on standard output, with and without a terminal. */
#define _GNU_SOURCE
#include "cli/output.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/duration.h"

#define LABEL_WIDTH 14

bool out_is_terminal(void)
{
        static int known = -1;

        if (known < 0)
                known = isatty(STDOUT_FILENO);
        return known == 1;
}

static bool use_colours(void)
{
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

        return out_is_terminal() && !(no && *no) && !(term && streq(term, "dumb"));
}

/* What a terminal obeys instead of showing it: the two blocks of control characters, and those that
 * change the direction of what follows, so that a name reads as another. */
static bool steers_terminal(uint32_t c)
{
        return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
               (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

char *out_sanitize(char *s)
{
        size_t left = strlen(s), len;
        uint32_t c;

        for (char *p = s; left > 0; p += len, left -= len) {
                if (utf8_next(p, left, &len, &c) && !steers_terminal(c))
                        continue;
                memset(p, *p == '\n' || *p == '\t' ? ' ' : '?', len);
        }
        return s;
}

void out_plain(struct buf *to, const char *text, size_t n)
{
        size_t len;
        uint32_t c;

        for (; n > 0; text += len, n -= len)
                if (!utf8_next(text, n, &len, &c))
                        buf_puts(to, UTF8_REPLACEMENT);
                else if (c == '\n' || c == '\t' || !steers_terminal(c))
                        buf_append(to, text, len);
}

/* Colours carry no information of their own: green is at work or well, yellow wants a look, red has
 * failed, dim is over. */
static const char *state_colour(const char *state)
{
        static const struct {
                const char *state;
                const char *colour;
        } colours[] = {
                { "active", "\033[32m" },    { "ok", "\033[32m" },
                { "success", "\033[32m" },   { "retained", "\033[33m" },
                { "limited", "\033[33m" },   { "uncertain", "\033[33m" },
                { "pending", "\033[33m" },   { "paused", "\033[33m" },
                { "failed", "\033[31m" },    { "missing", "\033[31m" },
                { "unknown", "\033[31m" },   { "error", "\033[31m" },
                { "released", "\033[2m" },   { "archived", "\033[2m" },
                { "expired", "\033[2m" },    { "revoked", "\033[2m" },
                { "terminated", "\033[2m" },
        };

        for (size_t i = 0; i < ARRAY_LEN(colours); i++)
                if (streq(colours[i].state, state))
                        return colours[i].colour;
        return NULL;
}

void out_state(const char *state, const char *text)
{
        const char *colour = use_colours() ? state_colour(state) : NULL;

        if (colour)
                printf("%s%s\033[0m", colour, text);
        else
                fputs(text, stdout);
}

/* Times matter relative to now when a person looks, and exactly when a program does. */
static char *time_text(const char *iso)
{
        char span[DURATION_TEXT_LEN];
        int64_t us, ms;

        if (!out_is_terminal() || !clock_parse_iso(iso, &us))
                return xstrdup(iso);
        ms = (clock_wall_us() - us) / US_PER_MS;
        duration_format(ms < 0 ? -ms : ms, span);
        return ms < 0 ? xasprintf("in %s", span) : xasprintf("%s ago", span);
}

static char *cell_text(enum column_kind kind, const char *value)
{
        if (!value || !*value)
                return xstrdup("-");
        if (kind == COLUMN_TIME)
                return out_sanitize(time_text(value));
        return out_sanitize(xstrdup(value));
}

/* Characters, which is columns for all but the widest scripts. */
static size_t text_width(const char *s)
{
        size_t n = 0;

        for (; *s; s++)
                n += ((unsigned char)*s & 0xc0) != 0x80;
        return n;
}

void table_init(struct table *t, const struct column *columns, size_t n_columns)
{
        *t = (struct table){ .columns = columns, .n_columns = n_columns };
}

void table_done(struct table *t)
{
        for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
                free(t->cells[i]);
        free(t->cells);
        t->cells = NULL;
        t->n_rows = 0;
}

void table_row(struct table *t, const char *const *cells)
{
        size_t at = t->n_rows * t->n_columns;

        t->cells = xrealloc(t->cells, (at + t->n_columns) * sizeof(*t->cells));
        for (size_t i = 0; i < t->n_columns; i++)
                t->cells[at + i] = cell_text(t->columns[i].kind, cells[i]);
        t->n_rows++;
}

static size_t terminal_width(void)
{
        struct winsize size;

        if (!out_is_terminal() || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
                return SIZE_MAX;
        return size.ws_col;
}

/* Cut s to `width` characters, the last of them an ellipsis. */
static void cut_to_width(char *s, size_t width)
{
        size_t n = 0;
        char *p = s;

        if (text_width(s) <= width)
                return;
        for (; *p; p++) {
                if (((unsigned char)*p & 0xc0) != 0x80 && n++ == width - 1)
                        break;
        }
        *p = '\0';
}

/* Row 0 is the titles. */
static const char *table_cell(const struct table *t, size_t row, size_t i)
{
        return row == 0 ? t->columns[i].title : t->cells[(row - 1) * t->n_columns + i];
}

static void print_row(const struct table *t, size_t row, const size_t *widths, size_t total)
{
        size_t at = 0;

        for (size_t i = 0; i < t->n_columns; i++) {
                CLEAN(cleanup_free) char *text = xstrdup(table_cell(t, row, i));
                bool is_last = i + 1 == t->n_columns;
                size_t width = text_width(text);

                if (is_last && t->columns[i].kind != COLUMN_ID && total > at + 8 &&
                    width > total - at) {
                        cut_to_width(text, total - at);
                        printf("%s\u2026\n", text);
                        return;
                }
                if (t->columns[i].kind == COLUMN_STATE)
                        out_state(text, text);
                else
                        fputs(text, stdout);
                if (is_last)
                        putchar('\n');
                else
                        printf("%*s", (int)(widths[i] - width) + 2, "");
                at += widths[i] + 2;
        }
}

void table_print(const struct table *t, const char *none)
{
        CLEAN(cleanup_free) size_t *widths = xcalloc(t->n_columns, sizeof(*widths));
        size_t total = terminal_width();

        if (t->n_rows == 0) {
                if (none)
                        puts(none);
                return;
        }
        for (size_t row = 0; row <= t->n_rows; row++)
                for (size_t i = 0; i < t->n_columns; i++)
                        widths[i] = MAX(widths[i], text_width(table_cell(t, row, i)));
        for (size_t row = 0; row <= t->n_rows; row++)
                print_row(t, row, widths, total);
}

void out_label(const char *label, enum column_kind kind, const char *value)
{
        CLEAN(cleanup_free)
        char *text = cell_text(kind == COLUMN_ID ? COLUMN_TEXT : kind, value);

        printf("%-*s", LABEL_WIDTH, label);
        if (kind == COLUMN_STATE)
                out_state(text, text);
        else
                fputs(text, stdout);
        if (kind == COLUMN_TIME && value && *value && out_is_terminal()) {
                CLEAN(cleanup_free) char *exact = out_sanitize(xstrdup(value));

                printf(" (%s)", exact);
        }
        putchar('\n');
}

/* Indented text of a value. The library escapes what JSON wants escaped; the rest of what steers a
 * terminal can only stand in strings, and is escaped here. */
static char *json_pretty(const json_t *value)
{
        CLEAN(cleanup_free) char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY);
        struct buf b = BUF_INIT;

        size_t left = text ? strlen(text) : 0, len;
        uint32_t c;

        for (const char *p = text; left > 0; p += len, left -= len) {
                if (utf8_next(p, left, &len, &c) && c != '\n' && steers_terminal(c))
                        buf_appendf(&b, "\\u%04x", (unsigned)c);
                else
                        buf_append(&b, p, len);
        }
        return b.len > 0 ? buf_take(&b) : xstrdup("null");
}

void out_label_json(const char *label, const json_t *value)
{
        CLEAN(cleanup_free) char *text = NULL;

        if (!value || json_is_null(value) ||
            (json_is_object(value) && json_object_size(value) == 0))
                return out_label(label, COLUMN_TEXT, NULL);
        text = json_pretty(value);
        printf("%-*s", LABEL_WIDTH, label);
        for (const char *p = text; *p; p++) {
                putchar(*p);
                if (*p == '\n')
                        printf("%*s", LABEL_WIDTH, "");
        }
        putchar('\n');
}

void out_json(const json_t *value)
{
        CLEAN(cleanup_free) char *text = value ? json_pretty(value) : xstrdup("null");

        puts(text);
}

static void print_line(FILE *to, const char *fmt, va_list ap)
{
        struct buf b = BUF_INIT;

        buf_appendv(&b, fmt, ap);
        char *text = buf_take(&b);
        if (to == stderr)
                (void)fflush(stdout); /* in the order in which it was said, also in a file */
        if (text)
                fprintf(to, "%s\n", out_sanitize(text));
        free(text);
}

void out_line(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        print_line(stdout, fmt, ap);
        va_end(ap);
}

void out_lines(const char *text)
{
        while (*text) {
                size_t n = strcspn(text, "\n");

                out_line("%.*s", (int)MIN(n, (size_t)INT_MAX), text);
                text += n + (text[n] == '\n');
        }
}

void out_note(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        print_line(stderr, fmt, ap);
        va_end(ap);
}

void out_error(const char *text)
{
        out_note("berth: %s", text);
}

char *out_scalar(const json_t *value)
{
        if (!value || json_is_null(value))
                return xstrdup("");
        if (json_is_string(value))
                return xstrdup(json_string_value(value));
        return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
}
