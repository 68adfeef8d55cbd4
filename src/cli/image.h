/* Getting an image and showing how far it is, for `berth image` and `berth run --image`. One
 * thread. */
#pragma once

#include "cli/command.h"

/* POST `body` to the company's images (or to `suffix` below them) and follow what it began to its
 * end: a bar for each layer on a terminal, a line for each elsewhere, on standard error. *ret: the
 * image, ready. */
int image_follow(struct cli *c, const char *suffix, json_t *take_body, json_t **ret,
                 struct err *err);
/* The image of that name, which is pulled when it is not here. */
int image_need(struct cli *c, const char *reference, json_t **ret, struct err *err);
