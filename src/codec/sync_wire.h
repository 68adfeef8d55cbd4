/* Messages between the daemon and a file worker (docs/workspaces.md, "Moving trees"): bytes to
 * values and back. Both directions are one zstd stream each (workspace/sync_io.h); this is what is
 * inside.
 *
 *   u32 length of the payload   u8 type   u32 slot   payload
 *
 * The reader checks what can be checked without knowing the tree: lengths, kinds, and that a path
 * is one (codec/tree.h). A path that it accepts is safe to open part by part beneath a directory.
 *
 * Any thread. */
#pragma once

#include "codec/frame.h"
#include "codec/tree.h"

#define SYNC_VERSION     1
#define SYNC_HEADER      9
#define SYNC_SMALL       ((size_t)1 << 20) /* a file up to this size goes as one message */
#define SYNC_MAX_PAYLOAD (SYNC_SMALL + ((size_t)16 << 10))
#define SYNC_PIECE       ((size_t)128 << 10) /* of one DATA or MANIFEST message */
#define SYNC_SLOTS       8                   /* large files under way in one direction */
#define SYNC_MAX_GETS    256                 /* asked for at a time; slots of GET lie below */
#define SYNC_MAX_CHUNKS  65536               /* of one file */
#define SYNC_CHUNKS      1024                /* of one message */
#define SYNC_MAX_EXCLUDE 4096
#define SYNC_CHUNK_SIZE  (8 + TREE_HASH) /* one chunk as it is sent */

enum sync_type {
        SYNC_HELLO = 1, /* both: number (version), mode (the worker's umask; the daemon's wishes) */
        SYNC_TREE = 2, /* h→w: text (root), target (cache, may be empty), flags, blob (excludes) */
        SYNC_READY = 3,       /* w→h: blob (hashes of files that arrived in part) */
        SYNC_SCAN = 4,        /* h→w */
        SYNC_MANIFEST = 5,    /* w→h: blob (a piece of codec/tree.h) */
        SYNC_SCANNED = 6,     /* w→h: that was all of it */
        SYNC_DIR = 7,         /* h→w: path, mode */
        SYNC_LINK = 8,        /* h→w: path, target */
        SYNC_MODE = 9,        /* h→w: path, mode */
        SYNC_REMOVE = 10,     /* h→w: path; a directory only when it is empty */
        SYNC_FILE = 11,       /* both: path (empty as an answer), mode, mtime, hash, blob */
        SYNC_BIG = 12,        /* both: path, mode, mtime, size, hash, flags */
        SYNC_CHUNKS_ARE = 13, /* both, after BIG: flags, blob (chunks in order) */
        SYNC_WANT = 14,       /* both: blob (one bit for each chunk) */
        SYNC_DATA = 15,       /* both: offset, blob */
        SYNC_BIG_END = 16,    /* both: size, hash, as sent */
        SYNC_DONE = 17,       /* both: flags; the answer to BIG_END */
        SYNC_GET = 18,        /* h→w: path, flags */
        SYNC_GONE = 19,       /* w→h: it is no file any more */
        SYNC_FINISH = 20,     /* h→w: everything was sent */
        SYNC_FINISHED = 21,   /* w→h: and is there */
        SYNC_FAIL = 22,       /* w→h: text; it ends here */
        SYNC_CLEAR = 23,      /* h→w: remove the root and all in it; FINISHED follows */
        SYNC_ALIVE = 24, /* w→h, when it is wished for: it works, and there is nothing to say */
};

/* HELLO of the daemon: say ALIVE now and then. */
enum { SYNC_WISH_ALIVE = 1 };

/* TREE: make the root. GET: we have something like it. */
enum { SYNC_MAKE_ROOT = 1, SYNC_HAVE_SOME = 1 };
/* BIG: all of it follows, no chunks. CHUNKS_ARE: the last ones. DONE: other bytes arrived than were
 * announced, send all of the file. */
enum { SYNC_WHOLE = 1, SYNC_LAST = 1, SYNC_AGAIN = 1 };

struct sync_msg {
        uint8_t type;
        uint32_t slot;
        struct frame_bytes path, target, text, blob; /* borrowed */
        uint32_t mode, number;
        int64_t mtime_ns;
        uint64_t size, offset;
        uint8_t flags;
        uint8_t hash[TREE_HASH];
};

/* Append one message. */
void sync_msg_write(struct buf *b, const struct sync_msg *m);

/* 1 with a message and its whole length, 0 when more bytes are needed, ERR_INVALID. */
int sync_msg_read(const void *bytes, size_t len, struct sync_msg *ret, size_t *ret_len,
                  struct err *err);

/* The next text of a blob of texts (TREE); 1, 0 at the end, ERR_INVALID. */
int sync_text_next(struct frame_bytes *blob, struct frame_bytes *ret, struct err *err);
void sync_text_add(struct buf *b, const char *text);
