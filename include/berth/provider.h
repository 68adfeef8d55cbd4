/* libberth-provider: a provider of sandboxes for Berth, in C.
 *
 * A provider is a program that Berth starts and asks to make, use and give up sandboxes
 * (docs/plugins.md). It fills a table of functions and calls berth_provider_main(), which speaks
 * the plugin protocol on standard input and output:
 *
 *     static int acquire(struct berth_call *call)
 *     {
 *             berth_lease_set(call, make_a_sandbox(berth_owner_place(call)));
 *             berth_metadata_text(call, "remoteCwd", "/work");
 *             return 0;
 *     }
 *
 *     int main(void)
 *     {
 *             return berth_provider_main(&(struct berth_provider){ .acquire = acquire, ... });
 *     }
 *
 * Each call runs on a thread of its own, so a function may block; it should end when
 * berth_time_left() is 0 or berth_cancel_fd() is readable. Calls are answered when their function
 * returns: 0 is success, everything else is a failure whose text was given to berth_fail().
 * Strings that a function gets are the call's and live as long as it does; strings given are
 * copied. Standard output belongs to the library.
 *
 * Names that are looked up (configuration, metadata, parameters) are those of the protocol. */
#ifndef BERTH_PROVIDER_H
#define BERTH_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BERTH_PUBLIC       __attribute__((visibility("default")))
#define BERTH_FORMAT(f, a) __attribute__((format(printf, f, a)))
#else
#define BERTH_PUBLIC
#define BERTH_FORMAT(f, a)
#endif

struct berth_call;
typedef int (*berth_call_fn)(struct berth_call *call);

/* A function that is NULL is a method that the provider does not have. */
struct berth_provider {
        berth_call_fn validate; /* the configuration: berth_complain(), berth_config_set_*() */
        berth_call_fn probe;    /* can it be used? berth_complain(), berth_summary() */
        berth_call_fn acquire;  /* make a sandbox: berth_lease_set(), berth_metadata_*() */
        berth_call_fn resume;   /* the same of one that exists; without berth_lease_set(): gone */
        berth_call_fn realize;  /* make the directory of the work: berth_cwd_set() */
        berth_call_fn execute;  /* run a command: berth_output(), berth_exit_set() */
        berth_call_fn sync_in;  /* bring files in: berth_sync_operations() */
        berth_call_fn sync_out; /* and out */
        berth_call_fn release;  /* the lease ended; a sandbox that is gone is a success */
        berth_call_fn destroy;  /* remove the sandbox; the same */
        berth_call_fn list_leases; /* everything that exists here: berth_found() */
        berth_call_fn health;
};

/* Serve until standard input ends or `shutdown` was asked for. Returns the exit status; it may end
 * the process itself, with calls under way. */
BERTH_PUBLIC int berth_provider_main(const struct berth_provider *provider);

/* ---- what is asked ----------------------------------------------------------------------------
 */

/* Members of the configuration, of the lease's metadata, and of the parameters of the call; NULL or
 * `fallback` when the member is not there or has another type. */
BERTH_PUBLIC const char *berth_config_text(struct berth_call *call, const char *name);
BERTH_PUBLIC int64_t berth_config_int(struct berth_call *call, const char *name, int64_t fallback);
BERTH_PUBLIC bool berth_config_bool(struct berth_call *call, const char *name, bool fallback);
BERTH_PUBLIC const char *berth_lease_text(struct berth_call *call, const char *name);
BERTH_PUBLIC const char *berth_param_text(struct berth_call *call, const char *name);

/* The sandbox that the call is about, as berth_lease_set() named it; NULL when there is none. */
BERTH_PUBLIC const char *berth_lease(struct berth_call *call);
/* The owner of what is made here: the daemon, and its place. A sandbox that is made carries both,
 * so that a second acquire for the same place finds the first one's sandbox, and
 * environmentListLeases tells what belongs to whom. A host that does not say has NULL. */
BERTH_PUBLIC const char *berth_owner_instance(struct berth_call *call);
BERTH_PUBLIC const char *berth_owner_place(struct berth_call *call);

/* What is to be executed. Both lists end with NULL; the variables are NAME=value. */
BERTH_PUBLIC const char *berth_command(struct berth_call *call);
BERTH_PUBLIC const char *const *berth_arguments(struct berth_call *call);
BERTH_PUBLIC const char *const *berth_variables(struct berth_call *call);
/* The directory of the command: what was asked for, else the lease's remoteCwd; else NULL. */
BERTH_PUBLIC const char *berth_directory(struct berth_call *call);
/* The input of the command and its length; "" when there is none. */
BERTH_PUBLIC const char *berth_input(struct berth_call *call, size_t *ret_len);
/* A call that carries the stream to Berth's supervisor: it must not wait for other commands of the
 * sandbox. */
