/* src/image from the outside, for tests that are written in Python. One call, whose answer is a
 * line of JSON on standard output:
 *
 *     imagedrive pull REFERENCE DIR [rules=LIST] [user=U password=P] [token=T] [config=FILE]
 *                                   [ca=FILE] [platform=P] [ms=N]
 *     imagedrive import PATH DIR [name=NAME] [platform=P]
 *     imagedrive from-dir SOURCE DIR
 *
 * Layers become DIR/0, DIR/1, ... (what is there is taken for a beginning) and are unpacked in
 * order into DIR/root; with `overlay=1` each into a directory of its own, DIR/root0 and so on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "codec/json.h"
#include "image/archive.h"
#include "image/registry.h"

static int n_args;
static char **args;

static const char *arg(const char *name)
{
        for (int i = 4; i < n_args; i++)
                if (str_starts(args[i], name) && args[i][strlen(name)] == '=')
                        return args[i] + strlen(name) + 1;
        return NULL;
}

static unsigned told, verified;

static void on_progress(void *ctx, size_t layer, uint64_t done, uint64_t total, bool is_verified)
{
        (void)ctx;
        (void)layer;
        told++;
        verified += is_verified && done == total;
}

static int layer_file(int dir, size_t i)
{
        char name[32];

        snprintf(name, sizeof(name), "%zu", i);
        return openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static int pull(struct op *op, int dir, const struct image_platform *platform, struct image *image,
                struct err *err)
{
        struct registry_rules *rules = arena_new(op->arena, struct registry_rules);
        struct registry_progress progress = { .on_progress = on_progress };
        struct registry_blob blobs[IMAGE_MAX_LAYERS];
        struct image_login login = { 0 };
        struct registry *registry;
        struct image_ref ref;
        int r = image_ref_parse(args[2], &ref, err);

        if (r >= 0)
                r = registry_rules_parse(arg("rules"), rules, err);
        if (arg("password"))
                image_login_set(&login, arg("user"), arg("password"));
        if (arg("token"))
                image_login_set(&login, NULL, arg("token"));
        if (r >= 0 && arg("config")) {
                CLEAN(cleanup_fd) int fd = open(arg("config"), O_RDONLY | O_CLOEXEC);

                r = image_login_read(op, fd, &ref, &login, err);
        }
        if (r < 0)
                return r;
        registry = registry_open(rules, &ref, &login, arg("ca"));
        r = registry_image(op, registry, platform, image, err);
        if (r >= 0) {
                size_t n = image->manifest.n_layers;

                for (size_t i = 0; i < n; i++)
                        blobs[i] = (struct registry_blob){ .what = &image->manifest.layers[i],
                                                           .fd = layer_file(dir, i) };
                r = registry_fetch(op, registry, blobs, n, &progress, err);
                for (size_t i = 0; i < n; i++)
                        close(blobs[i].fd);
        }
        registry_close(registry);
        image_login_done(&login);
        return r;
}

static int import(struct op *op, int dir, const struct image_platform *platform,
                  struct image *image, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(args[2], O_RDONLY | O_CLOEXEC);
        struct image_archive *archive = NULL;
        size_t chosen = 0;
        int r = image_archive_open(op, fd, &archive, err);

        for (size_t i = 0; r >= 0 && arg("name") && i < image_archive_count(archive); i++)
                if (streq(image_archive_name(archive, i), arg("name")))
                        chosen = i;
        if (r >= 0)
                r = image_archive_image(op, archive, chosen, platform, image, err);
        for (size_t i = 0; r >= 0 && i < image->manifest.n_layers; i++) {
                CLEAN(cleanup_fd) int to = layer_file(dir, i);

                r = image_archive_copy(op, archive, &image->manifest.layers[i], to, err);
        }
        image_archive_close(archive);
        return r;
}

static int from_dir(struct op *op, int dir, struct image *image, struct err *err)
{
        CLEAN(cleanup_fd) int from = open(args[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CLEAN(cleanup_fd) int to = layer_file(dir, 0);

        return image_from_dir(op, from, NULL, to, image, err);
}

static int unpack(struct op *op, int dir, const struct image *image, struct err *err)
{
        bool overlay = arg("overlay");
        int r = 0;

        for (size_t i = 0; r >= 0 && i < image->manifest.n_layers; i++) {
                char name[32] = "root";
                CLEAN(cleanup_fd) int fd = layer_file(dir, i);
                struct layer_result result;
                struct stat st;

                if (overlay)
                        snprintf(name, sizeof(name), "root%zu", i);
                (void)mkdirat(dir, name, 0755);
                CLEAN(cleanup_fd) int root = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (root < 0 || fd < 0 || fstat(fd, &st) < 0)
                        return err_set(err, ERR_INTERNAL, "no directory for the root");
                struct layer_spec spec = {
                        .from = { .fd = fd, .size = (uint64_t)st.st_size },
                        .media = image->manifest.layers[i].media,
                        .diff_id = image->config.diff_ids[i],
                        .dir_fd = root,
                        .form = overlay ? LAYER_OVERLAY : LAYER_FLAT,
                        .owners = geteuid() ? LAYER_OWNERS_CALLER : LAYER_OWNERS_KEPT,
                        .keep_setid = true,
                };
                r = layer_unpack(op, &spec, &result, err);
        }
        return r;
}

static void put_strings(struct jw *w, const char *key, const char *const *list)
{
        jw_key(w, key);
        jw_array(w);
        for (; *list; list++)
                jw_string(w, *list);
        jw_array_end(w);
}

static void answer(const struct image *image, int r, const struct err *err)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct jw w;

        jw_init(&w, &b);
        jw_object(&w);
        if (r < 0) {
                jw_kstring(&w, "error", err_info(r)->name);
                jw_kstring(&w, "text", err->msg);
        } else {
                jw_kstring(&w, "digest", image->digest);
                jw_kint(&w, "layers", (int64_t)image->manifest.n_layers);
                jw_kstring(&w, "user", image->config.user);
                jw_kstring(&w, "workingDir", image->config.working_dir);
                put_strings(&w, "env", image->config.env);
                put_strings(&w, "entrypoint", image->config.entrypoint);
                put_strings(&w, "cmd", image->config.cmd);
                put_strings(&w, "ports", image->config.ports);
                put_strings(&w, "diffIds", image->config.diff_ids);
                jw_kint(&w, "told", told);
                jw_kint(&w, "verified", verified);
        }
        jw_object_end(&w);
        puts(buf_str(&b));
}

int main(int argc, char **argv)
{
        struct arena arena;
        CLEAN(err_done) struct err err = { 0 };
        struct op op = { .arena = &arena, .deadline_ms = OP_NO_DEADLINE };
        struct image_platform platform;
        struct image image = { 0 };
        int r;

        n_args = argc;
        args = argv;
        if (argc < 4 || sodium_init() < 0)
                return 2;
        arena_init(&arena);
        if (arg("ms"))
                op.deadline_ms = clock_mono_ms() + atoi(arg("ms"));
        image_platform_here(&platform);
        if (arg("platform")) {
                memset(&platform, 0, sizeof(platform));
                (void)sscanf(arg("platform"), "%31[^/]/%31[^/]/%31s", platform.os,
                             platform.architecture, platform.variant);
        }
        CLEAN(cleanup_fd) int dir = open(argv[3], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = streq(argv[1], "pull")     ? pull(&op, dir, &platform, &image, &err)
            : streq(argv[1], "import") ? import(&op, dir, &platform, &image, &err)
                                       : from_dir(&op, dir, &image, &err);
        if (r >= 0)
                r = unpack(&op, dir, &image, &err);
        answer(&image, r, &err);
        arena_done(&arena);
        return 0;
}
