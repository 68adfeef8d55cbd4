/* The kinds of agents there are (adapter_descriptor.h), and which of them may work away from this
 * machine. */
#pragma once

#include "codec/json.h"
#include "core/runtime.h"

bool adapter_is_known(const char *type);
/* Whether the adapter runs in ssh and sandbox environments too. */
bool adapter_is_remote_capable(const char *type);

/* The document of GET …/environments/capabilities: built-in providers, and those of plugins whose
 * worker runs. Operation threads. */
int adapter_write_capabilities(struct op *op, struct runtime *rt, struct buf *b, struct err *err);
