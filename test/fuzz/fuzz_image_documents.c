/* Index, manifest and configuration of an image from somebody hostile: what is read is bounded, and
 * every digest is one. */
#include "image/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
        if (!good)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data;
        struct image_platform here;
        struct image_descriptor d;
        struct image_manifest m;
        struct image_config c;
        enum image_media media;
        struct arena arena;

        arena_init(&arena);
        image_platform_here(&here);
        if (image_document_media(text, size, "", &media, NULL) == 0)
                check(media == IMAGE_MEDIA_INDEX || media == IMAGE_MEDIA_MANIFEST);
        if (image_index_choose(text, size, &here, &d, NULL) == 0)
                check(image_digest_ok(d.digest) && d.media == IMAGE_MEDIA_MANIFEST);
        if (image_manifest_parse(&arena, text, size, &m, NULL) == 0) {
                check(m.n_layers >= 1 && m.n_layers <= IMAGE_MAX_LAYERS &&
                      image_digest_ok(m.config.digest) && m.config.size <= IMAGE_MAX_DOCUMENT);
                for (size_t i = 0; i < m.n_layers; i++)
                        check(image_digest_ok(m.layers[i].digest) &&
                              m.layers[i].media >= IMAGE_MEDIA_TAR);
        }
        if (image_config_parse(&arena, text, size, 1, NULL, &c, NULL) == 0) {
                check(c.n_diff_ids == 1 && image_digest_ok(c.diff_ids[0]) && !c.diff_ids[1]);
                for (const char *const *e = c.env; *e; e++)
                        check(strchr(*e, '=') > *e);
        }
        arena_done(&arena);
        return 0;
}
