#include "core/exec/runtime_script.h"

#include "codec/shell.h"
#include "workspace/runtime_dir.h"

void runtime_script(struct buf *script, const char *dir)
{
        const char *at = runtime_dir_in(dir);

        if (!at)
                return;
        buf_puts(script, "for p in");
        while (at) {
                CLEAN(cleanup_free) char *part = NULL;

                at = strchr(at + 1, '/');
                part = at ? xstrndup(dir, (size_t)(at - dir)) : xstrdup(dir);
                buf_putc(script, ' ');
                shell_quote(script, part);
        }
        buf_puts(script, "; do if [ -L \"$p\" ]; then echo \"$p is a link\" >&2; exit 1; fi; "
                         "done\n");
}
