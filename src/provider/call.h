/* One call of the host to a provider, inside the library.
 *
 * A call belongs to its thread, but for `cancelled` and `cancel_fd`, which the reader sets under
 * the lock of the list of running calls. Everything that a provider is given lives in the arena. */
#pragma once

#include <stdatomic.h>

#include "base/buf.h"
#include "berth/provider.h"
#include "codec/json.h"

#define PROVIDER_OUTPUT_MAX ((size_t)32 << 20)

enum provider_shape {
        SHAPE_NULL,
        SHAPE_HEALTH,
        SHAPE_VALIDATE,
        SHAPE_PROBE,
        SHAPE_LEASE,
        SHAPE_REALIZE,
        SHAPE_EXECUTE,
        SHAPE_SYNC,
        SHAPE_LIST,
};

struct berth_call {
        struct berth_call *next;
        struct arena arena;
        json_t *doc; /* the request; the rest is borrowed from it */
        json_t *id, *params;
        const char *method, *invocation;
        const json_t *config, *lease_metadata;
        berth_call_fn fn;
        enum provider_shape shape;
        int64_t began_ms;
        int cancel_fd;
        atomic_bool cancelled;
        /* the answer */
        bool failed, unsupported, unknown, timed_out, has_exit;
        int exit_status;
        struct buf failure, summary, out, err;
        json_t *normal, *errors, *metadata, *found, *synced, *lease_id, *cwd;
        bool cut[2];    /* output was dropped */
        size_t sent[2]; /* of out and err, as execute.log */
};

/* call.c */
struct berth_call *provider_call_new(json_t *take_doc);
void provider_call_free(struct berth_call *c);
/* The answer of a call that did not fail. A new reference. */
json_t *provider_call_result(struct berth_call *c);

/* `text` as a string, with U+FFFD for what is no UTF-8. A new reference. */
json_t *provider_clean_string(const char *text, size_t len);

/* provider.c: a piece of output while the command runs. */
void provider_send_output(const struct berth_call *c, bool is_stderr, const char *data, size_t len);
