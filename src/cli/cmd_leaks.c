/* `berth leaks`: places that exist without a record, places that are recorded without existing, and
 * places that wait to be cleaned up. Empty is the normal answer, and the exit status says whether
 * it is. */
#include "cli/command.h"

/* A place in words for people: its provider, its name there, and what was noted. */
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
static const char *place_of(struct cli *c UNUSED, const json_t *item)
{
        const char *place = cli_text(item, "placeId");

        return *place ? place : cli_text(item, "ownerTag");
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

int cmd_leaks(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        static const struct {
                const char *list, *kind;
        } lists[] = { { "unknown", "unknown" },
                      { "missing", "missing" },
                      { "uncertain", "uncertain" },
                      { "cleanupDue", "clean-up due" } };
        json_t *leaks, *item, *rows = cli_keep(c, json_array());
        size_t i;
        int r = cli_call(c, "GET", "/api/leaks", NULL, &leaks, err);

        if (r < 0)
                return r;
        for (size_t l = 0; l < ARRAY_LEN(lists); l++)
                json_array_foreach(json_object_get(leaks, lists[l].list), i, item)
                {
                        json_t *row = json_copy(item);

                        json_object_set_new(row, "kind", json_string(lists[l].kind));
                        json_array_append_new(rows, row);
                }
        bool any = json_array_size(rows) > 0 ||
                   json_integer_value(json_object_get(leaks, "total")) > 0;
        if (c->json) {
                out_json(leaks);
                return any ? 1 : 0;
        }
        list_print(c, rows,
                   FIELDS({ "KIND", "kind", COLUMN_STATE },
                          { "PLACE", .kind = COLUMN_ID, .text = place_of },
                          { "SINCE", "since", COLUMN_TIME }, { "WHAT", .text = what_of },
                          { "NEXT STEP", "nextStep" }),
                   any ? NULL : "no leaks");
        print_not_listable(leaks);
        return any ? 1 : 0;
}

/* A place that the list of leaks shows, by a part of its id. */
static int find_place(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        static const char *const lists[] = { "missing", "uncertain", "cleanupDue" };
        json_t *places = cli_keep(c, json_array());
        json_t *leaks, *item;
        size_t i;
        int r = cli_call(c, "GET", "/api/leaks", NULL, &leaks, err);

        if (r < 0)
                return r;
        for (size_t l = 0; l < ARRAY_LEN(lists); l++)
                json_array_foreach(json_object_get(leaks, lists[l]), i, item) json_array_append_new(
                        places, json_pack("{s:s}", "id", cli_text(item, "placeId")));
        return cli_pick(&(const struct cli_kind){ .what = "place among the leaks" }, places, given,
                        ret, err);
}

static const struct cli_kind kind_place = {
        .what = "place",
        .path = "/api/places",
        .find = find_place,
};

#define SOME_PLACE "$(berth leaks --json | jq -r '.uncertain[0].placeId')"

const struct cli_command leaks_commands[] = {
        { "forget", "PLACE", "Drop the record of a place that is known to be gone",
          "berth leaks forget " SOME_PLACE, .words = 1,
          .notes =
                  "Touches nothing in the world. Look first: what is forgotten is no longer cleaned "
                  "up.",
          .act = { &kind_place, "POST", "/forget", .by_id = true, .done = "forgot" } },
        { "close", "PLACE [--take-over]", "Ask the provider now to give a place up",
          "berth leaks close " SOME_PLACE, .words = 1,
          .options = OPTIONS({ "take-over", NULL,
                               "also when it belongs to an instance that is gone for good" }),
          .act = { &kind_place, "POST", "/close", .by_id = true,
                   .members = MEMBERS({ "takeOver", "take-over", MEMBER_BOOL }),
                   .done = "closed" } },
        { 0 },
};
