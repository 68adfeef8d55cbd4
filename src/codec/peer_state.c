/* The table of frames that a peer may send in each phase. */
#include "codec/peer_state.h"

#include "codec/frame_tunnel.h"
#include "codec/sync_wire.h"

/* When */

#define IN           PEER_IN
#define WELCOMED     (IN(LINK_LISTING) | IN(LINK_READY) | IN(LINK_STOPPING))
#define WORKS        (IN(WORKER_OPENING) | IN(WORKER_SCANNING) | IN(WORKER_MOVING))
#define CARRIES      (IN(CONN_OPEN) | IN(STREAM_OPEN))
#define CARRIES_BACK (CARRIES | IN(CONN_ENDED) | IN(STREAM_ENDED))

const struct peer_rule peer_rules[] = {
        /* Channel 0 of a link */
        { IN(LINK_GREETING), FRAME_WELCOME, LINK_READY, PEER_ONCE },
        { IN(LINK_GREETING) | WELCOMED, FRAME_ERROR, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_PING, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_PONG, PEER_SAME, PEER_ASKED },
        { IN(LINK_LISTING), FRAME_STATE, PEER_SAME, PEER_ANY },
        { IN(LINK_LISTING), FRAME_LISTED, LINK_READY, PEER_ONCE },
        { IN(LINK_STOPPING), FRAME_STOPPED, LINK_OVER, PEER_ONCE },
        /* The tunnel's frames, which have rules of their own below */
        { WELCOMED, FRAME_LISTENING, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_OPEN, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_ACCEPT, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_BYTES, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_WINDOW, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_END, PEER_SAME, PEER_ANY },
        { WELCOMED, FRAME_RESET, PEER_SAME, PEER_ANY },

        /* A channel. A box may know what it is asked to start; one that it is attached to may still
         * be starting, and fail. */
        { IN(CHANNEL_STARTING), FRAME_STARTED, CHANNEL_RUNNING, PEER_ONCE },
        { IN(CHANNEL_STARTING) | IN(CHANNEL_ATTACHING), FRAME_STATE, CHANNEL_RUNNING, PEER_ONCE },
        { IN(CHANNEL_STARTING) | IN(CHANNEL_ATTACHING), FRAME_FAILED, CHANNEL_OVER, PEER_ONCE },
        { IN(CHANNEL_RUNNING), FRAME_DATA, PEER_SAME, PEER_ANY },
        { IN(CHANNEL_RUNNING), FRAME_GREW, PEER_SAME, PEER_ANY },
        { IN(CHANNEL_RUNNING), FRAME_EXIT, CHANNEL_ENDED, PEER_ONCE },
        { IN(CHANNEL_RUNNING), FRAME_TAKEN, PEER_SAME, PEER_ANY },
        /* Answers to what the host sent before it knew: input, and FORGET right behind ATTACH. */
        { IN(CHANNEL_ENDED) | IN(CHANNEL_OVER), FRAME_TAKEN, PEER_SAME, PEER_ANY },
        { IN(CHANNEL_OVER), FRAME_STATE, PEER_SAME, PEER_ANY },
        { IN(CHANNEL_OVER), FRAME_EXIT, PEER_SAME, PEER_ANY },
        { IN(CHANNEL_ATTACHING), FRAME_ERROR, CHANNEL_OVER, PEER_ONCE },
        { IN(CHANNEL_STARTING) | IN(CHANNEL_RUNNING) | IN(CHANNEL_ENDED) | IN(CHANNEL_OVER),
          FRAME_ERROR, PEER_SAME, PEER_ANY },

        /* The tunnel */
        { IN(TUNNEL_UP), FRAME_LISTENING, PEER_SAME, PEER_ASKED },
        { IN(TUNNEL_UP), FRAME_OPEN, PEER_SAME, PEER_ANY },
        { IN(CONN_ASKED), FRAME_ACCEPT, CONN_OPEN, PEER_ONCE },
        { IN(CONN_OPEN), FRAME_END, CONN_ENDED, PEER_ONCE },
        { IN(CONN_ASKED) | IN(CONN_OPEN) | IN(CONN_ENDED), FRAME_RESET, CONN_OVER, PEER_ONCE },

        /* A relay */
        { IN(RELAY_READY), FRAME_PONG, PEER_SAME, PEER_ASKED },
        { IN(QUESTION_ASKED), FRAME_ANSWER, PEER_QUIET, PEER_ONCE },
        { IN(STREAM_ASKED), FRAME_ACCEPT, STREAM_OPEN, PEER_ONCE },
        { IN(STREAM_OPEN), FRAME_END, STREAM_ENDED, PEER_ONCE },
        { IN(STREAM_ASKED) | IN(STREAM_OPEN) | IN(STREAM_ENDED), FRAME_RESET, STREAM_OVER,
          PEER_ONCE },

        /* Bytes, in the tunnel as through a relay. Frames that were sent before the other side
         * heard of the end of a connection are dropped. */
        { CARRIES, FRAME_BYTES, PEER_SAME, PEER_ANY },
        { CARRIES_BACK, FRAME_WINDOW, PEER_SAME, PEER_ANY },
        { IN(CONN_OVER) | IN(STREAM_OVER), FRAME_ACCEPT, PEER_SAME, PEER_ANY },
        { IN(CONN_OVER) | IN(STREAM_OVER), FRAME_BYTES, PEER_SAME, PEER_ANY },
        { IN(CONN_OVER) | IN(STREAM_OVER), FRAME_WINDOW, PEER_SAME, PEER_ANY },
        { IN(CONN_OVER) | IN(STREAM_OVER), FRAME_END, PEER_SAME, PEER_ANY },
        { IN(CONN_OVER) | IN(STREAM_OVER), FRAME_RESET, PEER_SAME, PEER_ANY },

        /* A file worker */
        { IN(WORKER_GREETING), SYNC_HELLO, WORKER_OPENING, PEER_ONCE },
        { IN(WORKER_OPENING), SYNC_READY, WORKER_SCANNING, PEER_ONCE },
        { IN(WORKER_SCANNING), SYNC_MANIFEST, PEER_SAME, PEER_ANY },
        { IN(WORKER_SCANNING), SYNC_SCANNED, WORKER_MOVING, PEER_ONCE },
        { IN(WORKER_SCANNING) | IN(WORKER_MOVING), SYNC_FINISHED, WORKER_OVER, PEER_ASKED },
        { WORKS, SYNC_ALIVE, PEER_SAME, PEER_ANY },
        { IN(WORKER_GREETING) | WORKS, SYNC_FAIL, WORKER_OVER, PEER_ONCE },
        /* Messages about files, which have rules of their own below */
        { IN(WORKER_MOVING), SYNC_FILE, PEER_SAME, PEER_ANY },
        { IN(WORKER_MOVING), SYNC_BIG, PEER_SAME, PEER_ANY },
        { IN(WORKER_MOVING), SYNC_CHUNKS_ARE, PEER_SAME, PEER_ANY },
        { IN(WORKER_MOVING), SYNC_WANT, PEER_SAME, PEER_ANY },
        { IN(WORKER_MOVING), SYNC_DATA, PEER_SAME, PEER_ANY },
        { IN(WORKER_MOVING), SYNC_BIG_END, PEER_SAME, PEER_ANY },
        { IN(WORKER_MOVING), SYNC_DONE, PEER_SAME, PEER_ANY },
        { IN(WORKER_MOVING), SYNC_GONE, PEER_SAME, PEER_ANY },
        { IN(GET_ASKED), SYNC_FILE, PEER_QUIET, PEER_ONCE },
        { IN(GET_ASKED), SYNC_GONE, PEER_QUIET, PEER_ONCE },
        { IN(GET_ASKED), SYNC_BIG, GET_COMING, PEER_ONCE },
        { IN(GET_COMING), SYNC_CHUNKS_ARE, PEER_SAME, PEER_ANY },
        { IN(GET_COMING), SYNC_DATA, PEER_SAME, PEER_ANY },
        { IN(GET_COMING), SYNC_BIG_END, PEER_QUIET, PEER_ONCE },
        { IN(PUT_OFFERED), SYNC_WANT, PEER_QUIET, PEER_ONCE },
        { IN(PUT_SENT), SYNC_DONE, PEER_QUIET, PEER_ONCE },
        { 0 },
};

