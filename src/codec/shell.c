/* Quotes a word for a POSIX shell. */
#include "codec/shell.h"

void shell_quote(struct buf *b, const char *text)
{
        buf_putc(b, '\'');
        for (; *text; text++) {
                if (*text == '\'')
                        buf_puts(b, "'\"'\"'");
                else
                        buf_putc(b, *text);
        }
        buf_putc(b, '\'');
}
