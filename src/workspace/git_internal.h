/* What the files of git.h share. */
#pragma once

#include "base/buf.h"
#include "codec/git_refs.h"
#include "rt/become.h"
#include "workspace/git.h"

#define GIT_MAX_REFS   2000 /* that are new or changed */
#define GIT_MAX_PACKED ((size_t)8 << 20)
#define GIT_IMPORT     "berth-import" /* in the host's `.git`, of its owner */
#define GIT_PACK_EMPTY 32             /* bytes of a pack without objects */

/* git_guard.c: directories that git takes for a repository, whatever they are called. */
struct git_guard {
        int root; /* the workspace; borrowed */
        char last[TREE_MAX_PATH + 1];
        uint8_t has[TREE_MAX_DEPTH +
                    1]; /* of each directory on the way to `last`, the root first */
};

/* Whether the merge must not get this change: it would put something into a repository that makes
 * git run a program or look elsewhere, or make a repository of a directory that has such a thing.
 * Changes come in the order of their paths. */
bool git_guard_refuses(struct git_guard *g, const struct change *c);
/* The content of a file that the merge is about to take: 1, or 0 when it must not. *fd may become a
 * copy, which only we can write to. */
int git_guard_open(struct git_guard *g, struct op *op, const char *path, int *fd, struct err *err);
/* Whether a path in a git directory makes git run a program or look elsewhere. */
bool git_is_dangerous(const char *inside);

struct git_import {
        struct change_set filtered;
        struct change_set *from;
        struct op *op;
        enum git_kind kind;
        struct git_guard guard;
        char *scratch;
        int scratch_fd;

        /* from the place */
        bool has_head;
        struct git_ref head;
        struct git_ref *refs; /* of single files; oid "": deleted */
        size_t n_refs, n_too_many;
        struct buf packed_refs;
        bool has_packed;
        uint64_t n_loose, n_packs;
        uint64_t refused;
        char *first_refused;

        /* while it is applied */
        const struct git_options *options;
        int host_fd;             /* `.git` of the workspace */
        char *host;              /* its path, for messages */
        struct become owner;     /* the owner of the repository; uid 0: us */
        const char *host_of_git; /* the same for the git that works on it: its working directory,
                                    which cannot be redirected, or as its owner reaches it */
        char *own_repository;    /* in the scratch directory */
        char *repository;        /* that one, or the owner's */
        struct buf host_refs;    /* "<oid> <name>\n"; HEAD among them */
        const char *host_branch; /* "refs/heads/main"; NULL: HEAD is on none */
};

/* How git is run: on our repository, or on the refs of the host's. */
struct git_run {
        const char *const *args; /* without "git"; NULL-terminated */
        bool on_host;            /* GIT_DIR is the host's */
        const char *objects;     /* where objects are written; NULL: ours */
        bool alone;              /* without anything of the host's, with our own rights */
        const char *index;       /* NULL: none */
        int in_fd, out_fd;       /* as in rt/tool.h */
        const char *input;       /* text for its standard input, instead of in_fd; may be NULL */
};

/* Its status; output is appended to `out` (may be NULL). Its standard error comes back in the
 * operation's arena; never NULL. */
int git_run(struct git_import *g, const struct git_run *run, struct buf *out, int *ret_status,
            const char **ret_said, struct err *err);

/* git_import.c: the host's repository and our own are open, and the host's refs are read. 1, or 0:
 * it cannot be used, *ret_why. ERR_NOT_FOUND: there is no git. */
int git_import_open(struct git_import *g, const struct git_options *options, const char **ret_why,
                    struct err *err);
/* Set one ref of the host as git.h says. The objects are there. */
int git_place_ref(struct git_import *g, const struct git_ref *ref, struct git_report *ret,
                  struct err *err);

/* git_objects.c. 1: done; 0: refused, *ret_note says why. */
int git_prepare(struct git_import *g, const char **ret_note, struct err *err);
/* Remove what it made in the host's repository. */
void git_clear(const struct git_import *g);
int git_ingest(struct git_import *g, const char **ret_note, struct err *err);
/* Objects that our repository borrows: those that are reachable from the commit and not from the
 * host's refs become its own, each of them looked at. */
int git_take_new(struct git_import *g, const char *tip, const char **ret_note, struct err *err);
/* Put what is reachable from the given commits and not from the host's refs into the host's
 * repository. `tips`: one object name on each line. */
int git_transfer(struct git_import *g, const char *tips, const char **ret_note, struct err *err);

/* git_refs.c: the host's refs. */

/* Read them (again). */
int git_host_refs(struct git_import *g, struct err *err);
/* The value of one; "" when there is none. */
void git_host_ref(const struct git_import *g, const char *name, char ret[GIT_HEX + 1]);
/* Set one by compare-and-swap ("": it must not be there): 1, or 0 when it is otherwise or git does
 * not want it, *ret_said why. */
int git_swap(struct git_import *g, const char *ref, const char *to, const char *from,
             const char **ret_said, struct err *err);
/* Whether nothing that git reads of the host's repository before anything else is a link, no file,
 * or another user's where git has our rights. */
bool git_is_readable(const struct git_import *g);
/* Whether this part of the repository is a directory, and does not belong to another user. */
bool git_is_own_dir(const struct git_import *g, const char *name);
/* Whether setting it writes to the host's repository alone: no link is in the way, of its log
 * neither. */
bool git_may_write(const struct git_import *g, const char *ref);
/* Whether a is an ancestor of b, or b itself. */
int git_is_ancestor(struct git_import *g, const char *a, const char *b, bool *ret, struct err *err);
/* Whether a commit is reachable from no ref of the host. */
int git_is_new(struct git_import *g, const char *oid, bool *ret, struct err *err);

/* git_head.c */

/* Integrate the commit `theirs`, from the branch `from` (NULL: none) of the place. */
int git_integrate(struct git_import *g, const char *theirs, const char *from,
                  struct git_report *ret, struct err *err);
/* What a crash left between the move of the branch and the index. */
int git_finish_move(struct git_import *g, struct git_report *ret, struct err *err);
