/* A reference to an image, or the operator's list: what is read has no byte that means something in
 * a URL, and reads the same again. */
#include <ctype.h>

#include "image/registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text)
{
        for (; *text; text++)
                if (!isalnum((unsigned char)*text) && !strchr(".:/@_-[]", *text))
                        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(cleanup_free) char *text = xstrndup((const char *)data, size);
        static struct registry_rules rules;
        struct image_ref ref, again;
        char whole[IMAGE_REF_SIZE];

        if (image_ref_parse(text, &ref, NULL) == 0) {
                image_ref_format(&ref, whole);
                check_text(whole);
                if (strstr(ref.repository, "..") || strstr(whole, "/.") || strstr(whole, "//") ||
                    strlen(whole) + 1 == sizeof(whole) ||
                    image_ref_parse(whole, &again, NULL) < 0 ||
                    memcmp(&ref, &again, sizeof(ref)) != 0)
                        abort();
        }
        (void)registry_rules_parse(text, &rules, NULL);
        return 0;
}
