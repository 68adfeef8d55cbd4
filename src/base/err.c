/* The table of error codes, and how an error's text is put together. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Macros for the analysers; see err.h. */
#undef err_set
#undef err_sys
#undef err_wrap

static const struct err_info table[] = {
        [-ERR_INTERNAL] = { "internal", 500, 1, true, false },
        [-ERR_INVALID] = { "invalid", 400, 1, false, false },
        [-ERR_UNAUTHORIZED] = { "unauthorized", 401, 4, false, false },
        [-ERR_FORBIDDEN] = { "forbidden", 403, 4, false, false },
        [-ERR_NOT_FOUND] = { "not_found", 404, 5, false, false },
        [-ERR_CONFLICT] = { "conflict", 409, 1, false, true },
        [-ERR_TOO_LARGE] = { "too_large", 413, 1, false, false },
        [-ERR_UNPROCESSABLE] = { "unprocessable", 422, 1, false, false },
        [-ERR_PROVIDER] = { "provider", 502, 1, false, false },
        [-ERR_BUSY] = { "busy", 503, 1, false, true },
        [-ERR_TIMEOUT] = { "timeout", 504, 1, false, true },
        [-ERR_CANCELLED] = { "cancelled", 503, 1, false, true },
        [-ERR_NOT_IMPLEMENTED] = { "not_implemented", 501, 1, false, false },
        [-ERR_IO] = { "io", 503, 1, true, true },
        [-ERR_CORRUPT] = { "corrupt", 500, 1, true, false },
        [-ERR_VERSION] = { "version", 500, 1, true, false },
        [-ERR_LOCKED] = { "locked", 409, 1, false, true },
        [-ERR_USAGE] = { "usage", 400, 2, false, false },
        [-ERR_UNREACHABLE] = { "unreachable", 502, 3, false, true },
        [-ERR_UNCERTAIN] = { "uncertain", 502, 1, false, true },
        [-ERR_THROTTLED] = { "throttled", 429, 1, false, true },
};

void err_done(struct err *err)
{
        free(err->details);
        err->details = NULL;
}

void err_clear(struct err *err)
{
        if (!err)
                return;
        err_done(err);
        err->code = 0;
        err->is_transient = false;
        err->msg[0] = '\0';
}

/* snprintf cuts at a byte; a half character would make the JSON around it invalid. */
static void trim_partial_utf8(char *s)
{
        size_t n = strlen(s), back = 0;

        while (back < 4 && back < n && ((unsigned char)s[n - 1 - back] & 0xc0) == 0x80)
                back++;
        if (back < n) {
                unsigned char lead = (unsigned char)s[n - 1 - back];
                size_t need = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;

                if (lead >= 0xc0 && back < need)
                        s[n - 1 - back] = '\0';
        }
}

/* By way of a copy: the arguments may point into the error that is about to be replaced. */
static void format_message(struct err *err, const char *fmt, va_list ap)
{
        char text[sizeof(err->msg)];
        int n = vsnprintf(text, sizeof(text), fmt, ap);

        if (n < 0)
                text[0] = '\0';
        if (n >= (int)sizeof(text))
                trim_partial_utf8(text);
        memcpy(err->msg, text, strlen(text) + 1);
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
        va_list ap;

        if (!err)
                return code;
        va_start(ap, fmt);
        format_message(err, fmt, ap);
        va_end(ap);
        err_done(err);
        err->code = code;
        err->is_transient = err_info(code)->is_transient;
        return code;
}

/* What the machine lacks for the moment. */
static bool is_want(int errno_value)
{
        static const int wants[] = { ENOSPC, EDQUOT, EIO,    EROFS,   EMFILE,
                                     ENFILE, ENOMEM, EAGAIN, ENOBUFS, EBUSY };

        for (size_t i = 0; i < ARRAY_LEN(wants); i++)
                if (wants[i] == errno_value)
                        return true;
        return false;
}

static int code_of_errno(int code, int errno_value)
{
        switch (errno_value) {
        case ENOSPC:
        case EDQUOT:
        case EIO:
        case EROFS:
                return ERR_IO;
        default:
                return code;
        }
}

int err_sys(struct err *err, int code, int errno_value, const char *fmt, ...)
{
        va_list ap;

        code = code_of_errno(code, errno_value);
        if (!err)
                return code;
        va_start(ap, fmt);
        format_message(err, fmt, ap);
        va_end(ap);
        err_done(err);
        err->code = code;
        err->is_transient =
                is_want(errno_value) || (code != ERR_IO && err_info(code)->is_transient);
        size_t used = strlen(err->msg);
        if (snprintf(err->msg + used, sizeof(err->msg) - used, ": %s", strerror(errno_value)) >=
            (int)(sizeof(err->msg) - used))
                trim_partial_utf8(err->msg);
        return code;
}

int err_wrap(struct err *err, int code, const char *fmt, ...)
{
        char inner[sizeof(err->msg)];
        va_list ap;

        if (!err)
                return code;
        memcpy(inner, err->msg, sizeof(inner));
        if (!err->code)
                err->is_transient = err_info(code)->is_transient;
        err->code = code;
        va_start(ap, fmt);
        format_message(err, fmt, ap);
        va_end(ap);
        size_t used = strlen(err->msg);
        if (!inner[0])
                return code;
        if (snprintf(err->msg + used, sizeof(err->msg) - used, ": %s", inner) >=
            (int)(sizeof(err->msg) - used))
                trim_partial_utf8(err->msg);
        return code;
}

void err_mark_transient(struct err *err)
{
        if (err)
                err->is_transient = true;
}

void err_details(struct err *err, char *take_json)
{
        if (!err) {
                free(take_json);
                return;
        }
        free(err->details);
        err->details = take_json;
}

void err_move(struct err *to, struct err *from)
{
        if (to) {
                err_done(to);
                *to = *from;
        } else {
                err_done(from);
        }
        *from = (struct err){ 0 };
}

const struct err_info *err_info(int code)
{
        if (code >= 0 || (size_t)-code >= ARRAY_LEN(table) || !table[-code].name)
                return &table[-ERR_INTERNAL];
        return &table[-code];
}
