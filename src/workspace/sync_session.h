/* The daemon's side of a transfer, as far as pushing and pulling share it: greeting, the other
 * side's manifest, and corrections of a manifest by what was really moved.
 *
 * Blocking; operation threads. */
#pragma once

#include "codec/peer_state.h"
#include "workspace/sync.h"
#include "workspace/sync_io.h"

struct sync_session {
        struct sync_io io;
        struct op *op;
        const struct sync_options *options;
        struct excludes excludes; /* with what is preserved */
        enum peer_phase phase;    /* WORKER_*: what may come */
        unsigned asked;           /* FINISH or CLEAR was sent, and not answered */
        bool pulls, scanned, finished;
        int64_t waited_ms; /* since something was sent, or came that is not ALIVE */
        uint64_t sent;     /* bytes, by then */
        uint32_t umask;
        struct buf parts; /* hashes of files that the other side has in part */
        int manifest_fd;
        uint64_t manifest_len;
        struct tree_decoder manifest_check;
        struct sync_progress progress;
        /* Messages about files. */
        int (*on_file)(void *ctx, const struct sync_msg *m, struct err *err);
        void *ctx;
};

/* Greet, name the tree and have it scanned. *s is zero but for on_file, ctx and pulls. `spool_dir`
 * is where the manifest is kept meanwhile. */
int sync_session_open(struct sync_session *s, struct op *op, int fd,
                      const struct sync_options *options, bool make_root, int spool_dir,
                      struct err *err);
void sync_session_done(struct sync_session *s);
/* Wait until *flag. */
int sync_session_wait(struct sync_session *s, const bool *flag, struct err *err);
bool sync_session_has_part(const struct sync_session *s, const uint8_t hash[TREE_HASH]);
void sync_session_tell(struct sync_session *s);
/* Send FINISH or CLEAR: FINISHED may come from now on. */
int sync_session_ask_end(struct sync_session *s, uint8_t type, struct err *err);
/* Whether a message may come for a file that is in this phase; 0 or ERR_PROVIDER. */
int sync_slot_move(enum peer_phase phase, const struct sync_msg *m, struct err *err);
/* 0 or the error as the caller of push or pull gets it. */
int sync_result(int r, struct err *err);

/* The other side's manifest, once it is there. */
struct sync_manifest {
        struct tree_source source;
        struct tree_decoder decoder;
        int fd;
        uint64_t at;
};

void sync_manifest_init(struct sync_manifest *m, const struct sync_session *s);
void sync_manifest_done(struct sync_manifest *m);

/* Entries that turned out to differ from what a manifest says. */
struct sync_fix {
        bool gone;
        size_t number;         /* of two for one path, the later one counts */
        struct tree_entry now; /* its path is at the end */
        char path[];
};

struct sync_fixes {
        struct sync_fix **at; /* as they came */
        size_t n, cap;
};

void sync_fixes_done(struct sync_fixes *f);
/* now NULL: it is gone. */
void sync_fixes_add(struct sync_fixes *f, const char *path, const struct tree_entry *now);
/* Write the manifest again, if there is anything to correct. */
int sync_fixes_write(struct sync_fixes *f, int dir_fd, const char *name, struct err *err);
