/* Log lines on standard error: one event, one line, key=value or JSON.
 *
 *     log_info("lease released", LOG_S("lease", id), LOG_I("ms", elapsed));
 *     ts=2026-05-10T10:00:00.000Z level=info msg="lease released" lease=… ms=3
 *
 * Each call site may write LOG_BURST lines in LOG_WINDOW_MS; further lines are counted and reported
 * with the next line that passes (`suppressed=`), so a flood of one kind never hides the others.
 * Values are escaped and made valid UTF-8: nothing a caller passes can start a new line, and every
 * line is complete. Keys are literals. Never pass a secret.
 *
 * Any thread after log_init(); before it, level info and key=value. */
#pragma once

#include <stdatomic.h>

#include "base/util.h"

#define LOG_BURST     20
#define LOG_WINDOW_MS 10000
#define LOG_VALUE_MAX 2048 /* bytes of one message or value as written; the rest becomes "…" */
#define LOG_LINE_MAX  8192 /* bytes of one line; fields that do not fit are left out */

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
        const char *key;
        const char *text; /* NULL: number is meant */
        int64_t number;
};

struct log_site {
        _Atomic int64_t window_start_ms;
        _Atomic int count;
        _Atomic int suppressed;
};

void log_init(enum log_level level, enum log_format format);

void log_write(struct log_site *site, enum log_level level, const char *msg,
               const struct log_field *fields, size_t n_fields);

/* A function rather than ?: in the macro, so that an array (a uuid, an error's text) is fine too.
 */
static inline const char *log_text(const char *value)
{
        return value ? value : "";
}

#define LOG_S(key, value)                                                                          \
        (struct log_field)                                                                         \
        {                                                                                          \
                key, log_text(value), 0                                                            \
        }
#define LOG_I(key, value)                                                                          \
        (struct log_field)                                                                         \
        {                                                                                          \
                key, NULL, (int64_t)(value)                                                        \
        }

#define LOG_AT(level, msg, ...)                                                                    \
        do {                                                                                       \
                static struct log_site site_;                                                      \
                const struct log_field fields_[] = { { NULL, NULL, 0 }, ##__VA_ARGS__ };           \
                log_write(&site_, level, msg, fields_ + 1, ARRAY_LEN(fields_) - 1);                \
        } while (0)

#define log_debug(msg, ...) LOG_AT(LOG_LEVEL_DEBUG, msg, ##__VA_ARGS__)
#define log_info(msg, ...)  LOG_AT(LOG_LEVEL_INFO, msg, ##__VA_ARGS__)
#define log_warn(msg, ...)  LOG_AT(LOG_LEVEL_WARN, msg, ##__VA_ARGS__)
#define log_error(msg, ...) LOG_AT(LOG_LEVEL_ERROR, msg, ##__VA_ARGS__)
