/* A note for readers of ssh leases: under which address the API answers
 * (PAPERCLIP_RUNTIME_API_CANDIDATES_JSON). Nothing of ours uses it; callbacks go through the box.
 * Operation threads. */
#ifndef BERTH_CORE_SSH_NOTE_H
#define BERTH_CORE_SSH_NOTE_H

#include "core/runtime.h"

/* The first candidate whose /api/health answers, in the operation's arena; NULL: none answers, or
 * there are no candidates. */
const char *ssh_note_api_url(struct op *op, const struct runtime *rt);

#endif
