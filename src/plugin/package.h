/* A plugin's package: fetching it, and finding out what it is.
 *
 * package_fetch() runs npm, without a shell and without the package's scripts, in a prefix of its
 * own. package_open() looks into a package wherever it is: it finds the manifest, has it evaluated
 * (manifest_eval.c), checks it, finds the worker and sums up all that would run. Every path that a
 * package names has to be inside it, also through symbolic links.
 *
 * Operation threads; strings in the operation's arena. */
#pragma once

#include "plugin/confine.h"
#include "plugin/manifest.h"
#include "plugin/tree.h"

/* The programs that we need, and where they may work. */
struct plugin_tools {
        const char *node, *npm;        /* paths, or names to be looked up in PATH */
        struct confine_policy *policy; /* NULL: no program is confined */
        const char *scratch_dir;       /* exists, ours */
        int64_t fetch_ms;              /* what npm may take */
        int64_t manifest_ms;           /* what evaluating a manifest may take */
};

typedef void (*plugin_progress_fn)(void *ctx, const char *line);

/* What npm accepts and nothing else: no option, path, URL or alias passes for one. */
bool package_name_is_valid(const char *name);
bool package_version_is_valid(const char *version);

/* npm install name[@version] into the directory `prefix`, which exists and is empty. `version` may
 * be NULL. ERR_INVALID "npm install failed for …". */
int package_fetch(struct op *op, const struct plugin_tools *tools, const char *prefix,
                  const char *name, const char *version, plugin_progress_fn progress, void *ctx,
                  struct err *err);
/* Where package_fetch() puts the package itself. */
const char *package_root(struct arena *arena, const char *prefix, const char *name);

struct package {
        const char *root;               /* real path */
        const char *name, *npm_version; /* of package.json; the version may be NULL */
        const char *entry;              /* real path of the worker */
        const char *const *reads;       /* more that it may have to read; NULL-terminated */
        json_t *manifest;               /* checked; kept by the arena */
        json_t *warnings;               /* texts; kept by the arena */
        char checksum[TREE_CHECKSUM_MAX];
};

/* `base` is the directory that holds everything which belongs to it: the prefix, or the package
 * itself. ERR_INVALID with the texts of Paperclip. */
int package_open(struct op *op, const struct plugin_tools *tools, const char *base,
                 const char *root, struct package *ret, struct err *err);

/* The worker's file: entrypoints.worker beneath the root. `root` is a real path. */
int package_find_entry(struct arena *arena, const char *root, const json_t *manifest,
                       const char **ret, struct err *err);
/* node_modules directories above a local package, where node looks too. NULL-terminated. */
const char *const *package_find_reads(struct arena *arena, const char *base, const char *root);

/* Evaluate the module `file` in a short-lived process that may read `reads`, and parse what it
 * exports. A .json file is only read. *ret is a new reference. The texts of errors do not name the
 * file. */
int manifest_eval(struct op *op, const struct plugin_tools *tools, const char *const *reads,
                  const char *file, json_t **ret, struct err *err);
