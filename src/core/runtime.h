/* What every operation of the domain works on: the store, the settings, this node's identity, and
 * the kinds of places. Immutable after start except for the counters; any thread. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "base/uuid.h"
#include "net/proxy_counters.h"
#include "store/store.h"

struct callback_host;
struct carriers;
struct command_kinds;
struct exec_hub;
struct kind;
struct live;
struct mail;
struct plugin_registry;
struct pool;
struct private_hosts;
struct run_host;
struct run_keys;
struct sandbox_host;
struct ssh_hosts;
struct vault_provider;
struct workspace_host;

enum deployment_mode { MODE_LOCAL_TRUSTED, MODE_AUTHENTICATED };
/* Whether commands in sandboxes of plugins run in a box (core/kinds/plugin/plugin_box.h): those
 * that need one, all, or none. */
enum plugin_box_use { PLUGIN_BOX_AUTO, PLUGIN_BOX_ALWAYS, PLUGIN_BOX_OFF };
enum deployment_exposure { EXPOSURE_PRIVATE, EXPOSURE_PUBLIC };

/* A disk with less room is full: new things are refused (api/call.c). */
#define DISK_FULL_BYTES (1UL << 20)

/* Settings that the domain reads. Strings live as long as the runtime. */
struct settings {
        enum deployment_mode mode;
        enum deployment_exposure exposure;
        const char *public_url;                    /* NULL: none */
        const char *listen_host;                   /* host part of the first address we listen on */
        const char *allowed_hostnames;             /* comma separated; NULL: none */
        const struct private_hosts *private_hosts; /* addresses that requests of agents may reach
                                                      although they are not public; NULL: none */
        const uid_t *trusted_uids; /* users that count as the operator, besides the daemon's */
        size_t n_trusted_uids;
        const char *reverse_proxy;    /* for http_request_client(); NULL: none */
        const char *workspace_roots;  /* colon separated: core/roots/workspace_root.h */
        const char *const *own_paths; /* NULL-terminated: core/roots/own_files.h */
        const char *local_env; /* names of further variables for local commands; comma separated */
        bool local_for_owners; /* owners of a company may use this machine: host_use.h */
        bool share_user_files; /* agents get logins and configuration of the daemon's user */
        bool allow_fake_provider;
        bool salvage_ttl_is_set; /* salvage_ttl_ms applies also to salvages that no one looked at */
        bool output_drops;       /* at the limit the oldest output is dropped, instead of making the
                                    command wait */
        const char *fake_world;  /* NULL, or the directory where fake sandboxes are files (tests) */
        int64_t sweep_interval_ms;
        int64_t scrub_interval_ms; /* between two looks at the whole database */
        int64_t idle_place_ttl_ms;
        int64_t adhoc_ttl_ms;
        int64_t operation_timeout_ms;
        int64_t peer_silence_ms;      /* after which a stalled peer is given up */
        int64_t close_timeout_ms;     /* time limit for a provider to give a place up */
        int64_t workspace_timeout_ms; /* time limit for staging, restoring, and saving */
        int64_t salvage_ttl_ms;
        int64_t run_log_max_bytes;                 /* 0: as much as there is */
        int64_t run_prepare_timeout_ms;            /* for how long preparing a run is tried again */
        int64_t live_ping_ms;                      /* between two signs of life on event streams */
        int64_t ssh_timeout_ms;                    /* time limit for a login to an ssh host */
        int64_t restore_max_files, restore_max_mb; /* what one restore may bring home */
        /* Output of commands on this machine's disk: of one, of all of a place (MiB), and what
         * happens at the limit (output_drops). */
        int64_t output_max_mb, output_place_max_mb, output_wait_ms;
        int64_t disk_reserve_mb;    /* room for closing on a full disk (daemon/room.h); 0: none */
        const char *api_candidates; /* JSON list of base URLs, for ssh leases; NULL: none */
        const char *kinds_dir;      /* descriptors of kinds; NULL: in the data directory */
        const char *plugin_dir;     /* where plugins are kept */
        const char *node, *npm;     /* paths; NULL: looked up in PATH */
        const char *plugin_env;     /* names of further variables for workers (plugin/env.h) */
        const char *plugin_paths;   /* further paths that workers may read; the same form */
        int64_t plugin_install_timeout_ms;
        enum plugin_box_use plugin_box;
        bool plugin_confine; /* workers have users and views of their own (plugin/confine.h) */
        int64_t plugin_uid_first, plugin_uid_count; /* their range, for a root daemon */
        const char *trampoline;       /* our own program, to confine others; NULL: none */
        const char *examples_dir;     /* NULL: not installed */
        const char *secrets_provider; /* for secrets that name none; NULL: local_encrypted */
        bool secrets_strict;          /* sensitive variables have to be secrets */
        /* The built-in sandbox. The range applies to root; another user has /etc/subuid. */
        int64_t sandbox_uid_first, sandbox_uid_count;
        int64_t sandbox_ids_per_box;     /* 0: as many as there are plenty of */
        const char *sandbox_rootfs_dirs; /* colon separated: where a rootfs may lie */
        int64_t sandbox_pool_max;        /* sandboxes made in advance, of all environments */
        /* Images: registry_rules_parse(); hosts, comma separated, NULL: any; 0: no limit. */
        const char *image_registries, *image_allowed_registries;
        int64_t image_store_max_mb, image_pull_timeout_ms;
        /* Tokens of runs, and how agents on this machine call back. */
        int64_t run_token_ttl_s;
        const char *run_token_issuer, *run_token_audience;
        bool callback_always_channel; /* also where our port could be reached */
};

/* This node's identity. A node keeps its id over restarts; `instance` is new with every start, so
 * that work that an older instance of the same node left half done can be told from work under
 * way. */
struct node {
        struct uuid id;
        char boot_id[UUID_LEN + 1];
        struct uuid instance;
};

struct counters {
        _Atomic uint64_t leases_acquired, leases_reused, leases_released, leases_expired;
        _Atomic uint64_t acquire_failures, cleanup_failures, sweeps, conflicts;
        _Atomic uint64_t workspaces_staged, workspaces_restored, workspace_conflicts;
        _Atomic uint64_t salvages, workspaces_lost;
        struct proxy_counters proxy;
};

struct runtime {
        struct store *store;
        struct settings settings;
        struct node node;
        const struct kind *const *kinds;           /* NULL-terminated; core/kinds/kind.h */
        const struct command_kinds *command_kinds; /* where those of files are from; or NULL */
        struct exec_hub *hub;                      /* NULL in tests that run no commands */
        struct plugin_registry *plugins;           /* NULL in tests that need none */
        struct mail *mail;                         /* to the loop, and */
        struct pool *pool; /* for background work; NULL in tests without a loop */
        const struct vault_provider *const *vaults; /* before the built-in ones; NULL: none */
        struct sandbox_host *sandbox;               /* NULL in tests without sandboxes */
        struct carriers *carriers;                  /* NULL in tests without such places */
        struct ssh_hosts *ssh;                      /* NULL in tests without ssh */
        struct workspace_host *workspaces;          /* NULL in tests without workspaces */
        struct run_host *runs;                      /* NULL in tests without runs */
        struct callback_host *callbacks;            /* the same */
        const struct run_keys *run_keys;            /* the same */
        struct live *live;                          /* NULL: events are not published */
        const char *data_dir;
        const char *api_url; /* of our own port on loopback; NULL: there is none */
        struct counters counters;
};
