/* Skills: directories with a SKILL.md, which agents are given (docs/adapters.md). They are the
 * operator's, in `<data>/skills` for all companies and in `<data>/companies/<id>/skills` for one
 * company, whose skill of the same name wins. One comes with the program and is written to
 * `<data>/builtin-skills` when the daemon starts; any other skill of its name replaces it. Skills
 * are files and nothing else: every call reads them as they are now.
 *
 * An entry of those directories may be a link to wherever the operator keeps the skill. The files
 * in it may come from workspaces, so the target of a link inside a skill was not chosen by the
 * operator.
 *
 * Operation threads; everything in the arena. */
#pragma once

#include "codec/json.h"

#define SKILLS_MAX     256
#define SKILL_FILE     "SKILL.md"
#define SKILL_HEAD_MAX 8192 /* bytes in which a description is looked for */

struct skill {
        const char *name;
        const char *dir;         /* absolute */
        const char *description; /* from the head of its SKILL.md; NULL: none */
        bool is_company;         /* of this company only */
        int64_t updated_at;      /* of its SKILL.md; us */
};

struct skill_list {
        struct skill *at; /* by name */
        size_t n;
};

/* A missing directory has no skills; more than SKILLS_MAX is ERR_TOO_LARGE. */
int skill_list(struct arena *arena, const char *data_dir, const char *company_id,
               struct skill_list *ret, struct err *err);
/* Write the skill that comes with the program, unless it is there already. */
int skill_write_builtin(const char *data_dir, struct err *err);
/* NULL: none of that name. Names as `owner/repository/name` mean their last part. */
const struct skill *skill_find(const struct skill_list *list, const char *name);

/* The names that an agent's configuration asks for; NULL: it names none, which means all. */
const json_t *skill_wanted(const json_t *adapter_config);
bool skill_is_wanted(const json_t *adapter_config, const char *name);

/* `description: …` in the block between two lines `---` at the beginning of a text. */
const char *skill_description(struct arena *arena, const char *text, size_t len);
