/* Finding the bytes of pictures in text: agents print screenshots as base64, a megabyte at a time,
 * which are of no use in a log. Found are `data:image/...;base64,` and base64 in quotes that begins
 * as PNG, JPEG, GIF and WebP do. The beginning stays; the rest, up to the first character that is
 * no base64, is left out. Pieces may be cut anywhere.
 *
 * One thread at a time. */
#pragma once

#include "base/util.h"

/* All zero at the beginning of a text. */
struct image_data {
        bool inside;        /* in the middle of a picture */
        uint8_t uri_part;   /* of `data:image/`, the type, `base64,` */
        uint8_t uri_at;     /* characters of that part */
        uint8_t magic_at;   /* characters after the quote */
        uint8_t magic_left; /* a bit for each beginning that they may still be */
};

/* Whether this byte, the next of the text, is to be left out. */
bool image_data_skips(struct image_data *m, char c);