/* For the text of a breach: which peer, and the phase it was in. */
static const struct {
        const char *who, *where;
} phases[PEER_N_PHASES] = {
        [PEER_QUIET] = { "The file worker", "that was not asked for" },
        [LINK_GREETING] = { "the box", "before WELCOME" },
        [LINK_LISTING] = { "the box", "in the middle of its list" },
        [LINK_READY] = { "the box", "that nobody asked for" },
        [LINK_STOPPING] = { "the box", "while it was told to stop" },
        [LINK_OVER] = { "the box", "after it said that it has stopped" },
        [CHANNEL_STARTING] = { "the box", "of an execution that it has not started" },
        [CHANNEL_ATTACHING] = { "the box", "of an execution before its state" },
        [CHANNEL_RUNNING] = { "the box", "of an execution that runs" },
        [CHANNEL_ENDED] = { "the box", "of an execution that has ended" },
        [CHANNEL_OVER] = { "the box", "of an execution that is over" },
        [TUNNEL_UP] = { "the box", "that nobody asked for" },
        [CONN_ASKED] = { "the box", "before it accepted the connection" },
        [CONN_OPEN] = { "the box", "on a connection that is open" },
        [CONN_ENDED] = { "the box", "behind the end of a connection" },
        [CONN_OVER] = { "the box", "on a connection that is over" },
        [RELAY_READY] = { "the relay", "that nobody asked for" },
        [QUESTION_ASKED] = { "the relay", "instead of an answer" },
        [STREAM_ASKED] = { "the relay", "before it accepted the stream" },
        [STREAM_OPEN] = { "the relay", "on a stream that is open" },
        [STREAM_ENDED] = { "the relay", "behind the end of a stream" },
        [STREAM_OVER] = { "the relay", "on a stream that is over" },
        [WORKER_GREETING] = { "The file worker", "before HELLO" },
        [WORKER_OPENING] = { "The file worker", "before READY" },
        [WORKER_SCANNING] = { "The file worker", "before the end of its manifest" },
        [WORKER_MOVING] = { "The file worker", "that was not asked for" },
        [WORKER_OVER] = { "The file worker", "after its last word" },
        [GET_ASKED] = { "The file worker", "instead of a file" },
        [GET_COMING] = { "The file worker", "in the middle of a file" },
        [PUT_OFFERED] = { "The file worker", "instead of what it wants of a file" },
        [PUT_SENT] = { "The file worker", "instead of its word that a file arrived" },
};