BERTH_PUBLIC bool berth_is_channel(struct berth_call *call);

/* Milliseconds until the command's own limit (timeoutMs of the call, else of the configuration,
 * else `fallback`), counted from when the call came; never negative. */
BERTH_PUBLIC int64_t berth_time_left(struct berth_call *call, int64_t fallback);
/* Readable when the call should end early: its sandbox is being given up. */
BERTH_PUBLIC int berth_cancel_fd(struct berth_call *call);
BERTH_PUBLIC bool berth_is_cancelled(struct berth_call *call);

struct berth_sync_file {
        const char *source, *target; /* absolute; the side of the host is readable and writable */
        bool is_directory, follow_links;
        int mode;                   /* -1: not said */
        const char *const *exclude; /* ends with NULL */
};

struct berth_sync_command {
        const char *command; /* for a shell */
        const char *cwd;     /* NULL: not said */
        int64_t timeout_ms;  /* 0: not said */
};

/* To be applied in order; a command that fails ends the sync. */
struct berth_sync_operation {
        const struct berth_sync_file *files;
        size_t n_files;
        const struct berth_sync_command *commands;
        size_t n_commands;
};

BERTH_PUBLIC const struct berth_sync_operation *berth_sync_operations(struct berth_call *call,
                                                                      size_t *ret_n);

/* ---- what is answered -------------------------------------------------------------------------
 */

/* The text of a failure; returns -1. Never put a secret in it. */
BERTH_PUBLIC int berth_fail(struct berth_call *call, const char *format, ...) BERTH_FORMAT(2, 3);
/* The same where it is not known whether something was done: Berth then asks list_leases. */
BERTH_PUBLIC int berth_fail_unknown(struct berth_call *call, const char *format, ...)
        BERTH_FORMAT(2, 3);
/* The same for a method that cannot be had with this configuration. */
BERTH_PUBLIC int berth_fail_unsupported(struct berth_call *call, const char *format, ...)
        BERTH_FORMAT(2, 3);

/* validate and probe: what is wrong. One complaint makes the answer `ok: false`. */
BERTH_PUBLIC void berth_complain(struct berth_call *call, const char *format, ...)
        BERTH_FORMAT(2, 3);
BERTH_PUBLIC void berth_summary(struct berth_call *call, const char *format, ...)
        BERTH_FORMAT(2, 3);
/* validate: a member of the normal form; text NULL is null. Members that are not set stay as they
 * were sent. */
BERTH_PUBLIC void berth_config_set_text(struct berth_call *call, const char *name,
                                        const char *text);
BERTH_PUBLIC void berth_config_set_int(struct berth_call *call, const char *name, int64_t value);
BERTH_PUBLIC void berth_config_set_bool(struct berth_call *call, const char *name, bool value);

/* acquire and resume. */
BERTH_PUBLIC void berth_lease_set(struct berth_call *call, const char *lease_id);
/* Comes back with every later call. */
BERTH_PUBLIC void berth_metadata_text(struct berth_call *call, const char *name, const char *text);
BERTH_PUBLIC void berth_metadata_bool(struct berth_call *call, const char *name, bool value);
/* realize. */
BERTH_PUBLIC void berth_cwd_set(struct berth_call *call, const char *cwd);

/* execute: output as it comes, which is shown at once and is part of the answer. Output beyond 32
 * MiB a stream is dropped, and the answer says so. */
enum berth_stream { BERTH_STDOUT = 1, BERTH_STDERR = 2 };
BERTH_PUBLIC void berth_output(struct berth_call *call, enum berth_stream stream, const char *data,
                               size_t len);
BERTH_PUBLIC void berth_exit_set(struct berth_call *call, int status);
BERTH_PUBLIC void berth_timed_out_set(struct berth_call *call);

/* sync: what operation `index` moved. */
BERTH_PUBLIC void berth_sync_done(struct berth_call *call, size_t index, uint64_t files,
                                  uint64_t bytes);

/* list_leases: one sandbox of this provider; `place` and `instance` as it was made with (NULL: it
 * does not say). */
BERTH_PUBLIC void berth_found(struct berth_call *call, const char *lease_id, const char *instance,
                              const char *place);

/* A line for `berth plugin logs`. Any thread. */
enum berth_log_level { BERTH_DEBUG, BERTH_INFO, BERTH_WARN, BERTH_ERROR };
BERTH_PUBLIC void berth_log(enum berth_log_level level, const char *format, ...) BERTH_FORMAT(2, 3);

#ifdef __cplusplus
}
#endif

#endif
