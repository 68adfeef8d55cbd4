/* Opens the back end, and begins and ends transactions. */
#include "store/store.h"

#include <errno.h>

#include "base/fault.h"
#include "store/postgres/pg_store.h"
#include "store/sqlite/sqlite_store.h"

bool store_is_on_server(const char *url)
{
        return str_starts(url, "postgres://") || str_starts(url, "postgresql://");
}

int store_open(const char *url, struct store **ret, struct err *err)
{
        if (store_is_on_server(url))
                return pg_store_open(url, ret, err);
        return sqlite_store_open(url, ret, err);
}

void store_close(struct store *s)
{
        if (s)
                s->ops->close(s);
}

/* A stop of the daemon ends work that waits for others. The database waits for no other party:
 * results of shielded work are still recorded. */
static struct op deaf_to_stop(const struct op *op)
{
        struct op deaf = *op;

        deaf.stop = NULL;
        return deaf;
}

int store_read_begin(const struct op *op, struct store *s, struct db **ret, struct err *err)
{
        struct op own = deaf_to_stop(op);
        int r = op_check(&own, err);

        return r < 0 ? r : s->ops->read_begin(&own, s, ret, err);
}

void store_read_end(struct db **db)
{
        struct db *ended = take_ptr(db);

        if (ended)
                ended->reads->ops->read_end(ended->reads, ended);
}

int store_write(const struct op *op, struct store *s, store_fn fn, void *arg, struct err *err)
{
        struct op own = deaf_to_stop(op);
        int r = op_check(&own, err);

        if (fault_fails_write())
                return err_sys(err, ERR_IO, EIO, "a write that fails for a test");
        return r < 0 ? r : s->ops->write(&own, s, fn, arg, err);
}

void store_listen(struct store *s, store_listener fn, void *ctx)
{
        s->listener_ctx = ctx;
        s->listener = fn;
}

bool store_healthy(struct store *s)
{
        return s->ops->healthy(s);
}

bool store_is_checked(struct store *s)
{
        return s->ops->is_checked(s);
}

bool store_is_damaged(struct store *s)
{
        return s->ops->is_damaged(s);
}

int store_scrub(const struct op *op, struct store *s, struct err *err)
{
        return s->ops->scrub(op, s, err);
}
