/* `berth image`: getting images, and the progress of that; list, show, remove, prune. */
#include <stdio.h>
#include <unistd.h>

#include "cli/image.h"
#include "cli/output.h"

#define POLL_US   200000
#define BAR_WIDTH 24

static const struct cli_kind kind_image = {
        .what = "image",
        .command = "image",
        .path = "/api/companies/{company}/images",
        .fields = FIELDS({ "Reference", "reference" }, { "Id", "id", COLUMN_ID },
                         { "State", "state", COLUMN_STATE }, { "Digest", "digest", COLUMN_ID },
                         { "Size", .text = size_text }, { "Error", "error" },
                         { "Configuration", "config", COLUMN_JSON },
                         { "Last used", "usedAt", COLUMN_TIME },
                         { "Created", "createdAt", COLUMN_TIME }),
};

/* Progress */

struct progress {
        bool on_terminal;
        size_t drawn; /* lines above the cursor that are ours */
        json_t *last; /* what was said of each layer; NULL: nothing */
};

static double mebibytes(const json_t *layer, const char *key)
{
        return (double)json_integer_value(json_object_get(layer, key)) / (1 << 20);
}

static const char *short_digest(const json_t *layer)
{
        const char *digest = cli_text(layer, "digest");

        return str_starts(digest, "sha256:") ? digest + 7 : digest;
}

static void draw_bar(const json_t *layer)
{
        const char *state = cli_text(layer, "state");
        double total = mebibytes(layer, "total"), done = mebibytes(layer, "done");
        bool is_fetched = !streq(state, "fetching") && !streq(state, "waiting");
        int full = is_fetched ? BAR_WIDTH : total > 0 ? (int)(done / total * BAR_WIDTH) : 0;

        (void)fprintf(stderr, "\r\033[K%.12s [", short_digest(layer));
        for (int i = 0; i < BAR_WIDTH; i++)
                (void)fputc(i < full ? '#' : '.', stderr);
        (void)fprintf(stderr, "] %8.1f MiB  %s\n", total, state);
}

static void show_progress(struct progress *p, json_t *layers)
{
        json_t *layer;
        size_t i;

        if (p->on_terminal && p->drawn)
                (void)fprintf(stderr, "\033[%zuA", p->drawn);
        json_array_foreach(layers, i, layer)
        {
                const char *state = cli_text(layer, "state");

                if (p->on_terminal)
                        draw_bar(layer);
                else if (!streq(state, cli_text(json_array_get(p->last, i), "state")) &&
                         !streq(state, "waiting"))
                        out_note("%.12s %s (%.1f MiB)", short_digest(layer), state,
                                 mebibytes(layer, "total"));
        }
        if (p->on_terminal)
                p->drawn = MAX(json_array_size(layers), p->drawn);
        p->last = layers;
}

/* A daemon that does not answer for a moment does not end the pull. */
static int follow_image(struct cli *c, json_t *image, json_t **ret, struct err *err)
{
        struct progress p = { .on_terminal = isatty(STDERR_FILENO) && !c->json };
        const char *path;
        int r = cli_path(c, "/api/companies/{company}/images/{id}", cli_text(image, "id"), false,
                         &path, err);

        while (r >= 0 && streq(cli_text(image, "state"), "pulling")) {
                if (json_is_array(json_object_get(image, "progress")))
                        show_progress(&p, json_object_get(image, "progress"));
                (void)usleep(POLL_US);
                r = cli_call(c, "GET", path, NULL, &image, err);
        }
        if (r >= 0 && !streq(cli_text(image, "state"), "ready"))
                return err_set(err, ERR_UNPROCESSABLE, "%s: %s", cli_text(image, "reference"),
                               cli_text(image, "error"));
        *ret = image;
        return r;
}

/* POST `body` to the company's images (or to `suffix` below them) and follow what it began to its
 * end: a bar for each layer on a terminal, a line for each elsewhere, on standard error. *ret: the
 * image, ready. */
static int image_follow(struct cli *c, const char *suffix, json_t *take_body, json_t **ret,
                        struct err *err)
{
        const char *path;
        json_t *image;
        int r = cli_path(c, cli_printf(c, "/api/companies/{company}/images%s", suffix), NULL, true,
                         &path, err);

        if (r < 0) {
                json_decref(take_body);
                return r;
        }
        r = cli_call(c, "POST", path, take_body, &image, err);
        return r < 0 ? r : follow_image(c, image, ret, err);
}

int image_need(struct cli *c, const char *reference, json_t **ret, struct err *err)
{
        const char *path;
        int r = cli_path(c, "/api/companies/{company}/images/{id}", reference, true, &path, err);

        if (r >= 0)
                r = cli_call(c, "GET", path, NULL, ret, err);
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        out_note("berth: pulling %s", reference);
        return image_follow(c, "", json_pack("{s:s}", "reference", reference), ret, err);
}

