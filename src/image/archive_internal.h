/* What the files of image/archive.h share. */
#pragma once

#include "image/archive.h"

/* An image of one plain layer and this configuration; the manifest is made. */
int image_of_one_layer(struct op *op, const char *config, size_t config_len, const char *digest,
                       uint64_t size, struct image *ret, struct err *err);
