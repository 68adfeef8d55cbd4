/* Settings of the whole instance: two small documents with defaults. Operation threads. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"

enum instance_section { INSTANCE_GENERAL, INSTANCE_EXPERIMENTAL };

/* The stored document over the defaults. Board callers. */
int instance_get(struct op *op, struct runtime *rt, enum instance_section section,
                 struct buf *ret_json, struct err *err);
/* Administrators; unknown members and wrong types are refused. */
int instance_patch(struct op *op, struct runtime *rt, enum instance_section section, json_t *body,
                   struct buf *ret_json, struct err *err);

/* Whether only isolated kinds of places may be used (`enableManagedSandboxOnly`). Fails closed: a
 * setting that cannot be read, or is anything but false, means yes. Inside store functions. */
int instance_isolated_only(struct db *db, struct arena *arena, bool *ret, struct err *err);
