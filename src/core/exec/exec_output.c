/* The limits of output, counting what places have taken, and making output safe on the disk. */
#define _GNU_SOURCE
#include "core/exec/exec_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "codec/json.h"
#include "core/exec/exec_internal.h"

#define MIB ((uint64_t)1 << 20)

struct output_taken {
        struct output_taken *next;
        char place_id[UUID_LEN + 1];
        int64_t bytes;
};

/* Limits */

/* A member of the configuration in MiB, or the setting. */
static uint64_t mebibytes(const json_t *config, const char *name, int64_t fallback)
{
        json_int_t v = json_integer_value(json_object_get(config, name));

        return (uint64_t)(v > 0 && v <= OUTPUT_MB_MAX ? v : fallback) * MIB;
}

void exec_output_keep(const json_t *from, json_t *to)
{
        static const char *const members[] = { "outputMb", "outputPlaceMb", "outputFull" };

        for (size_t i = 0; i < ARRAY_LEN(members); i++) {
                json_t *v = json_object_get(from, members[i]);

                if (v)
                        json_object_set(to, members[i], v);
        }
}

static struct output_taken *find_taken(struct exec_hub *hub, const char *place_id)
{
        struct output_taken *t = hub->outputs;

        while (t && !streq(t->place_id, place_id))
                t = t->next;
        return t;
}

static uint64_t taken(struct exec_hub *hub, const char *place_id)
{
        pthread_mutex_lock(&hub->lock);
        struct output_taken *t = find_taken(hub, place_id);
        int64_t bytes = t ? t->bytes : 0;
        pthread_mutex_unlock(&hub->lock);
        return bytes > 0 ? (uint64_t)bytes : 0;
}

struct box_output exec_output_limits(const struct runtime *rt, const struct place *place)
{
        const struct settings *s = &rt->settings;
        json_t *config = NULL;

        if (place->config)
                (void)json_parse(place->config, strlen(place->config), &config, NULL);
        const char *full = json_get_string(config, "outputFull");
        struct box_output o = (struct box_output){
                .limit = mebibytes(config, "outputMb", s->output_max_mb),
                .place_limit = mebibytes(config, "outputPlaceMb", s->output_place_max_mb),
                .place_taken = taken(rt->hub, place->id),
                .wait_ms = (uint32_t)s->output_wait_ms,
                .full = full              ? streq(full, "drop") ? BOX_OUTPUT_DROP : BOX_OUTPUT_WAIT
                        : s->output_drops ? BOX_OUTPUT_DROP
                                          : BOX_OUTPUT_WAIT,
        };
        /* A limit on the place's disk also limits its output: the operator does not mean as much
         * again of output. */
        if (json_is_integer(json_object_get(config, "diskMb")) &&
            !json_is_integer(json_object_get(config, "outputPlaceMb")))
                o.place_limit = MIN(o.place_limit, mebibytes(config, "diskMb", 0));
        json_decref(config);
        return o;
}

uint64_t exec_output_max(const struct box_output *o)
{
        uint64_t left = o->place_limit > o->place_taken ? o->place_limit - o->place_taken : 0;

        return MIN(o->limit, left);
}

/* What places have taken */

int64_t exec_output_bytes(uint64_t stdout_len, uint64_t stderr_len)
{
        const uint64_t half = INT64_MAX / 2;

        return (int64_t)(MIN(stdout_len, half) + MIN(stderr_len, half));
}

void exec_output_took(struct exec_hub *hub, const char *place_id, int64_t bytes)
{
        pthread_mutex_lock(&hub->lock);
        struct output_taken *t = find_taken(hub, place_id);
        if (!t && bytes > 0) {
                t = xcalloc(1, sizeof(*t));
                snprintf(t->place_id, sizeof(t->place_id), "%s", place_id);
                t->next = hub->outputs;
                hub->outputs = t;
        }
        if (t && __builtin_add_overflow(t->bytes, bytes, &t->bytes))
                t->bytes = bytes > 0 ? INT64_MAX : 0;
        if (t && t->bytes <= 0) {
                struct output_taken **at = &hub->outputs;

                while (*at != t)
                        at = &(*at)->next;
                *at = t->next;
                free(t);
        }
        pthread_mutex_unlock(&hub->lock);
}

