/* Where content is cut into chunks, and finding a chunk by its hash. */
#include "workspace/chunk.h"

#include <errno.h>

#define READ_SIZE     ((size_t)256 << 10)
#define AVERAGE_FIRST ((uint64_t)128 << 10)
#define AVERAGE_COUNT 8192

/* The gear table is part of the protocol: both sides have to cut alike. */
struct gear {
        uint64_t table[256];
        uint64_t mask_early, mask_late; /* harder to match before the average, easier after it */
        uint64_t min, average, max;
};

static uint64_t splitmix(uint64_t *state)
{
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

/* The upper bits depend on the most bytes. */
static uint64_t upper_bits(unsigned n)
{
        return ~UINT64_C(0) << (64 - n);
}

static void gear_init(struct gear *g, uint64_t average)
{
        uint64_t state = UINT64_C(0x6265727468); /* any constant */
        unsigned bits = 0;

        for (size_t i = 0; i < ARRAY_LEN(g->table); i++)
                g->table[i] = splitmix(&state);
        while (UINT64_C(1) << (bits + 1) <= average)
                bits++;
        g->average = average;
        g->min = average / 4;
        g->max = average * 4;
        g->mask_early = upper_bits(bits + 1);
        g->mask_late = upper_bits(bits - 1);
}

uint64_t chunk_average(uint64_t file_size)
{
        uint64_t average = AVERAGE_FIRST;

        while (file_size / average > AVERAGE_COUNT)
                average *= 2;
        return average;
}

struct cutter {
        struct gear gear;
        uint64_t hash;
        struct chunk now;
        crypto_generichash_state id;
};

static void begin_chunk(struct cutter *c, uint64_t offset)
{
        c->now = (struct chunk){ .offset = offset };
        c->hash = 0;
        (void)crypto_generichash_init(&c->id, NULL, 0, TREE_HASH);
}

/* How many of the bytes belong to the chunk that is being cut; *ret_cut when it ends there. */
static size_t find_cut(struct cutter *c, const uint8_t *p, size_t n, bool *ret_cut)
{
        const struct gear *g = &c->gear;
        uint64_t len = c->now.len, hash = c->hash;
        size_t i = 0;

        if (len < g->min) {
                i = (size_t)MIN((uint64_t)n, g->min - len);
                len += i;
        }
        while (i < n && len < g->max) {
                hash = (hash << 1) + g->table[p[i++]];
                len++;
                if ((hash & (len < g->average ? g->mask_early : g->mask_late)) == 0)
                        break;
        }
        *ret_cut =
                len > g->min &&
                ((hash & (len < g->average ? g->mask_early : g->mask_late)) == 0 || len >= g->max);
        c->hash = hash;
        c->now.len = len;
        return i;
}

static int end_chunk(struct cutter *c, struct chunk_list *list, struct err *err)
{
        (void)crypto_generichash_final(&c->id, c->now.id, TREE_HASH);
        return chunk_list_add(list, &c->now, SIZE_MAX, err);
}

static int cut_bytes(struct cutter *c, const uint8_t *p, size_t n, struct chunk_list *list,
                     struct err *err)
{
        int r = 0;

        while (n > 0 && r >= 0) {
                bool cut;
                size_t len = find_cut(c, p, n, &cut);

                (void)crypto_generichash_update(&c->id, p, len);
                p += len;
                n -= len;
                if (!cut)
                        continue;
                r = end_chunk(c, list, err);
                begin_chunk(c, c->now.offset + c->now.len);
        }
        return r;
}

static ssize_t read_at(int fd, void *p, size_t len, uint64_t offset)
{
        ssize_t n;

        do
                n = pread(fd, p, len, (off_t)offset);
        while (n < 0 && errno == EINTR);
        return n;
}

int chunk_file(int fd, uint64_t size, uint64_t average, struct chunk_list *ret,
               uint8_t ret_hash[TREE_HASH], chunk_check_fn check, void *ctx, struct err *err)
{
        CLEAN(cleanup_free) struct cutter *c = xaligned(_Alignof(struct cutter), sizeof(*c));
        CLEAN(cleanup_free) uint8_t *buf = xcalloc(1, READ_SIZE);
        crypto_generichash_state whole;
        uint64_t at = 0;
        int r = 0;

        gear_init(&c->gear, average);
        begin_chunk(c, 0);
        (void)crypto_generichash_init(&whole, NULL, 0, TREE_HASH);
        while (at < size && r >= 0) {
                ssize_t n = read_at(fd, buf, (size_t)MIN(size - at, (uint64_t)READ_SIZE), at);

                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read a file");
                if (n == 0)
                        break;
                at += (uint64_t)n;
                if (ret_hash)
                        (void)crypto_generichash_update(&whole, buf, (size_t)n);
                r = cut_bytes(c, buf, (size_t)n, ret, err);
                if (r >= 0 && check)
                        r = check(ctx, err);
        }
        if (r >= 0 && c->now.len > 0)
                r = end_chunk(c, ret, err);
        if (ret_hash)
                (void)crypto_generichash_final(&whole, ret_hash, TREE_HASH);
        return r;
}

int chunk_hash(int fd, uint64_t offset, uint64_t len, uint8_t ret[TREE_HASH], uint64_t *ret_len,
               chunk_check_fn check, void *ctx, struct err *err)
{
        CLEAN(cleanup_free) uint8_t *buf = xcalloc(1, READ_SIZE);
        crypto_generichash_state state;
        uint64_t at = 0;
        int r;

        (void)crypto_generichash_init(&state, NULL, 0, TREE_HASH);
        while (at < len) {
                ssize_t n =
                        read_at(fd, buf, (size_t)MIN(len - at, (uint64_t)READ_SIZE), offset + at);

                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read a file");
                if (n == 0)
                        break;
                at += (uint64_t)n;
                (void)crypto_generichash_update(&state, buf, (size_t)n);
                r = check ? check(ctx, err) : 0;
                if (r < 0)
                        return r;
        }
        (void)crypto_generichash_final(&state, ret, TREE_HASH);
        *ret_len = at;
        return 0;
}

/* Lists and maps */

void chunk_list_done(struct chunk_list *l)
{
        free(l->at);
        *l = (struct chunk_list){ 0 };
}

int chunk_list_add(struct chunk_list *l, const struct chunk *c, size_t max, struct err *err)
{
        if (l->n >= max)
                return err_set(err, ERR_TOO_LARGE, "a file in more than %zu chunks", max);
        if (l->n == l->cap) {
                l->cap = l->cap ? l->cap * 2 : 64;
                l->at = xrealloc(l->at, l->cap * sizeof(*l->at));
        }
        l->at[l->n++] = *c;
        return 0;
}

struct chunk_map {
        const struct chunk_list *list;
        size_t mask;
        uint32_t slots[]; /* index + 1; 0: free */
};

/* Ids are hashes: any part of one is as good as a hash of it. A sender that makes them collide
 * slows only its own transfer. */
static size_t slot_of(const struct chunk_map *m, const uint8_t id[TREE_HASH])
{
        uint64_t v;

        memcpy(&v, id, sizeof(v));
        return (size_t)v & m->mask;
}

struct chunk_map *chunk_map_new(const struct chunk_list *of)
{
        struct chunk_map *m;
        size_t size = 64;

        while (size < of->n * 2)
                size *= 2;
        m = xcalloc(1, sizeof(*m) + size * sizeof(m->slots[0]));
        m->list = of;
        m->mask = size - 1;
        for (size_t i = 0; i < of->n; i++) {
                size_t at = slot_of(m, of->at[i].id);

                if (chunk_map_find(m, of->at[i].id, of->at[i].len))
                        continue;
                while (m->slots[at])
                        at = (at + 1) & m->mask;
                m->slots[at] = (uint32_t)i + 1;
        }
        return m;
}

const struct chunk *chunk_map_find(const struct chunk_map *m, const uint8_t id[TREE_HASH],
                                   uint64_t len)
{
        for (size_t at = slot_of(m, id); m->slots[at]; at = (at + 1) & m->mask) {
                const struct chunk *c = &m->list->at[m->slots[at] - 1];

                if (c->len == len && memcmp(c->id, id, TREE_HASH) == 0)
                        return c;
        }
        return NULL;
}

void chunk_map_free(struct chunk_map *m)
{
        free(m);
}
