/* Decides whether the members of a descriptor have the types that a table gives them. */
#include "core/adapters/adapter_check.h"

#include "core/adapters/adapter_expr.h"

int adapter_check_bad(struct err *err, const char *where, const char *name, const char *fault)
{
        return err_set(err, ERR_INVALID, "%s%s%s %s", where, *where && *name ? "." : "", name,
                       fault);
}

static const char *texts_fault(const json_t *value)
{
        size_t i;
        json_t *one;

        if (json_is_string(value))
                return NULL;
        if (!json_is_array(value))
                return "has to be a text or a list of texts";
        json_array_foreach((json_t *)value, i, one)
        {
                if (!json_is_string(one))
                        return "has to be a list of texts";
        }
        return NULL;
}

static const char *paths_fault(const json_t *value)
{
        const char *fault = texts_fault(value);
        size_t i;
        json_t *one;

        if (!fault && json_is_string(value))
                return adapter_path_fault(json_string_value(value));
        json_array_foreach((json_t *)value, i, one)
        {
                if (!fault)
                        fault = adapter_path_fault(json_string_value(one));
        }
        return fault;
}

static const char *choice_fault(const json_t *value, const char *const *choices)
{
        const char *s = json_string_value(value);

        for (; s && *choices; choices++)
                if (streq(*choices, s))
                        return NULL;
        return "is none of its values";
}

static const char *value_fault(const struct adapter_member *m, const json_t *v)
{
        switch (m->kind) {
        case TEXT:
                return json_is_string(v) ? NULL : "has to be a text";
        case FLAG:
                return json_is_boolean(v) ? NULL : "has to be true or false";
        case NUMBER:
                return json_is_integer(v) && json_integer_value(v) >= 0 ? NULL
                                                                        : "has to be a number";
        case OBJECT:
                return json_is_object(v) ? NULL : "has to be an object";
        case LIST:
                return json_is_array(v) ? NULL : "has to be a list";
        case CONDITION:
                return adapter_condition_fault(v);
        case WORDS:
                return json_is_array(v) ? texts_fault(v) : "has to be a list of texts";
        case PATTERNS:
                return texts_fault(v);
        case PATHS:
                return paths_fault(v);
        case CHOICE:
                return choice_fault(v, m->choices);
        }
        return NULL;
}

static const struct adapter_member *find_member(const struct adapter_member *members,
                                                const char *name)
{
        for (; members->name; members++)
                if (streq(members->name, name))
                        return members;
        return NULL;
}

int adapter_check_members(const json_t *object, const struct adapter_member *members,
                          const char *where, struct err *err)
{
        const char *name;
        json_t *value;

        if (!json_is_object(object))
                return adapter_check_bad(err, where, "", "has to be an object");
        json_object_foreach((json_t *)object, name, value)
        {
                const struct adapter_member *m = find_member(members, name);
                const char *fault = m ? value_fault(m, value) : "is not known";
                CLEAN(cleanup_free) char *inner = NULL;
                int r;

                if (fault)
                        return adapter_check_bad(err, where, name, fault);
                inner = xasprintf("%s%s%s", where, *where ? "." : "", name);
                r = m->check ? m->check(value, inner, err) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

int adapter_check_each(const json_t *list, const struct adapter_member *members, const char *where,
                       struct err *err)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                CLEAN(cleanup_free) char *inner = xasprintf("%s[%zu]", where, i);
                int r = adapter_check_members(one, members, inner, err);

                if (r < 0)
                        return r;
        }
        return 0;
}

bool adapter_check_is_word(const char *s)
{
        return s && *s && strlen(s) <= 64 &&
               s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-")] == '\0';
}