/* The commands */

static int answer_got(struct cli *c, json_t *image)
{
        if (c->json)
                out_json(image);
        else
                out_line("%s %s", cli_text(image, "reference"), cli_text(image, "digest"));
        return 0;
}

static void set_owner(const struct args *a, json_t *body)
{
        if (args_flag(a, "instance"))
                json_object_set_new(body, "instance", json_true());
}

static int cmd_image_pull(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_pack("{s:s}", "reference", a->words[0]), *image = NULL;
        const char *secret = args_value(a, "secret"), *id = NULL;
        int r = secret ? cli_find_id(c, &kind_secret, secret, &id, err) : 0;

        if (id)
                json_object_set_new(body, "secretId", json_string(id));
        set_owner(a, body);
        if (r < 0)
                json_decref(body);
        else
                r = image_follow(c, "", body, &image, err);
        return r < 0 ? r : answer_got(c, image);
}

static int import_path(struct cli *c, const struct args *a, json_t *take_body, struct err *err)
{
        const char *path = a->words[0];
        CLEAN(cleanup_free) char *here = *path == '/' ? NULL : getcwd(NULL, 0);
        json_t *image = NULL;

        json_object_set_new(take_body, "path",
                            json_string(here ? cli_printf(c, "%s/%s", here, path) : path));
        json_object_set_new(take_body, "reference", json_string(a->words[1]));
        set_owner(a, take_body);
        int r = image_follow(c, "/import", take_body, &image, err);
        return r < 0 ? r : answer_got(c, image);
}

static int cmd_image_import(struct cli *c, const struct args *a, struct err *err)
{
        return import_path(c, a, json_object(), err);
}

static int cmd_image_from_dir(struct cli *c, const struct args *a, struct err *err)
{
        json_t *config = json_object();
        const char *user = args_value(a, "user"), *dir = args_value(a, "workdir");

        if (user)
                json_object_set_new(config, "user", json_string(user));
        if (dir)
                json_object_set_new(config, "workingDir", json_string(dir));
        return import_path(c, a, json_pack("{s:s, s:o}", "format", "directory", "config", config),
                           err);
}

static void print_pruned(struct cli *c, const json_t *answer)
{
        out_line("removed %lld images, %.1f MiB",
                 (long long)json_integer_value(json_object_get(answer, "images")),
                 mebibytes(answer, "bytes"));
}

#define INSTANCE                                                                                   \
        {                                                                                          \
                "instance", NULL, "of the instance: every company may use it (admins)"             \
        }

const struct cli_command image_commands[] = {
        { "pull", "[OPTION]... IMAGE", "Get an image from its registry",
          "berth image pull debian:12", .words = 1,
          .options = OPTIONS(
                  { "secret", "SECRET", "credentials: a secret with USER:PASSWORD or a token" },
                  INSTANCE),
          .run = cmd_image_pull },
        { "import", "[OPTION]... PATH IMAGE",
          "Take an image from a docker archive, an OCI archive or an OCI layout",
          "berth image import debian.tar debian:12", .words = 2,
          .notes = "PATH is one of the daemon's machine.", .options = OPTIONS(INSTANCE),
          .run = cmd_image_import },
        { "from-dir", "[OPTION]... DIR IMAGE", "Make an image of a directory with a system in it",
          "berth image from-dir ./rootfs mine:1", .words = 2,
          .notes = "DIR is one of the daemon's machine.",
          .options = OPTIONS({ "user", "USER[:GROUP]", "who commands run as (root)" },
                             { "workdir", "DIR", "where commands run" }, INSTANCE),
          .run = cmd_image_from_dir },
        { "list", "", "List images, newest first", "berth image list",
          .act = { NULL, "GET", "/api/companies/{company}/images?limit=500",
                   .columns =
                           FIELDS({ "REFERENCE", "reference" }, { "STATE", "state", COLUMN_STATE },
                                  { "SIZE", .text = size_text }, { "USED", "usedAt", COLUMN_TIME },
                                  { "ID", "id", COLUMN_ID }),
                   .none = "no images" } },
        { "show", "IMAGE|ID", "Show one image", "berth image show debian:12", .words = 1,
          .act = { &kind_image } },
        { "remove", "IMAGE|ID", "Remove an image that nothing stands on",
          "berth image remove debian:12", .words = 1, .act = { &kind_image, "DELETE" } },
        { "prune", "[OPTION]...", "Remove all images that nothing stands on", "berth image prune",
          .options = OPTIONS(INSTANCE),
          .act = { NULL, "POST", "/api/companies/{company}/images/prune",
                   .members = MEMBERS({ "instance", "instance", .type = MEMBER_TRUE }),
                   .print = print_pruned } },
        { 0 },
};
