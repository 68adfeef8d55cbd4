/* Computes and writes a unified diff of two texts. */
#include "workspace/textdiff.h"

#include <sodium.h>

#include "base/util.h"
#include "base/uuid.h"

/* Lines are numbered so that equal ones have equal numbers. Then the edit graph of the two rows of
 * numbers is halved: the furthest points that D edits reach from both ends are followed until they
 * meet, and both halves are done in the same way. A point on diagonal k has k = x - y. */

#define MAX_EDITS 1024 /* from one end; beyond, all in between is taken for changed */
#define V_SIZE    (2 * MAX_EDITS + 3)
#define NO_POINT  (-1)

struct lines {
        const char **starts; /* one more than lines */
        uint32_t *ids;
        bool *changed;
        size_t n;
};

struct diff {
        struct lines a, b;
        long forward[V_SIZE], backward[V_SIZE]; /* x by diagonal, shifted by MAX_EDITS + 1 */
};

struct box {
        size_t a0, a1, b0, b1;
};

/* Lines */

static size_t count_lines(const struct textdiff_side *s)
{
        size_t n = 0;

        for (size_t i = 0; i < s->len; i++)
                n += s->text[i] == '\n';
        return n + (s->len > 0 && s->text[s->len - 1] != '\n');
}

static void split(const struct textdiff_side *s, struct lines *ret)
{
        const char *at = s->text, *end = s->text + s->len;

        ret->n = count_lines(s);
        ret->starts = xcalloc(ret->n + 1, sizeof(*ret->starts));
        ret->ids = xcalloc(ret->n + 1, sizeof(*ret->ids));
        ret->changed = xcalloc(ret->n + 1, sizeof(*ret->changed));
        for (size_t i = 0; i < ret->n; i++) {
                const char *newline = memchr(at, '\n', (size_t)(end - at));

                ret->starts[i] = at;
                at = newline ? newline + 1 : end;
        }
        ret->starts[ret->n] = at;
}

static void lines_done(struct lines *l)
{
        free(l->starts);
        free(l->ids);
        free(l->changed);
}

static size_t line_length(const struct lines *l, size_t i)
{
        return (size_t)(l->starts[i + 1] - l->starts[i]);
}

struct table {
        struct {
                const char *p;
                size_t len;
                uint32_t id;
        } * slots;
        size_t size, used;
        unsigned char key[crypto_shorthash_KEYBYTES]; /* so that no chosen lines collide */
};

static size_t hash_line(const struct table *t, const char *p, size_t len)
{
        unsigned char hash[crypto_shorthash_BYTES];
        uint64_t h;

        crypto_shorthash(hash, (const unsigned char *)p, len, t->key);
        memcpy(&h, hash, sizeof(h));
        return (size_t)h & (t->size - 1);
}

static uint32_t number_of(struct table *t, const char *p, size_t len)
{
        size_t at = hash_line(t, p, len);

        while (t->slots[at].p) {
                if (t->slots[at].len == len && memcmp(t->slots[at].p, p, len) == 0)
                        return t->slots[at].id;
                at = (at + 1) & (t->size - 1);
        }
        t->slots[at].p = p;
        t->slots[at].len = len;
        t->slots[at].id = (uint32_t)++t->used;
        return t->slots[at].id;
}

static void number_lines(struct diff *d)
{
        struct table t = { .size = 64 };

        while (t.size < 2 * (d->a.n + d->b.n + 1))
                t.size *= 2;
        t.slots = xcalloc(t.size, sizeof(*t.slots));
        random_bytes(t.key, sizeof(t.key));
        for (size_t i = 0; i < d->a.n; i++)
                d->a.ids[i] = number_of(&t, d->a.starts[i], line_length(&d->a, i));
        for (size_t i = 0; i < d->b.n; i++)
                d->b.ids[i] = number_of(&t, d->b.starts[i], line_length(&d->b, i));
        free(t.slots);
}

/* Meeting in the middle */

/* One row of lines seen from one end of the box. */
struct view {
        const uint32_t *a, *b;
        long n, m;
        bool from_end;
};

