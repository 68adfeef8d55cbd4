/* The same as workspace/runtime_dir.h, for places where only commands run. Pure. */
#ifndef BERTH_CORE_RUNTIME_SCRIPT_H
#define BERTH_CORE_RUNTIME_SCRIPT_H

#include "base/buf.h"

/* Lines for sh that put a `.gitignore` into `.paperclip-runtime`, and that end the shell with an
 * error that names the link when a link is in the way to `dir` below `.paperclip-runtime`. Nothing
 * for a directory that lies elsewhere. */
void runtime_script(struct buf *script, const char *dir);

#endif