static int exec_output_count(void *ctx, const char *place_id, int64_t bytes)
{
        exec_output_took(ctx, place_id, bytes);
        return 0;
}

int exec_output_load(struct op *op, struct exec_hub *hub, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct runtime *rt = hub->config.rt;
        int64_t most = rt->settings.output_max_mb * (int64_t)MIB;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : executions_output(db, most, op->arena, exec_output_count, hub, err);
}

void exec_output_free(struct exec_hub *hub)
{
        while (hub->outputs) {
                struct output_taken *t = hub->outputs;

                hub->outputs = t->next;
                free(t);
        }
}

/* Making it safe */

/* 0, or the errno of what went wrong. fdatasync() reports an error once, and it means that pages
 * are lost: a second call would report none. */
static int stream_make_safe(int dir, const char *name, int64_t *len)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;
        int64_t said = *len;

        if (said == 0)
                return 0;
        fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        if (fd < 0) {
                *len = errno == ENOENT ? 0 : said;
                return errno;
        }
        if (fstat(fd, &st) < 0)
                return errno;
        *len = MIN(said, (int64_t)st.st_size);
        if (fdatasync(fd) < 0)
                return errno;
        return *len < said ? ENODATA : 0;
}

int exec_output_make_safe(const struct exec_hub *hub, struct execution *row, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", hub->output_dir, row->id);
        CLEAN(cleanup_fd) int dir = -1;
        int e = 0, other;

        if (row->stdout_len == 0 && row->stderr_len == 0)
                return 0;
        dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (dir < 0) {
                e = errno;
                if (e == ENOENT)
                        row->stdout_len = row->stderr_len = 0;
        } else {
                e = stream_make_safe(dir, "stdout", &row->stdout_len);
                other = stream_make_safe(dir, "stderr", &row->stderr_len);
                e = e ? e : other;
                if (e == 0 && (fsync(dir) < 0 || file_sync(AT_FDCWD, hub->output_dir, err) < 0))
                        e = errno;
        }
        if (e == EMFILE || e == ENFILE || e == ENOMEM)
                return err_sys(err, ERR_BUSY, e, "make the output safe");
        if (e == 0)
                return 0;
        log_error("output of a command is not safe on the disk", LOG_S("execution", row->id),
                  LOG_S("error", strerror(e)));
        err_clear(err);
        row->is_incomplete = true;
        if (!row->reason)
                row->reason = EXEC_UNSAFE_REASON;
        return 0;
}

const char *exec_output_reason(const struct box_exit *exit, char *ret, size_t size)
{
        snprintf(
                ret, size,
                "The output limit was reached: %.1f MiB of this command are kept. Raise outputMb or "
                "outputPlaceMb of the environment (or output_max_mb, output_place_max_mb of the "
                "daemon), or print less.",
                (double)(exit->stdout_len + exit->stderr_len) / (double)MIB);
        return ret;
}

const char *exec_disk_full_reason(const struct runtime *rt, const char *dir, char *ret, size_t size)
{
        snprintf(ret, size,
                 EXEC_DISK_FULL_REASON
                 "for %lld s there was no room in %.200s for what the command "
                 "printed, and some of it is lost. Make room on that disk, then run it again.",
                 (long long)rt->settings.output_wait_ms / 1000,
                 dir ? dir : "the directory of its supervisor, where it ran,");
        return ret;
}

bool exec_output_drop(const int fds[2], const uint64_t len[2], uint64_t punched[2], uint64_t limit)
{
        while (len[0] - punched[0] + len[1] - punched[1] > limit) {
                int i = len[0] - punched[0] >= len[1] - punched[1] ? 0 : 1;

                if (len[i] - punched[i] < MIB)
                        return true;
                if (fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)punched[i],
                              (off_t)MIB) < 0)
                        return false;
                punched[i] += MIB;
        }
        return true;
}

uint64_t exec_output_from(int fd, uint64_t offset)
{
        off_t at = lseek(fd, (off_t)offset, SEEK_DATA);

        return at > (off_t)offset ? (uint64_t)at : offset;
}
