/* Where base64 of a picture begins in a text, and where it ends. */
#include "codec/image_data.h"

#define TYPE_MAX 40 /* svg+xml, vnd.microsoft.icon */

static const char *const magics[] = { "iVBORw0KGgo", "/9j/4", "R0lGOD", "UklGR" };

enum { URI_SCHEME, URI_TYPE, URI_ENCODING };

static bool is_alnum(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_base64(char c)
{
        return is_alnum(c) || c == '+' || c == '/' || c == '=' || c == '-' || c == '_';
}

static void uri_restart(struct image_data *m, char c)
{
        m->uri_part = URI_SCHEME;
        m->uri_at = c == 'd';
}

/* Step through a word; 1 at its end, 0 on the way, -1 when it is another. */
static int image_step(const char *word, uint8_t *at, char c)
{
        return word[*at] != c ? -1 : word[++*at] == '\0';
}

/* Returns whether the picture's bytes begin after this one. */
static bool uri_next(struct image_data *m, char c)
{
        int r;

        switch (m->uri_part) {
        case URI_SCHEME:
                r = image_step("data:image/", &m->uri_at, c);
                break;
        case URI_TYPE:
                if (c == ';' && m->uri_at > 0)
                        r = 1;
                else
                        r = m->uri_at++ < TYPE_MAX && (is_alnum(c) || strchr("+-.", c)) ? 0 : -1;
                break;
        default:
                r = image_step("base64,", &m->uri_at, c);
                break;
        }
        if (r < 0) {
                uri_restart(m, c);
        } else if (r > 0) {
                m->uri_at = 0;
                m->uri_part = m->uri_part == URI_ENCODING ? URI_SCHEME : m->uri_part + 1;
                return m->uri_part == URI_SCHEME;
        }
        return false;
}

static bool magic_next(struct image_data *m, char c)
{
        if (c == '"') {
                m->magic_at = 0;
                m->magic_left = (1 << ARRAY_LEN(magics)) - 1;
                return false;
        }
        if (!m->magic_left)
                return false;
        for (size_t i = 0; i < ARRAY_LEN(magics); i++) {
                if (!(m->magic_left & (1 << i)))
                        continue;
                if (magics[i][m->magic_at] != c)
                        m->magic_left &= (uint8_t) ~(1U << i);
                else if (magics[i][m->magic_at + 1] == '\0')
                        return true;
        }
        m->magic_at++;
        return false;
}

bool image_data_skips(struct image_data *m, char c)
{
        if (m->inside && is_base64(c))
                return true;
        if (c == '\0' || m->inside) {
                *m = (struct image_data){ 0 };
                if (c == '\0')
                        return false;
        }
        bool uri = uri_next(m, c);
        bool magic = magic_next(m, c);
        if (uri || magic)
                *m = (struct image_data){ .inside = true };
        return false;
}
