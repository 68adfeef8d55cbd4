/* Finding the first API address that answers. */
#include "core/kinds/ssh/ssh_note.h"

#include "codec/json.h"
#include "secret/transfer.h"

#define CANDIDATES_MAX 8
#define CONNECT_MS     1000
#define TOTAL_MS       2000

static bool answers(struct op *op, const char *base)
{
        struct transfer_answer answer = { 0 };
        size_t len = strlen(base);
        struct transfer t = {
                .method = "GET",
                .connect_ms = CONNECT_MS,
                .total_ms = TOTAL_MS,
                .direct = true,
        };
        bool good;

        while (len > 0 && base[len - 1] == '/')
                len--;
        t.url = arena_printf(op->arena, "%.*s/api/health", (int)len, base);
        if (transfer_run(op, &t, &answer, NULL) < 0)
                return false;
        good = answer.status == 200;
        transfer_answer_done(&answer);
        return good;
}

const char *ssh_note_api_url(struct op *op, const struct runtime *rt)
{
        const char *text = rt->settings.api_candidates, *found = NULL;
        json_t *list = NULL, *item;
        size_t i;

        if (!text || json_parse(text, strlen(text), &list, NULL) < 0)
                return NULL;
        json_array_foreach(list, i, item)
        {
                const char *base = json_string_value(item);

                if (i >= CANDIDATES_MAX || found)
                        break;
                if (base && answers(op, base))
                        found = arena_strdup(op->arena, base);
        }
        json_decref(list);
        return found;
}
