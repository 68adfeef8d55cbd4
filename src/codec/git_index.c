/* Which index of git's may lie in a work tree: one whose every path stays in it. */
#include "codec/git_index.h"

#include "codec/git_refs.h"

#define HEADER    12
#define CHECKSUM  20
#define STAT      40 /* times, device, inode, mode, owner, size */
#define OID       20
#define MAX_PATH  4095
#define EXTENDED  0x4000 /* two more bytes of flags follow */
#define MAX_LEN   0xfff  /* in the flags: of the path; it may be longer */
#define ENTRY_MIN (STAT + OID + 2)

struct index {
        const uint8_t *bytes;
        size_t at, end; /* of what is before the checksum */
        uint32_t version;
        char path[MAX_PATH + 1]; /* of the entry before: version 4 says what differs */
        size_t path_len;
};

/* Extensions that only tell of the entries that are there: trees, conflicts that were resolved,
 * files that are untracked, files that a monitor saw. */
static const char *const harmless[] = { "TREE", "REUC", "UNTR", "FSMN" };

static uint32_t index_u32(const struct index *x, size_t at)
{
        const uint8_t *b = x->bytes + at;

        return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static bool index_path_ok(const char *path, size_t len)
{
        for (size_t at = 0;;) {
                const char *part = path + at;
                const char *slash = memchr(part, '/', len - at);
                size_t n = slash ? (size_t)(slash - part) : len - at;

                if (n == 0 || (n == 1 && part[0] == '.') ||
                    (n == 2 && part[0] == '.' && part[1] == '.') || git_part_is(part, n, ".git"))
                        return false;
                if (!slash)
                        return true;
                at += n + 1;
        }
}

/* How many bytes of the path before are dropped: git's variable-length number. */
static bool index_read_dropped(struct index *x, size_t *ret)
{
        if (x->at >= x->end)
                return false;
        uint8_t byte = x->bytes[x->at++];
        size_t value = byte & 0x7f;
        while (byte & 0x80) {
                if (x->at >= x->end || value > MAX_PATH)
                        return false;
                byte = x->bytes[x->at++];
                value = ((value + 1) << 7) | (byte & 0x7f);
        }
        *ret = value;
        return value <= x->path_len;
}

static bool index_read_entry(struct index *x)
{
        const size_t start = x->at;
        size_t kept = 0, dropped, n;

        if (x->end - x->at < ENTRY_MIN)
                return false;
        unsigned flags =
                (unsigned)x->bytes[start + STAT + OID] << 8 | x->bytes[start + STAT + OID + 1];
        x->at += ENTRY_MIN;
        if (flags & EXTENDED) {
                if (x->version < 3 || x->end - x->at < 2)
                        return false;
                x->at += 2;
        }
        if (x->version == 4) {
                if (!index_read_dropped(x, &dropped))
                        return false;
                kept = x->path_len - dropped;
        }
        const uint8_t *zero = memchr(x->bytes + x->at, 0, x->end - x->at);
        if (!zero)
                return false;
        n = (size_t)(zero - (x->bytes + x->at));
        if (n > MAX_PATH - kept)
                return false;
        memcpy(x->path + kept, x->bytes + x->at, n);
        x->path_len = kept + n;
        /* git believes the flags where they say how long it is. */
        if ((flags & MAX_LEN) != (x->path_len < MAX_LEN ? x->path_len : MAX_LEN))
                return false;
        x->at += n + 1;
        if (x->version < 4)
                x->at = start + ((x->at - start + 7) & ~(size_t)7);
        return x->at <= x->end && index_path_ok(x->path, x->path_len);
}

static bool index_read_extension(struct index *x)
{
        bool known = false;

        if (x->end - x->at < 8)
                return false;
        for (size_t i = 0; i < ARRAY_LEN(harmless); i++)
                known = known || memcmp(x->bytes + x->at, harmless[i], 4) == 0;
        uint32_t size = index_u32(x, x->at + 4);
        x->at += 8;
        if (!known || size > x->end - x->at)
                return false;
        x->at += size;
        return true;
}

bool git_index_ok(const uint8_t *bytes, size_t len)
{
        struct index x = { .bytes = bytes, .at = HEADER };

        if (len < HEADER + CHECKSUM || memcmp(bytes, "DIRC", 4) != 0)
                return false;
        x.end = len - CHECKSUM;
        x.version = index_u32(&x, 4);
        uint32_t count = index_u32(&x, 8);
        if (x.version < 2 || x.version > 4)
                return false;
        for (; count > 0; count--)
                if (!index_read_entry(&x))
                        return false;
        while (x.at < x.end)
                if (!index_read_extension(&x))
                        return false;
        return true;
}