static bool equal_at(const struct view *v, long x, long y)
{
        return v->from_end ? v->a[v->n - 1 - x] == v->b[v->m - 1 - y] : v->a[x] == v->b[y];
}

/* The furthest x on diagonal k with one more edit than what is in `points`, within the box. */
static long advance(const struct view *v, const long *points, long k, long edits)
{
        const long *at = points + MAX_EDITS + 1 + k;
        long right = k > -edits ? at[-1] : NO_POINT, down = k < edits ? at[1] : NO_POINT;
        long x;

        if (edits == 0)
                x = 0;
        else {
                right = right == NO_POINT || right + 1 > v->n ? NO_POINT : right + 1;
                down = down == NO_POINT || down - k > v->m ? NO_POINT : down;
                x = MAX(right, down);
                if (x == NO_POINT)
                        return NO_POINT;
        }
        while (x < v->n && x - k < v->m && equal_at(v, x, x - k))
                x++;
        return x;
}

/* Whether the other side, after `edits`, has come as far on the same diagonal. */
static bool meets(const struct view *v, const long *others, long k, long x, long edits)
{
        long other = v->n - v->m - k;

        if (other < -edits || other > edits || (edits + other) % 2 != 0)
                return false;
        other = others[MAX_EDITS + 1 + other];
        return other != NO_POINT && x + other >= v->n;
}

/* One edit more from one side; true when it met the other, at *ret_x and *ret_y from its own end.
 */
static bool search_step(const struct view *v, long *points, const long *others, long edits,
                        long others_edits, long *ret_x, long *ret_y)
{
        for (long k = -edits; k <= edits; k += 2) {
                long x = advance(v, points, k, edits);

                points[MAX_EDITS + 1 + k] = x;
                if (x == NO_POINT || others_edits < 0 || !meets(v, others, k, x, others_edits))
                        continue;
                *ret_x = x;
                *ret_y = x - k;
                return true;
        }
        return false;
}

/* A point on a shortest way through the box; false when it is too long. */
static bool find_middle(struct diff *d, const struct box *box, size_t *ret_a, size_t *ret_b)
{
        struct view there = {
                .a = d->a.ids + box->a0,
                .b = d->b.ids + box->b0,
                .n = (long)(box->a1 - box->a0),
                .m = (long)(box->b1 - box->b0),
        };
        struct view back = there;
        long x, y;

        back.from_end = true;
        for (long edits = 0; edits <= MAX_EDITS; edits++) {
                if (search_step(&there, d->forward, d->backward, edits, edits - 1, &x, &y)) {
                        *ret_a = box->a0 + (size_t)x;
                        *ret_b = box->b0 + (size_t)y;
                        return true;
                }
                if (search_step(&back, d->backward, d->forward, edits, edits, &x, &y)) {
                        *ret_a = box->a1 - (size_t)x;
                        *ret_b = box->b1 - (size_t)y;
                        return true;
                }
        }
        return false;
}

static void mark_box(struct diff *d, const struct box *box)
{
        for (size_t i = box->a0; i < box->a1; i++)
                d->a.changed[i] = true;
        for (size_t i = box->b0; i < box->b1; i++)
                d->b.changed[i] = true;
}

static void trim_box(const struct diff *d, struct box *box)
{
        while (box->a0 < box->a1 && box->b0 < box->b1 && d->a.ids[box->a0] == d->b.ids[box->b0]) {
                box->a0++;
                box->b0++;
        }
        while (box->a0 < box->a1 && box->b0 < box->b1 &&
               d->a.ids[box->a1 - 1] == d->b.ids[box->b1 - 1]) {
                box->a1--;
                box->b1--;
        }
}

/* Each half has half of the edits: it does not go deep. */
static void compare(struct diff *d, struct box box)
{
        size_t a, b;

        trim_box(d, &box);
        if (box.a0 == box.a1 || box.b0 == box.b1 || !find_middle(d, &box, &a, &b) ||
            (a == box.a0 && b == box.b0) || (a == box.a1 && b == box.b1)) {
                mark_box(d, &box);
                return;
        }
        compare(d, (struct box){ box.a0, a, box.b0, b });
        compare(d, (struct box){ a, box.a1, b, box.b1 });
}

