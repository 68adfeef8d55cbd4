/* What Berth gathers from an agent's output during a run; adapter_parse.c gathers,
 * adapter_outcome.c turns it into a result. The output is hostile: every member has a bound. One
 * thread at a time. */
#pragma once

#include "core/adapters/adapter_internal.h"

#define ADAPTER_TEXT_MAX    ((size_t)256 << 10) /* of what the agent said */
#define ADAPTER_TROUBLE_MAX ((size_t)64 << 10)  /* of output that may explain a failure */
#define ADAPTER_EXCERPT_MAX ((size_t)32 << 10)  /* of each stream, in the result */
#define ADAPTER_EVENT_MAX   ((size_t)256 << 10)

/* One of the output streams. */
struct adapter_lines {
        struct buf line;
        struct buf tail; /* the last bytes */
        bool skipping;   /* the line is too long */
};

struct adapter_parser {
        struct arena arena; /* what was known before */
        const struct adapter_descriptor *d;
        const json_t *output;
        struct adapter_input in; /* copied as far as it is needed */
        struct adapter_billing billing;
        const char *cwd, *resumed_id, *new_id, *method, *url;
        int64_t timeout_ms;
        bool is_http;

        struct adapter_lines out, err;
        struct buf text, trouble;
        struct buf session, model, summary, error, failure; /* the last one said */
        struct buf first_error;                             /* line of standard error */
        double input, cached, output_tokens, reasoning, cost;
        const json_t *totals; /* what the program counted in this session before; NULL: nothing */
        bool has_usage, has_cost;
        bool said_last;           /* the event marked `end` */
        json_t *event, *question; /* owned */
};

/* The paths of an event's `match` against an event. */
bool adapter_event_matches(const json_t *match, const json_t *event);
/* Whether a line has the texts that such an event must have: only then is it worth parsing. */
bool adapter_event_may_match(const json_t *match, const char *line, size_t len);
/* The offset of a line's event: after blanks, and after the name of the stream that some programs
 * put in front. */
size_t adapter_line_begin(const json_t *output, const char *line, size_t len);

/* One of the counters, by its name in descriptors; NULL: there is none of that name. */
double *adapter_counter(struct adapter_parser *p, const char *name);

/* adapter_outcome.c */
void adapter_outcome(struct adapter_parser *p, const struct adapter_exit *exit, struct arena *arena,
                     struct adapter_result *ret);