/* What: the payload of each frame that a box or a relay sends, field by field. */

enum field {
        F_END,
        F_UUID,
        F_U16,
        F_U32,
        F_U64,
        F_PID,
        F_COUNT,
        F_TIME,
        F_LENGTH,
        F_METHOD,
        F_ERROR,
        F_VERDICT,
        F_VALUE,
        F_STREAM,
        F_STATE,
        F_IF_ENDED, /* the fields behind it are there only when the state says so */
        F_CODE,
        F_SIGNAL,
        F_ENDING,
        F_REASON,
        F_TEXT,
        F_BYTES, /* at least one, up to the end */
};

static const struct {
        const char *what;
        uint8_t size;
        uint64_t min, max;
} fields[] = {
        [F_U16] = { "number", 2, 0, UINT16_MAX },
        [F_U32] = { "number", 4, 0, UINT32_MAX },
        [F_U64] = { "number", 8, 0, UINT64_MAX },
        [F_PID] = { "process id", 4, 0, INT32_MAX },
        [F_COUNT] = { "count of executions", 4, 0, BOX_MAX_EXECS },
        [F_TIME] = { "time", 8, 0, PEER_MAX_TIME },
        [F_LENGTH] = { "length, offset or limit", 8, 0, PEER_MAX_LENGTH },
        [F_METHOD] = { "kill method", 1, BOX_KILL_CGROUP, BOX_KILL_SUBREAPER },
        [F_ERROR] = { "error code", 2, 1, UINT16_MAX },
        [F_VERDICT] = { "code", 2, 0, 2 },
        [F_VALUE] = { "value", 1, 0, 1 },
        [F_STREAM] = { "stream", 1, BOX_STDOUT, BOX_STDERR },
        [F_STATE] = { "state", 1, BOX_RUNNING, BOX_ENDED },
        [F_SIGNAL] = { "signal", 1, 0, 64 },
        [F_ENDING] = { "set of flags", 1, 0,
                       BOX_EXIT_TIMED_OUT | BOX_EXIT_STOPPED | BOX_EXIT_INCOMPLETE |
                               BOX_EXIT_OUTPUT | BOX_EXIT_DISK_FULL },
        [F_REASON] = { "reason", 1, TUNNEL_RESET_PEER, TUNNEL_RESET_LIMIT },
};

