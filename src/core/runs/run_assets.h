/* Assets of a run: files for an agent's program beside the work, such as skills, its configuration,
 * a home (docs/adapters.md). The adapter's descriptor lists them (adapter_run.h).
 *
 *   elsewhere   a tree is put together in <data>/run-assets/<run>, 0700, and brought to
 *               <work>/.paperclip-runtime/<adapter>/<asset>, where staging and bringing home never
 *               look (workspace/scan.h). Then one script copies the parts that belong elsewhere,
 *               and writes files that are made of the agent's secrets: those never lie here.
 *   here        <data>/companies/<id>/<adapter>-prompt-cache/<key>, with links to the skills; or
 *               the directory that a company has for good (codex-home).
 *
 * All of it may be done again: the tree in the place is made right, whatever is there before. The
 * next start removes what a crash leaves in run-assets.
 *
 * Operation threads, but for run_assets_recover(). */
#pragma once

#include "core/assets/asset_tree.h"
#include "core/assets/skill.h"
#include "core/runs/run_internal.h"

/* One asset on its way. */
struct run_asset {
        struct run_task *t;
        const json_t *plan; /* as adapter_assets() has it */
        const char *key;
        const char *dir;  /* where the program finds it */
        const char *tree; /* the same on this machine, while it is brought there */
        const struct skill_list *skills;
        json_t *missing; /* names of wanted skills that do not exist; the arena's */
        char content[ASSET_KEY_LEN + 1];
};

/* At start, before there are runs. */
void run_assets_recover(const struct runtime *rt);

/* -- run_assets_host.c: made of files of this machine -- */

/* Make the tree that is brought elsewhere. *ret_empty: there is nothing to bring. */
int run_asset_gather(struct run_asset *a, bool *ret_empty, struct err *err);
/* Make the asset for a program on this machine; sets a->dir. *ret_empty: nothing. */
int run_asset_provide(struct run_asset *a, bool *ret_empty, struct err *err);

/* A NULL-terminated list of a JSON list of texts, in the arena. */
const char *const *run_asset_names(const struct run_asset *a, const json_t *list);

/* -- run_assets_put.c: bringing it there -- */

int run_asset_put(const struct run_asset *a, struct err *err);
/* Append the commands, for sh, that run in the place once the tree has arrived. */
void run_asset_script(const struct run_asset *a, struct buf *script);
/* The same when there was nothing to bring: the program's home may lie in the work all the same,
 * and files of an earlier run in the home. */
void run_asset_script_empty(const struct run_asset *a, struct buf *script);
