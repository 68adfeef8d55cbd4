/* Keeps what a transaction announced until its commit. */
#include "store/announce.h"

#include "base/uuid.h"

struct announcement {
        struct announcement *next;
        char company_id[UUID_LEN + 1];
        const char *type;
        json_t *payload;
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

struct announcement *announce_mark(const struct db *db)
{
        return db->last_announced;
}

void announce_forget(struct db *db, struct announcement *mark)
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

void announce_tell(struct db *db, const struct store *s)
{
        for (struct announcement *a = db->first_announced; s->listener && a; a = a->next)
                s->listener(s->listener_ctx, a->company_id, a->type, take_ptr(&a->payload));
        announce_forget(db, NULL);
}
