/* Answers of plugins' workers, shared by the resources that ask them. */
#pragma once

#include "api/api.h"

/* Failures of a worker have a shape of their own: 502 {code, message, details?}. Takes what came of
 * the call, and returns it when it was nothing of the kind. */
int call_bridge(struct call *c, int r, const struct err *err);
