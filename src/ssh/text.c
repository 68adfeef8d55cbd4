/* Quotes texts for a shell, and cleans texts from a host. */
#include "ssh/text.h"

#include "base/utf8.h"

void ssh_text_quote(const char *word, struct buf *out)
{
        buf_putc(out, '\'');
        for (; *word; word++) {
                if (*word == '\'')
                        buf_puts(out, "'\"'\"'");
                else
                        buf_putc(out, *word);
        }
        buf_putc(out, '\'');
}

static void clean_byte(const char *s, size_t len, size_t max, bool keep_lines, struct buf *out)
{
        size_t begin = out->len, n;
        char gap = 0; /* what stands between this and the next character */

        for (; len > 0; s += n, len -= n) {
                uint32_t point = 0;
                bool valid = utf8_next(s, len, &n, &point);

                if (valid && (point <= ' ' || (point >= 0x7f && point < 0xa0))) {
                        if (keep_lines && *s == '\n')
                                gap = '\n';
                        else if (!gap)
                                gap = ' ';
                        continue;
                }
                if (out->len - begin + n + 1 > max)
                        break;
                if (gap && out->len > begin)
                        buf_putc(out, gap);
                gap = 0;
                if (valid)
                        buf_append(out, s, n);
                else
                        buf_putc(out, '?');
        }
}

void ssh_text_line(const char *s, size_t len, size_t max, struct buf *out)
{
        clean_byte(s, len, max, false, out);
}

void ssh_text_clean(const char *s, size_t len, size_t max, struct buf *out)
{
        clean_byte(s, len, max, true, out);
}