/* Hunks */

struct output {
        struct buf *out;
        size_t limit;
        bool is_full;
};

static void put_line(struct output *o, const struct lines *l, size_t i, char sign)
{
        size_t len = line_length(l, i);
        bool is_ended = len > 0 && l->starts[i][len - 1] == '\n';

        if (o->out->len + len > o->limit)
                o->is_full = true;
        if (o->is_full)
                return;
        buf_putc(o->out, sign);
        buf_append(o->out, l->starts[i], len);
        if (!is_ended)
                buf_puts(o->out, "\n\\ No newline at end of file\n");
}

static void put_range(struct buf *out, char sign, size_t from, size_t to)
{
        size_t n = to - from;

        if (n == 1)
                buf_appendf(out, "%c%zu", sign, from + 1);
        else
                buf_appendf(out, "%c%zu,%zu", sign, n > 0 ? from + 1 : from, n);
}

static void put_hunk(struct output *o, const struct diff *d, const struct box *h)
{
        size_t a = h->a0, b = h->b0;

        buf_puts(o->out, "@@ ");
        put_range(o->out, '-', h->a0, h->a1);
        buf_putc(o->out, ' ');
        put_range(o->out, '+', h->b0, h->b1);
        buf_puts(o->out, " @@\n");
        while (a < h->a1 || b < h->b1) {
                if (a < h->a1 && d->a.changed[a])
                        put_line(o, &d->a, a++, '-');
                else if (b < h->b1 && d->b.changed[b])
                        put_line(o, &d->b, b++, '+');
                else {
                        put_line(o, &d->a, a++, ' ');
                        b++;
                }
        }
}

static bool is_changed(const struct lines *l, size_t i)
{
        return i < l->n && l->changed[i];
}

/* From the lines where both are at, the next hunk; false when there is none. Changes with few lines
 * between them are one. */
static bool next_hunk(const struct diff *d, size_t a, size_t b, struct box *ret)
{
        size_t same = 0, before;

        while (a < d->a.n && b < d->b.n && !d->a.changed[a] && !d->b.changed[b]) {
                a++;
                b++;
                same++;
        }
        if (!is_changed(&d->a, a) && !is_changed(&d->b, b))
                return false;
        before = MIN(same, (size_t)TEXTDIFF_CONTEXT);
        ret->a0 = a - before;
        ret->b0 = b - before;
        for (same = 0; same <= 2 * TEXTDIFF_CONTEXT;) {
                if (is_changed(&d->a, a) || is_changed(&d->b, b)) {
                        a += is_changed(&d->a, a);
                        b += is_changed(&d->b, b);
                        same = 0;
                        continue;
                }
                if (a >= d->a.n || b >= d->b.n)
                        break;
                a++;
                b++;
                same++;
        }
        same -= MIN(same, (size_t)TEXTDIFF_CONTEXT);
        ret->a1 = a - same;
        ret->b1 = b - same;
        return true;
}

static void put_hunks(const struct diff *d, struct buf *out)
{
        struct output o = { .out = out, .limit = out->len + TEXTDIFF_MAX_OUTPUT };
        struct box h = { 0 };

        while (!o.is_full && next_hunk(d, h.a1, h.b1, &h))
                put_hunk(&o, d, &h);
        if (o.is_full)
                buf_puts(out, "\\ The rest of the difference is left out\n");
}

bool textdiff_is_text(const struct textdiff_side *s)
{
        return s->len <= TEXTDIFF_MAX_BYTES && (s->len == 0 || !memchr(s->text, '\0', s->len));
}

int textdiff(const struct textdiff_side *was, const struct textdiff_side *now, struct buf *out)
{
        struct diff *d;

        if (was->len == now->len && (was->len == 0 || memcmp(was->text, now->text, was->len) == 0))
                return 0;
        d = xcalloc(1, sizeof(*d));
        split(was, &d->a);
        split(now, &d->b);
        number_lines(d);
        compare(d, (struct box){ 0, d->a.n, 0, d->b.n });
        put_hunks(d, out);
        lines_done(&d->a);
        lines_done(&d->b);
        free(d);
        return 1;
}
