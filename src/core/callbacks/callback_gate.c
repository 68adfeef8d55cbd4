/* One request that came through a channel: the checks before it counts as the agent's, in their
 * order. */
#define _GNU_SOURCE
#include <sodium.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/callbacks/callback_internal.h"
#include "core/callbacks/callback_routes.h"

struct callback_pass {
        struct channel *channel;
        int64_t started_us;
        char method[8];
        char path[NOTE_PATH_MAX + 1];
};

static void refuse_request(struct callback_refusal *why, int status, const char *text)
{
        why->status = status;
        snprintf(why->text, sizeof(why->text), "%s", text);
}

/* An agent that goes on asking must not fill the log. */
static void log_once(struct channel *c, enum refusal kind, const struct callback_refusal *why)
{
        if (c->refusals & 1U << kind)
                return;
        c->refusals |= 1U << kind;
        log_warn("a callback was refused; more of this kind will not be told",
                 LOG_S("run", c->run_id), LOG_I("status", why->status), LOG_S("error", why->text));
}

static bool token_fits(const struct channel *c, const char *authorization)
{
        const char *given = authorization;

        if (!given || strncasecmp(given, "Bearer ", 7) != 0)
                return false;
        given += 7;
        return strlen(given) == CHANNEL_TOKEN_LEN &&
               sodium_memcmp(given, c->token, CHANNEL_TOKEN_LEN) == 0;
}

static bool rate_allows(struct channel *c)
{
        int64_t now = clock_mono_us();

        c->tokens += (double)(now - c->tokens_at) * CALLBACK_RATE / (double)US_PER_S;
        c->tokens = MIN(c->tokens, (double)CALLBACK_BURST);
        c->tokens_at = now;
        if (c->tokens < 1)
                return false;
        c->tokens -= 1;
        return true;
}

static bool has_json(const char *content_type)
{
        return content_type && strcasestr(content_type, "json");
}

/* What is wrong with the request itself. */
static bool request_fits(struct channel *c, const struct callback_head *head,
                         struct callback_refusal *why)
{
        const char *problem = head->is_absolute ? "The target is a whole URL."
                                                : callback_path_problem(head->path);
        enum refusal kind = REFUSED_PATH;

        why->status = 0;
        if (problem) {
                refuse_request(why, 400, problem);
        } else if (!callback_route_allowed(head->method, head->path)) {
                kind = REFUSED_ROUTE;
                why->status = 403;
                snprintf(why->text, sizeof(why->text), "Route not allowed: %s %s", head->method,
                         head->path);
        } else if (!streq(head->method, "GET") && !has_json(head->content_type)) {
                kind = REFUSED_TYPE;
                refuse_request(why, 415, "Bridge only accepts JSON request bodies.");
        }
        if (why->status)
                log_once(c, kind, why);
        return why->status == 0;
}

static struct channel *find_via(struct callback_host *host, const void *via)
{
        struct channel *c = host ? host->channels : NULL;

        while (c && c->number != (uintptr_t)via)
                c = c->next;
        return c;
}

/* Whether the request shows the channel's token, and whether there is room for it. */
static bool gate_admits(struct channel *c, const struct callback_head *head,
                        struct callback_refusal *why)
{
        enum refusal kind;

        if (c->closing || !token_fits(c, head->authorization)) {
                kind = REFUSED_TOKEN;
                refuse_request(why, 401, "Invalid bridge token.");
        } else if (c->in_flight >= CALLBACK_IN_FLIGHT) {
                kind = REFUSED_FULL;
                refuse_request(why, 503, CALLBACK_TEXT_FULL);
        } else if (!rate_allows(c)) {
                kind = REFUSED_RATE;
                refuse_request(why, 429, "Too many requests from this run; slow down.");
        } else {
                return true;
        }
        log_once(c, kind, why);
        return false;
}

struct callback_pass *callback_enter(struct callback_host *host, const void *via,
                                     const struct callback_head *head,
                                     struct callback_refusal *ret_why)
{
        struct channel *c = find_via(host, via);
        struct callback_pass *pass;

        if (!c) {
                refuse_request(ret_why, 401, "Invalid bridge token.");
                return NULL;
        }
        if (!gate_admits(c, head, ret_why))
                return NULL;
        atomic_fetch_add(&c->count, 1);
        if (!request_fits(c, head, ret_why)) {
                callback_note_add(c, head->method, head->path, ret_why->status, clock_mono_us());
                return NULL;
        }
        c->in_flight++;
        pass = xcalloc(1, sizeof(*pass));
        pass->channel = c;
        pass->started_us = clock_mono_us();
        snprintf(pass->method, sizeof(pass->method), "%s", head->method);
        snprintf(pass->path, sizeof(pass->path), "%s", head->path);
        return pass;
}

const struct callback_identity *callback_pass_identity(const struct callback_pass *pass)
{
        return &pass->channel->identity;
}

void callback_leave(struct callback_pass *take_pass, int status)
{
        struct channel *c = take_pass->channel;

        c->in_flight--;
        c->last_answer_ms = clock_mono_ms();
        callback_note_add(c, take_pass->method, take_pass->path, status, take_pass->started_us);
        if (c->closing)
                callback_stir(c->host);
        free(take_pass);
}

void callback_note(struct callback_host *host, const char *run_id, const char *method,
                   const char *path, int status, int64_t started_us)
{
        struct channel *c = host ? callback_find(host, run_id) : NULL;

        if (!c)
                return;
        atomic_fetch_add(&c->count, 1);
        callback_note_add(c, method, path, status, started_us);
}
