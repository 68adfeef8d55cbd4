/* An agent with a configuration, and what its adapter makes of it. */
#pragma once

#include "test.h"

#include "core/adapters/adapter_run.h"
#include "core/kinds/kind.h"

struct adapter_fixture {
        struct arena arena;
        struct op op;
        struct agent agent;
        struct adapter_input in;
        struct adapter_command command;
        json_t *config, *context, *session, *identity;
};

static inline json_t *fixture_json(const char *text)
{
        json_t *value = NULL;

        if (text)
                assert_int_equal(json_parse(text, strlen(text), &value, NULL), 0);
        return value;
}

/* `kind` is local, ssh or sandbox; JSON texts may be NULL. */
static inline void fixture_init(struct adapter_fixture *f, const char *type, const char *kind,
                                const char *config)
{
        static const struct runtime kinds = { .kinds = builtin_kinds };

        *f = (struct adapter_fixture){ 0 };
        arena_init(&f->arena);
        f->op = (struct op){ .arena = &f->arena, .deadline_ms = OP_NO_DEADLINE };
        f->config = fixture_json(config ? config : "{}");
        f->agent = (struct agent){ .id = "agent-1", .company_id = "company-1", .name = "Ada" };
        f->in = (struct adapter_input){ .type = type,
                                        .config = f->config,
                                        .agent = &f->agent,
                                        .company_name = "Acme",
                                        .run_id = "run-1",
                                        .run_at = INT64_C(1778407200123456),
                                        .target = { .kind = kind_find(&kinds, kind, NULL),
                                                    .cwd = "/w" } };
        if (streq(kind, "ssh"))
                f->identity = fixture_json("{\"transport\":\"ssh\",\"host\":\"h\",\"port\":22,"
                                           "\"username\":\"u\",\"remoteCwd\":\"/w\"}");
        if (streq(kind, "sandbox"))
                f->identity = fixture_json("{\"transport\":\"sandbox\",\"providerKey\":\"berth\","
                                           "\"environmentId\":\"e\",\"leaseId\":\"l\","
                                           "\"remoteCwd\":\"/w\"}");
        f->in.target.identity = f->identity;
}

static inline void fixture_context(struct adapter_fixture *f, const char *text)
{
        f->context = fixture_json(text);
        f->in.context = f->context;
}

/* A session that was saved in the same place. */
static inline void fixture_session(struct adapter_fixture *f, const char *id)
{
        f->session = json_pack("{s:s, s:s, s:O*}", "sessionId", id, "cwd", "/w", "remoteExecution",
                               f->identity);
        f->in.session = f->session;
}

static inline int fixture_build(struct adapter_fixture *f, struct err *err)
{
        return adapter_build(&f->op, NULL, &f->in, false, &f->command, err);
}

static inline void fixture_done(struct adapter_fixture *f)
{
        arena_done(&f->arena);
        json_decref(f->config);
        json_decref(f->context);
        json_decref(f->session);
        json_decref(f->identity);
}
