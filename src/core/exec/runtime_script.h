/* What workspace/runtime_dir.h does, for places where only commands run. Pure. */
#ifndef BERTH_CORE_RUNTIME_SCRIPT_H
#define BERTH_CORE_RUNTIME_SCRIPT_H

#include "base/buf.h"

/* Lines for sh that end it, with an error that names it, when a link is in the way to `dir` below
 * `.paperclip-runtime`, and put a `.gitignore` into the latter. Nothing for a directory that lies
 * elsewhere. */
void runtime_script(struct buf *script, const char *dir);

#endif
