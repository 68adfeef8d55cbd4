/* Keeps what a transaction announced, and the memory that it changes, until its commit. */
#include "store/announce.h"

#include "base/uuid.h"

struct announcement {
        struct announcement *next;
        char company_id[UUID_LEN + 1];
        const char *type;
        json_t *payload;
};

struct kept {
        struct kept *before;
        void *at;
        size_t size;
        unsigned char bytes[];
};

void db_announce(struct db *db, const char *company_id, const char *type, json_t *take_payload)
{
        struct announcement *a = xcalloc(1, sizeof(*a));

        memcpy(a->company_id, company_id, strnlen(company_id, UUID_LEN));
        a->type = type;
        a->payload = take_payload;
        if (db->last_announced)
                db->last_announced->next = a;
        else
                db->first_announced = a;
        db->last_announced = a;
}

void db_keep(struct db *db, void *at, size_t size)
{
        struct kept *k = xcalloc(1, sizeof(*k) + size);

        k->before = db->kept;
        k->at = at;
        k->size = size;
        memcpy(k->bytes, at, size);
        db->kept = k;
}

struct pending_mark pending_mark(const struct db *db)
{
        return (struct pending_mark){ db->last_announced, db->kept };
}

static void announcements_forget(struct db *db, struct announcement *mark)
{
        struct announcement *a = mark ? mark->next : db->first_announced;

        while (a) {
                struct announcement *next = a->next;

                json_decref(a->payload);
                free(a);
                a = next;
        }
        if (mark)
                mark->next = NULL;
        else
                db->first_announced = NULL;
        db->last_announced = mark;
}

/* The last first: the same memory may have been kept twice. */
static void kept_leave(struct db *db, const struct kept *mark, bool put_back)
{
        while (db->kept != mark) {
                struct kept *k = db->kept;

                if (put_back)
                        memcpy(k->at, k->bytes, k->size);
                db->kept = k->before;
                free(k);
        }
}

void pending_undo(struct db *db, struct pending_mark mark)
{
        announcements_forget(db, mark.announced);
        kept_leave(db, mark.kept, true);
}

void pending_undo_all(struct db *db)
{
        pending_undo(db, (struct pending_mark){ 0 });
}

void pending_tell(struct db *db, const struct store *s)
{
        for (struct announcement *a = db->first_announced; s->listener && a; a = a->next)
                s->listener(s->listener_ctx, a->company_id, a->type, take_ptr(&a->payload));
        announcements_forget(db, NULL);
        kept_leave(db, NULL, false);
}