#define EXIT_FIELDS F_CODE, F_SIGNAL, F_ENDING, F_TIME, F_LENGTH, F_LENGTH

static const struct layout {
        const char *name;
        bool is_ours; /* no box and no relay sends it */
        uint8_t fields[16];
} layouts[] = {
        [FRAME_HELLO] = { "HELLO", true },
        [FRAME_WELCOME] = { "WELCOME",
                            false,
                            { F_U16, F_U32, F_UUID, F_PID, F_METHOD, F_LENGTH, F_COUNT } },
        [FRAME_PING] = { "PING", false, { F_U64 } },
        [FRAME_PONG] = { "PONG", false, { F_U64 } },
        [FRAME_LIST] = { "LIST", true },
        [FRAME_LISTED] = { "LISTED", false, { F_COUNT } },
        [FRAME_STOP_BY] = { "STOP_BY", true },
        [FRAME_STOP] = { "STOP", true },
        [FRAME_STOPPED] = { "STOPPED", false, { F_END } },
        [FRAME_ERROR] = { "ERROR", false, { F_ERROR, F_TEXT } },
        [FRAME_CONT] = { "CONT", true },
        [FRAME_START] = { "START", true },
        [FRAME_STARTED] = { "STARTED", false, { F_PID, F_TIME, F_METHOD } },
        [FRAME_ATTACH] = { "ATTACH", true },
        [FRAME_STATE] = { "STATE",
                          false,
                          { F_UUID, F_STATE, F_PID, F_TIME, F_LENGTH, F_LENGTH, F_LENGTH,
                            F_IF_ENDED, EXIT_FIELDS } },
        [FRAME_DATA] = { "DATA", false, { F_STREAM, F_LENGTH, F_BYTES } },
        [FRAME_GREW] = { "GREW", false, { F_STREAM, F_LENGTH } },
        [FRAME_ACK] = { "ACK", true },
        [FRAME_STDIN] = { "STDIN", true },
        [FRAME_TAKEN] = { "TAKEN", false, { F_LENGTH, F_LENGTH } },
        [FRAME_SIGNAL] = { "SIGNAL", true },
        [FRAME_RESIZE] = { "RESIZE", true },
        [FRAME_EXIT] = { "EXIT", false, { EXIT_FIELDS } },
        [FRAME_FORGET] = { "FORGET", true },
        [FRAME_FAILED] = { "FAILED", false, { F_ERROR, F_TEXT } },
        [FRAME_LISTEN] = { "LISTEN", true },
        [FRAME_LISTENING] = { "LISTENING", false, { F_UUID, F_U16, F_U16, F_TEXT } },
        [FRAME_UNLISTEN] = { "UNLISTEN", true },
        [FRAME_OPEN] = { "OPEN", false, { F_UUID, F_LENGTH } },
        [FRAME_ACCEPT] = { "ACCEPT", false, { F_LENGTH } },
        [FRAME_BYTES] = { "BYTES", false, { F_LENGTH, F_BYTES } },
        [FRAME_WINDOW] = { "WINDOW", false, { F_LENGTH } },
        [FRAME_END] = { "END", false, { F_LENGTH } },
        [FRAME_RESET] = { "RESET", false, { F_REASON } },
        [FRAME_CONNECT] = { "CONNECT", true },
        [FRAME_RELAY] = { "RELAY", true }, /* only once, which is looked for before any frame */
        [FRAME_ASK] = { "ASK", true },
        [FRAME_ANSWER] = { "ANSWER", false, { F_VERDICT, F_VALUE, F_TEXT } },
};

