/* The shell lines that check and prepare a directory below `.paperclip-runtime`. */
#include "core/exec/runtime_script.h"

#include "codec/shell.h"
#include "workspace/runtime_dir.h"

static void put_ignore(struct buf *script, const char *dir)
{
        buf_puts(script, "p=");
        shell_quote(script, dir);
        buf_puts(script, "\nmkdir -p \"$p\"\np=$p/.gitignore\n"
                         "if [ -L \"$p\" ] || [ ! -s \"$p\" ]; then\n"
                         "rm -f \"$p\"\necho '*' >\"$p\"\nfi\n");
}

static char *until(const char *dir, const char *end)
{
        return end ? xstrndup(dir, (size_t)(end - dir)) : xstrdup(dir);
}

static void put_ignores(struct buf *script, const char *dir, const char *at)
{
        while (at) {
                const char *next = strchr(at + 1, '/');
                CLEAN(cleanup_free) char *part = until(dir, next);

                if (runtime_dir_is_within(at))
                        put_ignore(script, part);
                at = next;
        }
}

static void put_check(struct buf *script, const char *dir, const char *at)
{
        buf_puts(script, "for p in");
        while (at) {
                const char *next = strchr(at + 1, '/');
                CLEAN(cleanup_free) char *part = until(dir, next);

                buf_putc(script, ' ');
                shell_quote(script, part);
                at = next;
        }
        buf_puts(script, "; do if [ -L \"$p\" ]; then echo \"$p is a link\" >&2; exit 1; fi; "
                         "done\n");
}

void runtime_script(struct buf *script, const char *dir)
{
        const char *at = runtime_dir_in(dir);

        if (!at)
                return;
        put_check(script, dir, at);
        put_ignores(script, dir, at);
}
