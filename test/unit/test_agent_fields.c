#include <fcntl.h>

#include "test.h"

#include "base/buf.h"
#include "base/fd.h"
#include "core/access/agent_fields.h"
#include "core/adapters/adapter_descriptor.h"

#define BEGIN "<!-- begin -->\n"
#define END   "<!-- end -->\n"

static void describe_object(struct buf *b, enum field_object of)
{
        for (const struct agent_field *f = agent_fields; f->name; f++) {
                if (f->of != of)
                        continue;
                buf_appendf(b, "| %s | `%s` | %s", field_object_names[of], f->name,
                            field_rule_texts[f->rule]);
                if (f->safe)
                        buf_appendf(b, "; `%s` everybody", f->safe);
                buf_puts(b, " |\n");
        }
        if (of != FIELD_OF_ANY)
                buf_appendf(b, "| %s | anything else | %s |\n", field_object_names[of],
                            field_rule_texts[field_object_rules[of]]);
}

/* docs/agent-keys.md says what the table says. */
static void test_documentation(void **state)
{
        CLEAN(buf_done) struct buf page = BUF_INIT, table = BUF_INIT;
        CLEAN(err_done) struct err err = { 0 };
        char *begin, *end;

        (void)state;
        buf_puts(&table, "| object | field | who sets it with an agent's key |\n|---|---|---|\n");
        for (enum field_object of = 0; of < FIELD_OBJECTS; of++)
                describe_object(&table, of);
        assert_int_equal(file_read_at(AT_FDCWD, DOCUMENTATION, 1 << 20, &page, &err), 0);
        begin = strstr(buf_str(&page), BEGIN);
        end = strstr(buf_str(&page), END);
        assert_non_null(begin);
        assert_non_null(end);
        *end = '\0';
        if (!streq(begin + strlen(BEGIN), buf_str(&table))) {
                (void)fputs(buf_str(&table), stdout);
                fail_msg("docs/agent-keys.md does not say what stands above");
        }
}

static bool is_listed(const char *name, size_t len)
{
        for (const struct agent_field *f = agent_fields; f->name; f++)
                if ((f->of == FIELD_OF_ADAPTER_CONFIG || f->of == FIELD_OF_ANY) &&
                    strlen(f->name) == len && memcmp(f->name, name, len) == 0)
                        return true;
        return false;
}

static void check_text(const char *type, const char *text)
{
        static const char prefix[] = "config.";

        for (const char *at = strstr(text, prefix); at; at = strstr(at + 1, prefix)) {
                const char *name = at + strlen(prefix);
                size_t len = strcspn(name, " .}!|[");

                if (at > text && at[-1] != ' ' && at[-1] != '!' && at[-1] != '{')
                        continue;
                if (len == 4 && (memcmp(name, "json", 4) == 0 || memcmp(name, "toml", 4) == 0))
                        continue; /* names of files */
                if (!is_listed(name, len))
                        fail_msg("%s reads adapterConfig.%.*s, which the table does not name", type,
                                 (int)len, name);
        }
}

static void check_texts(const char *type, const json_t *value)
{
        const char *key;
        json_t *member;
        size_t i;

        if (json_is_string(value))
                check_text(type, json_string_value(value));
        json_object_foreach((json_t *)value, key, member)
        {
                check_texts(type, member);
        }
        json_array_foreach((json_t *)value, i, member)
        {
                check_texts(type, member);
        }
}

/* What a descriptor reads of an agent's configuration has its row. */
static void test_every_member_of_every_adapter(void **state)
{
        size_t n = 0;

        (void)state;
        for (const struct adapter_descriptor *d; (d = adapter_at(n)); n++)
                check_texts(d->type, d->json);
        assert_true(n > 5);
}

/* A row that stands twice, or behind a rule that never asks it, decides nothing. */
static void test_rows(void **state)
{
        (void)state;
        for (const struct agent_field *f = agent_fields; f->name; f++) {
                for (const struct agent_field *g = f + 1; g->name; g++)
                        if (f->of == g->of && streq(f->name, g->name))
                                fail_msg("%s twice", f->name);
                assert_true((f->rule == FIELD_MEMBERS) == (f->members != FIELD_OF_ANY));
        }
        /* Closed where something runs. */
        assert_int_equal(field_object_rules[FIELD_OF_ADAPTER_CONFIG], FIELD_ISOLATED);
        assert_int_equal(field_object_rules[FIELD_OF_AGENT], FIELD_BOARD);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_documentation),
                cmocka_unit_test(test_every_member_of_every_adapter),
                cmocka_unit_test(test_rows),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
