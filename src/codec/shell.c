/* Quotes a word for a POSIX shell. */
#include "codec/shell.h"

void shell_quote_n(struct buf *b, const char *text, size_t len)
{
        buf_putc(b, '\'');
        for (const char *end = text + len; text < end; text++) {
                if (*text == '\'')
                        buf_puts(b, "'\"'\"'");
                else
                        buf_putc(b, *text);
        }
        buf_putc(b, '\'');
}

void shell_quote(struct buf *b, const char *text)
{
        shell_quote_n(b, text, strlen(text));
}
