/* Getting an image and showing how far it is, for `berth image` and `berth run --image`. One
 * thread. */
#pragma once

#include "cli/command.h"

/* The image of that name, which is pulled when it is not here. */
int image_need(struct cli *c, const char *reference, json_t **ret, struct err *err);
