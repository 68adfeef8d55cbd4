/* Whatever an agent prints, in whatever pieces: a result within its bounds, which can be stored.
 * The first byte chooses the adapter, the second how the rest is cut. */
#include "core/adapters/adapter_parse.h"
#include "core/kinds/kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct adapter_parser *p, const struct adapter_result *res)
{
        CLEAN(cleanup_free) char *text = json_to_text(res->result_json);
        CLEAN(json_decrefp) json_t *again = NULL;

        if (p->text.len > ADAPTER_TEXT_MAX || p->trouble.len > ADAPTER_TROUBLE_MAX)
                abort();
        if (res->input_tokens < 0 || res->output_tokens < 0 || res->cached_input_tokens < 0)
                abort();
        if (json_parse_lenient(text, strlen(text), &again, NULL) < 0)
                abort();
        if (res->session_id && !json_get_string(res->session_params, "sessionId"))
                abort();
}

static void feed(struct adapter_parser *p, const char *data, size_t size, size_t piece)
{
        for (bool is_stderr = false; size > 0; is_stderr = !is_stderr) {
                size_t n = MIN(size, piece);

                adapter_parser_feed(p, is_stderr && (piece & 1), data, n);
                data += n;
                size -= n;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char *const types[] = { "claude_local",   "codex_local",
                                             "cursor",         "gemini_local",
                                             "opencode_local", "pi_local",
                                             "process",        "acp" };
        CLEAN(json_decrefp) json_t *records = json_array();
        struct agent agent = { .id = "a", .company_id = "c", .name = "n" };
        struct adapter_command command = { .cwd = "/w", .session_id = "old" };
        struct adapter_input in = { .agent = &agent,
                                    .target = { .kind = builtin_kinds[0], .cwd = "/w" } };
        struct adapter_exit end = { .code = size % 3 == 0 };
        struct adapter_result res;
        struct adapter_parser *p;
        struct arena arena = { 0 };

        if (size < 2)
                return 0;
        in.type = types[data[0] % ARRAY_LEN(types)];
        if (adapter_parser_new(NULL, &in, &command, &p, NULL) < 0)
                abort();
        feed(p, (const char *)data + 2, size - 2, 1 + (size_t)data[1]);
        end.was_asked = adapter_last_word(in.type, (const char *)data + 2, size - 2) > 0;
        adapter_transcript(in.type, (const char *)data + 2, size - 2, records);
        adapter_steps(in.type, (const char *)data + 2, size - 2, records);
        adapter_parser_finish(p, &end, &arena, &res);
        check(p, &res);
        adapter_parser_free(p);
        arena_done(&arena);
        return 0;
}
