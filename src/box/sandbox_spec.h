/* What a sandbox is to be, and what became of it: values, and their encoding between the daemon and
 * the launcher. Part of both; no I/O.
 *
 * A spec travels as bytes with a bounded parser of its own, a report as lines `name value`. Any
 * thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define SANDBOX_AGENT      1000U       /* the inner user that commands run as */
#define SANDBOX_SUPERVISOR 2000000000U /* the inner user that PID 1 is */
#define SANDBOX_MIN_IDS    2048U
#define SANDBOX_MAX_LAYERS 32
#define SANDBOX_MAX_BASE   128
#define SANDBOX_MAX_SPEC   ((size_t)60 << 10) /* encoded; it has to fit a pipe */

enum sandbox_network {
        SANDBOX_NET_NONE,   /* loopback only */
        SANDBOX_NET_TUNNEL, /* the same; the box listens on it for the tunnel */
        SANDBOX_NET_HOST,   /* the host's own */
};

enum sandbox_storage {
        SANDBOX_STORE_TMPFS, /* gone with the box; limits.disk_bytes and .inodes bound it */
        SANDBOX_STORE_DIR,   /* a directory of the host; not bounded */
        SANDBOX_STORE_IMAGE, /* an image file with ext4 in it, its size is the bound; root only */
};

enum sandbox_workspace {
        SANDBOX_WORK_PRIVATE, /* an empty directory in the storage */
        SANDBOX_WORK_BIND,    /* the host's directory, written to directly */
        SANDBOX_WORK_OVERLAY, /* changes go to the storage, the host's directory stays as it is */
};

/* What the directory of a layer is. */
enum sandbox_layer_form {
        SANDBOX_LAYER_FILES, /* the `upper` of an earlier sandbox */
        SANDBOX_LAYER_UPPER, /* it has that as its `upper` */
        SANDBOX_LAYER_PLACE, /* beside it `workspace` and `tmp`, which /workspace and /tmp stand on
                              */
};

/* A directory below the writable one, as an earlier sandbox left it. */
struct sandbox_layer {
        const char *path;
        uint32_t first_id; /* the host id that inner 0 had there; 0 for one that root unpacked */
        enum sandbox_layer_form form; /* PLACE: only where all above it are, too */
};

/* 0: no such limit. */
struct sandbox_limits {
        uint64_t memory_bytes;
        uint64_t disk_bytes;
        uint64_t inodes;
        uint64_t wall_ms;
        uint32_t processes;
        uint32_t cpu_millis; /* thousandths of one processor */
        uint32_t open_files;
};

/* All paths are absolute and of the host, except workspace_path. */
struct sandbox_spec {
        uint32_t first_id; /* of the host, for users and groups alike */
        uint32_t n_ids;    /* at least SANDBOX_MIN_IDS; 65536 for a whole system's users */

        const char *output_dir; /* NULL: no shared spools */

        /* None: /usr, /bin, /sbin, /lib*, /opt of the host, read-only, and an /etc from a list.
         * Otherwise the directories that are the root of a system together, the uppermost first,
         * with the owners that they have inside, read-only beneath an overlay: one rootfs, or the
         * layers of an image. */
        const char *base[SANDBOX_MAX_BASE];
        uint32_t n_base;
        /* Between that and the writable layer, the uppermost first. With a base they are layers
         * of /, without one of /home: what a snapshot keeps. */
        struct sandbox_layer layers[SANDBOX_MAX_LAYERS];
        uint32_t n_layers;

        /* For SANDBOX_STORE_DIR an existing directory, kept by the caller between boxes; the
         * launcher makes in it what is missing of `upper` (the writable layer of / or /home: to
         * make a snapshot, freeze and copy it), `work`, `tmp`, `tmp-work`, `workspace`,
         * `workspace-work`. For
         * SANDBOX_STORE_IMAGE the image file, the same inside. */
        enum sandbox_storage storage;
        const char *storage_path;

        enum sandbox_workspace workspace;
        const char *workspace_dir; /* NULL only for SANDBOX_WORK_PRIVATE */
        /* With a launcher that is root, what belongs to the directory's owner is the agent's
         * inside. */
        const char *workspace_path; /* inside; NULL: /workspace */

        enum sandbox_network network;
        bool nested_sandbox; /* user namespaces and mounts inside (Chromium, bubblewrap) */
        bool root_inside;    /* commands are inner root with a few capabilities; needs a base */
        /* The base has its users and their homes: nothing is added for SANDBOX_AGENT. */
        bool own_users;
        /* The inner ids that commands have, unless they are root; both 0: SANDBOX_AGENT. */
        uint32_t user_id, group_id;
        const char *working_dir; /* inside; made where the base lacks it; NULL: nothing is made */
        const char *hostname;    /* NULL: sandbox */

        struct sandbox_limits limits;
};

/* By what a limit is enforced. */
enum sandbox_means {
        SANDBOX_BY_NOTHING,
        SANDBOX_BY_CGROUP2,
        SANDBOX_BY_CGROUP1,
        SANDBOX_BY_RLIMIT, /* memory: per process; processes: for the whole box */
        SANDBOX_BY_TMPFS,
        SANDBOX_BY_IMAGE,
        SANDBOX_BY_BOX,     /* PID 1 stops everything */
        SANDBOX_BY_SIGNALS, /* freezing only */
};

/* What the launcher learned. Limits that were not asked for are SANDBOX_BY_NOTHING. */
struct sandbox_report {
        int32_t pid;              /* of PID 1, on the host */
        uint8_t kill_method;      /* BOX_KILL_PIDNS */
        uint8_t exec_kill_method; /* of one execution's tree: BOX_KILL_CGROUP or _SUBREAPER */
        enum sandbox_means memory, processes, cpu, open_files, disk, inodes, wall, freeze;
        char namespaces[64];                       /* "user mnt pid net ipc uts cgroup" */
        char cgroup[512];                          /* where it lives, "" for nowhere */
        uint32_t root_id, agent_id, supervisor_id; /* of the host */
        bool rootless;                             /* the launcher was not root */
        bool idmapped; /* layers or workspace are shown with other owners */
        bool seccomp, no_new_privs, hidden_pids;
};

/* "cgroup2", "rlimit", ...; "" for SANDBOX_BY_NOTHING. */
const char *sandbox_means_name(enum sandbox_means means);

/* The host id of an inner one, for files that the host makes for the sandbox. */
uint32_t sandbox_host_id(const struct sandbox_spec *spec, uint32_t inner);
/* The inner ids that own the workspace: those of commands, or of SANDBOX_AGENT where they are root.
 */
uint32_t sandbox_user_id(const struct sandbox_spec *spec);
uint32_t sandbox_group_id(const struct sandbox_spec *spec);

/* Absolute, more than "/", without ".", ".." or empty parts. */
bool sandbox_path_is_plain(const char *path);

/* Checks what can be known without trying: ids, paths, combinations. ERR_UNPROCESSABLE with the
 * reason. */
int sandbox_spec_check(const struct sandbox_spec *spec, struct err *err);

/* Encoding. Decoded strings point into *store, which the caller keeps and frees. A decoded
 * specification has passed sandbox_spec_check(). */
void sandbox_spec_encode(const struct sandbox_spec *spec, struct buf *out);
int sandbox_spec_decode(const void *bytes, size_t len, struct sandbox_spec *ret, char **ret_store,
                        struct err *err);
void sandbox_report_encode(const struct sandbox_report *report, struct buf *out);
/* Lines that are not known are skipped. */
void sandbox_report_decode(const char *text, struct sandbox_report *ret);
