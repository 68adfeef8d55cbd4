/* What a command prints: tables, labelled values and JSON on standard output.
 *
 * On a terminal states have colours (unless NO_COLOR is set), times are relative and long last
 * columns are cut to the width. In a pipe the same columns come whole, without colours. Columns are
 * padded with spaces, never with tabs. Ids are always whole, to be copied. Everything that came
 * from elsewhere is printed with its control characters replaced, so that no name can steer the
 * terminal.
 *
 * One thread. */
#pragma once

#include "base/buf.h"
#include "base/util.h"
#include "codec/json.h"

enum column_kind {
        COLUMN_TEXT,
        COLUMN_ID,    /* never cut */
        COLUMN_STATE, /* coloured by meaning */
        COLUMN_TIME,  /* ISO time; "5m ago" on a terminal */
        COLUMN_JSON,  /* of labelled values only: indented beneath the label */
};

struct column {
        const char *title;
        enum column_kind kind;
};

struct table {
        const struct column *columns;
        size_t n_columns;
        char **cells; /* owned, row by row */
        size_t n_rows;
};

void table_init(struct table *t, const struct column *columns, size_t n_columns);
void table_done(struct table *t);
/* n_columns texts; NULL and "" show as "-". */
void table_row(struct table *t, const char *const *cells);
/* Prints `none` when there are no rows. */
void table_print(const struct table *t, const char *none);

/* "Label:   value" lines; the label is padded. NULL and "" show as "-". */
void out_label(const char *label, enum column_kind kind, const char *value);
/* A JSON value beneath a label, indented. */
void out_label_json(const char *label, const json_t *value);

/* Pretty-printed with two spaces, keys in the order of the answer. NULL prints null. */
void out_json(const json_t *value);

/* One line on standard output, sanitised; a note goes to standard error so that pipes stay clean.
 */
void out_line(const char *fmt, ...) PRINTF(1, 2);
void out_note(const char *fmt, ...) PRINTF(1, 2);
/* A text of several lines, each as out_line() prints it. */
void out_lines(const char *text);
/* `berth: <text>` on standard error. */
void out_error(const char *text);

/* A scalar as text: strings as they are, null as "". Heap. */
char *out_scalar(const json_t *value);

bool out_is_terminal(void);
/* Wrap in the colour of a state when colours are on: prints to standard output. */
void out_state(const char *state, const char *text);

/* Replace in place the bytes that control a terminal, and return s. */
char *out_sanitize(char *s);
/* The same for output of several lines: bytes that control a terminal are left out, but line ends
 * and tabs stay. `text` does not end within a character (utf8_unfinished()). */
void out_plain(struct buf *to, const char *text, size_t n);
