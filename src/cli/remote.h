/* A command that runs in a lease, seen from here: start it, follow it, speak to it.
 *
 * The command belongs to the daemon and its box; this process only watches. So a connection that
 * breaks ends nothing: output has offsets, and the stream of events is taken up again where it
 * was; input carries its offset too and may be sent twice; starting carries a key. Every byte comes
 * out exactly once, whatever happens to the daemon in between.
 *
 * Three connections (client/flow.h), one poll() loop: events; input, which waits while the command
 * does not read; and the rest: signals, terminal size, renewals. Output that cannot be written now
 * waits here, at most about a megabyte, and then nothing more is read from the daemon.
 *
 *     remote_options()  what the command line says        remote_start.c
 *     remote_start()    POST .../execute                  remote_start.c
 *     remote_follow()   until it has ended                remote_follow.c
 *     remote_status()   what to exit with                 remote_follow.c
 *
 * One thread. */
#pragma once

#include "cli/command.h"
#include "client/flow.h"
#include "codec/sse.h"

#define REMOTE_TIMED_OUT 124 /* as timeout(1) ends */

struct remote_spec {
        const char *lease_id;
        const char *command;
        const char *const *args;
        size_t n_args;
        const char *cwd;      /* NULL: the driver's choice */
        json_t *env;          /* borrowed object of strings, or NULL */
        const char *agent_id; /* the agent whose variables it gets; NULL: of no agent */
        int64_t timeout_ms;
        bool terminal;
        bool forward_stdin;
        bool watch_only;   /* only look: no input, signals mean us */
        bool all_to_error; /* standard output is needed for something else */
        int64_t renew_ms;  /* keep the lease alive by this time to live; 0: no */
        /* Called before each attempt to reach a daemon that went away, or NULL. */
        void (*revive)(struct cli *c);
};

struct remote_stream {
        int fd;       /* -1: the bytes are dropped */
        size_t piece; /* bytes that one write may take without blocking for long */
        struct buf waiting;
        size_t written;  /* of waiting; all of it is dropped at once, because moving is dear */
        uint64_t at;     /* offset after the last byte that came */
        bool plain;      /* without what steers a terminal */
        struct buf part; /* then: the beginning of a character whose rest has not come */
};

enum { REMOTE_MAX_SIGNALS = 8 };

struct remote {
        struct cli *c;
        struct berth *api;
        struct remote_spec spec;
        char id[40];
        int64_t pid;

        /* events and output */
        struct flow events;
        struct sse_decoder sse;
        struct buf refusal; /* the answer when it is no event stream */
        struct remote_stream out[2];
        bool write_failed;
        int watched;      /* with watch_only: the stream that counts */
        uint64_t stop_at; /* and where it is enough */
        int64_t heard_ms; /* when the daemon last said something */
        int64_t lost_ms, retry_ms,
                pause_ms;     /* while the connection is lost; lost_ms 0: it is not */
        int64_t reconnect_ms; /* how long to try */

        /* input */
        struct flow input;
        struct buf piece;  /* being sent */
        uint64_t piece_at; /* its offset */
        bool input_eof;    /* standard input has ended */
        bool eof_sent;     /* the piece under way says so */
        bool input_over;   /* nothing more to send */
        int64_t input_retry_ms;

        /* signals, size, renewals */
        struct flow control;
        int control_kind;
        int signals[REMOTE_MAX_SIGNALS];
        size_t n_signals;
        bool resized;
        int64_t renew_at_ms, control_retry_ms;
        int insisted; /* how often we were told to end it */
        int64_t insisted_ms;
        bool interrupted; /* by Ctrl-C */
        int gave_up;      /* the signal that made us leave, 0: none */

        /* the end */
        bool has_end;
        int exit_code; /* -1: none */
        int signal;    /* 0: none */
        bool timed_out, is_lost;
        bool is_incomplete; /* output is missing */
        char reason[512];

        int64_t started_us, first_output_us, ended_us; /* monotonic; 0: not yet */
};

/* -- remote_start.c -- */

/* Reads cwd, timeout, terminal, input and variables from the options of `lease exec` and `run`;
 * the command is words[first] and what follows. `variables` is the list option with K=V. */
int remote_options(struct cli *c, const struct args *a, size_t first, const char *variables,
                   struct remote_spec *ret, struct err *err);

/* --agent, once the daemon can be asked. */
int remote_agent(struct cli *c, const struct args *a, struct remote_spec *spec, struct err *err);

int remote_init(struct remote *m, struct cli *c, const struct remote_spec *spec, struct err *err);
void remote_done(struct remote *m);
/* ERR_UNPROCESSABLE when it could not be started; remote_refusal_status() then. */
int remote_start(struct remote *m, struct err *err);
/* How to exit when starting was refused: 126 and 127 as shells do, 0 when the error does not say.
 */
int remote_refusal_status(const struct err *err);

/* -- remote_follow.c -- */

/* 0 when the command has ended and all is written, or when we gave up (gave_up). */
int remote_follow(struct remote *m, struct err *err);
int remote_status(const struct remote *m);
/* On standard error: what a status alone does not say (time limit, a lost box). */
void remote_explain(const struct remote *m);
/* On a terminal only; in raw mode too. */
void remote_note(const char *fmt, ...) PRINTF(1, 2);
/* How to look at a command that goes on without us. */
void remote_say_how_to_look(const struct remote *m);

/* -- remote_input.c -- */

void remote_input_read(struct remote *m);
/* For a command that takes its input only at the start: all of standard input, which has to be
 * text. The lease is kept alive meanwhile. ERR_TOO_LARGE past a few megabytes. */
int remote_input_whole(struct remote *m, json_t **ret, struct err *err);
bool remote_wants_input(const struct remote *m);
void remote_input_step(struct remote *m);
void remote_control_step(struct remote *m);
/* Start what is due and can be sent. */
void remote_send(struct remote *m, int64_t now_ms);
void remote_signal(struct remote *m, int number);
