/* Decides what the members of a body become, by a table. */
#include "codec/body.h"

#include "base/clock.h"

#define MEMBERS_MAX 64

static void body_read_member(struct check *c, const struct body_member *m, bool creating,
                             struct arena *arena, void *into)
{
        unsigned flags = creating ? m->flags : m->flags & ~(unsigned)CHECK_REQUIRED;
        void *at = (char *)into + m->offset;
        const void *found = NULL;
        int64_t number = 0, max = m->max ? m->max : INT64_MAX;
        const char *text;
        bool has = check_has(c, m->name), flag = false;

        switch ((enum body_kind)m->kind) {
        case BODY_IS_TEXT:
        case BODY_IS_TRIMMED:
                text = check_string(c, m->name, flags, (size_t)m->min, (size_t)m->max);
                found = m->kind == BODY_IS_TEXT ? arena_strdup(arena, text)
                                                : arena_strtrim(arena, text);
                break;
        case BODY_IS_UUID:
                found = arena_strdup(arena, check_uuid(c, m->name, flags));
                break;
        case BODY_IS_WORD:
                found = arena_strdup(arena, check_enum(c, m->name, flags, m->words));
                break;
        case BODY_IS_DOCUMENT:
                found = check_record(c, m->name, flags);
                found = found ? json_to_arena(arena, found) : NULL;
                break;
        case BODY_IS_OBJECT:
                found = check_record(c, m->name, flags);
                break;
        case BODY_IS_LIST:
                found = check_array(c, m->name, flags);
                break;
        case BODY_IS_STRINGS:
                found = check_strings(c, m->name, flags, (size_t)m->min);
                break;
        case BODY_IS_NUMBER:
                number = check_int(c, m->name, flags, m->min, max, NULL);
                if (has)
                        *(int64_t *)at = number;
                return;
        case BODY_IS_TIME:
                text = check_string(c, m->name, flags, 0, 0);
                if (text && !clock_parse_iso(text, &number))
                        check_invalid_string(c, m->name, "datetime", "Invalid datetime");
                if (has)
                        *(int64_t *)at = number;
                return;
        case BODY_IS_FLAG:
        case BODY_IS_PRESENT:
                flag = m->kind == BODY_IS_PRESENT || check_bool(c, m->name, flags, false);
                if (has)
                        *(bool *)at = flag;
                return;
        }
        if (has)
                memcpy(at, &found, sizeof(found));
        if (found && m->more)
                m->more(c, m, into, arena);
}

static void body_drop_fault(void *fault)
{
        err_done(fault);
}

struct body body_decode(const struct body_type *type, json_t *json, bool creating,
                        struct arena *arena, void *into)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *known[MEMBERS_MAX + 1] = { NULL };
        struct err *fault = arena_new(arena, struct err);
        struct body body = { 0 };

        check_init(&c, json);
        for (size_t i = 0; i < type->n; i++) {
                const struct body_member *m = &type->members[i];

                known[i] = m->name;
                if (m->when == (creating ? BODY_CHANGING : BODY_CREATING))
                        continue;
                body_read_member(&c, m, creating, arena, into);
                if (check_has(&c, m->name))
                        body.given |= UINT64_C(1) << i;
        }
        if (type->is_strict)
                check_unknown(&c, known);
        arena_defer(arena, body_drop_fault, fault);
        if (check_end(&c, fault) < 0)
                body.fault = fault;
        return body;
}

int body_check(const struct body *body, struct err *err)
{
        const struct err *fault = body->fault;

        if (!fault)
                return 0;
        (void)err_set(err, fault->code, "%s", fault->msg);
        if (err && fault->details)
                err_details(err, xstrdup(fault->details));
        return fault->code;
}

bool body_has(const struct body_type *type, const struct body *body, const char *name)
{
        for (size_t i = 0; i < type->n; i++)
                if (streq(type->members[i].name, name))
                        return body->given >> i & 1;
        return false;
}

static size_t body_size(const struct body_member *m)
{
        switch ((enum body_kind)m->kind) {
        case BODY_IS_NUMBER:
        case BODY_IS_TIME:
                return sizeof(int64_t);
        case BODY_IS_FLAG:
        case BODY_IS_PRESENT:
                return sizeof(bool);
        default:
                return sizeof(void *);
        }
}

void body_apply(const struct body_type *type, const struct body *body, const void *from, void *to,
                size_t to_size)
{
        for (size_t i = 0; i < type->n; i++) {
                const struct body_member *m = &type->members[i];

                if ((body->given >> i & 1) && m->offset + body_size(m) <= to_size)
                        memcpy((char *)to + m->offset, (const char *)from + m->offset,
                               body_size(m));
        }
}

static int body_by_name(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void body_drop_names(void *names)
{
        json_decref(names);
}

json_t *body_names(const struct body_type *type, const struct body *body, struct arena *arena)
{
        const char *names[MEMBERS_MAX];
        json_t *list = json_array();
        size_t n = 0;

        for (size_t i = 0; i < type->n; i++)
                if ((body->given >> i & 1) && !type->members[i].unnamed)
                        names[n++] = type->members[i].name;
        qsort(names, n, sizeof(names[0]), body_by_name);
        for (size_t i = 0; i < n; i++)
                json_array_append_new(list, json_string(names[i]));
        arena_defer(arena, body_drop_names, list);
        return list;
}