static const char *const messages[] = {
        [SYNC_HELLO] = "HELLO",
        [SYNC_TREE] = "TREE",
        [SYNC_READY] = "READY",
        [SYNC_SCAN] = "SCAN",
        [SYNC_MANIFEST] = "MANIFEST",
        [SYNC_SCANNED] = "SCANNED",
        [SYNC_DIR] = "DIR",
        [SYNC_LINK] = "LINK",
        [SYNC_MODE] = "MODE",
        [SYNC_REMOVE] = "REMOVE",
        [SYNC_FILE] = "FILE",
        [SYNC_BIG] = "BIG",
        [SYNC_CHUNKS_ARE] = "CHUNKS_ARE",
        [SYNC_WANT] = "WANT",
        [SYNC_DATA] = "DATA",
        [SYNC_BIG_END] = "BIG_END",
        [SYNC_DONE] = "DONE",
        [SYNC_GET] = "GET",
        [SYNC_GONE] = "GONE",
        [SYNC_FINISH] = "FINISH",
        [SYNC_FINISHED] = "FINISHED",
        [SYNC_FAIL] = "FAIL",
        [SYNC_CLEAR] = "CLEAR",
        [SYNC_ALIVE] = "ALIVE",
};

const char *peer_frame_name(uint8_t type)
{
        return type < ARRAY_LEN(layouts) ? layouts[type].name : NULL;
}

static int number_fits(struct frame_in *f, enum field field, uint64_t *ret)
{
        uint64_t value = 0;

        if (field == F_CODE) { /* -1: none */
                value = frame_get_u32(f);
                return (int32_t)value >= -1;
        }
        for (uint8_t i = 0; i < fields[field].size; i++)
                value = value << 8 | frame_get_u8(f);
        *ret = value;
        return value >= fields[field].min && value <= fields[field].max;
}

int peer_frame_fits(const struct frame_header *h, const void *payload, struct err *err)
{
        const struct layout *layout = h->type < ARRAY_LEN(layouts) ? &layouts[h->type] : NULL;
        uint64_t state = 0;
        struct frame_in f;

        if (!layout || !layout->name)
                return err_set(err, ERR_INVALID, "a frame of type %u, which does not exist",
                               h->type);
        if (layout->is_ours)
                return err_set(err, ERR_INVALID, "%s, which only a host sends", layout->name);
        frame_in_init(&f, payload, h->len);
        for (const uint8_t *at = layout->fields; *at != F_END; at++) {
                uint8_t uuid[FRAME_UUID];
                uint64_t value = 0;

                if (*at == F_IF_ENDED && state != BOX_ENDED)
                        break;
                if (*at == F_UUID)
                        frame_get_uuid(&f, uuid);
                else if (*at == F_TEXT)
                        (void)frame_get_str(&f);
                else if (*at == F_BYTES)
                        f.bad = f.bad || frame_get_blob(&f).len == 0;
                else if (*at != F_IF_ENDED && !number_fits(&f, *at, &value) && !f.bad)
                        return err_set(err, ERR_INVALID, "%s with a %s out of its range",
                                       layout->name,
                                       *at == F_CODE ? "exit code" : fields[*at].what);
                if (*at == F_STATE)
                        state = value;
        }
        if (frame_in_end(&f, err) < 0)
                return err_wrap(err, ERR_INVALID, "%s", layout->name);
        return 0;
}

static int report_breach(enum peer_phase phase, uint8_t type, struct err *err)
{
        bool is_worker = phase == PEER_QUIET || phase >= WORKER_GREETING;
        const char *name = !is_worker                   ? peer_frame_name(type)
                           : type < ARRAY_LEN(messages) ? messages[type]
                                                        : NULL;

        return err_set(err, ERR_INVALID, "%s sent %s %s", phases[phase].who,
                       name ? name : "something", phases[phase].where);
}

int peer_move(enum peer_phase *phase, uint8_t type, unsigned *asked, struct err *err)
{
        const struct peer_rule *rule = peer_rules;

        while (rule->phases && !(rule->type == type && rule->phases & PEER_IN(*phase)))
                rule++;
        if (!rule->phases || (rule->often == PEER_ASKED && (!asked || *asked == 0)))
                return report_breach(*phase, type, err);
        if (rule->often == PEER_ASKED)
                --*asked;
        if (rule->next != PEER_SAME)
                *phase = rule->next;
        return 0;
}
