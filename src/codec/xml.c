/* Finds the text of one element in an XML answer. */
#define _GNU_SOURCE /* memmem */
#include "codec/xml.h"

#include <stdio.h>

int xml_find(const char *text, size_t len, const char *name, const char **ret, size_t *ret_len,
             struct err *err)
{
        const char *end = text + len, *at, *stop;
        char tag[XML_NAME_MAX + 4];
        size_t n = (size_t)snprintf(tag, sizeof(tag), "<%s>", name);

        at = memmem(text, len, tag, n);
        if (!at)
                return 0;
        at += n;
        if (memmem(at, (size_t)(end - at), tag, n))
                return err_set(err, ERR_INVALID, "XML: %s is there twice", name);
        stop = memchr(at, '<', (size_t)(end - at));
        (void)snprintf(tag, sizeof(tag), "</%s>", name);
        if (!stop || (size_t)(end - stop) <= n || memcmp(stop, tag, n + 1) != 0)
                return err_set(err, ERR_INVALID, "XML: %s is not a text", name);
        if (memchr(at, '&', (size_t)(stop - at)))
                return err_set(err, ERR_INVALID, "XML: an entity where plain text was expected");
        *ret = at;
        *ret_len = (size_t)(stop - at);
        return 1;
}
