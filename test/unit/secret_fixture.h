/* A runtime with a vault of the test's own: it counts calls, keeps what it was told last, and fails
 * when it is told to. It stands where AWS would stand. */
#pragma once

#include "runtime.h"

#include "core/secrets/secret.h"
#include "core/secrets/vault.h"
#include "secret/master_key.h"
#include "store/agents.h"

#define OTHER_COMPANY "c0000000-0000-4000-8000-000000000002"
#define ENVIRONMENT   "e0000000-0000-4000-8000-000000000001"

struct test_vault_calls {
        int creates, versions, links, resolves, removes, lists;
        int fail_create, fail_version, fail_link, fail_resolve, fail_remove,
                fail_list;      /* kind + 1 */
        char config_region[64]; /* of the vault in the last call */
        bool had_config;
        char key[128], name[256], ref[256], version_ref[64], material[256];
        int64_t version;
        enum vault_removal mode;
        char query[64], token[64];
        int64_t page_size;
        json_t *listing; /* what list() answers; borrowed */
        const char *refuse_ref;
};

extern struct test_vault_calls vault_calls;
extern const struct vault_provider test_vault; /* key aws_secrets_manager */

struct secret_world {
        struct test_runtime *t;
        struct op *op;
        struct runtime *rt;
        struct actor board;
        char key_file[SCRATCH_PATH_MAX + 32];
};

int secret_world_setup(void **state);
int secret_world_teardown(void **state);

/* A document, freed with the world's arena. */
json_t *doc(struct secret_world *w, const char *fmt, ...) PRINTF(2, 3);
/* Run SQL. */
void run_sql(struct secret_world *w, const char *sql);
/* A secret of the company; fails the test when it cannot be made. */
const char *make_secret(struct secret_world *w, const char *name, const char *value);
const char *make_in_vault(struct secret_world *w, const char *name, const char *value,
                          const char *config_id);
const char *make_vault(struct secret_world *w, const char *company, const char *name,
                       bool is_default);
/* From the members of a request's body, unchecked. */
int create_from(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                struct secret *ret, struct err *err);
int rotate_from(struct op *op, struct runtime *rt, const char *id, json_t *body, struct secret *ret,
                struct err *err);
int update_from(struct op *op, struct runtime *rt, const char *id, json_t *body, struct secret *ret,
                struct err *err);
void bind(struct secret_world *w, const char *secret, const char *type, const char *target,
          const char *path, int64_t version);
/* The first column of the first row as text; NULL when there is none. */
const char *sql_text(struct secret_world *w, const char *sql);
#define sql_number(w, sql) test_number((w)->t, sql)

/* The call failed with this code and a text that contains `part`. */
#define assert_refused(call, code_, part)                                                          \
        do {                                                                                       \
                struct err e_ = { 0 };                                                             \
                struct err *err = &e_;                                                             \
                assert_int_equal((call), (code_));                                                 \
                if (!strstr(e_.msg, (part)))                                                       \
                        fail_msg("'%s' does not contain '%s'", e_.msg, (part));                    \
                err_done(&e_);                                                                     \
        } while (0)
#define assert_done(call)                                                                          \
        do {                                                                                       \
                struct err e_ = { 0 };                                                             \
                struct err *err = &e_;                                                             \
                if ((call) < 0)                                                                    \
                        fail_msg("%s", e_.msg);                                                    \
                err_done(&e_);                                                                     \
        } while (0)
