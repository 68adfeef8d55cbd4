/* `berth leaks`: what exists without a record, what is recorded without existing, and what waits to
 * be cleaned up. Empty is the normal answer, and the exit status says whether it is. */
#include "base/uuid.h"
#include "cli/command.h"
#include "cli/output.h"

/* What a place is to a person: who provides it, what it is called there, and what was noted. */
static const char *what_of(struct cli *c, const json_t *item)
{
        const char *provider = cli_text(item, "provider");
        const char *name = cli_text(item, "providerLeaseId");
        const char *note = cli_text(item, "note");

        if (!*provider)
                provider = cli_text(item, "driver");
        if (!*name)
                name = cli_text(item, "description");
        return cli_printf(c, "%s%s%s%s%s%s", provider, *name ? " " : "", name, *note ? " (" : "",
                          note, *note ? ")" : "");
}

/* Things that no record names have no place, but carry the tag of one. */
static void add_rows(struct cli *c, struct table *t, const char *kind, const json_t *list)
{
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item)
        {
                const char *place = cli_text(item, "placeId");

                table_row(t, (const char *[]){ kind, *place ? place : cli_text(item, "ownerTag"),
                                               cli_text(item, "since"), what_of(c, item),
                                               cli_text(item, "nextStep") });
        }
}

static void print_not_listable(const json_t *leaks)
{
        CLEAN(buf_done) struct buf names = BUF_INIT;
        json_t *name;
        size_t i;

        json_array_foreach(json_object_get(leaks, "notListable"), i, name)
        {
                buf_appendf(&names, "%s%s", i ? ", " : "", json_string_value(name));
        }
        if (names.len > 0)
                out_note("note: cannot be asked what they run: %s", buf_str(&names));
}

static int run_leaks(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        static const struct column columns[] = {
                { "KIND", COLUMN_STATE }, { "PLACE", COLUMN_ID },       { "SINCE", COLUMN_TIME },
                { "WHAT", COLUMN_TEXT },  { "NEXT STEP", COLUMN_TEXT },
        };
        CLEAN(table_done) struct table t;
        json_t *leaks;
        bool any;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = cli_call(c, "GET", "/api/leaks", NULL, &leaks, err);
        if (r < 0)
                return r;
        add_rows(c, &t, "unknown", json_object_get(leaks, "unknown"));
        add_rows(c, &t, "missing", json_object_get(leaks, "missing"));
        add_rows(c, &t, "uncertain", json_object_get(leaks, "uncertain"));
        add_rows(c, &t, "clean-up due", json_object_get(leaks, "cleanupDue"));
        any = t.n_rows > 0 || json_integer_value(json_object_get(leaks, "total")) > 0;
        if (c->json) {
                out_json(leaks);
                return any ? 1 : 0;
        }
        table_print(&t, any ? NULL : "no leaks");
        print_not_listable(leaks);
        return any ? 1 : 0;
}

/* The whole id of a place that the list of leaks shows; a whole one is taken as it is. */
static int place_id(struct cli *c, const char *given, const char **ret_id, struct err *err)
{
        static const char *const lists[] = { "missing", "uncertain", "cleanupDue" };
        json_t *places = cli_keep(c, json_array());
        json_t *leaks, *item, *place;
        size_t i;
        int r;

        *ret_id = given;
        if (uuid_is_valid(given))
                return 0;
        r = cli_call(c, "GET", "/api/leaks", NULL, &leaks, err);
        if (r < 0)
                return r;
        for (size_t l = 0; l < ARRAY_LEN(lists); l++)
                json_array_foreach(json_object_get(leaks, lists[l]), i, item) json_array_append_new(
                        places, json_pack("{s:s}", "id", cli_text(item, "placeId")));
        r = cli_pick("place among the leaks", places, given, NULL, NULL, &place, err);
        if (r >= 0)
                *ret_id = cli_text(place, "id");
        return r;
}

static int place_action(struct cli *c, const struct args *a, const char *action, json_t *take_body,
                        const char *done, struct err *err)
{
        json_t *body = cli_keep(c, take_body);
        json_t *answer;
        const char *id;
        int r;

        r = place_id(c, a->words[0], &id, err);
        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/places/%s/%s", cli_escape(c, id), action),
                             json_incref(body), &answer, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(answer);
        else
                out_line("%s %s", done, id);
        return 0;
}

static int run_forget(struct cli *c, const struct args *a, struct err *err)
{
        return place_action(c, a, "forget", json_object(), "forgot", err);
}

static int run_close(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_pack("{s:b}", "takeOver", args_flag(a, "take-over"));

        return place_action(c, a, "close", body, "closed", err);
}

#define SOME_PLACE "$(berth leaks --json | jq -r '.uncertain[0].placeId')"

static const struct cli_command forget = {
        .name = "forget",
        .synopsis = "PLACE",
        .summary = "Drop the record of a place that is known to be gone",
        .notes = "Touches nothing in the world. Look first: what is forgotten is no longer cleaned "
                 "up.",
        .example = "berth leaks forget " SOME_PLACE,
        .run = run_forget,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_option close_options[] = {
        { "take-over", 0, OPTION_FLAG, NULL,
          "also when it belongs to an instance that is gone for good" },
        { 0 },
};

static const struct cli_command close_place = {
        .name = "close",
        .synopsis = "PLACE [--take-over]",
        .summary = "Ask the provider now to give a place up",
        .options = close_options,
        .example = "berth leaks close " SOME_PLACE,
        .run = run_close,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_leaks = {
        .name = "leaks",
        .synopsis = "",
        .summary = "Show where record and world disagree",
        .notes = "Exit status 0 and 'no leaks' when they agree, 1 when they do not.",
        .example = "berth leaks",
        .sub = (const struct cli_command *const[]){ &forget, &close_place, NULL },
        .run = run_leaks,
};
