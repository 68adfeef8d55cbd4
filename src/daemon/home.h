/* Where the database is at home.
 *
 * A data directory can be copied, and two daemons would then hold the same record of one world:
 * each would end, as left behind, what the other one runs. So the database knows its home, which is
 * the machine and the data directory, and the node that lives there (`database_home`). A daemon
 * that finds it somewhere else does not start, unless it is told to take a new identity: then the
 * record gets a new node, what was under way ends in the record, and nothing in the world is
 * touched (store/home.h).
 *
 * What is compared: the machine's id (/etc/machine-id, or the setting machine_id; where one of both
 * sides has none, or has it from the other source, it does not count), the inode of the data
 * directory, and within one boot of the machine the device that it is on. */
#pragma once

#include "core/runtime.h"

struct home_request {
        const char *data_dir;
        const char *machine_id; /* the setting; NULL: the machine's own */
        bool new_identity;      /* --new-identity: for a database that is not at home */
        bool is_on_server;      /* the database is no file of the directory */
};

/* Give the database in `store` a new identity at the data directory, whether it is at home there or
 * not: its record is a backup. The directory itself is left alone. */
int home_take_new(struct op *op, struct store *store, const struct home_request *q,
                  struct err *err);
/* Before such a database is put into the directory: the node that lived there is no more. */
int home_forget_node(const char *data_dir, struct err *err);

/* Find out which node this is, and keep `node-id` in the data directory, where it tells that there
 * was an instance. ERR_CONFLICT: the database is not at home, or it is new on a server and the
 * directory shows that there was another one. *ret_is_new: it was not, and has got
 * a new identity. */
int home_settle(struct op *op, struct store *store, const struct home_request *q, struct node *ret,
                bool *ret_is_new, struct err *err);

/* ERR_CONFLICT when there is no database at `path`, or an empty one, although the data directory
 * shows that there was one: a start would begin anew beside what is left of it. */
int home_check_traces(const char *data_dir, const char *path, struct err *err);
